//! `kinora models`: the models in the cache of the Hugging Face hub.

pub mod arguments;
mod list;
mod pull;
mod remove;
mod verify;

use kinora_models::hub::{HubError, HubId, SHORT_NAMES};

use self::arguments::{ModelsArgs, ModelsCommand};
use crate::failure::Failure;

/// Runs one of the commands.
pub fn run(arguments: &ModelsArgs) -> Result<(), Failure> {
    match &arguments.command {
        ModelsCommand::Pull(arguments) => pull::run(arguments),
        ModelsCommand::List(arguments) => list::run(arguments),
        ModelsCommand::Rm(arguments) => remove::run(arguments),
        ModelsCommand::Verify(arguments) => verify::run(arguments),
    }
}

/// A model of the hub by its name.
fn id(name: &str) -> Result<HubId, Failure> {
    HubId::parse(name).ok_or_else(|| HubError::NotAModel(name.to_owned()).into())
}

/// The short name of a model, if it has one.
fn short_name(id: &HubId) -> Option<&'static str> {
    SHORT_NAMES.iter().find(|short| short.repo == id.repo()).map(|short| short.name)
}
