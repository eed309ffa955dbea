//! Programs and charts that stand in for those of the sources: a release, or an earlier commit. `make node RELEASE=x` and
//! `make cluster FROM=COMMIT` name them.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// What `make release` has left: a folder with `image`, `image-digest.txt` and `chart`.
const RELEASE: &str = "CLUSTERDNS_TEST_RELEASE";
/// The sources of an earlier commit, with its programs in the folder `programs`.
const EARLIER: &str = "CLUSTERDNS_TEST_EARLIER";

fn folder(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// A release, whose image pods name by its digest.
#[derive(Clone, Debug)]
pub struct Release(PathBuf);

impl Release {
    pub fn given() -> Option<Release> {
        folder(RELEASE).map(Release)
    }

    /// # Errors
    /// The release has none.
    pub fn digest(&self) -> Result<String> {
        let file = self.0.join("image-digest.txt");
        let digest = std::fs::read_to_string(&file)
            .with_context(|| format!("{}: make release makes it", file.display()))?;
        Ok(digest.trim().to_owned())
    }

    /// The packaged chart.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn chart(&self) -> Result<PathBuf> {
        let charts = self.0.join("chart");
        let found = std::fs::read_dir(&charts)
            .with_context(|| format!("{}: make release makes it", charts.display()))?;
        let found = found.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        let [chart] = &found[..] else { anyhow::bail!("one chart is expected: {found:?}") };
        Ok(chart.clone())
    }

    /// The version that its chart has in its name.
    ///
    /// # Errors
    /// There is no chart, more than one, or one with another name.
    pub fn version(&self) -> Result<String> {
        let chart = self.chart()?;
        let name = chart.file_name().and_then(|name| name.to_str()).context("a name in UTF-8")?;
        let version = name.strip_prefix("clusterdns-").and_then(|it| it.strip_suffix(".tgz"));
        Ok(version
            .with_context(|| format!("clusterdns-VERSION.tgz is expected: {name}"))?
            .to_owned())
    }

    /// The OCI layout.
    pub(super) fn image(&self) -> PathBuf {
        self.0.join("image")
    }
}

/// An earlier commit.
#[derive(Clone, Debug)]
pub struct Earlier(PathBuf);

impl Earlier {
    pub fn given() -> Option<Earlier> {
        folder(EARLIER).map(Earlier)
    }

    /// The folder of its chart.
    pub fn chart(&self) -> PathBuf {
        self.0.join("charts/clusterdns")
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.0.join("programs").join(name)
    }
}
