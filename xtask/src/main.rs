//! The project's own tasks: `cargo xtask test` checks everything, the others are listed by `cargo xtask help`.

mod bundle;
mod checks;
mod python;
mod shell;

use std::process::ExitCode;

use shell::TaskError;

const HELP: &str = "\
cargo xtask <task>

  test      install NVIDIA's kernel compiler into .python/, check formatting, lints and docs, and run every test
  bench     install PyTorch and diffusers into .python/, then run the benchmarks against them; more words go to
            `cargo bench`
  bundle    gather what a GPU host without a toolchain needs into target/bundle, and pack it into target/bundle.tar.xz
  golden    install PyTorch and diffusers into .python/, then make the golden fixtures again
  help      this text";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let task = arguments.first().map_or("help", String::as_str);
    let result = match task {
        "test" => checks::test(),
        "bench" => python::bench(&arguments[1..]),
        "bundle" => bundle::bundle(),
        "golden" => python::golden(),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(TaskError::UnknownTask(other.to_owned())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nxtask: {error}");
            ExitCode::FAILURE
        }
    }
}
