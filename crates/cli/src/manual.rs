//! `kinora man`: the manual pages, one for each command.

use clap::CommandFactory;

use crate::{
    arguments::{Arguments, ManArgs},
    failure::Failure,
};

/// Writes the pages into a folder.
pub fn run(arguments: &ManArgs) -> Result<(), Failure> {
    clap_mangen::generate_to(Arguments::command(), &arguments.folder)
        .map_err(|source| Failure::File { path: arguments.folder.clone(), source })
}
