//! The tuner: measures the ways to run a call on the GPU at hand, and remembers which was the fastest.
//!
//! Every candidate is first compared with the baseline's plain kernel on the same random operands; one that differs, or
//! fails, is out, however fast it is. The others are timed with the caches emptied before each run. Results are kept in a
//! file by GPU, so that a shape is measured once on a machine; what was measured there serves those who measure nothing
//! as well.

mod operands;
mod records;

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use kinora_graph::{DType, Op, TensorType};
use kinora_runtime::{Candidates, RunError, TuningObserver, TuningProgress, TuningStage};

use self::{
    operands::{pattern, sampled, samples},
    records::{Fastest, Record, Records},
};
use crate::{
    Chip, CudaError, Planned,
    compiler::CompilerOptions,
    driver::{Device, DeviceBuffer},
    kernels::{Call, Choose, Implementation, KernelSet, implementations, offered_before},
    vendor::Libraries,
    workbench::{PreparedCall, Workbench},
};

/// Runs of a candidate that are timed; the median counts.
const REPEATS: usize = 5;

/// How many times the best time so far a candidate may take before it is timed only once. A single run is seldom 10 % off.
const HOPELESS: f32 = 1.25;

/// Operations of a call from which on the plain kernel is not timed: it takes 20 ms for so many on an H200.
const LARGE: u64 = 10_000_000_000;

/// A call with what it refers to.
#[derive(Debug)]
struct OwnedCall {
    layer: String,
    op: Op,
    inputs: Vec<TensorType>,
    outputs: Vec<TensorType>,
}

impl OwnedCall {
    fn new(call: &Call<'_>) -> OwnedCall {
        let owned = |types: &[&TensorType]| types.iter().copied().cloned().collect();
        OwnedCall {
            layer: call.layer.to_owned(),
            op: call.op.clone(),
            inputs: owned(call.inputs),
            outputs: owned(call.outputs),
        }
    }

    /// Does something with the call.
    fn with<T>(&self, work: impl FnOnce(&Call<'_>) -> T) -> T {
        let inputs: Vec<&TensorType> = self.inputs.iter().collect();
        let outputs: Vec<&TensorType> = self.outputs.iter().collect();
        work(&Call { layer: &self.layer, op: &self.op, inputs: &inputs, outputs: &outputs })
    }
}

/// Chooses by what was measured.
#[derive(Debug)]
pub struct Tuner {
    chip: Chip,
    libraries: Libraries,
    candidates: Candidates,
    /// Measures calls that have no record yet; `None` if nothing is to be measured.
    bench: Option<Workbench>,
    records: Mutex<Records>,
}

impl Tuner {
    /// A tuner for a GPU, which measures every call that it finds no result for. `folder` is where results are kept;
    /// `None` keeps none.
    ///
    /// # Errors
    /// If the driver fails. A file of results that cannot be read is begun anew.
    pub fn new(
        device: &Device,
        candidates: Candidates,
        compiler: CompilerOptions,
        folder: Option<PathBuf>,
    ) -> Result<Tuner, CudaError> {
        let bench = Workbench::new(device, device.info().chip(), compiler)?;
        let libraries = bench.libraries().clone();
        let records = Mutex::new(Tuner::records_of(device, folder, &libraries));
        Ok(Tuner { chip: device.info().chip(), libraries, candidates, bench: Some(bench), records })
    }

    /// One that measures nothing: a call that was measured on this GPU among [all candidates](Candidates::All) runs as was
    /// found best, and any other by its family's own choice. `None` if nothing was measured. No library is started
    /// before a program is loaded that needs it.
    pub fn remembered(device: &Device, folder: Option<PathBuf>) -> Option<Tuner> {
        let libraries = Libraries::of(device.context());
        let records = Tuner::records_of(device, folder, &libraries);
        let (chip, candidates) = (device.info().chip(), Candidates::All);
        let records = Mutex::new((!records.is_empty()).then_some(records)?);
        Some(Tuner { chip, libraries, candidates, bench: None, records })
    }

