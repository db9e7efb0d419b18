//! The tuner: measures the ways to run a call on the GPU at hand, and remembers which was the fastest.
//!
//! Every candidate is first compared with the baseline's plain kernel on the same random operands; one that differs, or
//! fails, is out, however fast it is. The others are timed with the caches emptied before each run. Results are kept in a
//! file by GPU, so that a shape is measured once on a machine; what was measured there serves those who measure nothing
//! as well.

mod operands;
mod records;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    ops::ControlFlow,
    path::PathBuf,
    str::FromStr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use kinora_cpu::CpuError;
use kinora_graph::{DType, Op, TensorType};

use self::{
    operands::{pattern, samples},
    records::{Record, Records},
};
use crate::{
    CudaError, Planned,
    compiler::CompilerOptions,
    driver::{Device, DeviceBuffer},
    kernels::{Call, Choose, Implementation, KernelSet, implementations},
    workbench::{CallMemory, PreparedCall, Workbench},
};

/// Runs of a candidate that are timed; the median counts.
const REPEATS: usize = 7;

/// How many times the best time so far a candidate may take before it is timed only once.
const HOPELESS: f32 = 2.0;

/// Memory that is overwritten before each run: several times the largest level-two cache.
const FLUSH_BYTES: usize = 256 << 20;

/// Which candidates there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Candidates {
    /// Our kernels and the vendors' libraries.
    #[default]
    All,
    /// Our kernels alone.
    Ours,
    /// The vendors' libraries, where they have the op; our kernels elsewhere.
    Vendor,
}

impl Candidates {
    /// The name: `all`, `ours` or `vendor`.
    pub fn name(self) -> &'static str {
        match self {
            Candidates::All => "all",
            Candidates::Ours => "ours",
            Candidates::Vendor => "vendor",
        }
    }
}

impl FromStr for Candidates {
    type Err = CudaError;

    fn from_str(text: &str) -> Result<Self, CudaError> {
        let all = [Candidates::All, Candidates::Ours, Candidates::Vendor];
        all.into_iter()
            .find(|candidates| candidates.name() == text)
            .ok_or_else(|| CudaError::UnknownCandidates(text.to_owned()))
    }
}

impl fmt::Display for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How far a tuner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TuningProgress {
    /// What it does now.
    pub stage: TuningStage,
    /// What is done of it.
    pub done: usize,
    /// What there is to do.
    pub total: usize,
}

/// What a tuner does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TuningStage {
    /// Compiles the kernels that are to be measured.
    Compile,
    /// Measures the ways to run each call.
    Measure,
}

/// Is told how far a tuner is, and may stop it.
pub type TuningObserver<'a> = dyn FnMut(&TuningProgress) -> ControlFlow<()> + Send + 'a;

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
    bench: Workbench,
    candidates: Candidates,
    /// Whether calls that were not measured yet are.
    measures: bool,
    records: Mutex<Records>,
    /// What was chosen so far, by signature. A plan asks several times for the same call, and to see what a library offers
    /// takes it a while.
    chosen: Mutex<HashMap<String, Arc<dyn Implementation>>>,
}

impl Tuner {
    /// A tuner for a GPU, which measures every call that it finds no result for. `folder` is where results are kept;
    /// `None` keeps none.
    ///
    /// # Errors
    /// Where the driver fails. A file of results that cannot be read is begun anew.
    pub fn new(
        device: &Device,
        candidates: Candidates,
        compiler: CompilerOptions,
        folder: Option<PathBuf>,
    ) -> Result<Tuner, CudaError> {
        let records = Tuner::records_of(device, folder);
        let bench = Workbench::new(device, device.info().chip(), compiler)?;
        Ok(Tuner {
            bench,
            candidates,
            measures: true,
            records: Mutex::new(records),
            chosen: Mutex::default(),
        })
    }

