//! Everything about one matrix: what it is like, whether the kernels are right, how long they take, and which to use.

use std::time::{Duration, Instant};

use kinora_ptx::{Calibration, Checks, ChipSpec};
use serde::Serialize;

use super::{
    choose::{Choice, candidates, choose},
    cpu::{self, Difference, Reference, Scalars, Split},
    csr::{Csr, Index, Value},
    generate::vector,
    job::{Job, Placed},
    kernel::Variant,
    predict::{PredictedProduct, predict},
    statistics::Statistics,
};
use crate::{
    compile::{CompileError, Form},
    execute::{Device, ExecuteError, SimulatedDevice},
};

/// How a matrix is examined.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The chip that is simulated.
    pub chip: ChipSpec,
    /// What is known of it by measurement.
    pub calibration: Calibration,
    /// The factors of the product.
    pub scalars: Scalars,
    /// The GPU to measure on, if there is one.
    pub gpu: Option<usize>,
    /// Non-zeros that are simulated with all checks; of a larger matrix the first rows are.
    pub checked_nonzeros: usize,
    /// Times that each product is timed on a GPU; slow ones are timed less often.
    pub repeats: usize,
    /// How long kernels are tried on a matrix; those that have not begun by then are left out.
    pub limit: Option<Duration>,
    /// Products that the matrix is wanted for, which decides whether tables pay.
    pub products: usize,
}

impl Settings {
    /// Without a GPU, for a chip.
    pub fn simulated(chip: ChipSpec) -> Settings {
        Settings {
            calibration: Calibration::of(&chip),
            chip,
            scalars: Scalars::default(),
            gpu: None,
            checked_nonzeros: 200_000,
            repeats: 50,
            limit: None,
            products: 1000,
        }
    }
}

/// Why a matrix could not be examined at all.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    /// A kernel does not compile, or there is no compiler.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The device refused.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
}

/// What was found out about a matrix.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// What the matrix is called.
    pub name: String,
    /// The type of its values.
    pub values: &'static str,
    /// The type of its offsets and columns.
    pub indices: &'static str,
    /// What it is like.
    pub statistics: Statistics,
    /// Whether its rows differ much in length.
    pub irregular: bool,
    /// Bytes of its arrays.
    pub matrix_bytes: u64,
    /// Bytes that a product has to move at least.
    pub floor_bytes: u64,
    /// The device that times are of.
    pub device: String,
    /// Whether times were measured on it, or predicted.
    pub measured: bool,
    /// Bytes a second of the device's memory, as published; `None` if it is not known.
    pub memory_rate: Option<f64>,
    /// The CPU's product.
    pub cpu: CpuResult,
    /// The kernels, the fastest that is right first.
    pub kernels: Vec<KernelResult>,
    /// Kernels that were left out, because the time for this matrix was over.
    pub left_out: Vec<String>,
    /// How many products it takes until the fastest kernel, its preparation included, is ahead of all other kernels and of the peers;
    /// `None` if it never is.
    pub pays_after: Option<u64>,
    /// The vendor's library, as far as it is there.
    pub peers: Vec<PeerResult>,
    /// Why there are no peers, if there are none.
    pub no_peers: Option<String>,
    /// What the matrix's statistics alone would have chosen.
    pub choice: Choice,
}

/// The product on the CPU.
#[derive(Clone, Debug, Serialize)]
pub struct CpuResult {
    /// Threads.
    pub threads: usize,
    /// Seconds of the fast product: the least of a few.
    pub seconds: f64,
    /// Seconds to split the rows into tasks.
    pub split_seconds: f64,
    /// Seconds of the reference, plain loops in f64 on one thread.
    pub reference_seconds: f64,
    /// How far it is from the reference.
    pub difference: Difference,
}

