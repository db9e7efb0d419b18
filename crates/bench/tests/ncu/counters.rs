//! `crates/bench/peers/ncu_counters.py` with a fake profiler that prints Nsight Compute's tables.

use std::fs;

use crate::{peer, script};
use serde_json::{Value, json};

/// Knows no metrics of single instructions, and fails if one is requested.
const PROFILER: &str = r#"#!/bin/sh
case "$*" in
*--version*) echo "NVIDIA (R) Nsight Compute Command Line Profiler"; echo "Version 2025.3.1.0" ;;
*--query-metrics*)
    echo "Device NVIDIA H200 (GH100)"
    echo "sm__inst_executed_pipe_tensor_op_hmma   Counter   inst   # of warp instructions"
    echo "sm__inst_executed_pipe_tensor_op_gmma   Counter   inst   # of warp instructions"
    UNKNOWN
    ;;
*smsp__sass*) echo "==ERROR== Failed to find metric"; exit 1 ;;
*)
    echo "==PROF== Connected to process 4711 (/somewhere/program)"
    echo '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
    row() { echo "\"$1\",\"4711\",\"program\",\"127.0.0.1\",\"$2\",\"1\",\"7\",\"(128, 1, 1)\",\"(40, 1, 1)\",\"0\",\"9.0\",\"Command line profiler metrics\",\"$3\",\"$4\",\"$5\""; }
    row 0 memset l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum sector 99
    for id in 1 2; do
        row $id mma l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum sector "1,500"
        row $id mma l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum request 150
        row $id mma l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum sector 0
        row $id mma l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum "" "2,000"
        row $id mma l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum "" 10
        row $id mma sm__inst_executed_pipe_tensor_op_hmma.sum inst 640
        row $id mma sm__inst_executed_pipe_tensor_op_gmma.sum inst 640
        row $id mma smsp__inst_executed.sum inst n/a
    done
    ;;
esac
"#;

/// Two launches of a kernel: 3 % more sectors than the profiler's, no conflicts, and these numbers of matrix instructions.
fn program(matrix_instructions: [u32; 2]) -> String {
    let traffic =
        |requests, transactions| json!({"requests": requests, "transactions": transactions, "conflicts": 0});
    let counters = |matrix_instructions| {
        json!({
            "global_loads": traffic(150, 1545), "async_loads": traffic(50, 500), "global_stores": traffic(0, 0),
            "shared_loads": traffic(500, 2000), "shared_stores": traffic(0, 0), "matrix_instructions": matrix_instructions,
            "bulk_copies": 0, "instructions": {"integer": 1, "matrix": 2},
        })
    };
    let launches = matrix_instructions
        .map(|count| json!({"kernel": "matrix/mma.cu:mma", "entry": "mma", "counters": counters(count)}));
    let counted = json!({"call": "linear", "way": "mma 64x64", "chip": "sm_90a", "launches": launches});
    format!("#!/bin/sh\ncase \"$2\" in\nlist) echo '[\"linear\"]' ;;\n*) echo '{counted}' ;;\nesac\n")
}

struct Compared {
    document: Value,
    text: String,
    code: Option<i32>,
}

fn compared(profiler: &str, matrix_instructions: [u32; 2]) -> Compared {
    let folder = tempfile::tempdir().unwrap();
    let ncu = script(folder.path(), "ncu", profiler);
    let program = script(folder.path(), "program", &program(matrix_instructions));
    let out = folder.path().join("out.json");
    let (text, code) = peer(
        "ncu_counters.py",
        &[
            "--out".as_ref(),
            out.as_os_str(),
            "--ncu".as_ref(),
            ncu.as_os_str(),
            "--program".as_ref(),
            program.as_os_str(),
        ],
    );
    let written = fs::read_to_string(&out).unwrap_or_else(|error| panic!("{error}: {text}"));
    Compared { document: serde_json::from_str(&written).unwrap(), text, code }
}

/// Checks the comparison if the simulator counts half of the tensor instructions.
fn check_half(Compared { document, text, code }: &Compared) {
    let call = &document["calls"]["linear"];
    let of = |name: &str| &call["compared"][name];
    assert_eq!(document["profiler"], "Version 2025.3.1.0");
    assert_eq!(call["launches"].as_array().map(Vec::len), Some(2), "{text}");
    // Both launches together, without the driver's own; copies to shared memory are loads as well.
    assert_eq!(of("global load sectors")["ncu"], 3000.0, "{text}");
    assert_eq!(of("global load sectors")["simulator"], 3090);
    assert!((of("global load sectors")["difference"].as_f64().unwrap() - 0.03).abs() < 1e-9);
    assert_eq!(of("global load sectors")["agrees"], true);
    assert_eq!(of("global load requests")["difference"], 0.0);
    // Without wavefronts of single instructions, the unit's count. Ten conflicts in 2,000 wavefronts are within the tolerance.
    assert_eq!(of("shared load wavefronts")["agrees"], true);
    assert_eq!(of("shared load conflicts")["ncu"], 20.0);
    assert_eq!(of("shared load conflicts")["agrees"], true);
    assert_eq!(of("tensor instructions")["difference"], -0.5);
    assert_eq!(of("tensor instructions")["agrees"], false);
    // A count that was not collected is unknown; it neither agrees nor differs.
    assert_eq!(of("async load sectors")["agrees"], Value::Null);
    assert_eq!(call["beside"]["instructions"]["ncu"], Value::Null);
    assert_eq!(document["summary"]["tensor instructions"]["apart"]["linear"], -0.5);
    assert!(text.contains("tensor instructions") && text.contains("0 of 1 calls agree"), "{text}");
    assert_eq!(*code, Some(1), "one that is apart fails: {text}");
}

