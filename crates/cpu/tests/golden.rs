//! Every executor against tensors that others made, most of them PyTorch and diffusers (`golden/README.md`).

mod executors;

use std::collections::BTreeSet;

use kinora_testing::{coverage, executor::Reference, golden};

macro_rules! families {
    ($($family:ident),+ $(,)?) => {
        const TESTED: &[&str] = &[$(stringify!($family)),+];
        $(
            #[test]
            fn $family() {
                let mut executors = executors::fast();
                executors.push(&Reference);
                golden::check_family(stringify!($family), &executors);
            }
        )+
    };
}
families!(
    conv,
    linear,
    norm,
    pointwise,
    attention,
    attention_backward,
    arrange,
    resample,
    embedding,
    sampler,
    quantised
);

#[test]
fn every_fixture_is_tested() {
    let tested: BTreeSet<String> = TESTED.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(golden::FAMILIES.map(str::to_owned).into_iter().collect::<BTreeSet<_>>(), tested);
    assert_eq!(golden::fixtures("json"), tested);
    assert_eq!(golden::fixtures("safetensors"), tested);
}

#[test]
fn every_variant_has_golden_data() {
    let families = golden::FAMILIES.iter().map(|name| golden::Family::load(name));
    let covered: BTreeSet<String> = families.flat_map(|family| coverage::covered(&family)).collect();
    let missing: Vec<String> = coverage::required().difference(&covered).cloned().collect();
    assert!(missing.is_empty(), "no golden case has: {}", missing.join("; "));
}