/// A kernel on a matrix.
#[derive(Clone, Debug, Serialize)]
pub struct KernelResult {
    /// What it is called.
    pub kernel: String,
    /// The kernel with its constants.
    pub variant: Variant,
    /// Rows whose results were compared, from the first on.
    pub checked_rows: usize,
    /// How far it is from the reference.
    pub difference: Option<Difference>,
    /// What the simulator found.
    pub findings: Vec<String>,
    /// Seconds of a product.
    pub seconds: Option<f64>,
    /// Seconds of what the device prepares once for a matrix.
    pub device_preparation_seconds: f64,
    /// Seconds that the host takes to make tables and to copy them.
    pub host_preparation_seconds: f64,
    /// Bytes of tables beside the matrix.
    pub extra_bytes: usize,
    /// The floor's bytes a second, in 10⁹.
    pub gigabytes_per_second: Option<f64>,
    /// The share of the memory's rate that these are.
    pub share: Option<f64>,
    /// The prediction, if times are predicted.
    pub prediction: Option<PredictedProduct>,
    /// Why it did not run, if it did not.
    pub problem: Option<String>,
}

impl KernelResult {
    fn new(variant: Variant) -> KernelResult {
        KernelResult {
            kernel: variant.to_string(),
            variant,
            checked_rows: 0,
            difference: None,
            findings: Vec::new(),
            seconds: None,
            device_preparation_seconds: 0.0,
            host_preparation_seconds: 0.0,
            extra_bytes: 0,
            gigabytes_per_second: None,
            share: None,
            prediction: None,
            problem: None,
        }
    }

    /// Whether it ran without a finding and gave the right numbers.
    pub fn is_right(&self) -> bool {
        let right = self.difference.is_some_and(|difference| difference.wrong_rows == 0);
        right && self.findings.is_empty() && self.problem.is_none()
    }

    /// Seconds of all preparation.
    pub fn preparation_seconds(&self) -> f64 {
        self.device_preparation_seconds + self.host_preparation_seconds
    }

    /// Seconds of the first product: it has to wait for all preparation.
    pub fn first_seconds(&self) -> Option<f64> {
        Some(self.seconds? + self.preparation_seconds())
    }
}

/// The vendor's library on a matrix.
#[derive(Clone, Debug, Serialize)]
pub struct PeerResult {
    /// The library and its algorithm.
    pub name: String,
    /// How far it is from the reference.
    pub difference: Option<Difference>,
    /// Seconds of a product without analysis of the matrix.
    pub seconds: Option<f64>,
    /// Seconds of a product after the analysis.
    pub preprocessed_seconds: Option<f64>,
    /// Seconds of the analysis.
    pub preprocessing_seconds: Option<f64>,
    /// Bytes of its scratch memory.
    pub extra_bytes: usize,
    /// Why it did not run, if it did not.
    pub problem: Option<String>,
}

impl PeerResult {
    /// The faster of its two ways.
    pub fn best_seconds(&self) -> Option<f64> {
        [self.seconds, self.preprocessed_seconds].into_iter().flatten().min_by(f64::total_cmp)
    }
}

impl Examination {
    /// The fastest kernel that is right.
    pub fn best(&self) -> Option<&KernelResult> {
        self.kernels.first().filter(|kernel| kernel.is_right() && kernel.seconds.is_some())
    }

    /// The fastest of the peers.
    pub fn best_peer(&self) -> Option<f64> {
        self.peers.iter().filter_map(PeerResult::best_seconds).min_by(f64::total_cmp)
    }

    /// See [`Examination::pays_after`].
    fn paying_products(&self) -> Option<u64> {
        let best = self.best()?;
        let seconds = best.seconds?;
        let right = self.kernels.iter().filter(|kernel| kernel.is_right());
        let kernels = right.filter_map(|kernel| Some((kernel.preparation_seconds(), kernel.seconds?)));
        let peers = self.peers.iter().flat_map(|peer| {
            let analysed = peer.preprocessing_seconds.zip(peer.preprocessed_seconds);
            [peer.seconds.map(|seconds| (0.0, seconds)), analysed].into_iter().flatten()
        });
        let mut most = 0.0f64;
        for (preparation, other) in kernels.chain(peers) {
            let ahead = best.preparation_seconds() - preparation;
            match other - seconds {
                _ if ahead <= 0.0 => {}
                gain if gain > 0.0 => most = most.max(ahead / gain),
                // As fast or faster, with less preparation.
                _ => return None,
            }
        }
        Some(most.ceil() as u64)
    }

