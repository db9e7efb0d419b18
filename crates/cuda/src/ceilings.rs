//! The best a GPU can do, measured on it.

use kinora_graph::{DType, Op, Tensor, TensorType, op::Linear};
use kinora_profile::Ceilings;

use crate::{
    CudaError,
    compiler::CompilerOptions,
    driver::{Device, DeviceBuffer, Event, Stream},
    kernels::{Call, KernelSet, implementations},
    workbench::Workbench,
};

/// How often everything is run; the best time counts, since any disturbance makes a run slower.
const ROUNDS: usize = 5;

/// Rows, columns and depth of the matrix product whose speed is the ceiling for arithmetic: large enough to fill any
/// GPU.
const EXTENT: usize = 8192;

/// Bytes that are copied: several times the largest L2 cache.
const BYTES: usize = 512 << 20;

/// Small launches in a row.
const LAUNCHES: usize = 200;

/// Measures a GPU: the fastest available product of large matrices of an element type, a copy within its memory, and
/// launches with next to nothing to do. Takes about a second, and longer if kernels must be compiled first.
///
/// # Errors
/// If there is not enough memory, or the GPU fails.
pub fn measure(device: &Device, compiler: CompilerOptions, dtype: DType) -> Result<Ceilings, CudaError> {
    let bench = Workbench::new(device, device.info().chip(), compiler)?;
    let product = milliseconds_of_product(&bench, dtype)?;
    let copy = milliseconds_of_copy(device)?;
    let launch = milliseconds_of_launch(&bench)?;
    Ok(Ceilings {
        flops_per_second: of_product(product),
        // A copy reads as much as it writes.
        bytes_per_second: 2.0 * BYTES as f64 / copy * 1e3,
        launch_nanoseconds: launch * 1e6,
    })
}

/// The floating-point operations per second of a large matrix product alone, which also shows how fast the GPU is
/// clocked now.
///
/// # Errors
/// As [`measure`].
pub fn arithmetic(device: &Device, compiler: CompilerOptions, dtype: DType) -> Result<f64, CudaError> {
    let bench = Workbench::new(device, device.info().chip(), compiler)?;
    milliseconds_of_product(&bench, dtype).map(of_product)
}

fn of_product(milliseconds: f64) -> f64 {
    2.0 * (EXTENT as f64).powi(3) / milliseconds * 1e3
}

fn milliseconds_of_product(bench: &Workbench, dtype: DType) -> Result<f64, CudaError> {
    let ty = TensorType::new(dtype, [EXTENT, EXTENT]);
    let op = Op::Linear(Linear::default());
    let call = Call { layer: "product", op: &op, inputs: &[&ty, &ty], outputs: &[&ty] };
    let flush = DeviceBuffer::new(bench.context(), 256)?;
    let mut best = f64::INFINITY;
    for way in implementations(&call, bench.chip(), KernelSet::Fused, bench.libraries())? {
        let timed = || -> Result<f64, CudaError> {
            let prepared = bench.prepare(&call, &*way)?;
            // Zeros draw less power than other numbers, and so run at a higher clock.
            for operand in 0..2 {
                prepared.repeat(operand, &noise(dtype))?;
            }
            let least = |times: Vec<f32>| times.into_iter().map(f64::from).fold(f64::INFINITY, f64::min);
            let first = least(prepared.time(2, &flush)?);
            // Measuring one that is far behind more closely would change nothing.
            if first > 2.0 * best { Ok(first) } else { Ok(least(prepared.time(ROUNDS, &flush)?)) }
        };
        match timed() {
            Ok(milliseconds) => best = best.min(milliseconds),
            Err(error) if error.is_context_lost() => return Err(error),
            // There is another way.
            Err(_) => {}
        }
    }
    Ok(best)
}

/// A few thousand numbers between −1 and 1.
fn noise(dtype: DType) -> Vec<u8> {
    const COUNT: usize = 4099;
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let numbers: Vec<f32> = (0..COUNT).map(next).collect();
    Tensor::from_f32(dtype, [COUNT], &numbers).map(|tensor| tensor.bytes().to_vec()).unwrap_or_default()
}

fn milliseconds_of_copy(device: &Device) -> Result<f64, CudaError> {
    let context = device.context();
    let stream = Stream::new(context)?;
    let (from, to) = (DeviceBuffer::new(context, BYTES)?, DeviceBuffer::new(context, BYTES)?);
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (start, end) = (Event::new(context)?, Event::new(context)?);
        stream.record(&start)?;
        // SAFETY: both buffers have this size, and live until the stream has been waited for.
        unsafe { stream.copy(to.address(), from.address(), BYTES)? };
        stream.record(&end)?;
        stream.synchronise()?;
        best = best.min(f64::from(end.milliseconds_since(&start)?));
    }
    Ok(best)
}

fn milliseconds_of_launch(bench: &Workbench) -> Result<f64, CudaError> {
    let ty = TensorType::new(DType::F32, [1]);
    let call = Call { layer: "launch", op: &Op::Add, inputs: &[&ty, &ty], outputs: &[&ty] };
    let ways = implementations(&call, bench.chip(), KernelSet::Fused, bench.libraries())?;
    let way = ways.first().ok_or_else(|| CudaError::Internal("nothing adds two numbers".into()))?;
    let prepared = bench.prepare(&call, &**way)?;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        best = best.min(f64::from(prepared.time_together(LAUNCHES)?) / LAUNCHES as f64);
    }
    Ok(best)
}
