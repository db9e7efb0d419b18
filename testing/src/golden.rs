//! Ops against tensors made with PyTorch and diffusers: see `golden/README.md`.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::PathBuf,
};

use kinora_graph::{
    DType, Tensor, TensorType,
    op::{Op, OpError, Prediction, STEP_COLUMNS, StepCoefficients},
};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use crate::{
    compare::{self, Mismatch},
    executor::{Executor, ExecutorError, in_parallel},
};

/// One op with its operands and PyTorch's results.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    pub op: Op,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    /// The op moves or converts elements, and its result must be equal bit by bit.
    #[serde(default)]
    pub exact: bool,
    /// The noise levels of a sampler step.
    #[serde(default)]
    pub sampler: Option<Levels>,
}

/// A sampler step's noise levels as its scheduler has them.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Levels {
    Euler {
        prediction: Prediction,
        sigma: f64,
        next: f64,
    },
    Ddim {
        prediction: Prediction,
        alpha: f64,
        next: f64,
        eta: f64,
    },
    #[serde(rename = "dpm_solver_2m")]
    DpmSolver2m {
        prediction: Prediction,
        previous: Option<f64>,
        alpha: f64,
        next: f64,
    },
    Lcm {
        prediction: Prediction,
        alpha: f64,
        next: Option<f64>,
        timestep: f64,
        timestep_scaling: f64,
        sigma_data: f64,
    },
}

impl Levels {
    pub fn coefficients(self) -> StepCoefficients {
        match self {
            Levels::Euler { prediction, sigma, next } => StepCoefficients::euler(prediction, sigma, next),
            Levels::Ddim { prediction, alpha, next, eta } => {
                StepCoefficients::ddim(prediction, alpha, next, eta)
            }
            Levels::DpmSolver2m { prediction, previous, alpha, next } => {
                StepCoefficients::dpm_solver_2m(prediction, previous, alpha, next)
            }
            Levels::Lcm { prediction, alpha, next, timestep, timestep_scaling, sigma_data } => {
                StepCoefficients::lcm(prediction, alpha, next, timestep, timestep_scaling, sigma_data)
            }
        }
    }

    pub fn prediction(self) -> Prediction {
        match self {
            Levels::Euler { prediction, .. }
            | Levels::Ddim { prediction, .. }
            | Levels::DpmSolver2m { prediction, .. }
            | Levels::Lcm { prediction, .. } => prediction,
        }
    }
}

/// The cases of a group of ops.
#[derive(Debug)]
pub struct Family {
    pub cases: Vec<Case>,
    tensors: HashMap<String, Tensor>,
}

/// Where the fixtures are.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/ops")
}

impl Family {
    /// Reads a family; a broken fixture fails the test that asks for it.
    pub fn load(name: &str) -> Family {
        let read = |extension: &str| {
            let path = folder().join(name).with_extension(extension);
            fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let cases = serde_json::from_slice(&read("json"))
            .unwrap_or_else(|error| panic!("the manifest of {name}: {error}"));
        let bytes = read("safetensors");
        let tensors = SafeTensors::deserialize(&bytes)
            .unwrap_or_else(|error| panic!("the tensors of {name}: {error}"))
            .iter()
            .map(|(key, view)| {
                let ty = TensorType::new(element_type(key, view.dtype()), view.shape());
                let tensor = Tensor::from_bytes(ty, view.data())
                    .unwrap_or_else(|error| panic!("{key} of {name}: {error}"));
                (key.to_owned(), tensor)
            })
            .collect();
        Family { cases, tensors }
    }

    /// A case's operands.
    pub fn inputs(&self, case: &Case) -> Vec<Tensor> {
        case.inputs
            .iter()
            .map(|name| match (name.as_str(), case.sampler) {
                ("$table", Some(levels)) => coefficient_table(levels),
                ("$step", Some(_)) => Tensor::from_slice([1], &[1i32]).expect("one element"),
                (name, _) => self.tensor(name),
            })
            .collect()
    }

    /// A case's results.
    pub fn outputs(&self, case: &Case) -> Vec<Tensor> {
        case.outputs.iter().map(|name| self.tensor(name)).collect()
    }

    fn tensor(&self, name: &str) -> Tensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("there is no tensor {name}")).clone()
    }
}

/// The step's row is the second one, so that reading the first one shows up.
fn coefficient_table(levels: Levels) -> Tensor {
    let mut table = [f32::NAN; 2 * STEP_COLUMNS];
    table[STEP_COLUMNS..].copy_from_slice(&levels.coefficients().row());
    Tensor::from_slice([2, STEP_COLUMNS], &table).expect("two rows")
}