    /// Whether any kernel is wrong.
    pub fn has_errors(&self) -> bool {
        self.kernels.iter().any(|kernel| !kernel.is_right())
    }
}

/// The numbers that a matrix is multiplied with, and what comes out.
pub(super) struct Numbers<V> {
    pub x: Vec<V>,
    pub y: Vec<V>,
    pub reference: Reference,
}

/// Seeds of the vectors.
const SEEDS: [u64; 2] = [101, 102];

/// How often the CPU is timed; the shortest time counts.
const CPU_REPEATS: usize = 5;

/// Examines a matrix.
///
/// # Errors
/// If no kernel can be compiled, or the device has no memory for the matrix. What is wrong with a single kernel is in its result.
pub fn examine<V: Value, I: Index>(
    name: &str,
    matrix: &Csr<V, I>,
    settings: &Settings,
) -> Result<Examination, ExamineError> {
    let statistics = Statistics::new(matrix);
    let floor_bytes = matrix.floor_bytes(statistics.columns_used, settings.scalars.beta != 0.0);
    let (numbers, cpu) = on_cpu(matrix, settings.scalars);
    let shared_bytes = shared_bytes(settings)?;
    let mut examination = Examination {
        name: name.to_owned(),
        values: V::NAME,
        indices: I::NAME,
        irregular: statistics.is_irregular(),
        matrix_bytes: matrix.bytes(),
        floor_bytes,
        device: format!("a simulated {}", settings.chip.name),
        measured: false,
        memory_rate: Some(settings.chip.memory.dram_bytes),
        cpu,
        kernels: Vec::new(),
        left_out: Vec::new(),
        pays_after: None,
        peers: Vec::new(),
        no_peers: None,
        choice: choose::<V>(&statistics, settings.products, shared_bytes),
        statistics,
    };
    let mut variants = candidates::<V>(&examination.statistics, shared_bytes);
    // If there is a limit, those that no long row holds up come first.
    variants.sort_by_key(|variant| variant.has_straggler());
    match settings.gpu {
        Some(ordinal) => measured(&mut examination, matrix, &numbers, &variants, settings, ordinal)?,
        None => {
            examination.no_peers = Some("there is no GPU to measure cuSPARSE on".to_owned());
            predicted(&mut examination, matrix, &numbers, &variants, settings)?;
        }
    }
    let (floor, rate) = (examination.floor_bytes as f64, examination.memory_rate);
    for kernel in &mut examination.kernels {
        kernel.gigabytes_per_second = kernel.seconds.map(|seconds| floor / seconds / 1e9);
        kernel.share = kernel.seconds.zip(rate).map(|(seconds, rate)| floor / seconds / rate);
    }
    let order = |kernel: &KernelResult| match kernel.is_right() {
        true => kernel.seconds.unwrap_or(f64::INFINITY),
        false => f64::INFINITY,
    };
    examination.kernels.sort_by(|a, b| order(a).total_cmp(&order(b)));
    examination.pays_after = examination.paying_products();
    Ok(examination)
}

/// Takes the variants for which there is time, one after the other.
fn in_time(
    variants: &[Variant],
    limit: Option<Duration>,
    left_out: &mut Vec<String>,
    mut work: impl FnMut(Variant) -> Result<KernelResult, ExamineError>,
) -> Result<Vec<KernelResult>, ExamineError> {
    let start = Instant::now();
    let mut results = Vec::new();
    for &variant in variants {
        match limit {
            // One of them is always tried.
            Some(limit) if start.elapsed() >= limit && !results.is_empty() => {
                left_out.push(variant.to_string());
            }
            _ => results.push(work(variant)?),
        }
    }
    Ok(results)
}

