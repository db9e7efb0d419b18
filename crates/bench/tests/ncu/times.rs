//! `crates/bench/peers/ncu_times.py` with a fake profiler.

use std::{ffi::OsStr, fs};

use crate::{peer, script};
use serde_json::{Value, json};

/// Runs the given program, and reports two launches of `wgmma` and one of `cast`.
const PROFILER: &str = r#"#!/bin/sh
case "$*" in
*--version*) echo "NVIDIA (R) Nsight Compute Command Line Profiler"; echo "Version 2025.3.1.0"; exit ;;
esac
until [ "${1##*/}" = kinora ]; do
    [ "$1" = --log-file ] && log="$2"
    shift || exit 3
done
"$@" || exit
{
    echo "==PROF== Connected to process 4711 (/somewhere/kinora)"
    echo '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
    row() { echo "\"$1\",\"4711\",\"$2\",\"$3\",\"\",\"$4\""; }
    for id in 0 1; do
        row $id wgmma gpu__time_duration.sum "100,000"
        row $id wgmma sm__cycles_elapsed.avg.per_second "1,900,000,000"
    done
    row 2 cast gpu__time_duration.sum 200
    row 2 cast sm__cycles_elapsed.avg.per_second "1,900,000,000"
    row 3 own_of_the_driver gpu__time_duration.sum 5000
} > "$log"
"#;

struct Compared {
    document: Value,
    text: String,
    code: Option<i32>,
}

/// Accepts only its own words.
const PROGRAM: &str =
    "#!/bin/sh\n[ \"$*\" = 'generate photo.png --steps 2' ] || exit 3\necho 'wrote a clip'\n";

/// Compares a profile whose two launches of `wgmma` took these times, and one of `cast` 400 ns.
fn compared(wgmma: [u64; 2], profiler: &str) -> Compared {
    let folder = tempfile::tempdir().unwrap();
    let kernel = |name: &str, start: u64, took: u64| json!({"name": name, "kind": "kernel", "work": 0, "start": start, "end": start + took});
    let activity = json!([
        {"name": "fill", "kind": "fill", "bytes": 8, "start": 1, "end": 9},
        kernel("wgmma", 1_000, wgmma[0]),
        kernel("cast", 500_000, 400),
        kernel("wgmma", 600_000, wgmma[1]),
    ]);
    let profile = folder.path().join("profile.json");
    fs::write(&profile, json!({"activity": activity}).to_string()).unwrap();
    let (ncu, program) = (script(folder.path(), "ncu", profiler), script(folder.path(), "kinora", PROGRAM));
    let out = folder.path().join("out.json");
    let files = [("--profile", &profile), ("--out", &out), ("--ncu", &ncu), ("--program", &program)];
    let mut words =
        files.iter().flat_map(|(name, path)| [name.as_ref(), path.as_os_str()]).collect::<Vec<_>>();
    words.extend(["--", "generate", "photo.png", "--steps", "2"].map(OsStr::new));
    let (text, code) = peer("ncu_times.py", &words);
    let document = fs::read_to_string(&out).map_or(Value::Null, |text| serde_json::from_str(&text).unwrap());
    Compared { document, text, code }
}

#[test]
fn launches_of_the_same_name_are_added_up() {
    let Compared { document, text, code } = compared([104_000, 100_000], PROFILER);
    assert_eq!(code, Some(0), "{text}");
    let (wgmma, cast) = (&document["kernels"][0], &document["kernels"][1]);
    assert_eq!((&wgmma["kernel"], &wgmma["launches"]), (&json!("wgmma"), &json!(2)));
    assert_eq!(
        (&wgmma["profile_nanoseconds"], &wgmma["ncu_nanoseconds"]),
        (&json!(204_000), &json!(200_000.0))
    );
    assert!((wgmma["difference"].as_f64().unwrap() - 0.02).abs() < 1e-9, "{wgmma}");
    assert_eq!(wgmma["agrees"], true);
    // Twice as long, but only a thousandth of the whole.
    assert_eq!((&cast["difference"], &cast["agrees"]), (&json!(1.0), &Value::Null));
    assert_eq!(document["unequal"], json!({"own_of_the_driver": {"profile": 0, "ncu": 1}}));
    assert_eq!(document["ncu_clock_hertz"], 1.9e9);
    assert_eq!((&document["summary"]["judged"], &document["summary"]["agree"]), (&json!(1), &json!(1)));
}

#[test]
fn kernels_that_differ_are_a_failure() {
    let Compared { document, text, code } = compared([108_000, 100_000], PROFILER);
    assert_eq!((&document["kernels"][0]["agrees"], code), (&json!(false), Some(1)), "{text}");
    assert!(text.contains("0 of 1 kernels within 3 %"), "{text}");
}

#[test]
fn another_clip_is_a_failure() {
    // The kernels in common take little of the profile's time.
    let other = PROFILER.replace("for id in 0 1;", "for id in 0 1 9;");
    let Compared { text, code, .. } = compared([104_000, 100_000], &other);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("is it the same clip?") && !text.contains("Traceback"), "{text}");
}

#[test]
fn a_profiler_that_fails_is_reported() {
    let Compared { document, text, code } =
        compared([1, 1], "#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM'; exit 1\n");
    assert_eq!((&document, code), (&Value::Null, Some(1)));
    assert!(text.contains("ERR_NVGPUCTRPERM") && !text.contains("Traceback"), "{text}");
}
