//! Single calls for a profiler: small enough to simulate in seconds, large enough that edges do not matter.

use kinora_cuda::{
    Chip,
    compiler::CompilerOptions,
    driver::Device,
    kernels::{Call, Implementation, KernelSet, implementations},
    simulation::SimulatedBench,
    vendor::Libraries,
};
use kinora_graph::{
    DType, Op, Tensor, TensorType,
    op::{
        Activation, Affine, Attention, Concat, Conv, Interpolation, Linear, Mean, Norm, NormKind, Upsample,
    },
};
use serde_json::json;

use crate::{
    Failure,
    agreement::Side,
    gpu::OnGpu,
    probes::{self, Probes},
};

/// The call that runs all probes.
const PROBES: &str = "probes";

/// A call with one of its kernels.
struct Chosen {
    name: &'static str,
    op: Op,
    dtype: DType,
    shapes: Vec<Vec<usize>>,
    /// The prefix of the kernel's name.
    way: &'static str,
}

fn chosen() -> Vec<Chosen> {
    let linear = || Op::Linear(Linear { bias: true, ..Linear::default() });
    let conv = || Op::Conv(Conv { bias: true, ..Conv::spatial([3, 3], 1, 1) });
    let norm = |kind, activation| {
        Op::Norm(Norm {
            kind,
            epsilon: 1e-5,
            affine: Affine::ScaleShift,
            activation,
            quantise: None,
            measured: false,
        })
    };
    let half = |name, op, shapes: &[&[usize]], way| {
        let shapes = shapes.iter().map(|shape| shape.to_vec()).collect();
        Chosen { name, op, dtype: DType::F16, shapes, way }
    };
    let image: &[usize] = &[2, 32, 32, 320];
    let linear_shapes: &[&[usize]] = &[&[1, 32, 32, 320], &[640, 320], &[640]];
    let conv_shapes: &[&[usize]] = &[&[2, 32, 32, 128], &[128, 1, 3, 3, 128], &[128]];
    let sequence: &[usize] = &[1, 512, 256];
    let frames: &[usize] = &[14, 64, 256];
    let positions = || Op::Attention(Attention::over_positions(4, 64));
    let upsample = Upsample { interpolation: Interpolation::Nearest, size: [64, 64] };
    let group = NormKind::Group { groups: 32, frames: 1 };
    let single_shapes: &[&[usize]] = &[&[256, 128], &[128, 128], &[128]];
    vec![
        half("linear-wgmma", linear(), linear_shapes, "wgmma"),
        half("linear-mma", linear(), linear_shapes, "mma"),
        Chosen { dtype: DType::F32, ..half("linear-simt", linear(), single_shapes, "simt") },
        // Smaller convolutions have no wgmma kernel.
        half("conv-wgmma", conv(), &[&[4, 64, 64, 128], &[256, 1, 3, 3, 128], &[256]], "wgmma"),
        half("conv-mma", conv(), conv_shapes, "mma"),
        half("attention-hopper", positions(), &[sequence; 3], "hopper"),
        half("attention-flash", positions(), &[sequence; 3], "flash"),
        half(
            "attention-temporal",
            Op::Attention(Attention::over_frames(4, 64, 14)),
            &[frames; 3],
            "temporal",
        ),
        half("group-norm", norm(group, Some(Activation::Silu)), &[image, &[320], &[320]], ""),
        half("layer-norm", norm(NormKind::Layer, None), &[image, &[320], &[320]], ""),
        half("softmax", Op::Softmax, &[&[4, 512, 512]], ""),
        half("silu", Op::Activate(Activation::Silu), &[image], ""),
        half("add", Op::Add, &[image, image], ""),
        half("concat", Op::Concat(Concat { axis: 3 }), &[image, &[2, 32, 32, 200]], ""),
        half("upsample", Op::Upsample(upsample), &[image], ""),
        half("mean", Op::Mean(Mean { axes: vec![1, 2] }), &[image], ""),
    ]
}

/// Numbers between -1 and 1, the same in every run.
fn operand(dtype: DType, shape: &[usize], seed: u64) -> Result<Tensor, Failure> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    Ok(Tensor::from_f32(dtype, shape, &values)?)
}

/// Calls `each` with a call, its kernel and its operands.
fn with_call(
    name: &str,
    chip: &Chip,
    each: impl FnOnce(&Call<'_>, &dyn Implementation, &[&[u8]]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if name == PROBES {
        let x = operand(DType::F32, &[probes::WORDS], 1)?;
        let op = Op::Scale(kinora_graph::op::Scale { factor: 1.0, offset: 0.0 });
        let call = Call { layer: PROBES, op: &op, inputs: &[x.ty()], outputs: &[x.ty()] };
        return each(&call, &Probes, &[x.bytes()]);
    }
    let mut all = chosen();
    let Some(place) = all.iter().position(|chosen| chosen.name == name) else {
        return Err(format!("unknown call {name}; --counters list prints the names").into());
    };
    let Chosen { op, dtype, shapes, way, .. } = all.swap_remove(place);
    let operands = shapes.iter().zip(1..).map(|(shape, seed)| operand(dtype, shape, seed));
    let operands = operands.collect::<Result<Vec<Tensor>, Failure>>()?;
    let inputs: Vec<&TensorType> = operands.iter().map(Tensor::ty).collect();
    let types = op.infer(&inputs).map_err(|error| error.to_string())?;
    let outputs: Vec<&TensorType> = types.iter().collect();
    let call = Call { layer: name, op: &op, inputs: &inputs, outputs: &outputs };
    let offered = implementations(&call, chip, KernelSet::Fused, &Libraries::default())?;
    let Some(way) = offered.iter().find(|offered| offered.name().starts_with(way)) else {
        return Err(format!("{name}: no kernel {way} is offered on {}", chip.architecture).into());
    };
    each(&call, &**way, &operands.iter().map(Tensor::bytes).collect::<Vec<_>>())
}

/// Runs a call once on a GPU.
pub fn launch(name: &str, device: &Device) -> Result<(), Failure> {
    let chip = device.info().chip();
    let gpu = OnGpu::new(device, chip.clone(), CompilerOptions::from_environment())?;
    with_call(name, &chip, |call, way, operands| Ok(gpu.run(call, way, operands).map(drop)?))
}

/// Prints the simulator's counters of a call's launches, or the names of all calls.
pub fn count(name: &str, chip: Chip) -> Result<(), Failure> {
    if name == "list" {
        let names: Vec<&str> = chosen().iter().map(|chosen| chosen.name).chain([PROBES]).collect();
        println!("{}", json!(names));
        return Ok(());
    }
    let bench = SimulatedBench::new(chip.clone(), CompilerOptions::from_environment())?;
    with_call(name, &chip, |call, way, operands| {
        let run = bench.run(call, way, operands)?;
        if let Some(finding) = run.reports.iter().flat_map(|(_, report)| &report.findings).next() {
            return Err(finding.to_string().into());
        }
        let launches: Vec<_> = run
            .reports
            .iter()
            .enumerate()
            .map(|(number, (kernel, report))| {
                let entry = kernel.rsplit(':').next();
                let kernel = if name == PROBES { probes::name(number) } else { kernel.clone() };
                json!({"kernel": kernel, "entry": entry, "counters": report.counters})
            })
            .collect();
        let chip = chip.architecture.to_string();
        println!("{}", json!({"call": name, "way": way.name(), "chip": chip, "launches": launches}));
        Ok(())
    })
}
