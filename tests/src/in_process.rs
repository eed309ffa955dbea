//! Records that are asked without a socket, and the identity of every data plane of the tests.

use std::net::SocketAddr;
use std::sync::Arc;

use dataplane_core::{
    Action, CacheCounters, Counters, Identity, Query, Reason, Records, Transport, WorkerCounters,
    respond,
};

/// The time of every question, and of the one change there was: any Unix time will do.
pub(crate) const NOW_S: u64 = 1_760_000_000;

pub(crate) fn identity() -> Identity {
    Identity {
        version: "1.2.3".into(),
        pod_name: "clusterdns-7d4b9".into(),
        instance_id: "0123456789abcdef".into(),
    }
}

/// Records, and what `respond` needs beside them.
#[derive(Debug)]
pub struct InProcess {
    records: Arc<Records>,
    counters: [Arc<WorkerCounters>; 1],
    cache: CacheCounters,
    identity: Identity,
}

impl InProcess {
    /// Answers from these records, without a socket.
    pub fn new(records: Arc<Records>) -> InProcess {
        InProcess {
            records,
            counters: [Arc::default()],
            cache: CacheCounters::default(),
            identity: identity(),
        }
    }

    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    /// The result of one message from a pod.
    pub fn decide<'a>(
        &'a self,
        packet: &'a [u8],
        transport: Transport,
        seed: u64,
        buffer: &mut [u8],
    ) -> (Action<'a>, Reason) {
        let client = SocketAddr::from(([10, 244, 1, 99], 40_000));
        let query = Query { packet, client, transport, now_s: NOW_S, seed };
        let counters = Counters {
            own: &self.counters[0],
            all: &self.counters,
            servers: &[],
            cache: &self.cache,
            identity: &self.identity,
        };
        respond(&self.records, &query, &counters, buffer)
    }
}
