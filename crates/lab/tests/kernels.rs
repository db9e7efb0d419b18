//! Wrong kernels of many kinds are found, and right ones pass.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use kinora_lab::{GpuChoice, Options, ProblemKind, Verdict, run};
use support::{Bench, kinds, options, problems};

const TASK: &str = r#"
[kernel]
source = "kernel.cu"
entry = "k"
grid = "ceil(n / 64)"
block = 64
arguments = ["x", "y", "n"]
[sizes]
n = [128, 100]
[[input]]
name = "x"
element = "f32"
shape = "n"
[[output]]
name = "y"
element = "f32"
shape = "n"
[reference]
expression = "2 * x + 1"
"#;

const RIGHT: &str = "
__global__ void k(float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i] + 1.0f;
}";

fn bench(source: &str) -> Bench {
    Bench::new(&[("task.toml", TASK), ("kernel.cu", source)])
}

#[test]
fn a_right_kernel_passes() {
    let Some(outcome) = bench(RIGHT).outcome() else { return };
    assert_eq!((outcome.verdict, problems(&outcome).as_str()), (Verdict::Right, ""));
    let sizes = &outcome.devices[0].sizes;
    assert_eq!(sizes.len(), 2);
    for size in sizes {
        assert_eq!((size.verdict, size.deterministic), (Verdict::Right, Some(true)));
        let comparison = size.results[0].comparison.as_ref().unwrap();
        assert!(
            comparison.of_bound <= 1.0
                && comparison.wrong == 0
                && comparison.elements as u64 == size.sizes.0["n"]
        );
        assert!(size.launches[0].counters.unwrap().global_stores.requests > 0);
    }
}

/// Each with the kind of problem that it has, and words that say so.
#[test]
fn wrong_kernels_are_found() {
    let index = "int i = blockIdx.x * blockDim.x + threadIdx.x;";
    let wrong: &[(&str, &str, ProblemKind, &str)] = &[
        (
            "off by one",
            "if (i < n - 1) y[i] = 2 * x[i] + 1;",
            ProblemKind::Unwritten,
            "1 of 128 elements of y is never written",
        ),
        ("no guard", "y[i] = 2 * x[i] + 1;", ProblemKind::Finding, "OutOfBounds"),
        (
            "wrong number",
            "if (i < n) y[i] = 2 * x[i] + 1.01f;",
            ProblemKind::Result,
            "all 128 elements of y are wrong",
        ),
        (
            "one wrong element",
            "if (i < n) y[i] = 2 * x[i] + (i == 77 ? 2 : 1);",
            ProblemKind::Result,
            "the worst is [77]",
        ),
        (
            "only whole blocks",
            "if (i < n / 64 * 64) y[i] = 2 * x[i] + 1;",
            ProblemKind::Unwritten,
            "36 of 100 elements",
        ),
        ("nothing written", "if (n < 0) y[i] = 0;", ProblemKind::Unwritten, "y is never written"),
        ("zeros", "if (i < n) y[i] = 0;", ProblemKind::Result, "are wrong"),
        (
            "not a number",
            "if (i < n) y[i] = 2 * x[i] + 1 + (i == 5 ? 0.0f / 0.0f : 0);",
            ProblemKind::Result,
            "one is not finite",
        ),
        ("reads its result", "if (i < n) y[i] += 2 * x[i] + 1;", ProblemKind::Finding, "Uninitialised"),
        (
            "changes its input",
            "if (i < n) { y[i] = 2 * x[i] + 1; x[i] = 0; }",
            ProblemKind::InputChanged,
            "changes its input x",
        ),
        (
            "writes beyond",
            "if (i < n) y[i] = 2 * x[i] + 1; if (i == 0) y[n] = 0;",
            ProblemKind::Finding,
            "OutOfBounds",
        ),
        (
            "reads before",
            "if (i < n) y[i] = 2 * x[i] + 1 + 0 * x[i - 1];",
            ProblemKind::Finding,
            "OutOfBounds",
        ),
        (
            "a race in shared memory",
            "__shared__ float s[64]; s[threadIdx.x] = i < n ? x[i] : 0; \
             if (i < n) y[i] = 2 * s[63 - threadIdx.x] + 1;",
            ProblemKind::Finding,
            "Race",
        ),
        ("all write one element", "if (i < n) y[0] = 2 * x[i] + 1;", ProblemKind::Finding, "Race"),
        (
            "a barrier in a branch",
            "if (i % 2) __syncthreads(); if (i < n) y[i] = 2 * x[i] + 1;",
            ProblemKind::Finding,
            "Barrier",
        ),
        (
            "a number as an address",
            "if (i < n) y[i] = *(float *)(size_t)(n & ~3);",
            ProblemKind::Finding,
            "OutOfBounds",
        ),
        ("misaligned", "if (i < n) y[i] = *(float *)((char *)x + 1);", ProblemKind::Finding, "Misaligned"),
    ];
    for (name, body, kind, words) in wrong {
        let source = format!("__global__ void k(float *x, float *y, int n) {{ {index} {body} }}");
        let Some(outcome) = bench(&source).outcome() else { return };
        let text = problems(&outcome);
        assert_eq!(outcome.verdict, Verdict::Wrong, "{name}: {text}");
        assert!(kinds(&outcome).contains(kind) && text.contains(words), "{name}: {text}");
        assert!(serde_json::to_string(&outcome).is_ok(), "{name}");
        assert!(outcome.text().contains("wrong"), "{name}");
    }
}

