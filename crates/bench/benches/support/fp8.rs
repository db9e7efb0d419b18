//! Products in 8 bits beside those in f16, on a GPU, with random weights.

use std::sync::Arc;

use kinora_bench::{Distance, cases::inputs_by_name};
use kinora_cuda::{Architecture, CudaOptions, LoadOptions, Planned, Program, driver::Device};
use kinora_graph::{
    DType, Graph, Phase,
    calibration::{Largest, measured, record},
};
use kinora_models::synthetic::Synthetic;
use kinora_runtime::Tensors;
use serde_json::{Map, Value, json};

type Failure = Box<dyn std::error::Error>;

/// A network that has run once, and its results.
pub fn run_once(device: &Device, planned: Planned) -> Result<(Program, Tensors), Failure> {
    let mut program = planned.load_with(device, &Synthetic, &LoadOptions::default())?;
    program.run_clip(&inputs_by_name(program.graph(), Phase::Clip)?)?;
    let results = program.run_step(&inputs_by_name(program.graph(), Phase::Step)?)?;
    Ok((program, results))
}

/// How large the activations of the chosen products are in a step in f16.
pub fn measured_activations(
    device: &Device,
    graph: &Graph,
    options: &CudaOptions,
    chosen: impl Fn(&str) -> bool,
) -> Result<Arc<Largest>, Failure> {
    if device.info().architecture() < Architecture::ADA {
        return Err("fp8 takes a GPU of the Ada generation or later".into());
    }
    let (graph, measurements) = measured(graph, chosen)?;
    let (_, results) = run_once(device, Planned::new(&graph, options)?)?;
    let mut largest = Largest::new();
    record(&mut largest, &measurements, |name| results.get(name).cloned());
    Ok(Arc::new(largest))
}

/// Prints how far results in fp8 are from those in f16: the PSNR of bytes, and the relative RMS of numbers.
pub fn compared(results: &Tensors, f16: &Tensors) -> Value {
    let mut comparison = Map::new();
    for (name, result) in results {
        let Some(expected) = f16.get(name) else { continue };
        let Distance { relative_rms, .. } = Distance::between(&result.to_f32(), &expected.to_f32());
        let of_bytes = expected.dtype() == DType::U8;
        let (value, shown) = if of_bytes {
            let psnr = psnr(result.bytes(), expected.bytes());
            (json!({"psnr_db": psnr}), format!("{psnr:.1} dB"))
        } else {
            (json!({"relative_rms": relative_rms}), format!("{relative_rms:.2e} relative RMS"))
        };
        println!("    {name}: {shown} from f16");
        comparison.insert(name.clone(), value);
    }
    Value::Object(comparison)
}

fn psnr(result: &[u8], expected: &[u8]) -> f64 {
    let squares = result.iter().zip(expected).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum::<f64>();
    -10.0 * (squares / result.len() as f64 / 255.0_f64.powi(2)).log10()
}
