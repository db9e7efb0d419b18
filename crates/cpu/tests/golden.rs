//! Every executor against tensors made with PyTorch and diffusers (`golden/README.md`).

mod support;

use std::{collections::BTreeSet, fs};

use kinora_graph::{Tensor, TensorType};
use support::{
    compare, coverage,
    executors::Executor,
    golden::{Case, Family, folder},
};

macro_rules! families {
    ($($family:ident),+ $(,)?) => {
        const FAMILIES: &[&str] = &[$(stringify!($family)),+];
        $(
            #[test]
            fn $family() {
                check_family(stringify!($family));
            }
        )+
    };
}
families!(conv, linear, norm, pointwise, attention, arrange, resample, embedding, sampler);

#[test]
fn every_fixture_is_tested() {
    let stems = |extension: &str| -> BTreeSet<String> {
        fs::read_dir(folder())
            .expect("the fixtures are in the repository")
            .map(|entry| entry.expect("a readable folder").path())
            .filter(|path| path.extension().is_some_and(|e| e == extension))
            .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .collect()
    };
    let tested: BTreeSet<String> = FAMILIES.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(stems("json"), tested);
    assert_eq!(stems("safetensors"), tested);
}

#[test]
fn every_variant_has_golden_data() {
    let covered: BTreeSet<String> =
        FAMILIES.iter().flat_map(|name| coverage::covered(&Family::load(name))).collect();
    let missing: Vec<String> = coverage::required().difference(&covered).cloned().collect();
    assert!(missing.is_empty(), "no golden case has: {}", missing.join("; "));
}

/// Runs all cases before it fails, so that one run shows everything that is wrong.
fn check_family(name: &str) {
    let family = Family::load(name);
    assert!(!family.cases.is_empty(), "{name} has no cases");
    let mut failures = Vec::new();
    for case in &family.cases {
        let inputs = family.inputs(case);
        let expected = family.outputs(case);
        let types = match inferred(case, &inputs, &expected) {
            Ok(types) => types,
            Err(why) => {
                failures.push(format!("{name}/{} inference: {why}", case.name));
                continue;
            }
        };
        for executor in Executor::all() {
            if let Err(why) = check_case(case, executor, &inputs, &types, &expected) {
                failures.push(format!("{name}/{} by {executor:?}: {why}", case.name));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// The inferred types, where they fit the results.
fn inferred(case: &Case, inputs: &[Tensor], expected: &[Tensor]) -> Result<Vec<TensorType>, String> {
    let operands: Vec<&TensorType> = inputs.iter().map(Tensor::ty).collect();
    let types = case.op.infer(&operands).map_err(|error| error.to_string())?;
    if types.len() != expected.len() {
        return Err(format!("{} results inferred, {} expected", types.len(), expected.len()));
    }
    for (ty, tensor) in types.iter().zip(expected) {
        // Results that are not exact are kept in f32, whatever their storage.
        if ty.shape != *tensor.shape() || (case.exact && ty.dtype != tensor.dtype()) {
            return Err(format!("{ty} inferred, {} expected", tensor.ty()));
        }
    }
    Ok(types)
}

fn check_case(
    case: &Case,
    executor: Executor,
    inputs: &[Tensor],
    types: &[TensorType],
    expected: &[Tensor],
) -> Result<(), String> {
    let operands: Vec<&Tensor> = inputs.iter().collect();
    let results = executor.run(&case.op, &operands).map_err(|error| error.to_string())?;
    if results.len() != expected.len() {
        return Err(format!("{} results, {} expected", results.len(), expected.len()));
    }
    for (index, ((result, ty), expected)) in results.iter().zip(types).zip(expected).enumerate() {
        if result.ty() != ty {
            return Err(format!("result {index} is {}, inferred as {ty}", result.ty()));
        }
        let verdict =
            if case.exact { compare::equal(expected, result) } else { compare::close(expected, result) };
        verdict.map_err(|why| format!("result {index}: {why}"))?;
    }
    Ok(())
}