/// The first size is right; only the other one shows it.
#[test]
fn a_kernel_that_is_wrong_at_an_odd_size_alone_is_found_there() {
    let source = RIGHT.replace("2.0f * x[i] + 1.0f", "2.0f * x[i] + (n % 64 ? 1.5f : 1.0f)");
    let Some(outcome) = bench(&source).outcome() else { return };
    let verdicts: Vec<Verdict> = outcome.devices[0].sizes.iter().map(|size| size.verdict).collect();
    assert_eq!(verdicts, [Verdict::Right, Verdict::Wrong], "{}", problems(&outcome));
}

const SPLIT_TASK: &str = r#"
[kernel]
source = "kernel.cu"
entry = "k"
grid = "ceil(n / 64)"
block = 64
arguments = ["x", "large", "small", "n"]
OPTIONS
[sizes]
n = [128, 100]
[[input]]
name = "x"
element = "f32"
shape = "n"
[[output]]
name = "large"
element = "f32"
shape = "n"
tolerance = { relative = 1e-3 }
[[output]]
name = "small"
element = "f32"
shape = "n"
[reference]
kernel = "plain"
"#;

/// Dekker's split of a number into the 12 digits in front and the rest. The reference rounds to them in another way.
const SPLIT: &str = "
__global__ void k(const float *x, float *large, float *small, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float wide = x[i] * 4097.0f;
    float l = wide - (wide - x[i]);
    large[i] = l;
    small[i] = x[i] - l;
}
__global__ void plain(const double *x, double *large, double *small, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int exponent;
    double digits = frexp(x[i], &exponent);
    large[i] = ldexp(rint(ldexp(digits, 12)), exponent - 12);
    small[i] = x[i] - large[i];
}";

