//! Which of several operators acts. The rules are client-go's, which every other controller of a cluster keeps: a Lease
//! with optimistic concurrency, timed by the reader's own [`clock`] from when it last *saw* the record change.
//!
//! Not the crate kube-lease-manager: it compares the renew time in the record, another node's wall clock, with the local
//! one. A clock that is 20 s ahead then takes a lease that is held, and two operators write. [`election`] holds the rules,
//! [`Leadership`] is asked before each write, this file talks to the API server.

pub mod clock;
mod election;
mod leadership;
mod owner;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use tokio::time::timeout;

use crate::runtime::refusals::Refusals;
pub use election::{Move, Seen, next};
pub use leadership::{Leadership, NotLeading};

/// The Lease, in the operator's own namespace.
pub const NAME: &str = "clusterdns-operator";
/// Time without a change after which others may take the lease.
pub const DURATION: Duration = Duration::from_secs(15);
/// Time without a renewal after which we stop: 5 s before others may start, time for a write that is on its way.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Time between two attempts to take or renew the lease.
pub const RETRY: Duration = Duration::from_secs(2);
/// An attempt that takes longer has failed; two fit into the deadline.
const ATTEMPT: Duration = Duration::from_secs(4);

/// What became of one write of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    /// The lease is ours from now on.
    Holds,
    /// Nothing was written: another may hold it.
    Waits,
    /// The record is not the one that was read last, or is gone.
    Conflicts,
}

/// Takes part in the election.
#[derive(Debug)]
pub struct Elector {
    leases: Api<Lease>,
    reviews: Api<SelfSubjectReview>,
    namespace: String,
    me: String,
    /// Our ServiceAccount, if we have one; None until it is known.
    owner: Option<Option<OwnerReference>>,
    /// How often the API server refused to say it.
    refusals: Refusals,
    seen: Option<Seen>,
    /// The metadata of the Lease as it was last seen: what others write there stays.
    metadata: ObjectMeta,
    /// A write that makes us the holder was sent. Its answer may never have been read.
    may_hold: bool,
    leadership: Arc<Leadership>,
}

