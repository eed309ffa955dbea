//! The core as a client of the library sees it: an index, its records, and `respond`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use dataplane_core::{
    Action, CacheCounters, Counters, Identity, Index, Query, Records, ServerCounters, Settings,
    WorkerCounters, respond,
};
use tests::oracle;
use tests::oracle::compare::Actual;
use tests::oracle::decode::decode;
use tests::oracle::expected::Question;
use tests::oracle::names::Name;

/// The id of every query.
pub(crate) const ID: u16 = 0x5a17;
/// Now, and when snapshots were confirmed.
pub(crate) const NOW_S: u64 = 1_760_000_000;

/// The identity of the process, for both sides.
pub(crate) fn identity() -> oracle::Identity {
    oracle::Identity {
        version: "1.2.3".into(),
        pod_name: "clusterdns-0".into(),
        replicas: 0x5eed,
        servers: vec!["10.0.0.2#53 0 0".into(), "fd00::2#5353 0 0".into()],
    }
}

/// The index and everything `respond` wants.
pub(crate) struct Subject {
    pub(crate) index: Index,
    records: Arc<Records>,
    counters: Vec<Arc<WorkerCounters>>,
    servers: Vec<Arc<ServerCounters>>,
    identity: Identity,
    buffer: Vec<u8>,
    published: u64,
}

impl Subject {
    pub(crate) fn new(settings: Settings) -> Subject {
        let mut index = Index::new(settings);
        let identity = identity();
        index.set_replicas(identity.replicas);
        let server = |address: &str| {
            let address = address.parse().expect("an address with a port");
            let (sent, failed) = (AtomicU64::new(0), AtomicU64::new(0));
            Arc::new(ServerCounters { address, sent, failed })
        };
        Subject {
            records: index.records(),
            index,
            counters: vec![Arc::new(WorkerCounters::default())],
            servers: vec![server("10.0.0.2:53"), server("[fd00::2]:5353")],
            identity: Identity {
                version: identity.version,
                pod_name: identity.pod_name,
                instance_id: String::new(),
            },
            buffer: vec![0; 65_535],
            published: 0,
        }
    }

    /// Publishes; returns whether anything had changed.
    pub(crate) fn publish(&mut self) -> bool {
        self.published += 1;
        let published = self.index.publish(NOW_S + self.published);
        if let Some(records) = &published {
            self.records = Arc::clone(records);
        }
        published.is_some()
    }

    pub(crate) fn ask(&mut self, question: &Question, seed: u64) -> Result<Actual, String> {
        let packet = question.packet(ID);
        let query = Query {
            packet: &packet,
            client: question.client,
            transport: question.transport,
            now_s: NOW_S + 1000,
            seed,
        };
        let counters = Counters {
            own: &self.counters[0],
            all: &self.counters,
            servers: &self.servers,
            cache: &CacheCounters::default(),
            identity: &self.identity,
        };
        let (action, _) = respond(&self.records, &query, &counters, &mut self.buffer);
        let reply = |length: usize, buffer: &[u8]| {
            decode(&buffer[..length])
                .map(Box::new)
                .map_err(|error| format!("{error:#}: {:02x?}", &buffer[..length]))
        };
        Ok(match action {
            Action::Reply(length) => Actual::Reply(reply(length, &self.buffer)?),
            Action::Drop => Actual::Drop,
            Action::Forward(forward) => {
                let length = forward.head.fail(22, "", &mut self.buffer);
                Actual::Forward {
                    group: forward.group,
                    name: Name::of(forward.key.name()),
                    qtype: forward.key.qtype(),
                    failure: reply(length, &self.buffer)?,
                }
            }
        })
    }
}
