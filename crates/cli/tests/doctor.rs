//! `kinora doctor`.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use support::{answer, kinora, run};

const LOOKED_AT: [&str; 19] = [
    "CPU",
    "memory",
    "driver",
    "GPU",
    "compiler",
    "libraries",
    "tracing",
    "cache",
    "convolutions",
    "products",
    "attention",
    "norms",
    "elements",
    "pictures",
    "sampler",
    "model",
    "clip",
    "profiler",
    "speed",
];

#[test]
fn a_machine_without_a_gpu_is_well() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let examined =
        answer(kinora().args(["doctor", "--device", "cpu", "--json"]).env("KINORA_CACHE_DIR", &cache));
    assert_eq!(examined.code, Some(0), "{examined:?}");
    let found = examined.json();
    assert_eq!(found["well"], true);
    let findings = found["findings"].as_array().unwrap();
    let names: Vec<&str> = findings.iter().map(|finding| finding["name"].as_str().unwrap()).collect();
    assert_eq!(names, LOOKED_AT);
    assert!(findings[7]["found"].as_str().unwrap().starts_with(cache.to_str().unwrap()), "{found}");
    assert!(findings[18]["found"].as_str().unwrap().contains("FLOP/s"), "{found}");

    let text = run(&["doctor", "--device", "cpu"]).text();
    assert!(text.contains("convolutions") && text.ends_with("Everything works.\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours in a pipe: {text}");
    // Nothing is said twice, and checks that have no reason to run share a line.
    let mut said: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("  ")).map(|(_, said)| said.trim()).collect();
    said.retain(|said| !said.starts_with("matches the reference"));
    let all = said.len();
    said.sort();
    said.dedup();
    assert_eq!(said.len(), all, "{text}");
    // CUPTI may be installed.
    assert!(text.contains("– libraries, tracing") || text.contains("CUPTI"), "{text}");
    assert!(!text.contains("0e0") && !text.contains("available: what the machine has available"), "{text}");
}

#[test]
fn what_does_not_work_is_said_with_what_to_do() {
    // No machine has so many.
    let examined = run(&["doctor", "--device", "cuda:63", "--json"]);
    assert_eq!(examined.code, Some(1), "{examined:?}");
    let found = examined.json();
    assert_eq!(found["well"], false);
    let driver_or_gpu =
        found["findings"].as_array().unwrap().iter().find(|finding| finding["status"] == "bad").unwrap();
    assert!(driver_or_gpu["advice"].as_str().unwrap().contains("--device"), "{found}");
    // It is the one thing to mend: what depends on it is not a bug to report.
    let bad =
        found["findings"].as_array().unwrap().iter().filter(|finding| finding["status"] == "bad").count();
    assert_eq!(bad, 1, "{found}");
    assert!(!found["findings"].to_string().contains("report"), "{found}");
    assert_eq!((&found["error"]["kind"], &found["error"]["exit_code"]), (&"unwell".into(), &1.into()));
    run(&["doctor", "--device", "abacus"]).must_fail(2, &["abacus"]);
    // A cache that cannot be written is no reason not to work.
    let cached =
        answer(kinora().args(["doctor", "--device", "cpu"]).env("KINORA_CACHE_DIR", "/dev/null/cache"));
    assert_eq!(cached.code, Some(0), "{cached:?}");
    assert!(cached.text().contains("set KINORA_CACHE_DIR"), "{cached:?}");
}
