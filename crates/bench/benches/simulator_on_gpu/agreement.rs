//! Runs every kernel in the simulator and on a GPU, and compares the results.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use kinora_cuda::{
    Chip, CudaError,
    compiler::CompilerOptions,
    kernels::{Call, Implementation, KernelSet, implementations},
    simulation::SimulatedBench,
    vendor::Libraries,
};
use kinora_graph::{Op, Tensor, TensorType};
use kinora_ptx::RoundingLatitude;
use kinora_testing::{edge_cases::Case, executor::in_parallel, ulps::Distance};

use crate::bounds::Class;

/// Something that runs a call and returns the bytes of its results.
pub trait Side: Sync + Send {
    fn run(
        &self,
        call: &Call<'_>,
        way: &dyn Implementation,
        operands: &[&[u8]],
    ) -> Result<Vec<Vec<u8>>, String>;
}

/// A chip's set of kernels, on both sides.
pub struct Path {
    name: String,
    simulated: SimulatedBench,
    other: Box<dyn Side>,
    set: KernelSet,
    /// Whether every kernel runs, or only the family's first choice.
    all: bool,
}

impl Path {
    pub fn new(
        name: String,
        chip: Chip,
        set: KernelSet,
        all: bool,
        options: CompilerOptions,
        other: Box<dyn Side>,
    ) -> Result<Path, CudaError> {
        Ok(Path { name, simulated: SimulatedBench::new(chip, options)?, other, set, all })
    }
}

/// Results that are reported together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Key {
    pub path: String,
    pub table: String,
    pub implementation: String,
    pub dtype: String,
    pub class: Class,
}

/// How far the two sides are apart.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub key: Key,
    /// The number of calls.
    pub calls: u64,
    #[serde(flatten)]
    pub distance: Distance,
    /// The allowed distance.
    pub bound: f64,
    pub agrees: bool,
    /// The instructions whose results are not defined to the bit.
    pub because_of: BTreeSet<String>,
}

/// What was compared.
#[derive(Debug, Default)]
pub struct Agreement {
    rows: BTreeMap<Key, Row>,
    /// Calls that failed on one side.
    pub failed: Vec<String>,
}

impl Agreement {
    /// The rows, by path, table and kernel.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// The number of rows that are too far apart plus failed calls.
    pub fn failures(&self) -> usize {
        self.failed.len() + self.rows().filter(|row| !row.agrees).count()
    }

    /// Runs a table's cases on all cores.
    pub fn add_table(&mut self, table: &str, cases: &[Case], paths: &[Path]) {
        let shared = Mutex::new(std::mem::take(self));
        in_parallel(cases, |(op, operands)| {
            for path in paths {
                let compared = compare(path, op, operands);
                let mut agreement = shared.lock().unwrap_or_else(PoisonError::into_inner);
                for result in compared {
                    match result {
                        Ok(compared) => agreement.add(table, path, &compared),
                        Err(why) => agreement.failed.push(format!("{table}, {}, {op}: {why}", path.name)),
                    }
                }
            }
        });
        *self = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.failed.sort_unstable();
    }

    fn add(&mut self, table: &str, path: &Path, compared: &Compared) {
        let class = Class::of(&compared.latitude);
        let RoundingLatitude { approximate, matrix, unordered, fusible } = &compared.latitude;
        for (ty, distance) in &compared.results {
            let key = Key {
                path: path.name.clone(),
                table: table.to_owned(),
                implementation: compared.implementation.clone(),
                dtype: ty.dtype.to_string(),
                class,
            };
            let bound = class.bound(ty.dtype);
            let row = self.rows.entry(key.clone()).or_insert_with(|| Row {
                key,
                calls: 0,
                distance: Distance::default(),
                bound,
                agrees: true,
                because_of: BTreeSet::new(),
            });
            row.calls += 1;
            row.distance.add(distance);
            row.agrees &= if class == Class::Exact { distance.is_exact() } else { distance.is_within(bound) };
            row.because_of.extend([approximate, matrix, unordered, fusible].into_iter().flatten().cloned());
        }
    }
}

/// One kernel's results on both sides.
struct Compared {
    implementation: String,
    latitude: RoundingLatitude,
    results: Vec<(TensorType, Distance)>,
}

/// Runs an op with the kernels of a path.
fn compare(path: &Path, op: &Op, operands: &[Tensor]) -> Vec<Result<Compared, String>> {
    let inputs: Vec<&TensorType> = operands.iter().map(Tensor::ty).collect();
    let types = match op.infer(&inputs) {
        Ok(types) => types,
        Err(error) => return vec![Err(error.to_string())],
    };
    let outputs: Vec<&TensorType> = types.iter().collect();
    let call = Call { layer: "op", op, inputs: &inputs, outputs: &outputs };
    if !call.runs() {
        return Vec::new();
    }
    let offered = match implementations(&call, path.simulated.chip(), path.set, &Libraries::default()) {
        Ok(offered) => offered,
        Err(error) => return vec![Err(error.to_string())],
    };
    let bytes: Vec<&[u8]> = operands.iter().map(Tensor::bytes).collect();
    let count = if path.all { usize::MAX } else { 1 };
    offered.iter().take(count).map(|way| compare_way(path, &call, &**way, &bytes)).collect()
}

fn compare_way(
    path: &Path,
    call: &Call<'_>,
    way: &dyn Implementation,
    operands: &[&[u8]],
) -> Result<Compared, String> {
    let implementation = way.name();
    let said = |side: &str, why: String| format!("{implementation} {side}: {why}");
    let simulated = path.simulated.run(call, way, operands);
    let simulated = simulated.map_err(|error| said("in the simulator", error.to_string()))?;
    if let Some(finding) = simulated.reports.iter().flat_map(|(_, report)| &report.findings).next() {
        return Err(said("in the simulator", finding.to_string()));
    }
    let other = path.other.run(call, way, operands).map_err(|why| said("on the GPU", why))?;
    let results = call.outputs.iter().zip(simulated.results.iter().zip(&other));
    let results = results
        .map(|(&ty, (ours, theirs))| (ty.clone(), Distance::between(ty.dtype, ours, theirs)))
        .collect();
    Ok(Compared { implementation, latitude: simulated.latitude, results })
}