fn element_type(name: &str, dtype: Dtype) -> DType {
    match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F8_E4M3 => DType::F8E4M3,
        Dtype::U8 => DType::U8,
        Dtype::I32 => DType::I32,
        other => panic!("{name} is {other:?}, which no tensor holds"),
    }
}

/// The families, one fixture each.
pub const FAMILIES: [&str; 11] = [
    "conv",
    "linear",
    "norm",
    "pointwise",
    "attention",
    "attention_backward",
    "arrange",
    "resample",
    "embedding",
    "sampler",
    "quantised",
];

/// The names of the fixtures with this extension.
pub fn fixtures(extension: &str) -> BTreeSet<String> {
    fs::read_dir(folder())
        .expect("the fixtures are in the repository")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect()
}

/// Runs all cases of a family by all executors, and only then fails, so that one run shows everything that is wrong.
///
/// # Panics
/// If a result is not the expected one.
pub fn check_family(name: &str, executors: &[&dyn Executor]) {
    let family = Family::load(name);
    assert!(!family.cases.is_empty() && !executors.is_empty(), "{name} has nothing to check");
    let check = |case: &Case| {
        let inputs = family.inputs(case);
        let expected = family.outputs(case);
        let types = match inferred(case, &inputs, &expected) {
            Ok(types) => types,
            Err(why) => return vec![format!("{name}/{} inference: {why}", case.name)],
        };
        let failures = executors.iter().filter_map(|executor| {
            let why = check_case(case, *executor, &inputs, &types, &expected).err()?;
            Some(format!("{name}/{} by {}: {why}", case.name, executor.name()))
        });
        failures.collect()
    };
    let failures = in_parallel(&family.cases, check).concat();
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// Makes a test of every family's cases, by the family's name. `$check` is called with that.
#[macro_export]
macro_rules! golden_tests {
    ($check:path) => {
        $crate::golden_tests!(
            $check, conv, linear, norm, pointwise, attention, attention_backward, arrange, resample, embedding,
            sampler, quantised
        );
    };
    ($check:path, $($family:ident),+) => {
        $(
            #[test]
            fn $family() {
                $check(stringify!($family));
            }
        )+
    };
}

/// What is wrong with a case.
#[derive(Debug, thiserror::Error)]
enum CaseError {
    #[error(transparent)]
    Infer(#[from] OpError),
    #[error("{inferred} results inferred, {expected} expected")]
    InferredCount { inferred: usize, expected: usize },
    #[error("{inferred} inferred, {expected} expected")]
    InferredType { inferred: TensorType, expected: TensorType },
    #[error(transparent)]
    Run(#[from] ExecutorError),
    #[error("{got} results, {expected} expected")]
    Count { got: usize, expected: usize },
    #[error("result {index} is {got}, inferred as {inferred}")]
    Type { index: usize, got: TensorType, inferred: TensorType },
    #[error("result {index}: {source}")]
    Mismatch { index: usize, source: Mismatch },
}

/// The inferred types, if they fit the results.
fn inferred(case: &Case, inputs: &[Tensor], expected: &[Tensor]) -> Result<Vec<TensorType>, CaseError> {
    let operands: Vec<&TensorType> = inputs.iter().map(Tensor::ty).collect();
    let types = case.op.infer(&operands)?;
    if types.len() != expected.len() {
        return Err(CaseError::InferredCount { inferred: types.len(), expected: expected.len() });
    }
    for (ty, tensor) in types.iter().zip(expected) {
        // Results that are not exact are kept in f32, whatever their storage.
        if ty.shape != *tensor.shape() || (case.exact && ty.dtype != tensor.dtype()) {
            return Err(CaseError::InferredType { inferred: ty.clone(), expected: tensor.ty().clone() });
        }
    }
    Ok(types)
}

fn check_case(
    case: &Case,
    executor: &dyn Executor,
    inputs: &[Tensor],
    types: &[TensorType],
    expected: &[Tensor],
) -> Result<(), CaseError> {
    let operands: Vec<&Tensor> = inputs.iter().collect();
    let results = executor.run(&case.op, &operands)?;
    if results.len() != expected.len() {
        return Err(CaseError::Count { got: results.len(), expected: expected.len() });
    }
    for (index, ((result, ty), expected)) in results.iter().zip(types).zip(expected).enumerate() {
        if result.ty() != ty {
            return Err(CaseError::Type { index, got: result.ty().clone(), inferred: ty.clone() });
        }
        let verdict =
            if case.exact { compare::equal(expected, result) } else { compare::close(expected, result) };
        verdict.map_err(|source| CaseError::Mismatch { index, source })?;
    }
    Ok(())
}