/// The reference, and the fast product beside it.
fn on_cpu<V: Value, I: Index>(matrix: &Csr<V, I>, scalars: Scalars) -> (Numbers<V>, CpuResult) {
    let x: Vec<V> = vector(matrix.columns(), SEEDS[0]);
    let y: Vec<V> = vector(matrix.rows(), SEEDS[1]);
    let start = Instant::now();
    let reference = cpu::reference(matrix, &x, &y, scalars);
    let reference_seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let split = Split::new(matrix);
    let split_seconds = start.elapsed().as_secs_f64();
    let (mut seconds, mut result) = (f64::INFINITY, y.clone());
    for _ in 0..CPU_REPEATS {
        result.copy_from_slice(&y);
        let start = Instant::now();
        cpu::multiply(matrix, &split, &x, &mut result, scalars);
        seconds = seconds.min(start.elapsed().as_secs_f64());
    }
    let difference = reference.compare(&result);
    let threads = rayon::current_num_threads();
    let cpu = CpuResult { threads, seconds, split_seconds, reference_seconds, difference };
    (Numbers { x, y, reference }, cpu)
}

/// The first rows of a matrix that have no more rows and non-zeros together than allowed, as a matrix of its own.
fn first_rows<V: Value, I: Index>(matrix: &Csr<V, I>, most: usize) -> Csr<V, I> {
    let ends = &matrix.offsets()[1..];
    let mut rows = 0;
    while rows < ends.len() && rows + 1 + ends[rows].at() <= most {
        rows += 1;
    }
    // A first row that is longer than allowed is checked alone.
    let rows = if ends.is_empty() { 0 } else { rows.max(1) };
    let nonzeros = matrix.offsets()[rows].at();
    let part = Csr::new(
        rows,
        matrix.columns(),
        matrix.offsets()[..=rows].to_vec(),
        matrix.indices()[..nonzeros].to_vec(),
        matrix.values()[..nonzeros].to_vec(),
    );
    // The beginning of a valid matrix is one.
    part.unwrap_or_else(|_| matrix.clone())
}

/// Checks every kernel in the simulator, and predicts its time.
fn predicted<V: Value, I: Index>(
    examination: &mut Examination,
    matrix: &Csr<V, I>,
    numbers: &Numbers<V>,
    variants: &[Variant],
    settings: &Settings,
) -> Result<(), ExamineError> {
    let part = first_rows(matrix, settings.checked_nonzeros);
    let kernels = in_time(variants, settings.limit, &mut examination.left_out, |variant| {
        let mut result = KernelResult::new(variant);
        // Without a compiler none of them runs.
        let code = variant.compile::<V, I>(settings.chip.capability, Form::Ptx)?;
        let registers = variant.compile::<V, I>(settings.chip.capability, Form::Cubin)?;
        let registers = registers.resources.map(|resources| resources.registers);
        let mut work = || -> Result<(), ExecuteError> {
            let mut device = SimulatedDevice::new(settings.chip.clone(), Checks::default());
            let placed = Placed::new(&mut device, &part, &numbers.x)?;
            let job = Job::new(&mut device, (variant, &code), &part, &placed, settings.scalars)?;
            check::<V>(&mut device, &job, &placed, numbers, (part.rows(), settings.scalars), &mut result)?;
            let device = SimulatedDevice::new(settings.chip.clone(), Checks::default());
            let mut device = device.calibrated(settings.calibration.clone());
            let placed = Placed::new(&mut device, matrix, &numbers.x)?;
            let job = Job::new(&mut device, (variant, &code), matrix, &placed, settings.scalars)?;
            let found = predict(&device, &settings.calibration, &job, registers)?;
            result.seconds = Some(found.seconds);
            result.device_preparation_seconds = found.preparation_seconds;
            result.host_preparation_seconds = job.host_seconds;
            result.extra_bytes = job.extra_bytes;
            result.prediction = Some(found);
            Ok(())
        };
        if let Err(error) = work() {
            result.problem = Some(error.to_string());
        }
        Ok(result)
    })?;
    examination.kernels = kernels;
    Ok(())
}

