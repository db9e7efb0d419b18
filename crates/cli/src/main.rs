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
mod help;
mod info;
mod interrupt;
#[cfg(feature = "cuda")]
mod kernels;
#[cfg(feature = "simulator")]
mod lab;
mod live;
mod manual;
mod model;
mod models;
mod out_of_memory;
mod profile;
mod progress_line;
mod quantities;
#[cfg(feature = "simulator")]
mod sim;
mod standard_output;
mod terminal;
mod ticker;

use std::{alloc::System, process::ExitCode};

use arguments::{Arguments, Command};
use failure::Failure;
use serde_json::Value;
use standard_output::{print, print_styled};

#[global_allocator]
static ALLOCATOR: out_of_memory::Allocator<System> = out_of_memory::Allocator(System);

fn main() -> ExitCode {
    // Looked for by hand: the options may not be ones that can be parsed.
    let json = std::env::args_os().any(|word| word == "--json");
    out_of_memory::set_json(json);
    let arguments = match Arguments::read(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => return failure::report_usage(&error, json),
    };
    let json = arguments.command.json();
    let result = run(arguments.command);
    interrupt::settle();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    interrupt::listen(command.json())?;
    kinora::device::start_threads()?;
    match command {
        Command::Generate(arguments) => generate::run(&arguments),
        Command::Live(arguments) => live::run(&arguments),
        Command::Image(arguments) => live::image::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        #[cfg(feature = "cuda")]
        Command::Kernels(arguments) => kernels::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        #[cfg(feature = "simulator")]
        Command::Sim(arguments) => sim::run(&arguments).map_err(Failure::not_run),
        #[cfg(feature = "simulator")]
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Models(arguments) => models::run(&arguments),
        Command::DemoModel(arguments) => demo_model::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => manual::run(&arguments),
    }
}

/// Prints an answer for a program, if it asked for one. If the command failed nevertheless, both are one object, which is printed
/// when the failure is reported.
fn answer(json: bool, answer: Value, failure: Option<Failure>) -> Result<(), Failure> {
    match failure {
        Some(failure) => Err(failure.after(answer)),
        None if json => print(&format!("{answer}\n")),
        None => Ok(()),
    }
}
