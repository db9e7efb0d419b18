//! Sources become code, whatever else is in them.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, missing_docs)]

use std::io::Write;

use kinora_lab::{
    compile::{self, CompileError, Compiled, Form, Request, Source},
    execute::{Device, Launch, SimulatedDevice},
};
use kinora_ptx::{Checks, ChipSpec};

fn source(text: &str) -> Source {
    Source { name: "kernel.cu".to_owned(), text: text.to_owned(), folder: None }
}

/// `None` if there is no compiler, which is said.
fn compiled(text: &str, kernels: &[&str]) -> Option<Result<Compiled, CompileError>> {
    let kernels = kernels.iter().map(|&kernel| kernel.to_owned()).collect();
    let made = compile::compile(&source(text), &Request { kernels, ..Request::ptx((8, 0)) });
    if matches!(made, Err(CompileError::NoCompiler(_))) && std::env::var_os("KINORA_REQUIRE_NVRTC").is_none()
    {
        let _ = writeln!(std::io::stderr(), "compile not run: no NVRTC");
        return None;
    }
    Some(made)
}

#[test]
fn a_template_is_instantiated_and_runs() {
    let text = "template <typename T, int by> __global__ void scale(T *x) { x[threadIdx.x] *= by; }\n\
                __global__ void other(int *x) { *x = 1; }";
    let Some(made) = compiled(text, &["scale<float, 3>"]) else { return };
    let code = made.unwrap();
    let kernel = code.kernel(Some("scale<float, 3>")).unwrap();
    assert!(kernel.starts_with("_Z5scale"), "{kernel}");
    // By its plain name too, and the other one, which nobody asked for.
    assert_eq!(code.kernel(Some("scale")).unwrap(), kernel);
    assert!(matches!(code.kernel(None), Err(CompileError::Ambiguous { .. })));
    let absent = code.kernel(Some("absent")).unwrap_err().to_string();
    assert!(absent.contains("no kernel absent") && absent.contains("other"), "{absent}");

    let mut device = SimulatedDevice::new(ChipSpec::a100(), Checks::default());
    let x = device.allocate(32 * 4).unwrap();
    device.write(x, &2f32.to_le_bytes().repeat(32)).unwrap();
    let module = device.load(&code).unwrap();
    let launch = Launch {
        module,
        kernel,
        grid: [1; 3],
        block: [32, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        arguments: vec![x.to_le_bytes().to_vec()],
        overlaps: false,
    };
    assert_eq!(device.launch(&launch).unwrap().findings, []);
    let mut bytes = vec![0; 32 * 4];
    device.read(x, &mut bytes).unwrap();
    assert_eq!(bytes, 6f32.to_le_bytes().repeat(32));
}

/// As the samples of CUDA are: a `main`, checks on the host, headers of the host, one of which is not there.
#[test]
fn a_sample_with_host_code_compiles() {
    let text = r#"
#include <cstdio>
#include <vector>
#include <stdint.h>
#include <cuda_runtime.h>
#include "helper_that_is_not_there.h"
#define CHECK(call) { if ((call) != cudaSuccess) { printf("failed {\n"); exit(1); } }
void print(const std::vector<float> &x);
__device__ float square(float x) { return x * x; }
__global__ void squares(float *x, uint32_t n) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = square(x[i]);
}
void print(const std::vector<float> &x) { for (float v : x) printf("%f\n", v); }
int main(int argc, char **argv) {
    std::vector<float> host(100, 2.0f);
    float *x; CHECK(cudaMalloc(&x, 400));
    squares<<<1, 128>>>(x, 100);
    print(host);
    return 0;
}
"#;
    let Some(made) = compiled(text, &[]) else { return };
    let code = made.unwrap();
    assert!(code.kernel(Some("squares")).is_ok());
    assert!(code.notes.iter().any(|note| note.contains("2 host functions")), "{:?}", code.notes);
    assert!(code.notes.iter().any(|note| note.contains("helper_that_is_not_there.h")), "{:?}", code.notes);
    // What is wrong with the kernel itself is said with its line, and nothing of the host's.
    let wrong = compiled(&text.replace("square(x[i])", "cube(x[i])"), &[]).unwrap().unwrap_err().to_string();
    assert!(wrong.contains("kernel.cu(12)") && wrong.contains("cube"), "{wrong}");
    assert!(!wrong.contains("std::vector"), "{wrong}");
}

#[test]
fn a_plain_helper_counts_as_device_code() {
    let Some(made) = compiled(
        "float twice(float x) { return x + x; }\n__global__ void k(float *x) { *x = twice(*x); }",
        &[],
    ) else {
        return;
    };
    let code = made.unwrap();
    assert_eq!(code.kernel(None).unwrap(), "_Z1kPf");
    assert!(code.notes.is_empty() && code.compiler.unwrap().starts_with("NVRTC"));
}

#[test]
fn the_assembler_tells_registers() {
    let request = Request { form: Form::Cubin, ..Request::ptx((8, 0)) };
    match compile::compile(&source("__global__ void k(float *x) { *x += 1; }"), &request) {
        Err(CompileError::NoCompiler(_)) => {}
        made => assert!(made.unwrap().resources.unwrap().registers > 0),
    }
}

#[test]
fn what_is_wrong_is_said() {
    let Some(made) = compiled("__global__ void k(float *x) { *x = y; }", &[]) else { return };
    let error = made.unwrap_err().to_string();
    assert!(error.contains("kernel.cu(1)") && error.contains("\"y\" is undefined"), "{error}");
    let error = compiled("#include \"not_there.cuh\"\n__global__ void k(float *x) { *x = THERE; }", &[])
        .unwrap()
        .unwrap_err();
    let CompileError::Rejected { missing_header, .. } = &error else { panic!("{error}") };
    assert_eq!(missing_header.as_deref(), Some("not_there.cuh"), "{error}");
    let none = compiled("__device__ int x;", &[]).unwrap().unwrap().kernel(None).unwrap_err().to_string();
    assert!(none.contains("no kernel"), "{none}");
    let zero = compiled("__global__ void k() { } \0", &[]).unwrap();
    assert!(zero.is_err());
}

#[test]
fn ptx_is_taken_as_it_is() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\nret;\n}\n";
    let ptx = Source { name: "kernel.ptx".to_owned(), ..source(text) };
    let code = compile::compile(&ptx, &Request::ptx((8, 0))).unwrap();
    assert_eq!((code.kernel(None).unwrap().as_str(), code.compiler), ("k", None));
    let options = Request { options: vec!["-DN=1".to_owned()], ..Request::ptx((8, 0)) };
    assert!(matches!(compile::compile(&ptx, &options), Err(CompileError::Ptx(_))));
}
