//! The compiler as a program uses it, with a real NVRTC: where there is none, these tests say so and do nothing, unless
//! `KINORA_REQUIRE_NVRTC` is set.

#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use std::{
    io::Write,
    sync::{Barrier, Mutex},
    thread,
};

use kinora_cuda::{
    Architecture, CodeForm, CudaError,
    compiler::{Bundle, BundledKernels, CompileTarget, Compiler, CompilerOptions, Origin},
    kernels::{Kernel, Source},
};

const SCALE: Source = Source {
    path: "test/scale.cu",
    text: r#"
#include "specialisation.cuh"
#include "numbers.cuh"
#include "reduce.cuh"
#include "matrix.cuh"
#include "epilogue.cuh"
extern "C" __global__ void scale(T *x, i64 count) {
    i64 at = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < count) x[at] = from_float<T>(to_float(x[at]) * FACTOR);
}
"#,
};

/// Keeps more numbers than there are registers for.
const SPILLING: Source = Source {
    path: "test/spilling.cu",
    text: r#"
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float *x) {
    float kept[96];
#pragma unroll
    for (int i = 0; i < 96; i++) kept[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 96; i++) x[i * 1024 + threadIdx.x] = kept[95 - i] * kept[(i * 7) % 96];
}
"#,
};

fn scale(element: &str) -> Kernel {
    Kernel::new(SCALE, "scale").with("T", element).with("FACTOR", "2.0f")
}

fn target(architecture: Architecture) -> CompileTarget {
    CompileTarget { architecture, form: CodeForm::Cubin }
}

/// Whether there is a compiler to test.
fn there_is_nvrtc() -> bool {
    let compiler = Compiler::new(target(Architecture::AMPERE), CompilerOptions::plain()).unwrap();
    match compiler.version() {
        Ok(_) => true,
        Err(error) if std::env::var_os("KINORA_REQUIRE_NVRTC").is_some() => panic!("{error}"),
        Err(_) => {
            // Not by `println`, which a passing test keeps to itself.
            let test = thread::current().name().unwrap_or_default().to_owned();
            let _ = writeln!(std::io::stderr(), "{test} not run: no NVRTC");
            false
        }
    }
}

#[test]
fn a_kernel_compiles_for_every_architecture() {
    if !there_is_nvrtc() {
        return;
    }
    for architecture in Architecture::TESTED {
        let compiler = Compiler::new(target(architecture), CompilerOptions::plain()).unwrap();
        let kernels: Vec<Kernel> = ["f32", "f16", "bf16"].map(scale).into();
        let seen = Mutex::new(Vec::new());
        let compilation = compiler
            .compile_all(&[kernels.clone(), kernels.clone()].concat(), &|progress| {
                seen.lock().unwrap().push((progress.done, progress.total));
            })
            .unwrap();
        assert_eq!(*seen.lock().unwrap(), [(1, 3), (2, 3), (3, 3)]);
        assert_eq!(compilation.statistics.compiled, 3);
        for kernel in &kernels {
            let code = &compilation.codes[kernel];
            assert_eq!(code.bytes[..4], *b"\x7fELF");
            let resources = code.resources.unwrap();
            assert!(resources.registers > 0 && resources.spill_bytes == 0, "{resources:?}");
        }
    }
    let target = CompileTarget { architecture: Architecture::TURING, form: CodeForm::Ptx };
    let code = Compiler::new(target, CompilerOptions::plain()).unwrap().compile(&scale("f16")).unwrap();
    let text = String::from_utf8(code.bytes).unwrap();
    assert!(text.contains(".target sm_75") && text.contains(".entry scale"));
    assert_eq!(code.resources, None);
}

#[test]
fn a_mistake_names_kernel_architecture_and_specialisation() {
    if !there_is_nvrtc() {
        return;
    }
    let compiler = Compiler::new(target(Architecture::HOPPER), CompilerOptions::plain()).unwrap();
    let message = compiler.compile(&scale("no_such_type")).unwrap_err().to_string();
    for part in ["test/scale.cu:scale", "sm_90a", "#define FACTOR 2.0f", "no_such_type", "error"] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
}

#[test]
fn a_spill_in_a_hot_kernel_is_an_error_if_asked_for() {
    if !there_is_nvrtc() {
        return;
    }
    let spilling = Kernel::new(SPILLING, "spilling");
    let hot = Kernel { hot: true, ..spilling.clone() };
    let strict = CompilerOptions { fail_on_spills: true, ..CompilerOptions::plain() };
    let strict = Compiler::new(target(Architecture::AMPERE), strict).unwrap();
    let lenient = Compiler::new(target(Architecture::AMPERE), CompilerOptions::plain()).unwrap();
    assert!(strict.compile(&spilling).unwrap().resources.unwrap().spill_bytes > 0);
    assert!(lenient.compile(&hot).is_ok());
    let error = strict.compile(&hot).unwrap_err();
    assert!(matches!(&error, CudaError::Spills { bytes, .. } if *bytes > 0), "{error}");
}

