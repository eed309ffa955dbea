//! The one way to write to the API server: by the leader only (except for a pod that is lost), within a time that ends before
//! another may lead, counted. Nothing is tried twice here; a reconcile that failed is repeated as a whole, with back-off.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::lease::{self, Leadership, NotLeading};
use crate::runtime::metrics::Metrics;
use crate::runtime::patience;

/// A write without an answer within this time has failed.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(4);

/// The same for a write that names the resourceVersion it was made for: one that arrives when another leads is
/// refused. An API server may need seconds for the status of a ClusterDNS with thousands of records, because it
/// evaluates all rules again.
pub const VERSIONED_WRITE_TIMEOUT: Duration = Duration::from_secs(20);

// A write that starts just before the lease is too old has ended when another may take it.
const _: () =
    assert!(lease::RENEW_DEADLINE.as_secs() + WRITE_TIMEOUT.as_secs() < lease::DURATION.as_secs());

/// Writes, as long as this process leads.
#[derive(Clone, Debug)]
pub struct Writes {
    leadership: Arc<Leadership>,
    metrics: Arc<Metrics>,
}

/// Why a write failed, or may have failed.
#[derive(Debug)]
pub enum WriteError {
    /// This process does not lead any more.
    NotLeading(NotLeading),
    /// The API server did not answer; it may have written.
    NoAnswer,
    /// The API server refused, or could not be reached.
    Refused(Box<kube::Error>),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::NotLeading(lost) => write!(f, "{lost}"),
            WriteError::NoAnswer => f.write_str("the API server did not answer in time"),
            WriteError::Refused(error) => match error.as_ref() {
                kube::Error::Api(status) => f.write_str(&status.message),
                other => write!(f, "{other}"),
            },
        }
    }
}

impl std::error::Error for WriteError {}

impl WriteError {
    /// The HTTP status, where the API server gave one.
    pub fn code(&self) -> Option<u16> {
        match self {
            WriteError::Refused(error) => match error.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            WriteError::NotLeading(_) | WriteError::NoAnswer => None,
        }
    }

    /// True where the API server may still have written: it gave no answer, or one of a server that failed.
    pub fn may_have_written(&self) -> bool {
        match self {
            WriteError::NotLeading(_) => false,
            WriteError::NoAnswer | WriteError::Refused(_) => {
                self.code().is_none_or(|code| code >= 500)
            }
        }
    }

    /// How long the API server asks us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            WriteError::Refused(error) => patience::asked(error),
            WriteError::NotLeading(_) | WriteError::NoAnswer => None,
        }
    }

    /// One word, for a condition and a metric.
    pub fn reason(&self) -> &'static str {
        match (self, self.code()) {
            (WriteError::NotLeading(_), _) => "NotLeading",
            (WriteError::NoAnswer, _) => "NoAnswer",
            (WriteError::Refused(_), Some(401 | 403)) => "Forbidden",
            (WriteError::Refused(_), Some(404)) => "NotFound",
            (WriteError::Refused(_), Some(409)) => "Conflict",
            (WriteError::Refused(_), Some(400 | 422)) => "Invalid",
            (WriteError::Refused(_), Some(429)) => "TooManyRequests",
            (WriteError::Refused(_), Some(500..)) => "ServerError",
            (WriteError::Refused(_), Some(_)) => "Refused",
            (WriteError::Refused(_), None) => "Unreachable",
        }
    }
}

impl Writes {
    /// Writes allowed by this leadership.
    pub fn new(leadership: Arc<Leadership>, metrics: Arc<Metrics>) -> Writes {
        Writes { leadership, metrics }
    }

    /// Sends one request.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn send<T>(
        &self,
        kind: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        self.send_within(WRITE_TIMEOUT, kind, request).await
    }

    /// Sends one request that names a resourceVersion.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn send_versioned<T>(
        &self,
        kind: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        self.send_within(VERSIONED_WRITE_TIMEOUT, kind, request).await
    }

    /// Is this process the leader now?
    pub fn leads(&self) -> bool {
        self.leadership.ensure().is_ok()
    }

    /// Sends one request that names a resourceVersion and that a standby may send as well. It is only for the
    /// condition of a lost pod: the leader may be lost with the pod.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn send_unled<T>(
        &self,
        kind: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        self.timed(WRITE_TIMEOUT, kind, request).await
    }

    async fn send_within<T>(
        &self,
        time: Duration,
        kind: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        if let Err(lost) = self.leadership.ensure() {
            let refused = WriteError::NotLeading(lost);
            self.metrics.wrote(kind, refused.reason());
            return Err(refused);
        }
        self.timed(time, kind, request).await
    }

    async fn timed<T>(
        &self,
        time: Duration,
        kind: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        let outcome = match tokio::time::timeout(time, request).await {
            Ok(Ok(written)) => Ok(written),
            Ok(Err(error)) => Err(WriteError::Refused(Box::new(error))),
            Err(_) => Err(WriteError::NoAnswer),
        };
        let reason = outcome.as_ref().map_or_else(WriteError::reason, |_| "Written");
        self.metrics.wrote(kind, reason);
        outcome
    }
}