/// Right as it is written, and wrong once the assembler has contracted it.
#[test]
fn a_kernel_that_is_wrong_only_if_contracted_is_found() {
    let task = SPLIT_TASK.replace("OPTIONS", "");
    let run = |task: &str, source: &str| Bench::new(&[("task.toml", task), ("kernel.cu", source)]).outcome();
    let Some(outcome) = run(&task, SPLIT) else { return };
    let text = problems(&outcome);
    assert_eq!(outcome.verdict, Verdict::Wrong, "{text}");
    assert!(kinds(&outcome).iter().all(|&kind| kind == ProblemKind::Result), "{text}");
    for size in &outcome.devices[0].sizes {
        let [problem] = &size.problems[..] else { panic!("{text}") };
        for words in [
            "elements of small are wrong if the assembler contracts `x * y + z` into one fused multiply-add, as it may; the worst is [",
            ": 0 instead of ",
            "; allowed: ",
            "; use __fmul_rn, __fadd_rn or --fmad=false where the rounding between matters, such as at kernel.cu:6",
        ] {
            assert!(problem.message.contains(words), "{words:?} is not in {text}");
        }
        // That is another question.
        assert_eq!(size.deterministic, Some(true));
    }

    let mended = SPLIT
        .replace("x[i] * 4097.0f", "__fmul_rn(x[i], 4097.0f)")
        .replace("wide - (wide - x[i])", "__fsub_rn(wide, __fsub_rn(wide, x[i]))");
    let without = SPLIT_TASK.replace("OPTIONS", "options = [\"--fmad=false\"]");
    for (task, source) in [(task.as_str(), mended.as_str()), (without.as_str(), SPLIT)] {
        let outcome = run(task, source).unwrap();
        assert_eq!((outcome.verdict, problems(&outcome).as_str()), (Verdict::Right, ""));
    }
}

/// A sum of products is right in both ways.
#[test]
fn a_kernel_that_may_be_contracted_passes() {
    let source = "
__global__ void k(float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float square = x[i] * x[i], sum = 0.0f;
    for (int j = 0; j < 8; j++) sum += square + (float)j;
    y[i] = square - sum;
}";
    let task = TASK.replace("2 * x + 1", "-7 * x * x - 28");
    let Some(outcome) = Bench::new(&[("task.toml", &task), ("kernel.cu", source)]).outcome() else { return };
    assert_eq!((outcome.verdict, problems(&outcome).as_str()), (Verdict::Right, ""));
}

/// A result that depends on what was in the memory before, or on what was computed last time.
#[test]
fn a_kernel_that_keeps_what_was_there_is_found() {
    let source = RIGHT.replace("2.0f * x[i] + 1.0f", "x[0] < 0.5f ? 2.0f * x[i] + 1.0f : y[i]");
    // Whatever the inputs are: one of the two seeds reads what nobody wrote, or both are right.
    let task = TASK.replace("shape = \"n\"\n[[output]]", "shape = \"n\"\nvalues = \"ones\"\n[[output]]");
    let bench = Bench::new(&[("task.toml", &task), ("kernel.cu", &source)]);
    let Some(outcome) = bench.outcome() else { return };
    assert_eq!(outcome.verdict, Verdict::Wrong, "{}", problems(&outcome));
}

#[test]
fn a_result_must_be_right_in_the_place_of_its_input() {
    let task = TASK.replace("[reference]", "may_alias = \"x\"\n[reference]");
    let bench = |source: &str| Bench::new(&[("task.toml", &task), ("kernel.cu", source)]);
    let Some(right) = bench(RIGHT).outcome() else { return };
    assert_eq!(right.verdict, Verdict::Right, "{}", problems(&right));
    // Right apart from that: the result is cleared before the input is read.
    let wrong = RIGHT.replace(
        "y[i] = 2.0f * x[i] + 1.0f;",
        "{ ((volatile float *)y)[i] = 0; y[i] = 2.0f * x[i] + 1.0f; }",
    );
    let outcome = bench(&wrong).outcome().unwrap();
    let text = problems(&outcome);
    assert!(outcome.verdict == Verdict::Wrong && text.contains("in the place of x"), "{text}");
}

#[test]
fn what_cannot_run_is_a_sentence() {
    for (source, words) in [
        ("__global__ void k(float *x, float *y, int n) { y[0] = undefined_name; }", "kernel.cu(1)"),
        ("__global__ void other(float *x, float *y, int n) { }", "no kernel k; it has other"),
        ("", "no kernel"),
        ("__global__ void k(float *x, float *y) { }", "takes 2 arguments, but got 3"),
        ("__global__ void k(float *x, float *y, long long n) { }", "\"i64: n\""),
        ("__global__ void __launch_bounds__(32) k(float *x, float *y, int n) { y[0] = x[0]; }", "at most 32"),
        (
            "__global__ void k(float *x, float *y, int n) { __shared__ float t[100000]; t[n] = x[n]; __syncthreads(); y[n] = t[0]; }",
            "shared memory",
        ),
    ] {
        let Some(outcome) = bench(source).outcome() else { return };
        let text = problems(&outcome);
        assert_eq!(outcome.verdict, Verdict::NotRun, "{text}");
        assert!(text.contains(words), "{words:?} is not in {text}");
        assert!(outcome.text().contains("could not be run"));
    }
}