impl Elector {
    /// Takes part under this name, which is made unique: a restarted container must not inherit the lease of the
    /// process before it, whose writes may still arrive.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        leadership: Arc<Leadership>,
    ) -> Elector {
        Elector {
            leases: Api::namespaced(client.clone(), namespace),
            reviews: Api::all(client),
            namespace: namespace.to_owned(),
            me: format!("{name}_{:016x}", random()),
            owner: None,
            refusals: Refusals::default(),
            seen: None,
            metadata: ObjectMeta::default(),
            may_hold: false,
            leadership,
        }
    }

    /// Returns when this process leads.
    pub async fn acquire(&mut self) {
        tracing::info!(identity = self.me, "waiting for the lease {NAME}");
        loop {
            match self.attempt().await {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!("cannot acquire the lease {NAME}, trying again: {error:#}")
                }
            }
            tokio::time::sleep(RETRY + jitter(RETRY)).await;
        }
        tracing::info!(identity = self.me, "leading");
    }

    /// Renews the lease; returns when it is lost. The process ends then: what it believed about the cluster is old.
    pub async fn hold(&mut self) -> NotLeading {
        loop {
            tokio::time::sleep(RETRY).await;
            if let Err(error) = self.attempt().await {
                tracing::warn!("cannot renew the lease {NAME}, trying again: {error:#}");
            }
            // Another has it, or may take it at any time.
            if !self.is_mine() {
                self.leadership.lost();
            }
            if let Err(lost) = self.leadership.ensure() {
                return lost;
            }
        }
    }

    /// Releases the lease, so that another operator leads at once. An attempt may have been cancelled before: its write can
    /// be in the record although no answer was read.
    pub async fn release(&mut self) {
        self.leadership.lost();
        if !self.may_hold {
            return;
        }
        match timeout(ATTEMPT, self.try_release()).await {
            Ok(Ok(true)) => tracing::info!("released the lease {NAME}"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::warn!("cannot release the lease {NAME}: {error:#}"),
            Err(_) => tracing::warn!("cannot release the lease {NAME}: no answer"),
        }
    }

    /// The same once each write that may be on its way has ended: this process begins none any more, and one that it sent
    /// takes at most this long. A write that arrives when another leads would undo what that one wrote.
    pub async fn release_after_writes(&mut self, longest: Duration) {
        self.leadership.lost();
        tokio::time::sleep(longest).await;
        self.release().await;
    }

    /// False: this process does not hold it. A conflict means that a write of ours arrived late: read, and try again.
    async fn try_release(&mut self) -> kube::Result<bool> {
        let mut is_known = self.is_mine();
        loop {
            if !is_known {
                self.read().await?;
            }
            let Some(seen) = self.seen.as_ref().filter(|seen| seen.holder == self.me) else {
                return Ok(false);
            };
            // One second: client-go's way to say that it is free.
            let spec = spec("", Duration::from_secs(1), seen.transitions);
            match self.write(Some(&seen.version), spec).await {
                Ok(_) => return Ok(true),
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                    is_known = false;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn attempt(&mut self) -> anyhow::Result<bool> {
        match timeout(ATTEMPT, self.try_once()).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => anyhow::bail!("no answer within {} s", ATTEMPT.as_secs()),
        }
    }

    /// At most one read and one write, and both once more where that write conflicts.
    async fn try_once(&mut self) -> kube::Result<bool> {
        if self.owner.is_none() {
            let (refusals, now) = (&mut self.refusals, self.leadership.now());
            self.owner = Some(owner::owner(&self.reviews, &self.namespace, refusals, now).await?);
        }
        // Ours counts from before the request: other operators see the record later.
        let started = self.leadership.now();
        // The holder writes without a read before it; a conflict makes it read.
        if !self.is_mine() {
            self.read().await?;
        }
        let mut tried = self.try_write(started).await?;
        if tried == Tried::Conflicts {
            let led = self.seen.as_ref().filter(|seen| seen.holder == self.me);
            let led = led.map(|seen| seen.transitions);
            self.read().await?;
            // Another may have led while this process stood still, and have released the lease.
            if led.is_some_and(|transitions| self.may_have_had_another(transitions))
                && !self.is_mine()
            {
                return Ok(false);
            }
            // It is ours by a write whose answer never came, or free, because another client cleared or deleted it. Only a write
            // that is answered says since when, and the next attempt may end after the deadline.
            tried = self.try_write(self.leadership.now()).await?;
        }
        Ok(tried == Tried::Holds)
    }

    /// The record of another counts from when it was seen: it may have been renewed while the request was on its way.
    async fn read(&mut self) -> kube::Result<()> {
        let lease = self.leases.get_opt(NAME).await?;
        self.observe(lease, self.leadership.now());
        Ok(())
    }

    /// One write at most, as the record that was read last allows it.
    async fn try_write(&mut self, started: Instant) -> kube::Result<Tried> {
        if let Some(Some(owner)) = &self.owner
            && owner::is_of_another_installation(&self.metadata, owner)
        {
            // If we took it, it would be deleted while we hold it, and another process could take the next one at once.
            tracing::info!(
                "the lease {NAME} belongs to an installation that is gone: waiting until Kubernetes deletes it"
            );
            return Ok(Tried::Waits);
        }
        let (version, transitions) = match next(self.seen.as_ref(), &self.me, started) {
            Move::Wait => return Ok(Tried::Waits),
            Move::Create => (None, 0),
            Move::Take { version, transitions } | Move::Renew { version, transitions } => {
                (Some(version), transitions)
            }
        };
        self.may_hold = true;
        match self.write(version.as_deref(), spec(&self.me, DURATION, transitions)).await {
            Ok(lease) => {
                self.observe(Some(lease), started);
                self.leadership.renewed(started);
                Ok(Tried::Holds)
            }
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                Ok(Tried::Conflicts)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether another may have led since this process renewed the lease with this number of transitions.
    fn may_have_had_another(&self, transitions: i32) -> bool {
        let is_another = |seen: &Seen| seen.transitions != transitions;
        self.leadership.ensure().is_err() || self.seen.as_ref().is_some_and(is_another)
    }

    fn is_mine(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.holder == self.me)
    }

    fn observe(&mut self, lease: Option<Lease>, now: Instant) {
        let metadata = lease.as_ref().map(|lease| lease.metadata.clone()).unwrap_or_default();
        self.metadata = ObjectMeta { managed_fields: None, ..metadata };
        self.seen = lease.map(|lease| {
            let version = lease.resource_version().unwrap_or_default();
            election::observe(self.seen.take(), lease.spec.unwrap_or_default(), version, now)
        });
    }

    async fn write(&self, version: Option<&str>, spec: LeaseSpec) -> kube::Result<Lease> {
        let metadata = match version {
            None => ObjectMeta {
                name: Some(NAME.to_owned()),
                owner_references: self.owner.clone().flatten().map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            Some(version) => {
                ObjectMeta { resource_version: Some(version.to_owned()), ..self.metadata.clone() }
            }
        };
        let lease = Lease { metadata, spec: Some(spec) };
        match version {
            None => self.leases.create(&PostParams::default(), &lease).await,
            Some(_) => self.leases.replace(NAME, &PostParams::default(), &lease).await,
        }
    }
}

/// Times in the record are for people; no decision reads them.
fn spec(holder: &str, duration: Duration, transitions: i32) -> LeaseSpec {
    let now = MicroTime(Timestamp::now());
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(duration.as_secs() as i32),
        acquire_time: Some(now.clone()),
        renew_time: Some(now),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

/// Different in every process; it is no secret.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Up to `most`, so that standbys do not ask in step.
fn jitter(most: Duration) -> Duration {
    most.mul_f64((random() % 1_000) as f64 / 1_000.0)
}

#[cfg(test)]
mod tests;
