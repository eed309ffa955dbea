//! `clusterdns.dev/v1alpha1`: ClusterDNS as people write it. Doc comments here become `kubectl explain`.
//!
//! Everything is optional and absent by default. Inside unions (`scaling`, `upstreams`) the schema has no defaults:
//! the API server would store them beside the member that a user applies later, so that the union would have two. The
//! documented default is filled in when the resource is read.

mod spec;
mod answers;
mod records;
mod federations;
mod upstreams;
mod running;
mod workload;
mod scaling;
pub(crate) mod disruption;
mod monitoring;
mod status;
mod rules;
mod memory;
mod maps;
mod crd;

pub use answers::{Access, Exposure, Identity};
pub use crd::{crd, crd_yaml};
pub use disruption::PodDisruptionBudget;
pub use federations::Federation;
pub use memory::Memory;
pub use monitoring::{Metrics, Probe};
pub use records::{Host, Record, ServiceTarget};
pub use running::{
    Certificate, Dnstap, HttpsListener, Limits, Listeners, Logging, QuicListener, Rollout,
    TlsListener, WarmStart,
};
pub use scaling::{CoreStep, Fixed, Ladder, Load, NodeStep, PerNode, Proportional, Scaling};
pub use spec::{ClusterDNS, ClusterDNSSpec, ManagementState};
pub use status::{ClusterDNSStatus, Replicas, Revision, SkippedObject, Violation};
pub use upstreams::{
    CaBundle, Cache, GroupCache, GroupLimits, Server, ServerTls, StubDomain, Upstreams,
};
pub use workload::{LocalReference, Placement, Service, TrafficDistribution};

/// The version of this API.
pub const VERSION: &str = "v1alpha1";