    /// Whether it measures, or only remembers.
    pub fn measures(&self) -> bool {
        self.bench.is_some()
    }

    fn records_of(device: &Device, folder: Option<PathBuf>, libraries: &Libraries) -> Records {
        let info = device.info();
        let gpu = format!("{} {} driver {}", info.name, info.chip().architecture, info.driver);
        Records::open(folder, &gpu, libraries)
    }

    /// What was measured: of each call, the milliseconds of every candidate, and why others were refused.
    pub fn report(&self) -> serde_json::Value {
        self.records().report()
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offered(&self, call: &Call<'_>) -> Result<Vec<Box<dyn Implementation>>, CudaError> {
        let mut offered = implementations(call, &self.chip, KernelSet::Fused, &self.libraries)?;
        match self.candidates {
            Candidates::All => {}
            Candidates::Ours => offered.retain(|offer| !offer.is_vendors()),
            Candidates::Vendor if offered.iter().any(|offer| offer.is_vendors()) => {
                offered.retain(|offer| offer.is_vendors());
            }
            Candidates::Vendor => {}
        }
        Ok(offered)
    }

    /// The call's name among the records.
    fn signature(&self, call: &Call<'_>) -> String {
        format!("{}, {}", call.signature(), self.candidates)
    }

    /// Measures every call of a network that was not measured yet, and keeps the results: a plan that is made afterwards
    /// goes by them. Gives the number of calls that were measured. One that only [remembers](Tuner::remembered) measures
    /// nothing.
    ///
    /// # Errors
    /// If a kernel does not compile, there is too little memory, or the GPU fails; [`RunError::Stopped`] if the observer
    /// stopped it. What was measured before is kept.
    pub fn tune(&self, planned: &Planned, observer: &mut TuningObserver<'_>) -> Result<usize, CudaError> {
        let Some(bench) = &self.bench else { return Ok(0) };
        let fresh = self.unmeasured(planned)?;
        if fresh.is_empty() {
            return Ok(0);
        }
        self.compile_candidates(bench, &fresh, observer)?;
        let flush = bench.flush_memory()?;
        let total = fresh.len();
        let mut tell = |done| match observer(&TuningProgress { stage: TuningStage::Measure, done, total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(CudaError::from(RunError::Stopped)),
        };
        for (done, (signature, call)) in fresh.into_iter().enumerate() {
            tell(done)?;
            let record = call.with(|call| self.measure(bench, call, &flush))?;
            // A process that is ended now has lost one measurement.
            let mut records = self.records();
            records.insert(signature, record);
            records.save(&self.libraries);
        }
        tell(total)?;
        Ok(total)
    }

    /// The calls of a network that have no record and more than one way to run, each once.
    fn unmeasured(&self, planned: &Planned) -> Result<BTreeMap<String, OwnedCall>, CudaError> {
        let mut fresh = BTreeMap::new();
        planned.for_each_call(|call| {
            let signature = self.signature(call);
            let known = self.records().contains(&signature) || fresh.contains_key(&signature);
            if !known && self.offered(call)?.len() > 1 {
                fresh.insert(signature, OwnedCall::new(call));
            }
            Ok(())
        })?;
        Ok(fresh)
    }

    /// Compiles the kernels of every way to run some calls, on all cores.
    fn compile_candidates(
        &self,
        bench: &Workbench,
        calls: &BTreeMap<String, OwnedCall>,
        observer: &mut TuningObserver<'_>,
    ) -> Result<(), CudaError> {
        let mut kernels = Vec::new();
        for call in calls.values() {
            call.with(|call| {
                let offered = self.offered(call)?;
                let plain = self.baseline(call)?;
                for way in offered.iter().chain([&plain]).filter(|way| !way.is_vendors()) {
                    kernels.extend(bench.kernels(call, &**way)?);
                }
                Ok::<(), CudaError>(())
            })?;
        }
        kernels.sort_unstable();
        kernels.dedup();
        let (observer, stopped) = (Mutex::new(observer), AtomicBool::new(false));
        bench.compile_observed(&kernels, &|progress| {
            let (done, total) = (progress.done, progress.total);
            let mut observer = observer.lock().unwrap_or_else(PoisonError::into_inner);
            let told = observer(&TuningProgress { stage: TuningStage::Compile, done, total });
            stopped.fetch_or(told.is_break(), Ordering::Relaxed);
        })?;
        if stopped.into_inner() { Err(RunError::Stopped.into()) } else { Ok(()) }
    }

    /// The plain kernel that the candidates for a call are compared with.
    fn baseline(&self, call: &Call<'_>) -> Result<Box<dyn Implementation>, CudaError> {
        let plain = implementations(call, &self.chip, KernelSet::Baseline, &Libraries::default())?;
        plain.into_iter().next().ok_or_else(|| CudaError::Internal("there is no baseline".into()))
    }

    /// Measures a call.
    fn measure(&self, bench: &Workbench, call: &Call<'_>, flush: &DeviceBuffer) -> Result<Record, CudaError> {
        let offered = self.offered(call)?;
        let baseline = self.baseline(call)?;
        let workspace = offered.iter().chain([&baseline]).map(|way| way.workspace()).max().unwrap_or(0);
        let memory = bench.memory(call, workspace)?;
        // The plain kernel is slow: a convolution of 576×1024 pixels takes seconds, what is looked at of it milliseconds.
        let looked_at = call.outputs.first().map_or_else(Vec::new, |ty| sampled(ty));
        let plain = bench.prepare_part_in(call, &*baseline, &memory, &looked_at)?;
        for (operand, ty) in call.inputs.iter().enumerate() {
            plain.repeat(operand, &pattern(ty.dtype, operand as u64))?;
        }
        let expected = results(&plain, call)?;
        // Beside others the plain kernel has no chance there, and takes seconds.
        let large = call.op.flops(call.inputs, call.outputs) > LARGE;
        let mut record = Record::default();
        let mut best = f32::INFINITY;
        for way in &offered {
            if large && way.name() == baseline.name() && !record.milliseconds.is_empty() {
                continue;
            }
            let measured = bench
                .prepare_in(call, &**way, &memory)
                .map_err(Refusal::from)
                .and_then(|prepared| measure_one(&prepared, call, &expected, (flush, best)));
            match measured {
                Ok(milliseconds) => {
                    best = best.min(milliseconds);
                    record.milliseconds.insert(way.name(), milliseconds);
                    if way.is_vendors() {
                        record.workspace.insert(way.name(), way.workspace());
                    }
                }
                // Nothing can be measured after that.
                Err(Refusal::Failed(error)) if error.is_context_lost() => return Err(error),
                Err(refusal) => _ = record.refused.insert(way.name(), refusal.to_string()),
            }
        }
        Ok(record)
    }

    /// The way to run a call that was found the fastest.
    fn fastest(
        &self,
        call: &Call<'_>,
        found: &Fastest,
    ) -> Result<Option<Box<dyn Implementation>>, CudaError> {
        if let Some(workspace) = found.workspace
            && let Some(way) = offered_before(call, &self.libraries, &found.name, workspace)
        {
            return Ok(Some(way));
        }
        Ok(self.offered(call)?.into_iter().find(|way| way.name() == found.name))
    }

    /// The ways to run a call, without asking what libraries offer unless they come first.
    fn unmeasured_ways(&self, call: &Call<'_>) -> Result<Vec<Box<dyn Implementation>>, CudaError> {
        match self.candidates {
            Candidates::Vendor => self.offered(call),
            Candidates::All | Candidates::Ours => {
                implementations(call, &self.chip, KernelSet::Fused, &Libraries::default())
            }
        }
    }
}

/// Checks a way to run a call, and gives its milliseconds. `best` is the best time so far.
fn measure_one(
    prepared: &PreparedCall,
    call: &Call<'_>,
    expected: &[Vec<f32>],
    (flush, best): (&DeviceBuffer, f32),
) -> Result<f32, Refusal> {
    for (expected, got) in expected.iter().zip(results(prepared, call)?) {
        let distance = distance(expected, &got);
        if distance > bar(call) {
            return Err(Refusal::Differs(distance));
        }
    }
    // A second look at one that is far behind would take the longest, and change nothing.
    let first = prepared.time(1, flush)?.into_iter().next().unwrap_or(f32::INFINITY);
    if first > HOPELESS * best {
        return Ok(first);
    }
    let mut times = prepared.time(REPEATS, flush)?;
    times.sort_by(f32::total_cmp);
    Ok(times[REPEATS / 2])
}

impl Choose for Tuner {
    fn choose(&self, call: &Call<'_>) -> Result<Arc<dyn Implementation>, CudaError> {
        let signature = self.signature(call);
        let (known, fastest) = {
            let records = self.records();
            (records.contains(&signature), records.fastest(&signature))
        };
        let nothing_was_right = known && fastest.is_none();
        if let Some(found) = fastest
            && let Some(way) = self.fastest(call, &found)?
        {
            return Ok(way.into());
        }
        let mut ways = self.unmeasured_ways(call)?;
        // Then the plainest one is taken: the last of our own. If the fastest one is no longer offered, nothing is known.
        let plainest = || ways.iter().rposition(|way| !way.is_vendors()).unwrap_or(0);
        let at = if nothing_was_right { plainest() } else { 0 };
        Ok(ways.swap_remove(at).into())
    }
}

/// Why a candidate is out.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("its result differs from the plain kernel's by {0:.1e}")]
    Differs(f64),
    #[error(transparent)]
    Failed(#[from] CudaError),
}

/// Runs a call and reads samples of its results, which were poisoned before.
fn results(prepared: &PreparedCall, call: &Call<'_>) -> Result<Vec<Vec<f32>>, CudaError> {
    prepared.poison_results(0xFF)?;
    prepared.run()?;
    call.outputs.iter().enumerate().map(|(output, ty)| samples(prepared, output, ty)).collect()
}

/// How far a candidate may be off as a whole: half a unit in the last place of the result, a few times over. Hopper's tensor cores
/// align the 32 products of an instruction of e4m3 to the largest term, and keep 13 bits behind its point: over 360 instructions, the
/// longest depth of any model, that is one to two in a hundred. Peers that use fast accumulation have the same.
fn bar(call: &Call<'_>) -> f64 {
    let quantised = call.inputs.first().is_some_and(|x| x.dtype == DType::F8E4M3);
    let stored: f64 = match call.outputs.first().map(|ty| ty.dtype) {
        Some(DType::F16) => 2e-3,
        Some(DType::BF16) => 1.6e-2,
        Some(DType::F8E4M3) => 6e-2,
        _ => 1e-5,
    };
    if quantised { stored.max(3e-2) } else { stored }
}

/// The length of the difference over that of what was expected; infinite if something is not finite on one side alone.
fn distance(expected: &[f32], got: &[f32]) -> f64 {
    let (mut difference, mut length) = (0.0, 0.0);
    for (&e, &g) in expected.iter().zip(got) {
        if e.is_finite() && g.is_finite() {
            difference += (f64::from(g) - f64::from(e)).powi(2);
            length += f64::from(e).powi(2);
        } else if e != g && !(e.is_nan() && g.is_nan()) {
            return f64::INFINITY;
        }
    }
    if difference == 0.0 { 0.0 } else { (difference / length).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_that_of_the_whole() {
        assert_eq!(distance(&[3.0, 4.0], &[3.0, 4.5]), 0.1);
        assert_eq!(distance(&[0.0], &[0.0]), 0.0);
        assert_eq!(distance(&[1.0], &[f32::NAN]), f64::INFINITY);
        assert_eq!(distance(&[f32::INFINITY], &[f32::INFINITY]), 0.0);
    }
}