/// Runs a kernel on a device with a poisoned `y`, and compares so many rows.
fn check<V: Value>(
    device: &mut dyn Device,
    job: &Job,
    placed: &Placed,
    numbers: &Numbers<V>,
    (rows, scalars): (usize, Scalars),
    result: &mut KernelResult,
) -> Result<(), ExecuteError> {
    poison(device, placed, &numbers.y[..rows], scalars)?;
    for launch in job.preparation.iter().chain(&job.launches) {
        let launched = device.launch(launch)?;
        result.findings.extend(launched.findings.iter().map(ToString::to_string));
    }
    result.difference = Some(compare::<V>(device, placed, rows, &numbers.reference)?);
    result.checked_rows = rows;
    Ok(())
}

/// Gives `y` what it has to hold if it is read, and otherwise what must not be read.
fn poison<V: Value>(
    device: &mut dyn Device,
    placed: &Placed,
    y: &[V],
    scalars: Scalars,
) -> Result<(), ExecuteError> {
    match y {
        [] => Ok(()),
        _ if scalars.beta != 0.0 => device.write(placed.y, bytemuck::cast_slice(y)),
        _ => device.write(placed.y, bytemuck::cast_slice(&vec![V::from_f64(f64::NAN); y.len()])),
    }
}

/// Compares what lies in `y` with the first rows of the reference.
fn compare<V: Value>(
    device: &dyn Device,
    placed: &Placed,
    rows: usize,
    reference: &Reference,
) -> Result<Difference, ExecuteError> {
    let mut y = vec![V::from_f64(0.0); rows];
    if rows > 0 {
        device.read(placed.y, bytemuck::cast_slice_mut(&mut y))?;
    }
    Ok(reference.first_rows(rows).compare(&y))
}

#[cfg(feature = "cuda")]
use on_gpu::measured;

/// The most shared memory of a block on the device that times are of.
fn shared_bytes(settings: &Settings) -> Result<usize, ExecuteError> {
    #[cfg(feature = "cuda")]
    if let Some(ordinal) = settings.gpu {
        return Ok(crate::execute::GpuDevice::open(ordinal)?.shared_bytes());
    }
    Ok(settings.chip.shared_bytes)
}

/// The first GPU, if there is one that can be used.
pub fn first_gpu() -> Option<usize> {
    #[cfg(feature = "cuda")]
    return crate::execute::GpuDevice::open(0).ok().map(|_| 0);
    #[cfg(not(feature = "cuda"))]
    return None;
}

#[cfg(not(feature = "cuda"))]
fn measured<V: Value, I: Index>(
    _: &mut Examination,
    _: &Csr<V, I>,
    _: &Numbers<V>,
    _: &[Variant],
    _: &Settings,
    _: usize,
) -> Result<(), ExamineError> {
    let what = "this build has no CUDA; build Kinora with the feature `cuda`, or leave the GPU out";
    Err(ExecuteError::Unsupported(what.to_owned()).into())
}

/// The same on a GPU, beside cuSPARSE.
#[cfg(feature = "cuda")]
mod on_gpu {
    use kinora_cuda::{
        launch::DevicePointer,
        vendor::{Cusparse, SparseAlgorithm, SparseOperands},
    };

    use super::*;
    use crate::execute::{GpuDevice, Launch};

