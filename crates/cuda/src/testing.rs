//! What the tests of several modules share.

use std::io::Write;

use crate::{
    Architecture, CodeForm,
    compiler::{CompileTarget, Compiler, CompilerOptions},
    cupti::Cupti,
    kernels::Kernel,
};

/// Says that the test of this thread did not run, and why. Not by `println`, which a passing test keeps to itself.
pub(crate) fn say_not_run(why: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "{test} not run: {why}");
}

/// CUPTI. `None`, and a line that says so, on a machine without it.
pub(crate) fn cupti() -> Option<&'static Cupti> {
    let found = Cupti::find();
    if found.is_err() {
        say_not_run("no CUPTI");
    }
    found.ok()
}

/// A compiler for the tests, which keeps what it made beside the test's own executable. `None`, and a line that says so,
/// on a machine without NVRTC; with `KINORA_REQUIRE_NVRTC` set, as `cargo xtask test` does, that is a failure.
pub(crate) fn compiler(target: CompileTarget) -> Option<Compiler> {
    let program = std::env::current_exe().unwrap();
    let cache = program.parent().map(|folder| folder.join("kernel-cache"));
    let options = CompilerOptions { cache, fail_on_spills: true, ..CompilerOptions::plain() };
    let compiler = Compiler::new(target, options).unwrap();
    match compiler.version() {
        Ok(_) => Some(compiler),
        Err(error) if std::env::var_os("KINORA_REQUIRE_NVRTC").is_some() => panic!("{error}"),
        Err(_) => {
            say_not_run("no NVRTC");
            None
        }
    }
}

/// Compiles kernels for an architecture, to machine code. Panics with the compiler's message where one is refused, or
/// spills and is marked hot.
pub(crate) fn compile(architecture: Architecture, kernels: &[Kernel]) {
    let target = CompileTarget { architecture, form: CodeForm::Cubin };
    if let Some(compiler) = compiler(target)
        && let Err(error) = compiler.compile_all(kernels, &|_| {})
    {
        panic!("{error}");
    }
}
