//! The warm start (E40-E46): what is served is written to a folder of the machine, and a process
//! that starts while the API server is away answers from it at once.
//!
//! The writer of the index gives its objects away in small steps; a thread of its own brings them
//! to disk. At the next start the file is checked as a whole and applied like a list, marked as
//! what it is until live lists replace it.

mod due;
mod shares;
mod write;
mod read;
pub(crate) mod format;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use anyhow::Context;
use crds::Config;
use dataplane_core::{DataSource, Export, Index, Object, Resource};

use crate::status::Status;
use crate::status::snapshot::{Loaded, SnapshotStatus};
use crate::telemetry::printable;
use due::{Cost, Due, Moment};
use format::{Head, Kept, MAX_FILE};
use shares::{LeftOut, Shares};
use write::Part;

pub use read::{Refusal, Stored};

/// The names of the snapshot: complete, unfinished, and refused.
const FILE: &str = "snapshot";
const TEMPORARY: &str = "snapshot.new";
const REJECTED: &str = "snapshot.rejected";

/// Rows and ports exported at a time: well below a millisecond.
const STEP: usize = 2_000;
/// When to continue with an unfinished snapshot, and when the disk is behind.
const NEXT_STEP: Duration = Duration::from_millis(1);
const DISK_IS_BUSY: Duration = Duration::from_millis(50);
/// How often to look whether one is due.
pub(crate) const IDLE: Duration = Duration::from_secs(1);

/// Younger snapshots with all records are as good as live data for readiness (E43).
const FRESH_S: u64 = 300;
/// With another one, how long to wait for live data first (E43).
const MAX_WAIT_FOR_LIVE: Duration = Duration::from_secs(10);

/// E43: whether readiness waits for live data although there is a snapshot. `api_answers` is
/// `None` until it is known.
pub fn waits_for_live(loaded: Loaded, now: Instant, api_answers: Option<bool>) -> bool {
    let waited = now.saturating_duration_since(loaded.at);
    (loaded.age_s > FRESH_S || loaded.is_partial)
        && api_answers != Some(false)
        && waited < MAX_WAIT_FOR_LIVE
}

/// Opens the snapshot of a folder, at start. One that cannot be used is moved out of the way and
/// reported; neither is a reason not to start.
pub fn open(folder: &Path, status: &Status) -> Option<Stored> {
    status.read().snapshot.folder = Some(folder.to_owned());
    match Stored::open(&folder.join(FILE)) {
        Ok(found) => {
            let reported = &mut status.read().snapshot;
            reported.on_disk_confirmed_at_s = found.as_ref().and_then(Stored::confirmed_at_s);
            reported.octets = found.as_ref().map_or(0, Stored::octets);
            found
        }
        Err(refusal) => {
            set_aside(folder, status, &refusal);
            None
        }
    }
}

/// Reports why a snapshot is not used. One that can never be used is renamed, so that a person can look at it; the
/// next such one takes its place.
pub fn set_aside(folder: &Path, status: &Status, refusal: &Refusal) {
    let file = folder.join(FILE);
    let mut text = format!("{} is not used: {refusal}", file.display());
    if refusal.is_final() {
        match std::fs::rename(&file, folder.join(REJECTED)) {
            Ok(()) => {
                text.push_str(&format!("; it is {REJECTED} now"));
                let reported = &mut status.read().snapshot;
                (reported.on_disk_confirmed_at_s, reported.octets) = (None, 0);
            }
            Err(error) => text.push_str(&format!("; it cannot be renamed: {error}")),
        }
    }
    tracing::warn!("the snapshot {}", printable(&text));
    status.read().snapshot.refused = Some(text);
}

/// Writes snapshots from the index, step by step, on the thread that owns it.
#[derive(Debug)]
pub struct Snapshots {
    disk: SyncSender<Part>,
    status: Arc<Status>,
    /// The configuration that a restart must run: the stable one.
    configuration: Arc<Config>,
    due: Due,
    making: Option<Making>,
    /// Octets that a file may have.
    room: u64,
    /// Failures of the disk so far.
    failures: u64,
}

/// A snapshot that is being written.
#[derive(Debug)]
struct Making {
    export: Export,
    /// The start of the file where not everything fits.
    start_of_part: Vec<u8>,
    /// Otherwise it ends behind its start.
    has_objects: bool,
    shares: Shares,
    left_out: LeftOut,
    /// Octets that the disk has not taken yet.
    next: Option<Part>,
    /// `next` is the last part of the file.
    is_last: bool,
    confirmed_at_s: Option<u64>,
    /// Of the configuration in it.
    revision: String,
}