    pub(super) fn measured<V: Value, I: Index>(
        examination: &mut Examination,
        matrix: &Csr<V, I>,
        numbers: &Numbers<V>,
        variants: &[Variant],
        settings: &Settings,
        ordinal: usize,
    ) -> Result<(), ExamineError> {
        let mut device = GpuDevice::open(ordinal)?;
        examination.device = device.name();
        examination.measured = true;
        examination.memory_rate = device.published().map(|chip| chip.memory.dram_bytes);
        let placed = Placed::new(&mut device, matrix, &numbers.x)?;
        let kernels = in_time(variants, settings.limit, &mut examination.left_out, |variant| {
            let mut result = KernelResult::new(variant);
            let code = variant.compile::<V, I>(device.capability(), Form::Cubin)?;
            let mut work = || -> Result<(), ExecuteError> {
                let job = Job::new(&mut device, (variant, &code), matrix, &placed, settings.scalars)?;
                let rows = matrix.rows();
                check::<V>(&mut device, &job, &placed, numbers, (rows, settings.scalars), &mut result)?;
                poison(&mut device, &placed, &numbers.y, settings.scalars)?;
                if !job.preparation.is_empty() {
                    let times =
                        device.time(std::slice::from_ref(&job.preparation), settings.repeats.min(10))?;
                    result.device_preparation_seconds = median(times);
                }
                result.seconds = Some(product_seconds(&mut device, &job.launches, settings.repeats)?);
                result.host_preparation_seconds = job.host_seconds;
                result.extra_bytes = job.extra_bytes;
                job.free(&mut device)
            };
            match work() {
                // After a fault nothing else runs on the device.
                Err(error @ ExecuteError::Fault(_)) => return Err(error.into()),
                Err(error) => result.problem = Some(error.to_string()),
                Ok(()) => {}
            }
            Ok(result)
        })?;
        examination.kernels = kernels;
        peers(examination, matrix, numbers, settings, &mut device, &placed)
    }

    /// A slow product is timed for about so long.
    const SLOW_SECONDS: f64 = 0.5;

    fn product_seconds(
        device: &mut GpuDevice,
        launches: &[Launch],
        repeats: usize,
    ) -> Result<f64, ExecuteError> {
        let launches = [launches.to_vec()];
        let one = median(device.time(&launches, 1)?);
        let enough = (SLOW_SECONDS / one.max(f64::MIN_POSITIVE)) as usize;
        Ok(median(device.time(&launches, enough.max(3).min(repeats))?))
    }

    fn median(mut milliseconds: Vec<f32>) -> f64 {
        milliseconds.sort_by(f32::total_cmp);
        f64::from(milliseconds.get(milliseconds.len() / 2).copied().unwrap_or(f32::NAN)) / 1e3
    }

