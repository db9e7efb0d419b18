//! Why a network could not be built.

use std::ops::RangeInclusive;

use kinora_graph::GraphError;

/// More channels, tokens or pixels along an axis than any model has: sizes up to it can be multiplied without care.
pub(crate) const MAX_EXTENT: usize = 1 << 20;
/// More layers than any model has: a graph of so many is still built in seconds.
pub(crate) const MAX_LAYERS: usize = 1 << 10;

/// Why a network could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The text is not the network's configuration.
    #[error("{network}: its config.json cannot be read: {problem}")]
    Json {
        /// The network.
        network: &'static str,
        /// What the reader says.
        problem: String,
    },
    /// A setting with which the network cannot be built.
    #[error("{network}: {setting} is {value}, but {rule}")]
    Setting {
        /// The network.
        network: &'static str,
        /// The setting's name in `config.json`, or what was asked for.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it has to be.
        rule: String,
    },
    /// The layers do not fit together.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Settings of a network, checked before anything is computed from them.
pub(crate) struct Settings {
    /// The network, for errors.
    pub network: &'static str,
}

impl Settings {
    /// Reads the text of a `config.json`, which is one JSON object.
    pub fn parse(&self, text: &str) -> Result<serde_json::Value, NetworkError> {
        serde_json::from_str(text).map_err(|error| self.unreadable(&error))
    }

    /// Reads the settings of a JSON object. A list would be taken for settings without their names.
    pub fn read<T: serde::de::DeserializeOwned>(&self, json: serde_json::Value) -> Result<T, NetworkError> {
        if !json.is_object() {
            return Err(self.unreadable(&"the settings are not a JSON object"));
        }
        serde_json::from_value(json).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, problem: &dyn std::fmt::Display) -> NetworkError {
        NetworkError::Json { network: self.network, problem: problem.to_string() }
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

    /// Refuses a value that breaks a rule.
    pub fn require(
        &self,
        holds: bool,
        setting: &'static str,
        value: impl std::fmt::Display,
        rule: impl FnOnce() -> String,
    ) -> Result<(), NetworkError> {
        if holds {
            return Ok(());
        }
        let (network, value) = (self.network, value.to_string());
        Err(NetworkError::Setting { network, setting, value, rule: rule() })
    }
}
