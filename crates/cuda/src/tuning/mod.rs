//! The tuner: measures the ways to run a call on the GPU at hand, and remembers which was the fastest.
//!
//! Every candidate is first compared with the baseline's plain kernel on the same random operands; one that differs, or
//! fails, is out, however fast it is. The others are timed with the caches emptied before each run. Results are kept in a
//! file by GPU, so that a shape is measured once on a machine.

mod operands;
mod records;

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kinora_graph::{DType, TensorType};

use self::{
    operands::{pattern, samples},
    records::{Record, Records},
};
use crate::{
    CudaError,
    compiler::CompilerOptions,
    driver::{Device, DeviceBuffer},
    kernels::{Call, Choose, Implementation, KernelSet, implementations},
    workbench::{CallMemory, PreparedCall, Workbench},
};

/// Runs of a candidate that are timed; the median counts.
const REPEATS: usize = 7;

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

impl FromStr for Candidates {
    type Err = CudaError;

    fn from_str(text: &str) -> Result<Self, CudaError> {
        match text {
            "all" => Ok(Candidates::All),
            "ours" => Ok(Candidates::Ours),
            "vendor" => Ok(Candidates::Vendor),
            _ => Err(CudaError::UnknownCandidates(text.to_owned())),
        }
    }
}

impl fmt::Display for Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Candidates::All => "all",
            Candidates::Ours => "ours",
            Candidates::Vendor => "vendor",
        })
    }
}

/// Chooses by measuring.
#[derive(Debug)]
pub struct Tuner {
    bench: Workbench,
    candidates: Candidates,
    flush: DeviceBuffer,
    records: Mutex<Records>,
}

impl Tuner {
    /// A tuner for a GPU. `folder` is where results are kept; `None` keeps none.
    ///
    /// # Errors
    /// Where the driver fails. A file of results that cannot be read is begun anew.
    pub fn new(
        device: &Device,
        candidates: Candidates,
        compiler: CompilerOptions,
        folder: Option<PathBuf>,
    ) -> Result<Tuner, CudaError> {
        let bench = Workbench::new(device, device.info().chip(), compiler)?;
        let name =
            format!("{} {} driver {}", device.info().name, bench.chip().architecture, device.info().driver);
        Ok(Tuner {
            flush: DeviceBuffer::new(device.context(), FLUSH_BYTES)?,
            records: Mutex::new(Records::open(folder, &name)),
            bench,
            candidates,
        })
    }

    /// What was measured: of each call, the milliseconds of every candidate, and why others were refused.
    pub fn report(&self) -> serde_json::Value {
        self.records().report()
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

    /// Measures a call.
    fn measure(&self, call: &Call<'_>) -> Result<Record, CudaError> {
        let offered = self.offered(call)?;
        let baseline = implementations(call, self.bench.chip(), KernelSet::Baseline, self.bench.libraries())?;
        let baseline = baseline.first().ok_or_else(|| CudaError::Internal("there is no baseline".into()))?;
        let workspace = offered.iter().chain([baseline]).map(|way| way.workspace(call)).max().unwrap_or(0);
        let memory = self.bench.memory(call, workspace)?;
        let plain = self.bench.prepare_in(call, &**baseline, &memory)?;
        for (operand, ty) in call.inputs.iter().enumerate() {
            plain.repeat(operand, &pattern(ty.dtype, operand as u64))?;
        }
        let expected = results(&plain, call)?;
        let mut record = Record::default();
        for way in &offered {
            match self.measure_one(call, &**way, &memory, &expected) {
                Ok(milliseconds) => _ = record.milliseconds.insert(way.name(), milliseconds),
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
    ) -> Result<f32, Refusal> {
        let prepared = self.bench.prepare_in(call, way, memory)?;
        for (expected, got) in expected.iter().zip(results(&prepared, call)?) {
            let distance = distance(expected, &got);
            if distance > bar(call) {
                return Err(Refusal::Differs(distance));
            }
        }
        let mut times = prepared.time(REPEATS, &self.flush)?;
        times.sort_by(f32::total_cmp);
        Ok(times[REPEATS / 2])
    }
}

impl Choose for Tuner {
    fn choose(&self, call: &Call<'_>) -> Result<Box<dyn Implementation>, CudaError> {
        let mut offered = self.offered(call)?;
        if offered.len() == 1 {
            return Ok(offered.swap_remove(0));
        }
        let signature = self.signature(call);
        if !self.records().contains(&signature) {
            let record = self.measure(call)?;
            self.records().insert(signature.clone(), record);
        }
        let fastest = self.records().fastest(&signature);
        // Where nothing was right, the plainest one offered is taken: the last of our own.
        let at = fastest.and_then(|name| offered.iter().position(|way| way.name() == name));
        let ours = || offered.iter().rposition(|way| !way.is_vendors()).unwrap_or(0);
        Ok(offered.swap_remove(at.unwrap_or_else(ours)))
    }

    /// Compiles the kernels of all candidates at once, on all cores, then measures one call after the other.
    fn prepare(&self, calls: &[Call<'_>]) -> Result<(), CudaError> {
        let mut fresh: BTreeMap<String, &Call<'_>> = BTreeMap::new();
        for call in calls {
            let signature = self.signature(call);
            if !self.records().contains(&signature) && self.offered(call)?.len() > 1 {
                fresh.insert(signature, call);
            }
        }
        let mut kernels = Vec::new();
        for call in fresh.values() {
            let baseline =
                implementations(call, self.bench.chip(), KernelSet::Baseline, self.bench.libraries())?;
            for way in self.offered(call)?.iter().chain(baseline.first()).filter(|way| !way.is_vendors()) {
                kernels.extend(self.bench.kernels(call, &**way)?);
            }
        }
        kernels.sort_unstable();
        kernels.dedup();
        self.bench.compile(&kernels)?;
        for call in fresh.values() {
            self.choose(call)?;
        }
        self.records().save();
        Ok(())
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
