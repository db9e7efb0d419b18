//! A small network of Stable Video Diffusion's shape: builds its graph, optimises and plans it, then denoises a clip of
//! random latents with random weights and shows where time and memory went.
//!
//! `cargo run --release --example small_unet -- [--f16] [--steps N] [--frames N] [--size N] [--budget MiB] [--svg FILE]
//! [--dot FILE] [--text]`

mod network;
mod weights;

use std::{error::Error, path::PathBuf, process::ExitCode, time::Instant};

use kinora_cpu::{CpuTarget, Options, Program, reference::ReferenceEvaluator};
use kinora_graph::{
    DType, Graph, Tensor,
    op::{Prediction, StepCoefficients},
    passes,
    plan::format_bytes,
};
use kinora_runtime::Tensors;

use network::{Config, LATENT};

struct Arguments {
    config: Config,
    budget: Option<usize>,
    svg: Option<PathBuf>,
    dot: Option<PathBuf>,
    text: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("small_unet: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let config = &arguments.config;

    let start = Instant::now();
    let graph = network::build(config)?;
    let built = start.elapsed();
    let (optimised, effects) =
        passes::optimise_traced(&graph, &CpuTarget::default(), Some(&ReferenceEvaluator))?;
    let passed = start.elapsed() - built;
    println!(
        "{} parameters, {:.1} GFLOP a step; {} nodes built in {:.1} ms, optimised in {:.1} ms",
        graph.parameter_count(),
        optimised.step_flops() as f64 / 1e9,
        graph.nodes().len(),
        built.as_secs_f64() * 1e3,
        passed.as_secs_f64() * 1e3,
    );
    for effect in effects.iter().filter(|e| e.nodes_before != e.nodes_after) {
        println!("  {:<24} {:>4} → {:>4} nodes", effect.pass, effect.nodes_before, effect.nodes_after);
    }

    let parameters = weights::random(&graph);
    let options = Options { budget: arguments.budget, ..Options::default() };
    let mut program = Program::new(&graph, &parameters, options)?;
    println!(
        "weights {}, activations {} in one arena (no order of these nodes needs less than {})",
        format_bytes(program.plan().weight_bytes()),
        format_bytes(program.plan().arena_bytes()),
        format_bytes(program.plan().lower_bound()),
    );
    write(&arguments, program.graph(), &program)?;

    denoise(&mut program, config)?;
    Ok(())
}

/// Runs the clip phase once and then every step, each on the result of the one before.
fn denoise(program: &mut Program, config: &Config) -> Result<(), Box<dyn Error>> {
    let sigmas: Vec<f64> =
        (0..=config.steps).map(|i| 80.0 * (1.0 - i as f64 / config.steps as f64)).collect();
    let rows: Vec<f32> = sigmas
        .windows(2)
        .flat_map(|s| StepCoefficients::euler(Prediction::Velocity, s[0], s[1]).row())
        .collect();
    let timesteps: Vec<f32> = sigmas[..config.steps].iter().map(|s| (0.25 * s.ln()) as f32).collect();
    let guidance: Vec<f32> = (0..config.frames).map(|f| 1.0 + f as f32 / config.frames as f32).collect();
    let (frames, size, dtype) = (config.frames, config.size, config.dtype);
    let noise = |shape: &[usize], seed| weights::normal(dtype, shape, 1.0, seed);
    let clip = Tensors::from([
        ("image_latents".to_owned(), noise(&[2 * frames, size, size, LATENT], 1)),
        ("context".to_owned(), noise(&[2, 1, config.context], 2)),
        ("timesteps".to_owned(), Tensor::from_slice([config.steps, 1], &timesteps)?),
        ("table".to_owned(), Tensor::from_slice([config.steps, rows.len() / config.steps], &rows)?),
        ("guidance".to_owned(), Tensor::from_slice([frames], &guidance)?),
    ]);
    let start = Instant::now();
    program.run_clip(&clip)?;
    println!("clip phase {:.2} ms", start.elapsed().as_secs_f64() * 1e3);

    let mut latents = weights::normal(dtype, &[frames, size, size, LATENT], sigmas[0] as f32, 3);
    for step in 0..config.steps {
        let start = Instant::now();
        let inputs = Tensors::from([
            ("latents".to_owned(), latents),
            ("step".to_owned(), Tensor::from_slice([1], &[step as i32])?),
        ]);
        let mut results = program.run_step(&inputs)?;
        let seconds = start.elapsed().as_secs_f64();
        latents = results.remove("next").ok_or("the graph has no result `next`")?;
        let rate = program.graph().step_flops() as f64 / seconds / 1e9;
        println!("step {:>2} of {}: {:.1} ms, {rate:.0} GFLOP/s", step + 1, config.steps, seconds * 1e3);
    }
    let values = latents.to_f32();
    let rms = (values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32).sqrt();
    println!("latents {} with a root mean square of {rms:.4}", latents.ty());
    Ok(())
}

fn write(arguments: &Arguments, graph: &Graph, program: &Program) -> Result<(), Box<dyn Error>> {
    if arguments.text {
        print!("{graph}\n{}", program.plan().display(graph));
    }
    if let Some(path) = &arguments.svg {
        std::fs::write(path, program.plan().to_svg(graph))?;
        println!("the plan's picture is in {}", path.display());
    }
    if let Some(path) = &arguments.dot {
        std::fs::write(path, graph.to_graphviz())?;
        println!("the graph's picture is in {}", path.display());
    }
    Ok(())
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let config = Config {
        widths: vec![64, 128, 256],
        head_dim: 32,
        groups: 32,
        context: 256,
        frames: 8,
        size: 32,
        steps: 4,
        dtype: DType::F32,
    };
    let mut parsed = Arguments { config, budget: None, svg: None, dot: None, text: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--f16" => parsed.config.dtype = DType::F16,
            "--steps" => parsed.config.steps = value()?.parse::<usize>()?.clamp(1, 100),
            "--frames" => parsed.config.frames = value()?.parse::<usize>()?.clamp(1, 100),
            // Two halvings must leave whole pixels.
            "--size" => parsed.config.size = value()?.parse::<usize>()?.clamp(4, 256).next_multiple_of(4),
            "--budget" => parsed.budget = Some(value()?.parse::<usize>()?.saturating_mul(1 << 20)),
            "--svg" => parsed.svg = Some(value()?.into()),
            "--dot" => parsed.dot = Some(value()?.into()),
            "--text" => parsed.text = true,
            other => return Err(format!("{other} is not an option; see the top of this example").into()),
        }
    }
    Ok(parsed)
}
