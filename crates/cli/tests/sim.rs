//! `kinora sim`.
#![cfg(all(feature = "cuda", feature = "simulator"))]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{io::Write, path::Path};

use support::{Answer, Studio, answer, kinora};

const SCALE: &str = r#"
extern "C" __global__ void scale(float *x, int count, float factor) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at LIMIT count) x[at] *= factor;
}
"#;

/// Runs here and not in a folder of its own: the compiler of the project's environment is found from here.
fn sim(file: &Path, words: &[&str]) -> Answer {
    answer(kinora().arg("sim").arg(file).args(words))
}

/// Whether there is no compiler, which is said.
fn no_compiler(ran: &Answer) -> bool {
    let absent =
        ran.stderr.contains("(NVRTC) was not found") && std::env::var_os("KINORA_REQUIRE_NVRTC").is_none();
    if absent {
        let _ = writeln!(std::io::stderr(), "sim not run: no NVRTC");
    }
    absent
}

#[test]
fn a_right_kernel_computes_and_a_wrong_one_is_found_at_its_line() {
    let place = Studio::new();
    let source = |name: &str, limit: &str| place.write(name, SCALE.replace("LIMIT", limit).as_bytes());
    let words = [
        "--grid",
        "4",
        "--block",
        "32",
        "--arg",
        "f32[100]=3",
        "--arg",
        "i32:100",
        "--arg",
        "f32:0.5",
        "--show",
        "2",
    ];
    let right = sim(&source("right.cu", "<"), &words);
    if no_compiler(&right) {
        return;
    }
    let text = right.text();
    assert!(text.contains("nothing found") && text.contains("argument 0: 1.5 1.5"), "{text}");
    assert!(text.contains("global loads"), "{text}");

    let wrong = sim(&source("wrong.cu", "<="), &[&words[..], &["--json"]].concat());
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    let found = wrong.json();
    let finding = &found["findings"][0];
    assert_eq!(finding["source"]["line"], 4, "{found}");
    assert!(finding["source"]["file"].as_str().unwrap().ends_with("wrong.cu"), "{found}");
    assert_eq!(finding["thread"][0], 4, "{found}");
    assert!(found["counters"]["global_loads"]["requests"].as_u64() >= Some(4), "{found}");

    let output = format!("0={}", place.folder.path().join("out.bin").display());
    let written = sim(&source("again.cu", "<"), &[&words[..], &["--write", &output]].concat());
    assert_eq!(written.code, Some(0), "{written:?}");
    assert_eq!(place.read("out.bin"), 1.5f32.to_le_bytes().repeat(100));
}

#[test]
fn atomics_and_local_memory_are_among_the_costs() {
    let place = Studio::new();
    let source = "extern \"C\" __global__ void k(unsigned *y) {
        __shared__ unsigned sum;
        volatile unsigned own[2];
        own[threadIdx.x % 2] = threadIdx.x;
        if (threadIdx.x == 0) sum = 0;
        __syncthreads();
        atomicAdd(&sum, own[threadIdx.x % 2]);
        __syncthreads();
        y[threadIdx.x] = sum;
    }";
    let file = place.write("sum.cu", source.as_bytes());
    let words = ["--grid", "1", "--block", "32", "--arg", "u32[32]", "--show", "1"];
    let ran = sim(&file, &words);
    if no_compiler(&ran) {
        return;
    }
    let text = ran.text();
    for line in [
        "shared atomics               128 B in 1 request and 32 wavefronts, 31 from bank conflicts (ideal: 1)",
        "local loads                  128 B",
        "local stores                 128 B",
        "argument 0: 496",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let counters = &sim(&file, &[&words[..], &["--json"]].concat()).json()["counters"];
    assert_eq!(counters["shared_atomics"]["transactions"], 32, "{counters}");
    assert_eq!(counters["local_load_bytes"], 128, "{counters}");
    assert_eq!(counters["local_store_bytes"], 128, "{counters}");
}

/// Two kernels of one template, none of them `extern "C"`, and a third with a bug.
const TEMPLATES: &[u8] = b"namespace ns {
template <typename T> __global__ void twice(T *x) { x[threadIdx.x] *= 2; }
template __global__ void twice<float>(float *);
template __global__ void twice<int>(int *);
}
__global__ void beyond(const float *x, float *y) {
    y[threadIdx.x] = x[threadIdx.x + 1];
}
";

