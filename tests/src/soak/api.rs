//! The API server of a soak: a scripted one, or a real one with operators. What a stage asks of either has one name.

mod fit;
mod operators;
mod real;
mod scripted;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use dataplane_core::{Key, Object, Resource};

use super::churn::Change;
use super::history::{History, Place};
use super::objects::Configuration;
use super::schedule::{Fault, Part};
use crate::fault_proxy::FaultProxy;
use crate::mutate::Random;
use real::Real;
use scripted::Scripted;

/// What there was at some moment, and can be shown again.
#[derive(Clone, Debug)]
pub struct State {
    pub objects: BTreeMap<Place, Object>,
    pub configuration: Configuration,
}

pub enum Api {
    Scripted(Box<Scripted>),
    Real(Box<Real>),
}

impl Api {
    /// Nothing where the programs of a real one have not been built; this is printed.
    pub async fn start(
        part: Part,
        configuration: Configuration,
        upstreams: &[SocketAddr],
    ) -> Option<Api> {
        Some(match part {
            Part::Scripted => Api::Scripted(Box::new(Scripted::start(configuration, upstreams))),
            Part::Real => Api::Real(Box::new(Real::start(configuration, upstreams).await?)),
        })
    }

    pub fn part(&self) -> Part {
        match self {
            Api::Scripted(_) => Part::Scripted,
            Api::Real(_) => Part::Real,
        }
    }

    pub fn kubeconfig(&self) -> &Path {
        match self {
            Api::Scripted(api) => api.kubeconfig(),
            Api::Real(api) => api.kubeconfig(),
        }
    }

    /// The objects that an API server makes by itself.
    pub fn own_objects(&self) -> Vec<Object> {
        match self {
            Api::Scripted(_) => Vec::new(),
            Api::Real(_) => fit::own_objects(),
        }
    }

    /// Makes an object be so, as far as the API server takes it; what changed, in this order.
    pub fn put(&mut self, object: Object, history: &History) -> Vec<Change> {
        match self {
            Api::Scripted(api) => vec![api.put(object)],
            Api::Real(api) => api.put(object, history),
        }
    }

    /// Deletes an object that is there.
    pub fn delete(&mut self, resource: Resource, key: &Key) {
        match self {
            Api::Scripted(api) => api.delete(resource, key),
            Api::Real(api) => api.delete(resource, key),
        }
    }

    pub fn configure(&mut self, configuration: Configuration, upstreams: &[SocketAddr]) {
        match self {
            Api::Scripted(api) => api.configure(configuration, upstreams),
            Api::Real(api) => api.configure(configuration, upstreams),
        }
    }

    /// Whether it takes writes.
    pub fn is_there(&self) -> bool {
        match self {
            Api::Scripted(_) => true,
            Api::Real(api) => api.is_there(),
        }
    }

    /// The ways by which the operator beside this data plane reaches it.
    pub fn operator_proxy(&self, number: usize) -> Option<&FaultProxy> {
        match self {
            Api::Scripted(_) => None,
            Api::Real(api) => Some(api.operators.proxy(number)),
        }
    }

    /// Writes that it refused, starts of operators, and what they did that they never may.
    pub fn look(&mut self) -> Looked {
        match self {
            Api::Scripted(_) => Looked::default(),
            Api::Real(api) => api.look(),
        }
    }

    /// Looks at the processes of the control plane at the end of a cycle; what they did that they never may.
    pub fn inspect(&mut self) -> Vec<String> {
        match self {
            Api::Scripted(_) => Vec::new(),
            Api::Real(api) => api.operators.inspect(),
        }
    }

    /// Keeps a state that may be restored.
    pub fn save(&mut self, state: State) {
        match self {
            Api::Scripted(api) => api.save(state),
            Api::Real(api) => api.save(state),
        }
    }

    /// Shows an older state, if there is one that is old enough.
    pub fn restore(&mut self) -> Option<State> {
        match self {
            Api::Scripted(api) => api.restore(),
            Api::Real(api) => api.restore(),
        }
    }

    /// Lets a fault of its own begin; whether it could be made.
    pub fn begin(&mut self, fault: Fault, history: &mut History, random: &mut Random) -> bool {
        match self {
            Api::Scripted(api) => api.begin(fault.kind, history, random),
            Api::Real(api) => api.begin(fault),
        }
    }

    /// Ends a fault of its own.
    pub fn end(&mut self, fault: Fault) {
        match self {
            Api::Scripted(api) => api.end(fault.kind),
            Api::Real(api) => api.end(fault),
        }
    }
}

/// What a look at a real control plane says.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// Writes that it refused, in all.
    pub refused: u64,
    /// Starts of operators, in all.
    pub operator_starts: u64,
    /// The most memory that an operator had.
    pub operator_mib: f64,
    /// What must never be.
    pub finds: Vec<String>,
}
