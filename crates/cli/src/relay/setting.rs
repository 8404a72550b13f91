//! Reads one setting, and passes it on if the file has it.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error};

/// A duration as in `5s`.
pub(super) fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    let read = humantime::parse_duration(&text);
    read.map(Some)
        .map_err(|_| D::Error::custom(format!("{text:?} is no duration: write it as in \"2s\" or \"500ms\"")))
}

/// The config with a setting, if the file has it.
pub(super) fn with<C, T>(config: C, value: Option<T>, setter: impl FnOnce(C, T) -> C) -> C {
    match value {
        Some(value) => setter(config, value),
        None => config,
    }
}
