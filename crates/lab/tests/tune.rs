//! The search of a kernel's parameters.

#![cfg(feature = "cuda")]

use std::fs;

use kinora_lab::{
    GpuChoice, Options, Task,
    tune::{TuneError, Tuning, tune},
};

const TASK: &str = r#"
[kernel]
source = "scale.cu"
grid = "ceil(n / (THREADS * ITEMS))"
block = "THREADS"
arguments = ["x", "y", "n"]

[constants]
THREADS = 32
ITEMS = 1

[sizes]
n = [1000, 70_001]

[[input]]
name = "x"
element = "f32"
shape = "n"

[[output]]
name = "y"
element = "f32"
shape = "n"

[reference]
expression = "2 * x"
"#;

/// With four items a thread, the kernel forgets the last of them.
const KERNEL: &str = r#"
// tune: THREADS = 32, 256
// tune: ITEMS = 1, 2, 4
#ifndef THREADS
#define THREADS 32
#endif
#ifndef ITEMS
#define ITEMS 1
#endif
extern "C" __global__ void scale(const float *x, float *y, int n) {
    int first = blockIdx.x * THREADS * ITEMS + threadIdx.x;
    for (int item = 0; item < (ITEMS == 4 ? 3 : ITEMS); item++)
        if (first + item * THREADS < n) y[first + item * THREADS] = 2.0f * x[first + item * THREADS];
}
"#;

fn options() -> Options {
    Options { gpu: GpuChoice::Never, ..Options::default() }
}

#[test]
fn every_choice_is_predicted_and_the_best_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("task.toml"), TASK).unwrap();
    fs::write(folder.path().join("scale.cu"), KERNEL).unwrap();
    let task = Task::open(folder.path()).unwrap();
    let mut kept: Vec<Tuning> = Vec::new();
    let tuning =
        tune(&task, &options(), 6, None, &mut |_| {}, &mut |tuning| kept.push(tuning.clone())).unwrap();
    assert!(tuning.done);
    assert_eq!(tuning.variants.len(), 6);
    for variant in &tuning.variants {
        assert!(variant.predicted.is_some(), "{variant:?}");
        assert_eq!(variant.right, Some(variant.choice["ITEMS"] != 4), "{variant:?}");
    }
    let best = tuning.best().unwrap();
    let right = tuning.variants.iter().filter(|variant| variant.right == Some(true));
    let least = right.filter_map(|variant| variant.predicted).fold(f64::INFINITY, f64::min);
    assert_eq!(best.predicted, Some(least));

    // Stopped after the second prediction, it goes on with the third.
    let stopped = kept[1].clone();
    assert_eq!(stopped.variants.len(), 2);
    let mut steps = 0;
    let again = tune(&task, &options(), 6, Some(stopped), &mut |_| {}, &mut |_| steps += 1).unwrap();
    assert_eq!(again, tuning);
    // Four predictions, six checks, and the end.
    assert_eq!(steps, 11);
    // A search that is over is taken over whole, unless a header beside the kernel has changed.
    let steps_with = |earlier: &Tuning| {
        let mut steps = 0;
        tune(&task, &options(), 6, Some(earlier.clone()), &mut |_| {}, &mut |_| steps += 1).unwrap();
        steps
    };
    assert_eq!(steps_with(&again), 1);
    fs::write(folder.path().join("part.cuh"), "#pragma once\n").unwrap();
    assert_eq!(steps_with(&again), 13);
    // Of another source, nothing is taken over.
    fs::write(folder.path().join("scale.cu"), KERNEL.replace("2.0f", "3.0f")).unwrap();
    let other = tune(&task, &options(), 1, Some(again), &mut |_| {}, &mut |_| {}).unwrap();
    assert!(other.best().is_none() && other.variants.iter().any(|variant| variant.right == Some(false)));
}

#[test]
fn a_kernel_without_parameters_says_how_to_declare_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("task.toml"), TASK).unwrap();
    fs::write(folder.path().join("scale.cu"), KERNEL.replace("// tune", "// nothing")).unwrap();
    let task = Task::open(folder.path()).unwrap();
    let refused = tune(&task, &options(), 1, None, &mut |_| {}, &mut |_| {});
    assert!(matches!(refused, Err(TuneError::Nothing)), "{refused:?}");
}