#[test]
fn a_kernel_that_never_ends_is_found() {
    let task = TASK.replace("source =", "steps = 200_000\nsource =");
    let source = RIGHT.replace("if (i < n)", "while (((volatile int *)x)[0] != 7) { } if (i < n)");
    let Some(outcome) = Bench::new(&[("task.toml", &task), ("kernel.cu", &source)]).outcome() else { return };
    let text = problems(&outcome);
    assert!(outcome.verdict == Verdict::Wrong && text.contains("StepLimit"), "{text}");
    assert!(text.contains("`steps` under [kernel]"), "{text}");
    // The other sizes would not end either.
    assert_eq!(outcome.devices[0].sizes.len(), 1);
    assert!(
        outcome.notes.iter().any(|note| note.contains("the other sizes were not run")),
        "{:?}",
        outcome.notes
    );
}

/// What is found is told with the buffer that it is about, and at one line once.
#[test]
fn findings_name_buffers() {
    let source =
        "__global__ void k(float *x, float *y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = 2 * x[i] + 1;
        if (i == 0) for (int j = 0; j < 4; j++) y[n + j] = x[j];
        if (i < n && i > 0) y[5] = 3; }";
    let Some(outcome) = bench(source).outcome() else { return };
    let text = outcome.text();
    assert!(text.contains("of y, which has"), "{text}");
    assert!(text.contains("element 5 of y"), "{text}");
    assert_eq!(text.matches("which has 512 bytes").count(), 1, "{text}");
    assert!(outcome.page().contains("of y, which has"));
}

/// PyTorch is timed only on a GPU. Without one, the report says so.
#[test]
fn a_reference_in_pytorch_is_told_apart() {
    let task = TASK.replace("expression = \"2 * x + 1\"", "python = \"reference.py\"");
    let reference =
        "try:\n    import torch\nexcept ImportError:\n    pass\n\ndef reference(x): return 2 * x + 1\n";
    let bench = Bench::new(&[("task.toml", &task), ("kernel.cu", RIGHT), ("reference.py", reference)]);
    let task = bench.open().unwrap();
    let options = Options { time: true, gpu: GpuChoice::Never, ..options() };
    let outcome = run(&task, &options, &mut |_| {});
    if outcome.verdict == Verdict::NotRun {
        return;
    }
    assert!(outcome.peers.is_empty());
    assert!(outcome.notes.iter().any(|note| note.contains("beside PyTorch")), "{:?}", outcome.notes);
}

/// Several launches in a row over shared memory, one of them repeated: a sum by halves.
#[test]
fn launches_run_in_a_row() {
    let task = r#"
[kernel]
source = "kernel.cu"
[sizes]
n = [64, 1024]
[[input]]
name = "x"
element = "f64"
shape = "n"
[[inout]]
name = "sum"
element = "f64"
shape = 1
values = "constant(10)"
[[scratch]]
name = "w"
element = "f64"
shape = "n"
[[launch]]
entry = "fill"
grid = "n / 64"
block = 64
arguments = ["x", "w"]
[[launch]]
entry = "halve"
grid = "ceil(n / pow(2, step + 1) / 64)"
block = 64
arguments = ["w", "i32: n / pow(2, step + 1)"]
repeat = "log2(n)"
[[launch]]
entry = "finish"
grid = 1
block = 1
arguments = ["w", "sum", "f64: 0.5"]
[reference]
kernel = "plain"
grid = 1
block = 1
arguments = ["x", "sum", "n"]
"#;
    let source = "
__global__ void fill(const double *x, double *w) { int i = blockIdx.x * 64 + threadIdx.x; w[i] = x[i]; }
__global__ void halve(double *w, int half) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < half) w[i] += w[i + half];
}
__global__ void finish(const double *w, double *sum, double factor) { *sum += w[0] * factor; }
__global__ void plain(const double *x, double *sum, int n) { double s = 0; for (int i = 0; i < n; i++) s += x[i]; *sum += 0.5 * s; }";
    let Some(outcome) = Bench::new(&[("task.toml", task), ("kernel.cu", source)]).outcome() else { return };
    assert_eq!(outcome.verdict, Verdict::Right, "{}", problems(&outcome));
    let launches = &outcome.devices[0].sizes[1].launches;
    assert_eq!(launches.iter().map(|launch| launch.launches).collect::<Vec<_>>(), [1, 10, 1]);
    let wrong = source.replace("i + half", "i + half - 1");
    let outcome = Bench::new(&[("task.toml", task), ("kernel.cu", &wrong)]).outcome().unwrap();
    assert_eq!(outcome.verdict, Verdict::Wrong);
}