#[test]
fn counts_are_compared_with_the_profilers() {
    check_half(&compared(&PROFILER.replace("UNKNOWN", ""), [320; 2]));
}

#[test]
fn counts_that_agree_are_a_success() {
    let Compared { document, text, code } = compared(&PROFILER.replace("UNKNOWN", ""), [640; 2]);
    assert_eq!(document["summary"]["tensor instructions"], json!({"calls": 1, "agree": 1, "apart": {}}));
    assert_eq!(code, Some(0), "{text}");
}

/// The profiler also counts other work of the matrix unit. Without matrix instructions nothing else is left to compare.
#[test]
fn without_matrix_instructions_the_count_of_the_unit_is_unknown() {
    let Compared { document, text, code } = compared(&PROFILER.replace("UNKNOWN", ""), [0; 2]);
    let tensor = &document["calls"]["linear"]["compared"]["tensor instructions"];
    assert_eq!((&tensor["ncu"], &tensor["agrees"]), (&Value::Null, &Value::Null), "{text}");
    assert_eq!(code, Some(0), "{text}");
}

/// The unit's work in a launch without matrix instructions is not added to the matrix instructions of another.
#[test]
fn a_launch_without_matrix_instructions_is_left_out_of_the_sum() {
    let Compared { document, text, code } = compared(&PROFILER.replace("UNKNOWN", ""), [640, 0]);
    let tensor = &document["calls"]["linear"]["compared"]["tensor instructions"];
    assert_eq!((&tensor["ncu"], &tensor["agrees"]), (&json!(640.0), &json!(true)), "{text}");
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_run_that_compares_nothing_is_a_failure() {
    let silent = PROFILER.replace("UNKNOWN", "").replace("row $id", ":");
    let Compared { document, text, code } = compared(&silent, [640; 2]);
    assert!(document["calls"]["linear"]["failed"].is_string(), "{document}");
    assert!(text.contains("nothing was compared"), "{text}");
    assert_eq!(code, Some(1), "{text}");
}

/// Only the unit counts conflicts, with the cycles of other traffic among its conflicts and its wavefronts: 600 of each here.
#[test]
fn wavefronts_of_no_instruction_are_subtracted_from_conflicts() {
    let wavefronts = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld";
    let known = PROFILER
        .replace("UNKNOWN", &format!("echo {wavefronts} Counter"))
        .replace("*smsp__sass*)", "*never*)")
        .replace(
            "row $id mma smsp__inst",
            &format!("row $id mma {wavefronts}.sum \"\" \"2,000\"; row $id mma smsp__inst"),
        )
        .replace(
            "wavefronts_mem_shared_op_ld.sum \"\" \"2,000\"\n",
            "wavefronts_mem_shared_op_ld.sum \"\" \"2,600\"\n",
        )
        .replace("shared_op_ld.sum \"\" 10", "shared_op_ld.sum \"\" 615");
    let Compared { document, text, code } = compared(&known, [640; 2]);
    let call = &document["calls"]["linear"];
    assert_eq!(call["beside"]["shared load wavefronts of the unit"]["ncu"], 5200.0, "{text}");
    assert_eq!(call["compared"]["shared load wavefronts"]["ncu"], 4000.0, "{text}");
    assert_eq!(call["compared"]["shared load conflicts"]["ncu"], 30.0, "{text}");
    assert_eq!(code, Some(0), "{text}");
}

/// A metric that is listed but cannot be collected does not spoil the others.
#[test]
fn a_metric_that_is_refused_does_not_spoil_the_others() {
    let listed = "echo smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld Counter";
    let compared = compared(&PROFILER.replace("UNKNOWN", listed), [320; 2]);
    assert!(compared.text.contains("trying again with fewer metrics"), "{}", compared.text);
    check_half(&compared);
}

#[test]
fn a_profiler_without_permission_is_reported() {
    let refused = "#!/bin/sh\ncase \"$*\" in\n*--version*) echo Version 1 ;;\n*) echo '==ERROR== ERR_NVGPUCTRPERM'; exit 1 ;;\nesac\n";
    let Compared { document, text, code } = compared(refused, [320; 2]);
    let failed = document["calls"]["linear"]["failed"].as_str().unwrap_or_default();
    assert!(failed.contains("ERR_NVGPUCTRPERM"), "{document} {text}");
    assert_eq!(code, Some(1), "{text}");
}