/// A time at which the API server was heard of, by two clocks: the wall clock may be set back.
#[derive(Clone, Copy, Debug)]
pub struct Contact {
    pub at: Instant,
    pub unix_s: u64,
}

/// Facts that the index does not have.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The configuration in use, by which objects are kept.
    pub config: &'a Config,
    /// When the API server was last heard of, by [`Resource`].
    pub contacts: [Option<Contact>; Resource::ALL.len()],
    /// Uid of the Namespace `kube-system`.
    pub kube_system: Option<u128>,
    /// The time of this step.
    pub now: Instant,
    /// The process was asked to end: the next process benefits from a young snapshot.
    pub is_last: bool,
}

impl Snapshots {
    /// Writes to this folder, which is made if need be.
    ///
    /// # Errors
    /// When the folder cannot be made or the thread not started.
    pub fn new(folder: &Path, config: Arc<Config>, status: Arc<Status>) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| {
            format!(
                "cannot make the folder {} (--state-dir): name one that this user may write to",
                folder.display()
            )
        })?;
        status.read().snapshot.folder = Some(folder.to_owned());
        let disk = write::start(folder, status.clone())?;
        let chance = getrandom::u32().map_or(0.0, |drawn| f64::from(drawn) / f64::from(u32::MAX));
        let (due, making) = (Due::new(chance), None);
        let room = MAX_FILE;
        Ok(Snapshots { disk, status, configuration: config, due, making, room, failures: 0 })
    }

    /// The configuration that a restart must run from now on.
    pub fn keep_configuration(&mut self, config: Arc<Config>) {
        if self.configuration != config {
            self.configuration = config;
            self.due.configured();
        }
    }

    /// An answer has changed: a snapshot is due when the last one is old enough.
    pub fn changed(&mut self) {
        self.due.changed();
    }

    /// Abandons the snapshot that is being written: its beginning is outdated.
    pub fn abandon(&mut self) {
        self.making = None;
        self.due.changed();
    }

    /// Does a small part of the work; returns when to call it again at the latest.
    pub fn step(&mut self, index: &Index, circumstances: &Circumstances<'_>) -> Duration {
        if self.making.is_none() {
            self.begin(index, circumstances);
        }
        let Some(mut making) = self.making.take() else {
            return IDLE;
        };
        if let Some(part) = making.next.take() {
            match self.disk.try_send(part) {
                Ok(()) if making.is_last => return IDLE,
                Ok(()) => {}
                Err(TrySendError::Full(part)) => {
                    making.next = Some(part);
                    self.making = Some(making);
                    return DISK_IS_BUSY;
                }
                // The thread has panicked and said so.
                Err(TrySendError::Disconnected(_)) => return IDLE,
            }
        }
        making.step(index);
        self.making = Some(making);
        NEXT_STEP
    }

    /// Starts a snapshot if one is due.
    fn begin(&mut self, index: &Index, circumstances: &Circumstances<'_>) {
        let (failures, cost) = {
            let reported = self.status.read();
            let SnapshotStatus { failures, written, took, .. } = reported.snapshot;
            (failures, Cost { octets: written, took })
        };
        if failures > self.failures {
            self.failures = failures;
            self.due.failed();
        }
        let contact = latest_contact(index, circumstances).filter(|_| is_synced(index));
        let Circumstances { now, is_last, .. } = *circumstances;
        if !self.due.start(Moment { now, contact, cost, is_last }) {
            return;
        }
        // During a canary a restart may run either configuration. Objects that neither may use are not written.
        let configs = [circumstances.config, &self.configuration];
        let has_objects = configs.iter().any(|config| config.warm_start.max_age_seconds > 0);
        // What is confirmed counts as complete at the next start: without objects nothing may.
        let confirmed = match has_objects {
            true => confirmed(index, circumstances),
            false => ByResource::default(),
        };
        let oldest = confirmed.iter().flatten().min().copied();
        let head = self.head(index, circumstances, confirmed);
        // The head can only be too large if the configuration is larger than any ConfigMap.
        let Some(start) = format::start(&head) else { return };
        let Some(start_of_part) = format::start(&Head { is_partial: true, ..head }) else { return };
        let around = start.len() + format::END.len() + format::CHECKSUM;
        self.making = Some(Making {
            export: Export::default(),
            shares: Shares::new(self.room.saturating_sub(around as u64)),
            left_out: LeftOut::default(),
            next: Some(Part::Start(start)),
            start_of_part,
            has_objects,
            is_last: false,
            confirmed_at_s: oldest,
            revision: self.configuration.revision(),
        });
    }

    fn head(
        &self,
        index: &Index,
        circumstances: &Circumstances<'_>,
        confirmed: ByResource,
    ) -> Head {
        let rows = Resource::ALL.iter().zip(confirmed);
        // What was missing at the start still is, where no list has replaced it.
        let was_partial =
            self.status.read().snapshot.loaded.is_some_and(|loaded| loaded.is_partial);
        let records = index.records();
        let is_loaded =
            |&resource: &Resource| matches!(records.source(resource), DataSource::Snapshot { .. });
        Head {
            cluster_domain: circumstances.config.domain.clone(),
            kube_system_uid: circumstances.kube_system.map(|uid| format!("{uid:x}")),
            confirmed_at_s: rows
                .filter_map(|(resource, at_s)| Some((resource.plural().to_owned(), at_s?)))
                .collect(),
            kept: Kept::under(circumstances.config),
            is_partial: was_partial && Resource::ALL.iter().any(is_loaded),
            configuration: self.configuration.to_json(),
        }
    }
}

