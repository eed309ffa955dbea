//! Where the configuration comes from, and the configuration that is known without the API server.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::source::configuration::{self, Checked};
use crate::source::objects::documents::{self, Syntax};

/// The reported origin of the default configuration.
const DEFAULTS: &str = "defaults: neither --config-map nor --config names another";

/// The most octets of the file of `--config`: a ClusterDNS has at most some hundred KiB, and people write comments.
const MAX_FILE_OCTETS: u64 = 4 << 20;

/// Where the configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The defaults: no flag names another.
    Defaults,
    /// A file with a ClusterDNS.
    File(PathBuf),
    /// The ConfigMap that an operator writes.
    ConfigMap {
        namespace: String,
        name: String,
        /// A mounted copy, for a start without the API server.
        mounted: Option<PathBuf>,
    },
}

impl Wanted {
    /// The origin as `/config` and log lines name it.
    pub(super) fn origin(&self) -> String {
        match self {
            Wanted::ConfigMap { namespace, name, .. } => format!("ConfigMap {namespace}/{name}"),
            Wanted::File(path) => path.display().to_string(),
            Wanted::Defaults => DEFAULTS.to_owned(),
        }
    }

    /// The configuration to start with, where it is known without the API server.
    ///
    /// # Errors
    /// The file cannot be used: there is no last good one to fall back to.
    pub(super) fn first(&self) -> anyhow::Result<Option<Checked>> {
        match self {
            Wanted::Defaults => Ok(Some(configuration::defaults(DEFAULTS))),
            Wanted::File(path) => Ok(Some(of_file(&read(path)?, path)?)),
            Wanted::ConfigMap { .. } => Ok(None),
        }
    }
}

/// The content of the file of `--config`.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    process::bounded_file::read_text(path, MAX_FILE_OCTETS)
        .with_context(|| format!("cannot read the configuration {} (--config)", path.display()))
}

/// The one ClusterDNS of a file, checked.
///
/// # Errors
/// The file is no YAML, has none or several, or its ClusterDNS breaks a rule.
pub(super) fn of_file(text: &str, path: &Path) -> anyhow::Result<Checked> {
    let name = path.display();
    let manifests = documents::parse(text, Syntax::Yaml)
        .map_err(|error| anyhow::anyhow!("{name} (--config): {error}"))?;
    let [found] = &manifests.configurations[..] else {
        let count = manifests.configurations.len();
        anyhow::bail!("{name} (--config) holds {count} ClusterDNS objects: write exactly one");
    };
    let found = (found.clone(), name.to_string());
    configuration::of(Some(&found)).map_err(|rejection| {
        anyhow::anyhow!("the configuration is refused.\n{}", configuration::text(&rejection))
    })
}
