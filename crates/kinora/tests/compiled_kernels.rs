//! Every GPU kernel that a clip by Stable Video Diffusion launches compiles for every generation, and no hot one spills. The same
//! for a frame of live video on Hopper, which has kernels of its own for pictures one by one.
//!
//! Without NVRTC the tests say so and do nothing, unless `KINORA_REQUIRE_NVRTC` is set.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use std::{io::Write, path::Path};

use kinora::{
    LiveSettings,
    image_to_video::{Configs, Precision, Settings, clip_kernels},
    live::{LiveConfigs, live_kernels},
};
use kinora_cuda::{
    Architecture, CodeForm,
    compiler::{CompileTarget, Compiler, CompilerOptions},
    kernels::Kernel,
};

fn compiler(architecture: Architecture) -> Compiler {
    // What was compiled in an earlier run of the tests is found by everything that could change it.
    let cache = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels"));
    let options = CompilerOptions { cache, ..CompilerOptions::plain() };
    Compiler::new(CompileTarget { architecture, form: CodeForm::Cubin }, options).unwrap()
}

fn there_is_nvrtc(test: &str) -> bool {
    let Err(error) = compiler(Architecture::AMPERE).version() else { return true };
    assert!(std::env::var_os("KINORA_REQUIRE_NVRTC").is_none(), "{error}");
    // Not by `println`, which a passing test keeps to itself.
    let _ = writeln!(std::io::stderr(), "{test} not run: no NVRTC");
    false
}

/// Compiles kernels, and says which hot ones spill registers.
fn spills(kernels: &[Kernel], architecture: Architecture) -> Vec<String> {
    // Products, attention, norms, sums and their kin, each in several forms.
    assert!(kernels.len() > 20, "{architecture}: {}", kernels.len());
    assert!(kernels.iter().any(|kernel| kernel.source.path.starts_with("attention/")));
    let compilation = compiler(architecture).compile_all(kernels, &|_| {}).unwrap();
    let statistics = compilation.statistics;
    assert_eq!(statistics.compiled + statistics.cached, kernels.len());
    println!("{architecture}: {} kernels, {:.1} s", kernels.len(), statistics.seconds);
    let spilled = compilation.codes.iter().filter_map(|(kernel, code)| {
        let bytes = code.resources.unwrap().spill_bytes;
        let specialised = kernel.specialisation();
        (kernel.hot && bytes > 0)
            .then(|| format!("{architecture} {}: {bytes} bytes\n{specialised}", kernel.label()))
    });
    spilled.collect()
}

#[test]
fn kernels_of_a_clip_compile_for_every_generation() {
    if !there_is_nvrtc("kernels_of_a_clip_compile_for_every_generation") {
        return;
    }
    let configs = Configs::preset("svd").unwrap();
    let settings = Settings::for_configs(&configs);
    let of_generation = |architecture| {
        spills(&clip_kernels(&configs, &settings, Precision::F16, architecture).unwrap(), architecture)
    };
    let spills: Vec<String> = Architecture::TESTED.into_iter().flat_map(of_generation).collect();
    assert!(spills.is_empty(), "registers are spilled in\n{}", spills.join("\n"));
}

#[test]
fn kernels_of_a_live_frame_compile_for_hopper() {
    if !there_is_nvrtc("kernels_of_a_live_frame_compile_for_hopper") {
        return;
    }
    let configs = LiveConfigs::preset("sd-turbo").unwrap().tiny_autoencoder().unwrap();
    let settings = LiveSettings::for_configs(&configs).blend(0.3);
    let kernels = live_kernels(&configs, &settings, Precision::F16, Architecture::HOPPER).unwrap();
    let spills = spills(&kernels, Architecture::HOPPER);
    assert!(spills.is_empty(), "registers are spilled in\n{}", spills.join("\n"));
}
