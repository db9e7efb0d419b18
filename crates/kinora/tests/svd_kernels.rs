//! Every GPU kernel that a clip by Stable Video Diffusion launches compiles for every generation, and no hot one spills.
//!
//! Without NVRTC the test says so and does nothing, unless `KINORA_REQUIRE_NVRTC` is set.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use std::{io::Write, path::Path};

use kinora::image_to_video::{Configs, Precision, Settings, clip_kernels};
use kinora_cuda::{
    Architecture, CodeForm,
    compiler::{CompileTarget, Compiler, CompilerOptions},
};

fn compiler(architecture: Architecture) -> Compiler {
    // What was compiled in an earlier run of the tests is found by everything that could change it.
    let cache = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels"));
    let options = CompilerOptions { cache, ..CompilerOptions::plain() };
    Compiler::new(CompileTarget { architecture, form: CodeForm::Cubin }, options).unwrap()
}

#[test]
fn kernels_of_a_clip_compile_for_every_generation() {
    if let Err(error) = compiler(Architecture::AMPERE).version() {
        assert!(std::env::var_os("KINORA_REQUIRE_NVRTC").is_none(), "{error}");
        // Not by `println`, which a passing test keeps to itself.
        let _ =
            writeln!(std::io::stderr(), "kernels_of_a_clip_compile_for_every_generation not run: no NVRTC");
        return;
    }
    let configs = Configs::preset("svd").unwrap();
    let settings = Settings::for_configs(&configs);
    let mut spills = Vec::new();
    for architecture in Architecture::TESTED {
        let kernels = clip_kernels(&configs, &settings, Precision::F16, architecture).unwrap();
        // Products, attention, norms, sums and their kin, each in several forms.
        assert!(kernels.len() > 20, "{architecture}: {}", kernels.len());
        assert!(kernels.iter().any(|kernel| kernel.source.path.starts_with("attention/")));
        let compilation = compiler(architecture).compile_all(&kernels, &|_| {}).unwrap();
        for (kernel, code) in &compilation.codes {
            let bytes = code.resources.unwrap().spill_bytes;
            if kernel.hot && bytes > 0 {
                let constants = format!("{:?}", kernel.constants);
                spills.push(format!("{architecture} {}: {bytes} bytes {constants}", kernel.label()));
            }
        }
        let statistics = compilation.statistics;
        assert_eq!(statistics.compiled + statistics.cached, kernels.len());
        println!("{architecture}: {} kernels, {:.1} s", kernels.len(), statistics.seconds);
    }
    assert!(spills.is_empty(), "registers are spilled in\n{}", spills.join("\n"));
}