#[test]
fn kernels_have_their_names_in_cpp() {
    let place = Studio::new();
    let file = place.write("names.cu", TEMPLATES);
    let launch = ["--grid", "1", "--block", "32", "--show", "1"];
    let named = |entry: &str, argument: &str| {
        sim(&file, &[&launch[..], &["--entry", entry, "--arg", argument]].concat())
    };
    let ran = named("twice<int>", "i32[32]=3");
    if no_compiler(&ran) {
        return;
    }
    assert!(ran.code == Some(0) && ran.text().ends_with("argument 0: 6\n"), "{ran:?}");
    assert!(ran.text().starts_with("void ns::twice<int>(int*) on a simulated"), "{ran:?}");
    for entry in ["ns::twice<float>", "void ns::twice<float>(float*)", "_ZN2ns5twiceIfEEvPT_"] {
        let ran = named(entry, "f32[32]=3");
        assert!(ran.code == Some(0) && ran.text().ends_with("argument 0: 6\n"), "{entry}: {ran:?}");
    }
    let several = named("twice", "f32[32]=3");
    assert_eq!(several.code, Some(2), "{several:?}");
    for said in ["void ns::twice<float>(float*)", "void ns::twice<int>(int*)"] {
        assert!(several.stderr.contains(said), "{several:?}");
    }
    assert!(sim(&file, &launch).stderr.contains("beyond(const float*, float*)"));
    assert_eq!(named("thrice", "f32[32]=3").code, Some(2));

    // A finding shows the line's text, and the words of compute-sanitizer.
    let asked = ["--entry", "beyond", "--arg", "f32[32]=3", "--arg", "f32[32]", "--by-line"];
    let found = sim(&file, &[&launch[..], &asked].concat());
    assert_eq!(found.code, Some(1), "{found:?}");
    let text = found.text();
    for said in [
        "OutOfBounds in beyond(const float*, float*)",
        "Invalid __global__ read of size 4 bytes",
        "> 7 |     y[threadIdx.x] = x[threadIdx.x + 1];",
        "names.cu:7: ",
        "sectors/request",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let predicted = sim(&file, &[&launch[..], &asked, &["--device-profile", "h200", "--json"]].concat());
    let json = predicted.json();
    assert_eq!(json["findings"][0]["function"], "beyond(const float*, float*)", "{json}");
    let lines = json["prediction"]["by_line"]["source"].as_array().unwrap();
    let line = lines.iter().find(|line| line["source"]["line"] == 7).unwrap();
    assert!(line["stalls"]["clocks"]["long_scoreboard"].as_f64().unwrap() > 100.0, "{line}");
}

/// The path, as the user gave it, seen from the folder that the tests run in.
#[test]
fn a_finding_names_the_file_as_it_was_given() {
    let place = Studio::new();
    let file = place.write("wrong.cu", SCALE.replace("LIMIT", "<=").as_bytes());
    let up = std::env::current_dir().unwrap().components().skip(1).map(|_| "../").collect::<String>();
    let relative = up + file.to_str().unwrap().trim_start_matches('/');
    let words = ["--grid", "1", "--block", "32", "--arg", "f32[8]=3", "--arg", "i32:8", "--arg", "f32:0.5"];
    for given in [relative.as_str(), file.to_str().unwrap()] {
        let found = sim(Path::new(given), &words);
        if no_compiler(&found) {
            return;
        }
        assert!(found.text().contains(&format!(" at {given}:4")), "{given}: {found:?}");
    }
}

#[test]
fn a_header_that_is_not_found_is_helped_with() {
    let place = Studio::new();
    let source = format!("#include <cuda_fp16.h>\n{}", SCALE.replace("LIMIT", "<"));
    let file = place.write("half.cu", source.as_bytes());
    let words = ["--grid", "1", "--block", "32", "--arg", "f32[8]=3", "--arg", "i32:8", "--arg", "f32:0.5"];
    let refused = sim(&file, &words);
    if no_compiler(&refused) {
        return;
    }
    refused.must_fail(
        3,
        &["could not open source file", "--compile=-IFOLDER", "pip install nvidia-cuda-runtime"],
    );
    place.write("cuda_fp16.h", b"");
    let folder = format!("--compile=-I{}", place.folder.path().display());
    let found = sim(&file, &[&words[..], &[&folder]].concat());
    assert_eq!(found.code, Some(0), "{found:?}");
}

#[test]
fn non_finite_numbers_are_found_if_asked_for() {
    let place = Studio::new();
    let source = SCALE.replace("LIMIT", "<");
    let file = place.write("large.cu", source.as_bytes());
    let words =
        ["--grid", "1", "--block", "32", "--arg", "f32[32]=1e30", "--arg", "i32:32", "--arg", "f32:1e30"];
    let unasked = sim(&file, &words);
    if no_compiler(&unasked) {
        return;
    }
    assert_eq!(unasked.code, Some(0), "{unasked:?}");
    let found = sim(&file, &[&words[..], &["--check", "nan", "--json"]].concat());
    assert_eq!(found.code, Some(1), "{found:?}");
    let found = found.json();
    assert_eq!(found["findings"][0]["kind"], "NotFinite", "{found}");
    assert_eq!(found["findings"][0]["source"]["line"], 4, "{found}");
}

#[test]
fn what_cannot_be_run_is_said() {
    let place = Studio::new();
    let ptx = place.write("bad.ptx", b".version 8.0\n.target sm_80\n.address_size 64\nnonsense");
    let grid = ["--grid", "1", "--block", "32"];
    sim(&ptx, &grid).must_fail(3, &["bad.ptx", "4"]);
    sim(Path::new("none.cu"), &grid).must_fail(3, &["cannot read none.cu"]);
    sim(&ptx, &["--grid", "x", "--block", "1"]).must_fail(2, &["--grid"]);
    sim(&ptx, &["--grid", "1", "--block", "1", "--arg", "f33[4]"]).must_fail(2, &["f33"]);
    sim(&ptx, &["--grid", "1", "--block", "1", "--chip", "abacus"]).must_fail(2, &["t4"]);
    sim(&ptx, &["--grid", "1", "--block", "1", "--write", "x"]).must_fail(2, &["NUMBER=FILE"]);
    let twice = ["--write", "0=out.bin", "--write", "1=./out.bin"];
    sim(&ptx, &[&grid[..], &twice].concat()).must_fail(2, &["./out.bin is named for two outputs"]);
    // Names and values that are empty, as an unset variable of a script would give them.
    sim(&ptx, &[&grid[..], &["--entry", ""]].concat()).must_fail(2, &["--entry"]);
    sim(&ptx, &[&grid[..], &["--arg", "bytes:"]].concat()).must_fail(2, &["\"\" is not a sequence of bytes"]);
    sim(&ptx, &[&grid[..], &["--shared", "x"]].concat()).must_fail(2, &["--shared", "whole number"]);
    sim(&ptx, &[&grid[..], &["--steps", "99999999999999999999"]].concat()).must_fail(2, &["too large"]);
    // A prediction is for a device profile, and is not left out in silence.
    for words in [&["--predict-only"][..], &["--calibration", "none.json"]] {
        for chip in [&[][..], &["--chip", "t4"]] {
            sim(&ptx, &[&grid[..], chip, words].concat()).must_fail(2, &[words[0]]);
        }
    }
}

/// Stores the thread's number.
const STORE: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry store(.param .u64 to) {
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [to];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    ret;
}
";

/// A kernel that prints its thread's number, allocates, and asserts that it is less than `n`.
const PRINTING: &str = r#"
extern "C" __global__ void k(int n) {
    int *block = (int *)malloc(400);
    printf("thread %d %s\n", threadIdx.x, block ? "has memory" : "has none");
    free(block);
    assert((int)threadIdx.x < n);
}
"#;

#[test]
fn what_a_kernel_prints_is_shown() {
    let place = Studio::new();
    let source = place.write("printing.cu", PRINTING.as_bytes());
    let run = |more: &[&str]| sim(&source, &[&["--grid", "1", "--block", "2"], more].concat());
    let right = run(&["--arg", "i32:2"]);
    if no_compiler(&right) {
        return;
    }
    let text = right.text();
    assert!(text.contains("printed by the kernel:\nthread 0 has memory\nthread 1 has memory\n"), "{text}");
    let wrong = run(&["--arg", "i32:1", "--heap", "300", "--json"]).json();
    assert_eq!(wrong["printf"]["text"], "thread 0 has none\nthread 1 has none\n", "{wrong}");
    assert_eq!(wrong["findings"][0]["kind"], "Assert", "{wrong}");
    assert_eq!(wrong["findings"][0]["thread"][0], 1, "{wrong}");
}

#[test]
fn ptx_is_known_by_its_content() {
    let place = Studio::new();
    let words = ["--grid", "1", "--block", "4", "--arg", "u32[4]", "--show", "4"];
    for name in ["store.ptx", "STORE.PTX", "store", "store.txt"] {
        let ran = sim(&place.write(name, STORE.as_bytes()), &words);
        assert!(ran.code == Some(0) && ran.text().ends_with("argument 0: 0 1 2 3\n"), "{name}: {ran:?}");
    }
    let file = place.write("store.ptx", STORE.as_bytes());
    sim(&file, &[&words[..], &["--compile", "-DX"]].concat()).must_fail(2, &["--compile", "PTX"]);
    // With `--json`, a finding is an error too.
    let short = sim(&file, &["--grid", "1", "--block", "4", "--arg", "u32[3]", "--json"]);
    assert_eq!(short.code, Some(1), "{short:?}");
    let json = short.json();
    assert_eq!(
        (&json["error"]["kind"], &json["findings"][0]["kind"]),
        (&"simulation".into(), &"OutOfBounds".into())
    );
}

#[test]
fn values_of_every_type_and_an_end_to_loops() {
    let place = Studio::new();
    let source = b"struct P { int a; double b; };
extern \"C\" __global__ void k(float *y, double d, short s, P p) { y[threadIdx.x] = d + s + p.a + p.b; }";
    let file = place.write("values.cu", source);
    let launch = ["--grid", "1", "--block", "32", "--arg", "f32[32]", "--arg", "f64:0.5", "--arg", "i16:-2"];
    let value = ["--args", "bytes:0a000000000000000000000000000440", "--show", "1"];
    let done = sim(&file, &[&launch[..], &value].concat());
    if no_compiler(&done) {
        return;
    }
    assert!(done.code == Some(0) && done.text().ends_with("argument 0: 11\n"), "{done:?}");
    let source = b"extern \"C\" __global__ void k(volatile int *p) { while (p[0] == 0) {} }";
    let file = place.write("loop.cu", source);
    let launch = ["--grid", "1", "--block", "32", "--arg", "i32[1]=0", "--steps", "100000"];
    let ended = sim(&file, &launch);
    assert!(ended.code == Some(1) && ended.text().contains("StepLimit"), "{ended:?}");
}

#[test]
fn a_prediction_says_how_long_and_why() {
    let place = Studio::new();
    let source = place.write("scale.cu", SCALE.replace("LIMIT", "<").as_bytes());
    let words = ["--grid", "400000", "--block", "256", "--arg", "f32[102400000]", "--arg", "i32:102400000"];
    let asked = [&words[..], &["--arg", "f32:0.5", "--device-profile", "t4", "--predict-only"]].concat();
    let ran = sim(&source, &asked);
    if no_compiler(&ran) {
        return;
    }
    let text = ran.text();
    assert!(text.contains("predicted") && text.contains("limited by DRAM"), "{text}");
    assert!(!text.contains("note:"), "{text}");
    // What a buffer holds is not read for it, and whoever gave it something is told.
    let given =
        asked.iter().map(|&word| if word == "f32[102400000]" { "f32[102400000]=random" } else { word });
    let given = sim(&source, &given.collect::<Vec<_>>());
    assert!(
        given.code == Some(0) && given.text().contains("note: --predict-only ignores what buffers hold"),
        "{given:?}"
    );
    let found = sim(&source, &[&asked[..], &["--json"]].concat()).json();
    assert_eq!(found["prediction"]["limiter"], "dram", "{found}");
    assert_eq!(found["prediction"]["occupancy"]["blocks"], 4, "{found}");
    let calibration = place.write("wrong.json", b"{}");
    let wrong = sim(&source, &[&asked[..], &["--calibration", calibration.to_str().unwrap()]].concat());
    assert_eq!(wrong.code, Some(3), "{wrong:?}");
    assert!(wrong.stderr.contains("wrong.json is not a calibration"), "{wrong:?}");
    sim(&source, &[&words[..], &["--predict-only"]].concat()).must_fail(2, &["--device-profile"]);
}

#[test]
fn a_kernel_copies_a_box_of_a_tensor_map() {
    const TILE: &str = r#"
struct alignas(64) Map { unsigned char bytes[128]; };
extern "C" __global__ void tile(const __grid_constant__ Map map, float *y) {
    __shared__ alignas(128) float box[4 * 8];
    __shared__ alignas(8) unsigned long long arrived;
    unsigned barrier = (unsigned)__cvta_generic_to_shared(&arrived), to = (unsigned)__cvta_generic_to_shared(box);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(barrier) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 128;" :: "r"(barrier) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {8, 4}], [%2];"
            :: "r"(to), "l"(&map), "r"(barrier) : "memory");
    }
    __syncthreads();
    unsigned done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }"
            : "=r"(done) : "r"(barrier) : "memory");
    } while (!done);
    y[threadIdx.x] = box[threadIdx.x];
}
"#;
    let place = Studio::new();
    let file = place.write("tile.cu", TILE.as_bytes());
    let numbers: Vec<u8> = (0..16 * 32).flat_map(|number| (number as f32).to_le_bytes()).collect();
    let input = place.write("in.bin", &numbers);
    let map = format!("tiles:4,8:f32[16,32]=@{}", input.display());
    let words =
        ["--chip", "h100", "--grid", "1", "--block", "32", "--arg", &map, "--arg", "f32[32]", "--show", "9"];
    let ran = sim(&file, &words);
    if no_compiler(&ran) {
        return;
    }
    let text = ran.text();
    // Row 4, column 8 comes first; then the next row of the box.
    assert!(text.contains("argument 1: 136 137 138 139 140 141 142 143 168"), "{text}");

    let narrow = format!("tiles:4,3:f32[16,32]=@{}", input.display());
    let refused =
        sim(&file, &["--chip", "h100", "--grid", "1", "--block", "32", "--arg", &narrow, "--arg", "f32[32]"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("rows of 12 bytes"), "{}", refused.stderr);
}
