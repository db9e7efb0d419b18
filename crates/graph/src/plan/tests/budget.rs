//! Budgets: what the error says, and that it comes only where it must.

use super::{super::*, *};

/// A step whose widest buffer grows with `width`.
fn network(width: usize) -> Graph {
    let mut g = GraphBuilder::new("unet");
    let x = g.input("latents", floats(256), Phase::Step).unwrap();
    let w = g.parameter("weight", floats(512)).unwrap();
    let y = g.scope("mid", |g| {
        let wide = g.concat("wide", &vec![x; width], 0)?;
        let act = g.activate("act", wide, crate::op::Activation::Silu)?;
        let out = g.slice("out", act, 0, 0, 256)?;
        let double = g.concat("double", &[out, out], 0)?;
        g.add("shift", double, w)
    });
    g.output("y", y.unwrap()).unwrap();
    g.finish()
}

fn attempt(budget: usize, alternatives: &[Alternative<'_>]) -> Result<Plan, PlanError> {
    Plan::new(&network(64), &PLAIN, &PlanOptions { budget: Some(budget), alternatives })
}

#[test]
fn exactly_enough_is_enough() {
    // Two buffers of 64 KiB, and 2 KiB of weights.
    let need = 2 * 65536 + 2048;
    assert_eq!(attempt(need, &[]).unwrap().peak_bytes(), need);
    let error = attempt(need - 1, &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unet needs 133120 bytes (weights 2.0 KiB, activations 128.0 KiB), the budget is 133119 bytes; largest at the \
         peak (layer mid.act): mid.wide 64.0 KiB, mid.act 64.0 KiB"
    );
}

#[test]
fn the_first_alternative_that_fits_is_named() {
    let make = |width: usize| move || Ok(network(width));
    let (half, quarter, eighth) = (make(32), make(16), make(8));
    let broken = || Err(GraphError::Json(crate::SharedError::new("no")));
    let alternative = |flag: &str, graph| Alternative { flag: flag.to_owned(), graph };
    let alternatives = [
        alternative("--broken", &broken as &dyn Fn() -> _),
        alternative("--decode-chunk 4", &half),
        alternative("--decode-chunk 2", &quarter),
        alternative("--decode-chunk 1", &eighth),
    ];
    let error = attempt(40 << 10, &alternatives).unwrap_err();
    let PlanError::OverBudget { need, budget, weights, arena, largest, fits, details } = &error else {
        panic!("{error:?}");
    };
    assert_eq!((*need, *budget, *weights, *arena), (133120, 40960, 2048, 131072));
    assert_eq!(largest, &[("mid.wide".to_owned(), 65536), ("mid.act".to_owned(), 65536)]);
    assert_eq!(fits, &Some(("--decode-chunk 2".to_owned(), 34816)));
    assert_eq!((details.alternatives, details.least), (2, 34816));
    assert_eq!(
        error.to_string(),
        "unet needs 130.0 KiB (weights 2.0 KiB, activations 128.0 KiB), the budget is 40.0 KiB; largest at the peak \
         (layer mid.act): mid.wide 64.0 KiB, mid.act 64.0 KiB; --decode-chunk 2 would fit in 34.0 KiB"
    );

    let error = attempt(3000, &alternatives).unwrap_err().to_string();
    assert!(error.ends_with("; nothing that was tried fits; at least 18.0 KiB is needed"), "{error}");
}

#[test]
fn a_workspace_at_the_peak_is_named() {
    let target = Backend { workspace: 100_000, ..PLAIN };
    let options = PlanOptions { budget: Some(0), ..PlanOptions::default() };
    let error = Plan::new(&network(4), &target, &options).unwrap_err().to_string();
    assert!(error.contains("(layer mid.act): workspace of mid.act 97.7 KiB, mid.wide 4.0 KiB"), "{error}");
}
