//! Reads the JSON document between the planes into a [`Config`], or says why it is invalid.

use serde::Deserialize;

use crate::check::{Violations, check_config};
use crate::config::{Config, FORMAT, MAX_DOCUMENT_BYTES, UnknownFields};

/// Why a document cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not JSON, or a field of the wrong kind.
    #[error("the configuration is not understood: {0}")]
    Malformed(#[source] serde_json::Error),
    /// Not one of our documents.
    #[error("the configuration has no `format`: write `\"format\": {FORMAT}` as its first field")]
    NoFormat,
    /// Written by a newer operator.
    #[error(
        "the configuration has format {format} and this version reads up to {FORMAT}: upgrade the data plane first"
    )]
    NewerFormat {
        /// The format of the document.
        format: u32,
    },
    /// Against the rules (A30-A34).
    #[error("the configuration is refused:\n{0}")]
    Invalid(#[source] Violations),
    /// More than a ConfigMap can hold.
    #[error("the configuration has {bytes} bytes and may have {MAX_DOCUMENT_BYTES}")]
    TooLong {
        /// The length of the document.
        bytes: usize,
    },
}

impl Config {
    /// Reads a document and checks it. Fields this version does not know are ignored, and returned so that they can be
    /// reported; a higher `format` is refused, because ignoring would misread it.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn from_json(text: &str) -> Result<(Self, UnknownFields), ConfigError> {
        #[derive(Deserialize)]
        struct Head {
            format: Option<u32>,
        }
        if text.len() > MAX_DOCUMENT_BYTES {
            return Err(ConfigError::TooLong { bytes: text.len() });
        }
        let head: Head = serde_json::from_str(text).map_err(ConfigError::Malformed)?;
        match head.format {
            None => return Err(ConfigError::NoFormat),
            Some(format) if format > FORMAT => return Err(ConfigError::NewerFormat { format }),
            Some(_) => {}
        }
        let mut unknown = UnknownFields::default();
        let mut reader = serde_json::Deserializer::from_str(text);
        let config: Self =
            serde_ignored::deserialize(&mut reader, |path| unknown.add(path.to_string()))
                .map_err(ConfigError::Malformed)?;
        reader.end().map_err(ConfigError::Malformed)?;
        check_config(&config).map_err(ConfigError::Invalid)?;
        Ok((config, unknown))
    }
}
