//! A large cluster, the same at every run: its objects, made in an API server as fast as that takes them, and what
//! must be answered about each of them. Of every hundred Services 80 have one cluster IP and one port and 2 have two
//! ports, with ten endpoints each; 15 are headless with twelve, half of those with host names as a StatefulSet gives
//! them; 3 are ExternalName. So there are ten times as many endpoints as Services.

mod answers;
pub mod ask;
pub mod changes;
mod fill;
mod objects;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

pub use answers::{Wrong, check_all, check_service};
pub use fill::{create_all, fill, patch_endpoints, patch_slice};

/// Services with these remainders to a hundred are of the kinds that are not plain.
const HEADLESS_FROM: usize = 80;
const ALIASES_FROM: usize = 95;
const TWO_PORTS_FROM: usize = 98;

const ENDPOINTS: usize = 10;
const HEADLESS_ENDPOINTS: usize = 12;
/// Addresses of endpoints begin here; those of Services are of the test's control plane, 10.96.0.0/16.
const FIRST_ENDPOINT: u32 = u32::from_be_bytes([10, 128, 0, 0]);
/// Where endpoints go that have moved.
const FIRST_MOVED: u32 = u32::from_be_bytes([10, 160, 0, 0]);
/// The first 256 are left to the API server.
const FIRST_SERVICE: u32 = u32::from_be_bytes([10, 96, 1, 0]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    ClusterIp,
    /// Each of its endpoints, by address or by host name.
    Headless {
        /// Its endpoints have host names.
        named: bool,
    },
    ExternalName,
    TwoPorts,
}

/// The cluster, as it should be answered.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub services: usize,
    /// Over how many namespaces they are spread.
    pub namespaces: usize,
    /// Before every name of a namespace: several can be in one API server.
    prefix: String,
    /// By Service, how often its first endpoint has moved.
    moved: BTreeMap<usize, u32>,
}

impl Cluster {
    /// A cluster of this size, in namespaces whose names begin with this prefix.
    ///
    /// # Panics
    /// Beyond 20,000 Services, whose addresses are not in the control plane's range.
    pub fn new(services: usize, prefix: &str) -> Cluster {
        assert!(services <= 20_000, "the control plane of the tests has no more addresses");
        Cluster::of_manifests(services, prefix)
    }

    /// A cluster of this size that no API server must hold: cluster IPs are of 10.96.0.0/14, enough for 200,000.
    ///
    /// # Panics
    /// Beyond 200,000 Services.
    pub fn of_manifests(services: usize, prefix: &str) -> Cluster {
        assert!(services <= 200_000, "their addresses would be those of endpoints");
        let namespaces = (services / 100).max(1);
        Cluster { services, namespaces, prefix: prefix.to_owned(), moved: BTreeMap::new() }
    }

    pub fn kind(&self, service: usize) -> Kind {
        match service % 100 {
            ..HEADLESS_FROM => Kind::ClusterIp,
            rest @ HEADLESS_FROM..ALIASES_FROM => Kind::Headless { named: rest % 2 == 0 },
            ALIASES_FROM..TWO_PORTS_FROM => Kind::ExternalName,
            _ => Kind::TwoPorts,
        }
    }

    /// The numbers of all headless Services.
    pub fn headless(&self) -> impl Iterator<Item = usize> {
        (0..self.services).filter(|&service| matches!(self.kind(service), Kind::Headless { .. }))
    }

    /// How many endpoints all Services have.
    pub fn endpoints(&self) -> usize {
        (0..self.services).map(|service| self.endpoints_of(service)).sum()
    }

    pub fn namespace(&self, service: usize) -> String {
        // Divided, so that every namespace has Services of each kind.
        format!("{}-{}", self.prefix, service / 100 % self.namespaces)
    }

    pub fn name(&self, service: usize) -> String {
        format!("service-{service}")
    }

    /// The Service's name relative to `svc.cluster.local`.
    pub fn below_svc(&self, service: usize) -> String {
        format!("{}.{}", self.name(service), self.namespace(service))
    }

    /// The cluster IP, where it has one.
    pub fn address(&self, service: usize) -> Ipv4Addr {
        (FIRST_SERVICE + service as u32).into()
    }

    /// Moves the first endpoint of a Service to an address where nothing was; returns that.
    pub fn move_first(&mut self, service: usize) -> Ipv4Addr {
        *self.moved.entry(service).or_default() += 1;
        self.endpoint(service, 0)
    }

    /// The address of an endpoint now.
    pub fn endpoint(&self, service: usize, endpoint: usize) -> Ipv4Addr {
        let times = if endpoint == 0 { self.moved.get(&service).copied() } else { None };
        match times {
            // 32 Services' worth of numbers apart, so that no two places are the same for 30 moves.
            Some(times) => (FIRST_MOVED + (times % 30) * 32_768 + service as u32).into(),
            None => (FIRST_ENDPOINT + (service * HEADLESS_ENDPOINTS + endpoint) as u32).into(),
        }
    }

    /// The addresses of all its endpoints now.
    pub fn addresses(&self, service: usize) -> impl Iterator<Item = Ipv4Addr> {
        (0..self.endpoints_of(service)).map(move |at| self.endpoint(service, at))
    }

    fn endpoints_of(&self, service: usize) -> usize {
        match self.kind(service) {
            Kind::ClusterIp | Kind::TwoPorts => ENDPOINTS,
            Kind::Headless { .. } => HEADLESS_ENDPOINTS,
            Kind::ExternalName => 0,
        }
    }

    /// The first label of an endpoint's own name, where it has one.
    pub(crate) fn endpoint_label(&self, service: usize, endpoint: usize) -> String {
        match self.kind(service) {
            Kind::Headless { named: true } => format!("{}-{endpoint}", self.name(service)),
            Kind::Headless { named: false }
            | Kind::ClusterIp
            | Kind::TwoPorts
            | Kind::ExternalName => self.endpoint(service, endpoint).to_string().replace('.', "-"),
        }
    }
}