    /// One that measures nothing: a call that was measured on this GPU among [all candidates](Candidates::All) runs as was
    /// found best, and any other by its family's own choice. `None` where nothing was measured.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn remembered(
        device: &Device,
        compiler: CompilerOptions,
        folder: Option<PathBuf>,
    ) -> Result<Option<Tuner>, CudaError> {
        let records = Tuner::records_of(device, folder);
        if records.is_empty() {
            return Ok(None);
        }
        let bench = Workbench::new(device, device.info().chip(), compiler)?;
        let candidates = Candidates::All;
        Ok(Some(Tuner {
            bench,
            candidates,
            measures: false,
            records: Mutex::new(records),
            chosen: Mutex::default(),
        }))
    }

    fn records_of(device: &Device, folder: Option<PathBuf>) -> Records {
        let info = device.info();
        Records::open(folder, &format!("{} {} driver {}", info.name, info.chip().architecture, info.driver))
    }

    /// What was measured: of each call, the milliseconds of every candidate, and why others were refused.
    pub fn report(&self) -> serde_json::Value {
        self.records().report()
    }

    fn chosen(&self) -> MutexGuard<'_, HashMap<String, Arc<dyn Implementation>>> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offered(&self, call: &Call<'_>) -> Result<Vec<Box<dyn Implementation>>, CudaError> {
        let mut offered = implementations(call, self.bench.chip(), KernelSet::Fused, self.bench.libraries())?;

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
        let types =
            |types: &[&TensorType]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let op = serde_json::to_string(call.op).unwrap_or_else(|_| format!("{:?}", call.op));
        format!("{op} ({}) -> ({}), {}", types(call.inputs), types(call.outputs), self.candidates)
    }

    /// Measures every call of a network that was not measured yet, and keeps the results: a plan that is made afterwards
    /// goes by them. Gives the number of calls that were measured. One that only [remembers](Tuner::remembered) measures
    /// nothing.
    ///
    /// # Errors
    /// Where a kernel does not compile, memory is wanting, or the GPU fails; [`CpuError::Stopped`] where the observer
    /// stopped it. What was measured before is kept.
    pub fn tune(&self, planned: &Planned, observer: &mut TuningObserver<'_>) -> Result<usize, CudaError> {
        if !self.measures {
            return Ok(0);
        }
        let fresh = self.unmeasured(planned)?;
        if fresh.is_empty() {
            return Ok(0);
        }
        self.compile_candidates(&fresh, observer)?;
        let flush = DeviceBuffer::new(self.bench.context(), FLUSH_BYTES)?;
        let total = fresh.len();
        for (done, (signature, call)) in fresh.into_iter().enumerate() {
            if observer(&TuningProgress { stage: TuningStage::Measure, done, total }).is_break() {
                return Err(CpuError::Stopped.into());
            }
            let record = call.with(|call| self.measure(call, &flush))?;
            self.records().insert(signature.clone(), record);
            self.chosen().remove(&signature);
            // A process that is ended now has lost one measurement.
            self.records().save();
        }
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
        calls: &BTreeMap<String, OwnedCall>,
        observer: &mut TuningObserver<'_>,
    ) -> Result<(), CudaError> {
        let mut kernels = Vec::new();
        for call in calls.values() {
            call.with(|call| {
                let offered = self.offered(call)?;
                let plain = self.baseline(call)?;
                for way in offered.iter().chain([&plain]).filter(|way| !way.is_vendors()) {
                    kernels.extend(self.bench.kernels(call, &**way)?);
                }
                Ok::<(), CudaError>(())
            })?;
        }
        kernels.sort_unstable();
        kernels.dedup();
        let (observer, stopped) = (Mutex::new(observer), AtomicBool::new(false));
        self.bench.compile_observed(&kernels, &|progress| {
            let (done, total) = (progress.done, progress.total);
            let mut observer = observer.lock().unwrap_or_else(PoisonError::into_inner);
            let told = observer(&TuningProgress { stage: TuningStage::Compile, done, total });
            stopped.fetch_or(told.is_break(), Ordering::Relaxed);
        })?;
        if stopped.into_inner() { Err(CpuError::Stopped.into()) } else { Ok(()) }
    }

    /// The plain kernel that the candidates for a call are compared with.
    fn baseline(&self, call: &Call<'_>) -> Result<Box<dyn Implementation>, CudaError> {
        let plain = implementations(call, self.bench.chip(), KernelSet::Baseline, self.bench.libraries())?;
        plain.into_iter().next().ok_or_else(|| CudaError::Internal("there is no baseline".into()))
    }

    /// Which of the ways to run a call is to be taken.
    fn best(&self, signature: &str, offered: &[Box<dyn Implementation>]) -> usize {
        let records = self.records();
        match records.fastest(signature) {
            Some(name) => offered.iter().position(|way| way.name() == name).unwrap_or(0),
            // Where nothing was right, the plainest one offered is taken: the last of our own.
            None if records.contains(signature) => {
                offered.iter().rposition(|way| !way.is_vendors()).unwrap_or(0)
            }
            None => 0,
        }
    }

    /// Measures a call.
    fn measure(&self, call: &Call<'_>, flush: &DeviceBuffer) -> Result<Record, CudaError> {
        let offered = self.offered(call)?;
        let baseline = self.baseline(call)?;
        let workspace = offered.iter().chain([&baseline]).map(|way| way.workspace(call)).max().unwrap_or(0);
        let memory = self.bench.memory(call, workspace)?;
        let plain = self.bench.prepare_in(call, &*baseline, &memory)?;
        for (operand, ty) in call.inputs.iter().enumerate() {
            plain.repeat(operand, &pattern(ty.dtype, operand as u64))?;
        }
        let expected = results(&plain, call)?;
        let mut record = Record::default();
        let mut best = f32::INFINITY;
        for way in &offered {
            match self.measure_one(call, &**way, &memory, &expected, (flush, best)) {
                Ok(milliseconds) => {
                    best = best.min(milliseconds);
                    record.milliseconds.insert(way.name(), milliseconds);
                }
                // Nothing can be measured after that.
                Err(Refusal::Failed(error)) if error.is_context_lost() => return Err(error),
                Err(refusal) => _ = record.refused.insert(way.name(), refusal.to_string()),
            }
        }
        Ok(record)
    }

    fn measure_one(
        &self,
        call: &Call<'_>,
        way: &dyn Implementation,
        memory: &Arc<CallMemory>,
        expected: &[Vec<f32>],
        (flush, best): (&DeviceBuffer, f32),
    ) -> Result<f32, Refusal> {
        let prepared = self.bench.prepare_in(call, way, memory)?;
        for (expected, got) in expected.iter().zip(results(&prepared, call)?) {
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
}

impl Choose for Tuner {
    fn choose(&self, call: &Call<'_>) -> Result<Arc<dyn Implementation>, CudaError> {
        let signature = self.signature(call);
        if let Some(chosen) = self.chosen().get(&signature) {
            return Ok(chosen.clone());
        }
        let mut offered = self.offered(call)?;
        let at = self.best(&signature, &offered);
        let chosen: Arc<dyn Implementation> = offered.swap_remove(at).into();
        self.chosen().insert(signature, chosen.clone());
        Ok(chosen)
    }
}

/// Why a candidate is out.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("its result is {0:.1e} off the plain kernel's")]
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

/// How far a candidate may be off as a whole: half a unit in the last place of the result, a few times over.
fn bar(call: &Call<'_>) -> f64 {
    match call.outputs.first().map(|ty| ty.dtype) {
        Some(DType::F16) => 2e-3,
        Some(DType::BF16) => 1.6e-2,
        _ => 1e-5,
    }
}

/// The length of the difference over that of what was expected; infinite where something is not finite on one side alone.
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

    #[test]
    fn candidates_are_named() {
        for candidates in [Candidates::All, Candidates::Ours, Candidates::Vendor] {
            assert_eq!(candidates.to_string().parse::<Candidates>().ok(), Some(candidates));
        }
        assert!("theirs".parse::<Candidates>().is_err());
    }
}
