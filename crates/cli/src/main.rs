//! The program `kinora`: a photo becomes a video, from the command line.

mod arguments;
mod bench;
mod clip;
mod completions;
mod demo_model;
mod display;
mod doctor;
mod failure;
mod files;
mod generate;
mod info;
mod interrupt;
#[cfg(feature = "cuda")]
mod kernels;
mod manual;
mod model;
mod models;
mod profile;
mod quantities;
#[cfg(feature = "simulator")]
mod sim;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;
use failure::Failure;
use kinora_outside::printable;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // The options could not be parsed, so look for this one by hand.
        Err(error) => return failure::report_usage(&error, std::env::args_os().any(|word| word == "--json")),
    };
    let json = arguments.command.json();
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    interrupt::listen(command.json())?;
    match command {
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        #[cfg(feature = "cuda")]
        Command::Kernels(arguments) => kernels::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        #[cfg(feature = "simulator")]
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Models(arguments) => models::run(&arguments),
        Command::DemoModel(arguments) => demo_model::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => manual::run(&arguments),
    }
}

/// Prints to standard output, whose reader may be gone, in which case `println!` would panic. The text may quote files, so
/// whatever a terminal would obey is shown instead.
fn print(text: &str) -> Result<(), Failure> {
    print_styled(&printable(text))
}

/// The same for text with colours, which only terminals get. What it quotes must be [`printable`] already.
fn print_styled(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let mut output = anstream::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(Failure::StandardOutput)
}
