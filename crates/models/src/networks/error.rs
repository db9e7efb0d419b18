//! Why a network could not be built.

use std::{error::Error, fmt::Display, ops::RangeInclusive};

use kinora_graph::{Graph, GraphError, SharedError, tensor::TensorError};
use kinora_outside::shortened;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::resnet::GROUPS;
use crate::json;

/// More channels, tokens, pixels or steps along an axis than any model has: a few such sizes can be multiplied without care.
pub(crate) const MAX_EXTENT: usize = 1 << 16;
/// More layers than any model has in one place: a broken file cannot ask for a graph without end.
pub(crate) const MAX_LAYERS: usize = 1 << 6;
/// More residual and transformer blocks than any network has, all together; Stable Video Diffusion's has some 60, and that of
/// Stable Diffusion XL 90. Each has a dozen nodes or more, and a plan of this many takes seconds.
pub(crate) const MAX_ALL_LAYERS: usize = 1 << 8;
/// More parameters than any such network has: twenty times those of Stable Diffusion XL.
const MAX_PARAMETERS: u64 = 1 << 36;
/// Each level halves the image, so that one more than this would leave nothing of the largest.
pub(crate) const MAX_LEVELS: usize = 16;

/// Why a network could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The text is not the network's configuration.
    #[error("{network}: its configuration cannot be read: {source}")]
    Json {
        /// The network.
        network: &'static str,
        /// What the reader says.
        source: SharedError,
    },
    /// The configuration belongs to another network.
    #[error("{network}: its configuration names the class {class}, but {expected} is needed")]
    Class {
        /// The network.
        network: &'static str,
        /// What the configuration names.
        class: String,
        /// What it must name.
        expected: &'static str,
    },
    /// A setting with which the network cannot be built.
    #[error("{network}: {setting} is {value}, but {rule}")]
    Setting {
        /// The network.
        network: &'static str,
        /// The setting's name in `config.json`, or what was asked for.
        setting: &'static str,
        /// Its value, and which one it is if there are several.
        value: String,
        /// What it has to be.
        rule: String,
    },
    /// A constant of the graph could not be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The layers do not fit together, or tensors are too large to exist.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Reads the settings of a network, and checks them before anything is computed from them.
pub(crate) struct Settings {
    /// The network, for errors.
    pub network: &'static str,
    /// The class that the configuration must name, if it names one.
    pub class: &'static str,
}

impl Settings {
    /// Reads a `config.json` of the network's class, or of none. Unknown settings are ignored, as diffusers
    /// and transformers do.
    pub fn read<T: DeserializeOwned>(&self, text: &str) -> Result<T, NetworkError> {
        self.read_object(self.object(text)?)
    }

    /// The same of settings that have been parsed.
    pub fn read_object<T: DeserializeOwned>(&self, settings: Map<String, Value>) -> Result<T, NetworkError> {
        // diffusers writes the one, transformers the other.
        let class = settings.get("_class_name").or_else(|| settings.get("architectures")?.get(0));
        match class.and_then(Value::as_str) {
            Some(class) if class != self.class => {
                let class = shortened(class, 60).into_owned();
                Err(NetworkError::Class { network: self.network, class, expected: self.class })
            }
            _ => self.parse(settings),
        }
    }

    /// The settings by name. A list, which serde would take for settings without their names, is refused.
    pub fn object(&self, text: &str) -> Result<Map<String, Value>, NetworkError> {
        json::object(text).map_err(|error| self.unreadable(error))
    }

    /// Reads settings of any class.
    pub fn parse<T: DeserializeOwned>(&self, settings: Map<String, Value>) -> Result<T, NetworkError> {
        json::settings(settings).map_err(|error| self.unreadable(error))
    }

    /// That the text is not the network's configuration.
    pub fn unreadable(&self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> NetworkError {
        NetworkError::Json { network: self.network, source: SharedError::new(cause) }
    }

    /// The graph, unless it has more parameters than any network; `setting` is what it has most of them from.
    pub fn sized(&self, graph: Graph, setting: &'static str) -> Result<Graph, NetworkError> {
        let count = graph.parameter_count();
        let value = format_args!("so large that the network would have {count} parameters");
        let rule = || format!("at most {MAX_PARAMETERS} are supported");
        self.require(count <= MAX_PARAMETERS, setting, value, rule)?;
        Ok(graph)
    }

    /// Refuses more blocks than any network has.
    pub fn few_layers(&self, setting: &'static str, layers: usize) -> Result<(), NetworkError> {
        let rule = || format!("the blocks of all levels together must be at most {MAX_ALL_LAYERS}");
        self.require(layers <= MAX_ALL_LAYERS, setting, format_args!("{layers} in all"), rule)
    }

    /// Refuses channels that the groups of the norms do not divide.
    pub fn channels(&self, setting: &'static str, all: &[usize]) -> Result<(), NetworkError> {
        for (block, &channels) in all.iter().enumerate() {
            let fits = channels.is_multiple_of(GROUPS) && (1..=MAX_EXTENT).contains(&channels);
            self.require(fits, setting, format_args!("{channels} for block {block}"), || {
                format!("it must be a multiple of {GROUPS}, the groups of every norm, from {GROUPS} to {MAX_EXTENT}")
            })?;
        }
        Ok(())
    }

    /// Refuses a value outside a range.
    pub fn within(
        &self,
        setting: &'static str,
        value: usize,
        range: RangeInclusive<usize>,
    ) -> Result<(), NetworkError> {
        let rule = || format!("it must be from {} to {}", range.start(), range.end());
        self.require(range.contains(&value), setting, value, rule)
    }

    /// Refuses a list of more levels than there can be, or of none.
    pub fn some_levels<T>(&self, setting: &'static str, list: &[T]) -> Result<(), NetworkError> {
        let length = list.len();
        let rule = || format!("it must have 1 to {MAX_LEVELS} entries");
        self.require((1..=MAX_LEVELS).contains(&length), setting, format_args!("a list of {length}"), rule)
    }

    /// Refuses a list that has not an entry for each of `block_out_channels`.
    pub fn one_a_level<T>(
        &self,
        setting: &'static str,
        list: &[T],
        levels: usize,
    ) -> Result<(), NetworkError> {
        let length = list.len();
        let rule = || format!("block_out_channels has {levels} entries, and they must agree");
        self.require(length == levels, setting, format_args!("a list of {length}"), rule)
    }

    /// Refuses a value that breaks a rule.
    pub fn require(
        &self,
        holds: bool,
        setting: &'static str,
        value: impl Display,
        rule: impl FnOnce() -> String,
    ) -> Result<(), NetworkError> {
        if holds { Ok(()) } else { Err(self.refused(setting, value, rule())) }
    }

    /// Refuses an input with other channels than a setting says.
    pub fn agrees(
        &self,
        setting: &'static str,
        value: usize,
        (input, channels): (&str, usize),
    ) -> Result<(), NetworkError> {
        let rule = || format!("{input} has {channels} channels, and they must agree");
        self.require(value == channels, setting, value, rule)
    }

    /// That a setting has a value with which the network cannot be built.
    pub fn refused(
        &self,
        setting: &'static str,
        value: impl Display,
        rule: impl Into<String>,
    ) -> NetworkError {
        let (network, value) = (self.network, shortened(&value.to_string(), 120).into_owned());
        NetworkError::Setting { network, setting, value, rule: rule.into() }
    }
}
