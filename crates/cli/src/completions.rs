//! `kinora completions`: what a shell needs to complete commands and options.

use clap::CommandFactory;

use crate::{
    arguments::{Arguments, CompletionsArgs},
    failure::Failure,
    print,
};

/// Prints the completions for a shell.
pub fn run(arguments: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "kinora", &mut script);
    print(&String::from_utf8_lossy(&script))
}