impl Making {
    /// Exports until there is a block for the disk, or enough was done for once.
    fn step(&mut self, index: &Index) {
        let mut block = Vec::new();
        let mut put = |object: Object| {
            let start = block.len();
            let is_whole = format::put_object(&mut block, &object);
            let octets = (block.len() - start) as u64;
            if !is_whole {
                self.shares.refuse();
            }
            if !is_whole || !self.shares.take(shares::namespace_of(&object), octets) {
                block.truncate(start);
                self.left_out.add(&object);
            }
        };
        let has_more = self.has_objects && index.export(&mut self.export, STEP, &mut put);
        if self.shares.is_over() {
            // Nothing is written until the shares are known.
            if !has_more {
                self.begin_second_pass();
            }
            return;
        }
        self.next = match (has_more, block.is_empty()) {
            (_, false) => Some(Part::Objects(block)),
            (true, true) => None,
            (false, true) => {
                self.is_last = true;
                Some(Part::End {
                    confirmed_at_s: self.confirmed_at_s,
                    revision: self.revision.clone(),
                    left_out: std::mem::take(&mut self.left_out),
                })
            }
        };
    }

    fn begin_second_pass(&mut self) {
        let first = std::mem::replace(&mut self.shares, Shares::new(0));
        self.shares = first.second();
        (self.export, self.left_out) = (Export::default(), LeftOut::default());
        self.next = Some(Part::Start(std::mem::take(&mut self.start_of_part)));
    }
}

/// Times in Unix seconds, by [`Resource`].
type ByResource = [Option<u64>; Resource::ALL.len()];

/// When the API server last confirmed the data of each resource that has any.
fn confirmed(index: &Index, circumstances: &Circumstances<'_>) -> ByResource {
    let records = index.records();
    Resource::ALL.map(|resource| match records.source(resource) {
        DataSource::None => None,
        DataSource::Snapshot { confirmed_at_s } => Some(confirmed_at_s),
        DataSource::Live => {
            Some(circumstances.contacts[resource as usize].map_or(0, |contact| contact.unix_s))
        }
    })
}

/// When the API server was last heard of on behalf of any resource that is live.
fn latest_contact(index: &Index, circumstances: &Circumstances<'_>) -> Option<Instant> {
    let records = index.records();
    let live =
        Resource::ALL.into_iter().filter(|&resource| records.source(resource) == DataSource::Live);
    live.filter_map(|resource| circumstances.contacts[resource as usize]).map(|it| it.at).max()
}

/// Whether there is more to write than what was loaded: everything that answers need at all has
/// data, and some of it is live.
fn is_synced(index: &Index) -> bool {
    let records = index.records();
    let needed = [Resource::Services, Resource::EndpointSlices, Resource::Namespaces];
    let has_data = |resource: &Resource| records.source(*resource) != DataSource::None;
    let is_live = |resource: &Resource| records.source(*resource) == DataSource::Live;
    needed.iter().all(has_data) && Resource::ALL.iter().any(is_live)
}

#[cfg(test)]
pub(crate) mod tests;
