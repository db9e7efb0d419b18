//! References of every kind, and those that fail.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use kinora_lab::{Arrays, Element, Task, Verdict, inputs::npy::Array, results, run};
use support::{Bench, has_numpy, options, problems};

const TASK: &str = r#"
[kernel]
source = "kernel.cu"
entry = "k"
grid = 1
block = 64
arguments = ["x", "m", "y", "best", "f32: 0.5", "n"]
[sizes]
n = [64, 33]
[constants]
half = 0.5
[[input]]
name = "x"
element = "f32"
shape = ["n", 2]
[[input]]
name = "m"
element = "i32"
shape = "n"
[[output]]
name = "y"
element = "f32"
shape = "n"
[[output]]
name = "best"
element = "i32"
shape = 1
[reference]
python = "reference.py"
"#;

const KERNEL: &str = "
__global__ void k(const float *x, const int *m, float *y, int *best, float half, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = half * (x[2 * i] + x[2 * i + 1]) * m[i];
    if (i == 0) { int b = m[0]; for (int j = 1; j < n; j++) b = max(b, m[j]); *best = b; }
}";

const REFERENCE: &str = "
import numpy
def reference(x, m, half, n):
    assert x.dtype == numpy.float64 and x.shape == (n, 2) and m.dtype == numpy.int32
    return half * x.sum(axis=1) * m, m.max()
";

fn bench(reference: &str) -> Bench {
    Bench::new(&[("task.toml", TASK), ("kernel.cu", KERNEL), ("reference.py", reference)])
}

#[test]
fn a_function_in_python_is_a_reference() {
    if !has_numpy() {
        return;
    }
    let Some(outcome) = bench(REFERENCE).outcome() else { return };
    assert_eq!(outcome.verdict, Verdict::Right, "{}", problems(&outcome));
    // A wrong kernel beside it.
    let wrong = KERNEL.replace("half * (", "(");
    let bench = Bench::new(&[("task.toml", TASK), ("kernel.cu", &wrong), ("reference.py", REFERENCE)]);
    assert_eq!(bench.outcome().unwrap().verdict, Verdict::Wrong);
}

#[test]
fn a_reference_that_fails_is_a_sentence() {
    let numpy = has_numpy();
    let task = TASK.replace("python = \"reference.py\"", "python = \"reference.py\"\nseconds = 2");
    for (reference, words, needs_numpy) in [
        (
            "def reference(x, m, half, n):\n    return [0.0] * n, 1 / 0",
            "ZeroDivisionError: division by zero",
            true,
        ),
        ("def reference(x, m, half, n):\n    while True: pass", "more than 2 seconds", true),
        (
            "def reference(x, m, half, n):\n    return x, 1",
            "y has shape (64, 2), but the task says (64,)",
            true,
        ),
        (
            "def reference(x, m, half, n):\n    return x.sum(axis=1)",
            "gives 1 results, but the task has 2",
            true,
        ),
        ("def reference(x, m, half, n):\n    return {'y': x.sum(axis=1)}", "gives no best", true),
        ("def reference(x, z):\n    return x, 1", "takes z, but the task has", true),
        ("def other(x):\n    return x", "no function reference", true),
        ("def reference(x, m, half, n):\n    return [object()] * n, 1", "type object", true),
        ("def reference(", "SyntaxError", true),
        ("import nothing_of_this_name", "ModuleNotFoundError", true),
        ("import os\nos._exit(3)", "ended before the function returned", true),
        ("import sys\nsys.exit('enough')", "ends Python (sys.exit('enough'))", true),
        ("def reference(x): return x", "", false),
    ] {
        if needs_numpy && !numpy {
            continue;
        }
        let bench = Bench::new(&[("task.toml", &task), ("kernel.cu", KERNEL), ("reference.py", reference)]);
        let Some(outcome) = bench.outcome() else { return };
        let text = problems(&outcome);
        assert_eq!(outcome.verdict, Verdict::NotRun, "{text}");
        assert!(text.contains("Reference") && text.contains(words), "{words}: {text}");
        // The frames of the worker mean nothing to anybody.
        assert!(!text.contains("worker.py"), "{text}");
    }
}

