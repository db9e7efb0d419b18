//! The project's own tasks: `cargo xtask test` checks everything, the others are listed by `cargo xtask help`.

mod archive;
mod bundle;
mod checks;
mod crates;
mod dist;
mod executables;
mod features;
mod files;
mod fuzz;
mod instrumented;
mod mutants;
mod packages;
mod python;
mod quick;
mod sanitize;
mod shell;
mod workspace;

use std::{error::Error, process::ExitCode};

use shell::TaskError;

const HELP: &str = "\
cargo xtask <task>

  test           install ruff, NumPy and NVIDIA's kernel compiler into .python/, check formats, lints, docs, feature combinations
                 and packages, and run every test
  test --quick   the checks that matter to a change, in less than three minutes once all is built: formats, Python, and
                 lints and tests of the crates that changed since `main` and of those that depend on them, without the
                 slow tests; prints what it left out
  bench          install PyTorch and diffusers into .python/, then run `kinora bench` beside them; more words go to it
  bundle         gather what a GPU host without a toolchain needs into target/bundle, and pack it into
                 target/bundle.tar.xz
  crates         print the table of this workspace's crates; --write puts it into ARCHITECTURE.md
  dist           build the program for distribution, and pack it with completions, manual pages and licences into
                 target/dist/kinora-VERSION-TARGET.tar.xz
  fuzz           feed the parsers with hostile input for --minutes N (15), with coverage and AddressSanitizer; --target NAME
                 runs one, --minimise reduces the kept corpus, --package FOLDER prepares a machine without a toolchain
  golden         install PyTorch and diffusers into .python/, then make the golden fixtures again
  mutants        change the code of weights, downloads, videos and memory, one expression at a time, and see whether a test
                 notices; --list prints the changes, --only FILE tries those of a file, --share 0/4 one in four
  sanitize       run the tests under AddressSanitizer (the video encoder's C++ too), ThreadSanitizer and Miri, as far as the
                 toolchain has them; `address`, `thread` or `miri` runs one, --package NAME tests one crate
  help           this text";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let task = arguments.first().map_or("help", String::as_str);
    match run(task, arguments.get(1..).unwrap_or_default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {}", with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(task: &str, arguments: &[String]) -> Result<(), TaskError> {
    match task {
        "test" => match arguments {
            [] => checks::test(),
            [word] if word == "--quick" => quick::test_quickly(),
            _ => Err(TaskError::Usage("cargo xtask test [--quick]")),
        },
        "bench" => python::bench(arguments),
        "bundle" => bundle::bundle(),
        "crates" => crates::crates(arguments),
        "dist" => dist::dist(),
        "fuzz" => fuzz::fuzz(arguments),
        "golden" => python::golden(),
        "mutants" => mutants::mutants(arguments),
        "sanitize" => sanitize::sanitize(arguments),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(TaskError::UnknownTask(other.to_owned())),
    }
}

/// An error with what caused it.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
