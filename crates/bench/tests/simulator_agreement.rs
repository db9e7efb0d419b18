//! The comparison of the simulator with a GPU, with another simulator in the GPU's place: one that agrees, and one that does not.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

#[path = "../benches/simulator_on_gpu/agreement.rs"]
mod agreement;
#[path = "../benches/simulator_on_gpu/bounds.rs"]
mod bounds;
#[allow(dead_code, reason = "there is no device whose results could be written")]
#[path = "../benches/simulator_on_gpu/report.rs"]
mod report;
#[path = "../benches/simulator_on_gpu/tables.rs"]
mod tables;

use std::{io::Write, path::Path as FilePath};

use agreement::{Agreement, Path, Side};
use bounds::Class;
use kinora_cuda::{
    Architecture, Chip, CodeForm,
    compiler::{CompileTarget, Compiler, CompilerOptions},
    kernels::{Call, Implementation, KernelSet},
    simulation::SimulatedBench,
};

type Failure = Box<dyn std::error::Error>;

/// A simulator whose results have so many of the lowest bits of their first element turned around.
struct Damaged(SimulatedBench, u8);

impl Side for Damaged {
    fn run(
        &self,
        call: &Call<'_>,
        way: &dyn Implementation,
        operands: &[&[u8]],
    ) -> Result<Vec<Vec<u8>>, String> {
        let mut results = self.0.run(call, way, operands).map_err(|error| error.to_string())?.results;
        results.iter_mut().filter(|result| !result.is_empty()).for_each(|result| result[0] ^= self.1);
        Ok(results)
    }
}

/// The kernels of Hopper beside damaged ones. `None`, and a line that says so, on a machine without a compiler.
fn path(damage: u8) -> Option<Path> {
    let options = CompilerOptions {
        cache: Some(FilePath::new(env!("CARGO_TARGET_TMPDIR")).join("agreement-kernels")),
        ..CompilerOptions::plain()
    };
    let target = CompileTarget { architecture: Architecture::HOPPER, form: CodeForm::Ptx };
    if let Err(error) = Compiler::new(target, options.clone()).and_then(|compiler| compiler.version()) {
        assert!(std::env::var_os("KINORA_REQUIRE_NVRTC").is_none(), "{error}");
        let _ = writeln!(std::io::stderr(), "simulator_agreement not run: no NVRTC");
        return None;
    }
    let chip = Chip::typical(Architecture::HOPPER);
    let other = Damaged(SimulatedBench::new(chip.clone(), options.clone()).unwrap(), damage);
    let path = Path::new("sm_90a".to_owned(), chip, KernelSet::Fused, true, options, Box::new(other));
    Some(path.unwrap())
}

/// Moves, which are exact, and a few products.
fn compared(damage: u8) -> Option<Agreement> {
    let paths = [path(damage)?];
    let mut agreement = Agreement::default();
    agreement.add_table("arrange", &tables::cases("arrange"), &paths);
    let products: Vec<_> = tables::cases("linear").into_iter().take(2).collect();
    agreement.add_table("linear", &products, &paths);
    Some(agreement)
}

#[test]
fn a_simulator_agrees_with_itself() {
    let Some(agreement) = compared(0) else { return };
    assert_eq!(agreement.failures(), 0, "{}", report::text(&agreement));
    let of = |table: &str| agreement.rows().filter(|row| row.key.table == table).collect::<Vec<_>>();
    assert!(!of("arrange").is_empty());
    assert!(of("arrange").iter().all(|row| row.key.class == Class::Exact), "{}", report::text(&agreement));
    let matrix = |name: &str| {
        let mut rows = of("linear").into_iter().filter(|row| row.key.implementation.starts_with(name));
        rows.all(|row| row.key.class == Class::Matrix && row.because_of.iter().any(|op| op.contains("mma")))
    };
    assert!(matrix("mma") && matrix("wgmma"));
    assert!(of("linear").iter().any(|row| row.key.class == Class::Matrix));
    assert!(agreement.rows().all(|row| row.distance.equal == row.distance.elements && row.calls > 0));
}

#[test]
fn one_place_off_fails_what_is_exact_and_two_are_within_a_products_bound() {
    let Some(agreement) = compared(1) else { return };
    for row in agreement.rows() {
        assert_eq!(row.agrees, row.key.class != Class::Exact, "{}", report::text(&agreement));
        assert!(row.distance.steps >= 1 && row.distance.equal < row.distance.elements);
    }
    let text = report::text(&agreement);
    assert!(text.contains(" ✗") && text.contains("rows too far"), "{text}");
}

#[test]
fn every_table_is_named_once_and_has_cases() {
    let names = tables::names();
    assert_eq!(names.len(), 11 + 21);
    assert!(names.contains(&"edges norms bf16".to_owned()));
    assert!(names.iter().all(|name| names.iter().filter(|other| *other == name).count() == 1));
    assert!(!tables::cases("edges moves f16").is_empty() && !tables::cases("sampler").is_empty());
}