#[test]
fn the_second_start_compiles_nothing() {
    if !there_is_nvrtc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = CompilerOptions { cache: Some(folder.path().into()), ..CompilerOptions::plain() };
    let kernels = [scale("f32"), scale("f16")];
    let start = || {
        Compiler::new(target(Architecture::AMPERE), options.clone())
            .unwrap()
            .compile_all(&kernels, &|_| {})
            .unwrap()
    };
    let cold = start();
    assert_eq!((cold.statistics.compiled, cold.statistics.cached), (2, 0));
    let warm = start();
    assert_eq!((warm.statistics.compiled, warm.statistics.cached), (0, 2));
    for kernel in &kernels {
        assert_eq!(warm.codes[kernel].bytes, cold.codes[kernel].bytes);
        assert_eq!(warm.codes[kernel].resources, cold.codes[kernel].resources);
    }
    // A damaged file costs one compilation.
    let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::write(file, "damaged").unwrap();
    assert_eq!(start().statistics.compiled, 1);
    assert_eq!(start().statistics.compiled, 0);
}

/// Whoever comes while a kernel is being compiled waits, and finds it in the cache.
#[test]
fn what_several_want_at_a_time_is_compiled_once() {
    if !there_is_nvrtc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = CompilerOptions { cache: Some(folder.path().into()), ..CompilerOptions::plain() };
    let compiler = Compiler::new(target(Architecture::AMPERE), options).unwrap();
    let all = Barrier::new(4);
    let one = || {
        all.wait();
        compiler.compile_all(&[scale("f32")], &|_| {}).unwrap().statistics.compiled
    };
    let compiled: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(compiled, 1);
}

#[test]
fn a_cache_that_cannot_be_written_is_a_warning() {
    if !there_is_nvrtc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let options = CompilerOptions { cache: Some(file.join("kernels")), ..CompilerOptions::plain() };
    let compiler = Compiler::new(target(Architecture::AMPERE), options).unwrap();
    let compilation = compiler.compile_all(&[scale("f32"), scale("bf16")], &|_| {}).unwrap();
    assert_eq!(compilation.statistics.compiled, 2);
    let trouble = compilation.statistics.cache_trouble.unwrap();
    assert!(trouble.contains("could not be kept"), "{trouble}");
}

#[test]
fn a_bundle_works_without_a_compiler() {
    if !there_is_nvrtc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let compiled = |architecture| {
        let options = CompilerOptions::plain();
        BundledKernels::compile(target(architecture), &[scale("f16")], &options, &|_| {}).unwrap()
    };
    let built = Bundle::add(&bundle, &[Architecture::TURING, Architecture::HOPPER].map(compiled)).unwrap();
    assert_eq!(built.len(), 2);

    let without_compiler = CompilerOptions {
        bundle: Some(bundle.clone()),
        nvrtc: Some(folder.path().join("nothing")),
        ..CompilerOptions::plain()
    };
    let compiler = |architecture| Compiler::new(target(architecture), without_compiler.clone()).unwrap();
    assert_eq!(compiler(Architecture::HOPPER).compile(&scale("f16")).unwrap().origin, Origin::Bundle);
    for (architecture, element) in [(Architecture::HOPPER, "f32"), (Architecture::AMPERE, "f16")] {
        let message = compiler(architecture).compile(&scale(element)).unwrap_err().to_string();
        for part in ["test/scale.cu:scale", &architecture.to_string(), "kinora kernels build", "nothing"] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
    }
    // Another architecture is added to what is there.
    let built = Bundle::add(&bundle, &[compiled(Architecture::AMPERE)]).unwrap();
    assert_eq!(built.len(), 3);
    assert!(compiler(Architecture::AMPERE).compile(&scale("f16")).is_ok());
}

#[test]
fn a_dump_has_source_ptx_and_machine_code() {
    if !there_is_nvrtc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = CompilerOptions { dump: Some(folder.path().into()), ..CompilerOptions::plain() };
    Compiler::new(target(Architecture::AMPERE), options).unwrap().compile(&scale("f32")).unwrap();
    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path().extension().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["cu", "cubin", "ptx"]);
}