#[test]
fn a_python_file_declares_its_own_task() {
    if !has_numpy() {
        return;
    }
    let reference = format!(
        "{REFERENCE}
TASK = {{
    'kernel': {{'source': 'kernel.cu', 'grid': 1, 'block': 64, 'entry': 'k',
               'arguments': ['x', 'm', 'y', 'best', 'f32: 0.5', 'n']}},
    'sizes': {{'n': [64, 33]}},
    'constants': {{'half': 0.5}},
    'input': [{{'name': 'x', 'element': 'f32', 'shape': ['n', 2]}}, {{'name': 'm', 'element': 'i32', 'shape': 'n'}}],
    'output': [{{'name': 'y', 'element': 'f32', 'shape': 'n'}}, {{'name': 'best', 'element': 'i32', 'shape': 1}}],
}}
"
    );
    let bench = Bench::new(&[("kernel.cu", KERNEL), ("mine.py", &reference)]);
    let task = Task::open(&bench.folder.path().join("mine.py")).unwrap();
    let outcome = run(&task, &options(), &mut |_| {});
    assert!(
        outcome.verdict == Verdict::Right || problems(&outcome).contains("cannot be compiled"),
        "{}",
        problems(&outcome)
    );
    for (text, words) in [
        ("x = 1", "declares no task"),
        ("TASK = {'kernel': 1}", "expected struct Kernel"),
        (
            "TASK = {'kernel': {'source': '../k.cu', 'grid': 1, 'block': 1, 'arguments': []}, 'output': [{'name': 'y', 'element': 'f32', 'shape': 1}]}",
            "leaves",
        ),
        ("TASK = {'kernel': object()}", "TypeError"),
        ("TASK = {'kernel': None}", "TASK"),
        ("raise RuntimeError('no')", "RuntimeError: no"),
    ] {
        bench.write("wrong.py", text.as_bytes());
        let error = Task::open(&bench.folder.path().join("wrong.py")).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

fn npy(element: Element, shape: Vec<usize>, numbers: &[f64]) -> Vec<u8> {
    let bytes = numbers.iter().flat_map(|&number| element.store(number)).collect();
    Array { element, shape, bytes }.to_bytes()
}

/// Inputs and right results in NumPy's files, without a description; and results as files.
#[test]
fn files_of_numpys_are_a_task() {
    let source = "__global__ void scale(const float *x, float *y, int n) { int i = threadIdx.x; if (i < n) y[i] = 3 * x[i]; }";
    let bench = Bench::new(&[("scale.cu", source)]);
    bench.write("x.npy", &npy(Element::F32, vec![2, 2], &[1.0, 2.0, 3.0, 4.0]));
    bench.write("y.npy", &npy(Element::F32, vec![2, 2], &[3.0, 6.0, 9.0, 12.0]));
    bench.write("wrong.npy", &npy(Element::F32, vec![4], &[3.0, 6.0, 9.0, 13.0]));
    let at = |name: &str| bench.folder.path().join(name);
    let arrays = |right: &str| Arrays {
        source: at("scale.cu"),
        grid: vec!["1".to_owned()],
        block: vec!["32".to_owned()],
        inputs: vec![("x".to_owned(), at("x.npy"))],
        outputs: vec![("y".to_owned(), at(right))],
        arguments: vec!["x".to_owned(), "y".to_owned(), "i32: 4".to_owned()],
        ..Arrays::default()
    };
    let task = Task::from_arrays(&arrays("y.npy")).unwrap();
    let outcome = run(&task, &options(), &mut |_| {});
    if problems(&outcome).contains("cannot be compiled") {
        return;
    }
    assert_eq!(outcome.verdict, Verdict::Right, "{}", problems(&outcome));
    let files = results(&task, &options()).unwrap();
    assert_eq!(files[0].0, "y.npy");
    assert_eq!(Element::F32.load(&Array::parse(&files[0].1).unwrap().bytes), [3.0, 6.0, 9.0, 12.0]);

    let outcome = run(&Task::from_arrays(&arrays("wrong.npy")).unwrap(), &options(), &mut |_| {});
    let text = problems(&outcome);
    assert!(
        text.contains("1 of 4 elements of y is wrong") && text.contains("[3]: 12 instead of 13"),
        "{text}"
    );
    let absent = Task::from_arrays(&arrays("absent.npy")).unwrap_err().to_string();
    assert!(absent.contains("absent.npy"), "{absent}");
    bench.write("damaged.npy", b"\x93NUMPY\x01\x00");
    assert!(Task::from_arrays(&arrays("damaged.npy")).unwrap_err().to_string().contains("damaged"));
}

/// A file that does not fit its buffer is a sentence, too.
#[test]
fn a_file_of_another_size_is_refused() {
    let task = TASK
        .replace("name = \"x\"\n", "name = \"x\"\nfile = \"x.npy\"\n")
        .split("[reference]")
        .next()
        .unwrap()
        .to_owned();
    let bench = Bench::new(&[("task.toml", &task), ("kernel.cu", KERNEL)]);
    for (file, words) in [
        (npy(Element::F32, vec![3], &[1.0, 2.0, 3.0]), "3 numbers, but the buffer has 128"),
        (npy(Element::I32, vec![128], &[1.0; 128]), "holds i32, but the buffer f32"),
        (b"rubbish".to_vec(), "not a file of NumPy's"),
    ] {
        bench.write("x.npy", &file);
        let Some(outcome) = bench.outcome() else { return };
        let text = problems(&outcome);
        assert!(outcome.verdict == Verdict::NotRun && text.contains(words), "{text}");
    }
}
