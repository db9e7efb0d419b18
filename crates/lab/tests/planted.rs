//! Kernels with one planted inefficiency each: the feedback has to rank it first, and to promise about what mending it gains.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]
#![cfg(feature = "cuda")]

#[path = "planted/kernels.rs"]
mod kernels;

use kernels::all;

#[test]
fn the_planted_inefficiency_is_ranked_first() {
    let mut wrong = Vec::new();
    for planted in all() {
        let before = planted.explained(false);
        let after = planted.explained(true);
        let gained = before.prediction.seconds / after.prediction.seconds * planted.work;
        let promised = before.advice.first().and_then(|advice| advice.gain).unwrap_or(1.0);
        let first = before.advice.first().map(|advice| advice.rule);
        let excerpt = before.advice.first().and_then(|advice| advice.excerpt.clone()).unwrap_or_default();
        let others: Vec<String> = before
            .advice
            .iter()
            .map(|advice| format!("{:?} {:.2}", advice.rule, advice.gain.unwrap_or(0.0)))
            .collect();
        let ratio = (promised / gained).max(gained / promised);
        let right = first == Some(planted.rule);
        println!(
            "{} {} {:?}: promised {promised:.2}, gained {gained:.2} ({:.1} -> {:.1} us); {excerpt:?}; {}",
            if right && ratio <= 1.5 { "ok   " } else { "WRONG" },
            planted.file,
            planted.rule,
            before.prediction.seconds * 1e6,
            after.prediction.seconds * 1e6,
            others.join(", ")
        );
        if !right || ratio > 1.5 {
            wrong.push(planted.file);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