/// Every element type goes in and out, and a result in a narrow one is allowed its rounding.
#[test]
fn every_element_is_passed_and_compared() {
    for (element, kind, rounded) in [
        ("i8", "signed char", false),
        ("u8", "unsigned char", false),
        ("i16", "short", false),
        ("u16", "unsigned short", false),
        ("i32", "int", false),
        ("u32", "unsigned", false),
        ("i64", "long long", false),
        ("u64", "unsigned long long", false),
        ("f32", "float", true),
        ("f64", "double", true),
    ] {
        let expression = if rounded { "x / 3" } else { "x + 1" };
        let task = TASK
            .replace("\"f32\"", &format!("\"{element}\""))
            .replace("2 * x + 1", expression)
            .replace("n = [128, 100]", "n = 50");
        let source = format!(
            "__global__ void k({kind} *x, {kind} *y, int n) {{ int i = threadIdx.x; if (i < n) y[i] = {}; }}",
            expression.replace('x', "x[i]")
        );
        let Some(outcome) = Bench::new(&[("task.toml", &task), ("kernel.cu", &source)]).outcome() else {
            return;
        };
        assert_eq!(outcome.verdict, Verdict::Right, "{element}: {}", problems(&outcome));
        let wrong = source.replace("x[i] +", "x[i] + 1 +").replace("/ 3", "/ 3.001");
        let outcome = Bench::new(&[("task.toml", &task), ("kernel.cu", &wrong)]).outcome().unwrap();
        assert_eq!(outcome.verdict, Verdict::Wrong, "{element}");
    }
}

/// Without a reference, what the simulator finds is still told.
#[test]
fn a_task_without_a_reference_is_checked_for_what_can_be_seen() {
    let task = TASK.split("[reference]").next().unwrap();
    let run = |source: &str| Bench::new(&[("task.toml", task), ("kernel.cu", source)]).outcome();
    let Some(right) = run(RIGHT) else { return };
    assert_eq!(right.verdict, Verdict::Unchecked);
    assert!(right.notes.iter().any(|note| note.contains("no reference")));
    let wrong = run(&RIGHT.replace("if (i < n)", "")).unwrap();
    assert_eq!(wrong.verdict, Verdict::Wrong);
}

#[test]
fn a_reference_that_is_wrong_itself_is_told_as_such() {
    let task = TASK.replace("expression = \"2 * x + 1\"", "kernel = \"plain\"");
    for (body, words) in [
        ("y[i] = 2 * x[i] + 1;", "OutOfBounds"),
        ("if (i < n - 1) y[i] = 2 * x[i] + 1;", "leaves 1 element of y unwritten"),
    ] {
        let source = format!(
            "{RIGHT}\n__global__ void plain(double *x, double *y, int n) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {body} }}"
        );
        let Some(outcome) = Bench::new(&[("task.toml", &task), ("kernel.cu", &source)]).outcome() else {
            return;
        };
        let text = problems(&outcome);
        assert!(
            outcome.verdict == Verdict::NotRun && text.contains("Reference") && text.contains(words),
            "{text}"
        );
    }
}
