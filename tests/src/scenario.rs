//! Scenarios: Kubernetes YAML in, dig-style text out.
//!
//! A folder of `tests/scenarios` with an `answers.txt` is a scenario: `objects.yaml` says what there is (see
//! [`objects`]), `answers.txt` what is asked and what must come back (see [`Answers`]). The same scenario runs against
//! the core in process and against a data plane over sockets; with `UPDATE_EXPECT=1` the core's answers are written
//! back, for a person to compare with docs/dns.md.

pub mod objects;
mod answers;
mod core;
mod plane;
mod program;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::client::{Names, Question, Text, Transport, read};

pub use answers::{Answers, Block};
pub use core::{Core, config};
pub use plane::Plane;
pub(crate) use plane::upstreams;
pub use program::Program;

/// A cluster and the scenarios that take place in it: those with the same `objects.yaml`, which so share one server.
#[derive(Debug)]
pub struct Cluster {
    /// Kubernetes objects, among them a ClusterDNS.
    pub objects: Vec<Value>,
    /// What is promised of it.
    pub scenarios: Vec<Scenario>,
}

#[derive(Debug)]
pub struct Scenario {
    /// Name of its folder: the promise.
    pub name: String,
    /// The content of `answers.txt`.
    pub answers: Answers,
    file: PathBuf,
}

/// The result of a question.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The reply; `None` is silence or a closed connection.
    pub reply: Option<Vec<u8>>,
    /// Upstreams asked because of it, each once, in order.
    pub forwarded_to: Vec<IpAddr>,
}

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

impl Cluster {
    /// All scenarios, by cluster.
    ///
    /// # Errors
    /// Names the file that cannot be read and why.
    pub fn all() -> Result<Vec<Cluster>> {
        let mut folders: Vec<PathBuf> =
            std::fs::read_dir(folder())?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        folders.retain(|folder| folder.join("answers.txt").exists());
        folders.sort();
        let mut by_text: BTreeMap<String, Cluster> = BTreeMap::new();
        for folder in folders {
            let cluster = match by_text.entry(std::fs::read_to_string(folder.join("objects.yaml"))?)
            {
                Entry::Occupied(cluster) => cluster.into_mut(),
                Entry::Vacant(place) => {
                    let objects = objects::read(&folder)?;
                    place.insert(Cluster { objects, scenarios: Vec::new() })
                }
            };
            cluster.scenarios.push(Scenario::load(&folder)?);
        }
        Ok(by_text.into_values().collect())
    }
}

/// The objects of one scenario.
///
/// # Errors
/// Names the file that cannot be read and why.
pub fn objects_of(name: &str) -> Result<Vec<Value>> {
    objects::read(&folder().join(name))
}

impl Scenario {
    fn load(folder: &Path) -> Result<Scenario> {
        let file = folder.join("answers.txt");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Ok(Scenario {
            name: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            answers: Answers::parse(&text).with_context(|| file.display().to_string())?,
            file,
        })
    }

    /// Asks every question that is for this transport and says where replies differ from what is written.
    ///
    /// # Errors
    /// `ask` failed.
    pub fn check(
        &self,
        transport: Transport,
        names: &Names,
        mut ask: impl FnMut(&Question, &Block) -> Result<Outcome>,
    ) -> Result<Vec<String>> {
        let mut differences = Vec::new();
        for block in self.answers.blocks() {
            for (row, question) in &block.questions {
                if !question.is_for(transport) {
                    continue;
                }
                let about = || format!("{}: {row} {}", self.name, question.text);
                let outcome = ask(question, block).with_context(about)?;
                let came = outcome.text(question, transport, names);
                if came != block.expected {
                    let (about, expected) = (about(), &block.expected);
                    differences.push(format!("{about}\n--- expected\n{expected}--- came\n{came}"));
                }
            }
        }
        Ok(differences)
    }

    /// Writes what came back to `answers.txt` where it differs; comments and the order of questions stay.
    ///
    /// # Errors
    /// `ask` failed, or the file cannot be written.
    pub fn update(
        &mut self,
        names: &Names,
        mut ask: impl FnMut(&Question, Transport) -> Result<Outcome>,
    ) -> Result<()> {
        self.answers.update(|question| {
            let transport = question.only.unwrap_or(Transport::Udp);
            Ok(ask(question, transport)?.text(question, transport, names))
        })?;
        std::fs::write(&self.file, self.answers.to_string())?;
        Ok(())
    }
}

impl Outcome {
    /// The reply as text, and the upstreams that were asked for it.
    pub fn text(&self, question: &Question, transport: Transport, names: &Names) -> Text {
        let mut text = read(question, self.reply.as_deref(), transport, names);
        if !self.forwarded_to.is_empty() {
            let servers: Vec<String> = self.forwarded_to.iter().map(IpAddr::to_string).collect();
            text.notes.push(format!("forwarded to {}", servers.join(" ")));
        }
        text
    }
}
