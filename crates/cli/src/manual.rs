//! `kinora man`: the manual pages, one for each command.

use clap::CommandFactory;
use clap_mangen::Man;
use kinora::files::Inputs;

use crate::{
    arguments::{Arguments, ManArgs},
    failure::Failure,
    files,
};

/// Writes the pages into a folder.
pub fn run(arguments: &ManArgs) -> Result<(), Failure> {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    write(&program, arguments)
}

/// Writes the page of a command and those of its own commands.
fn write(command: &clap::Command, arguments: &ManArgs) -> Result<(), Failure> {
    for part in command.get_subcommands().filter(|part| !part.is_hide_set()) {
        write(part, arguments)?;
    }
    let page = Man::new(command.clone());
    let path = arguments.folder.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text).map_err(|source| Failure::File { path: path.clone(), source })?;
    files::check(&path, true, &Inputs::default())?.write(&text)
}