    /// cuSPARSE's algorithms, each without and with its analysis.
    fn peers<V: Value, I: Index>(
        examination: &mut Examination,
        matrix: &Csr<V, I>,
        numbers: &Numbers<V>,
        settings: &Settings,
        device: &mut GpuDevice,
        placed: &Placed,
    ) -> Result<(), ExamineError> {
        let stream = device.stream().clone();
        let library = match Cusparse::start(&stream) {
            Ok(library) => library,
            Err(error) => {
                examination.no_peers = Some(error.to_string());
                return Ok(());
            }
        };
        let version = library.version().unwrap_or_else(|_| "of an unknown version".to_owned());
        let operands = SparseOperands {
            extents: [matrix.rows() as i64, matrix.columns() as i64, matrix.nonzeros() as i64],
            offsets: DevicePointer::new(placed.offsets),
            columns: DevicePointer::new(placed.columns),
            values: DevicePointer::new(placed.values),
            x: DevicePointer::new(placed.x),
            y: DevicePointer::new(placed.y),
            double: size_of::<V>() == 8,
            wide: size_of::<I>() == 8,
            alpha: settings.scalars.alpha,
            beta: settings.scalars.beta,
        };
        for algorithm in SparseAlgorithm::ALL {
            let mut peer = PeerResult {
                name: format!("{} {version}", algorithm.name()),
                difference: None,
                seconds: None,
                preprocessed_seconds: None,
                preprocessing_seconds: None,
                extra_bytes: 0,
                problem: None,
            };
            let mut work = || -> Result<(), ExecuteError> {
                let refused = |error: kinora_cuda::CudaError| ExecuteError::Device(error.to_string());
                let product = library.prepare(&operands, algorithm).map_err(refused)?;
                peer.extra_bytes = product.scratch_bytes();
                poison(device, placed, &numbers.y, settings.scalars)?;
                // SAFETY: the operands are the allocations that were made for this matrix, which was validated; nothing else uses the
                // device meanwhile.
                unsafe { product.enqueue().map_err(refused)? };
                stream.synchronise().map_err(refused)?;
                peer.difference = Some(compare::<V>(device, placed, matrix.rows(), &numbers.reference)?);
                // SAFETY: as above.
                let times = device.time_work(settings.repeats, |_, _| unsafe { product.enqueue() })?;
                peer.seconds = Some(median(times));
                if product.can_preprocess() {
                    // The library loads its code at the first call, which is no part of an analysis.
                    let other = library.prepare(&operands, algorithm).map_err(refused)?;
                    // SAFETY: as above.
                    unsafe { other.preprocess().map_err(refused)? };
                    stream.synchronise().map_err(refused)?;
                    drop(other);
                    // SAFETY: as above.
                    let times = device.time_work(1, |_, _| unsafe { product.preprocess() })?;
                    peer.preprocessing_seconds = Some(median(times));
                    // SAFETY: as above.
                    let times = device.time_work(settings.repeats, |_, _| unsafe { product.enqueue() })?;
                    peer.preprocessed_seconds = Some(median(times));
                }
                Ok(())
            };
            match work() {
                Err(error @ ExecuteError::Fault(_)) => return Err(error.into()),
                Err(error) => peer.problem = Some(error.to_string()),
                Ok(()) => {}
            }
            examination.peers.push(peer);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preparation_pays_after_so_many_products() {
        let kernel = |seconds: f64, host: f64| {
            let mut result = KernelResult::new(Variant::SCALAR);
            result.difference = Some(Difference::default());
            (result.seconds, result.host_preparation_seconds) = (Some(seconds), host);
            result
        };
        let matrix: Csr<f32, i32> = Csr::new(1, 1, vec![0, 1], vec![0], vec![1.0]).unwrap();
        let (_, cpu) = on_cpu(&matrix, Scalars::default());
        let statistics = Statistics::new(&matrix);
        let mut found = Examination {
            name: String::new(),
            values: "",
            indices: "",
            irregular: false,
            matrix_bytes: 0,
            floor_bytes: 0,
            device: String::new(),
            measured: true,
            memory_rate: None,
            cpu,
            kernels: vec![kernel(1.0, 8.0), kernel(2.0, 1.0), kernel(5.0, 0.0)],
            left_out: Vec::new(),
            pays_after: None,
            peers: Vec::new(),
            no_peers: None,
            choice: choose::<f32>(&statistics, 1, 0),
            statistics,
        };
        // Seven seconds more than the second, which takes one longer.
        assert_eq!(found.paying_products(), Some(7));
        found.peers.push(PeerResult {
            name: String::new(),
            difference: None,
            seconds: Some(1.5),
            preprocessed_seconds: Some(1.25),
            preprocessing_seconds: Some(7.0),
            extra_bytes: 0,
            problem: None,
        });
        assert_eq!(found.paying_products(), Some(16));
        found.peers[0].seconds = Some(0.5);
        assert_eq!(found.paying_products(), None);
    }

    #[test]
    fn what_does_not_begin_in_time_is_left_out() {
        let variants = [Variant::SCALAR, Variant::vector(2), Variant::vector(4)];
        let tried = |limit: Option<Duration>| {
            let mut left_out = Vec::new();
            let done = in_time(&variants, limit, &mut left_out, |variant| Ok(KernelResult::new(variant)));
            (done.unwrap().len(), left_out)
        };
        assert_eq!(tried(None), (3, vec![]));
        let names = ["vector, 2 lanes", "vector, 4 lanes"].map(str::to_owned).to_vec();
        assert_eq!(tried(Some(Duration::ZERO)), (1, names));
    }

    #[test]
    fn the_first_rows_are_a_matrix() {
        let matrix: Csr<f32, i32> =
            Csr::new(4, 2, vec![0, 2, 2, 3, 5], vec![0, 1, 0, 0, 1], vec![1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        for (most, rows) in [(0, 1), (3, 1), (4, 2), (6, 3), (8, 3), (9, 4), (100, 4)] {
            let part = first_rows(&matrix, most);
            assert_eq!((part.rows(), part.nonzeros()), (rows, matrix.offsets()[rows] as usize), "{most}");
        }
    }
}
