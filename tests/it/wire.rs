//! What is on the wire: rows W and R of the guarantees, each test named by its row, and what holds for every message.
//! Expected replies are written from docs/dns.md §4.1 and §5.

mod malformed;
mod questions;
mod records;
mod sizes;
mod sockets;
mod allocations;
mod mutations;
mod agreement;
mod second_opinion;

use std::sync::LazyLock;

use dataplane_core::{Action, Reason};
use serde_json::{Value, json};
use tests::client::{Question, Text, Transport, read};
use tests::scenario::{Core, objects_of};

/// Both transports: rules that are not about size hold for each.
const BOTH: [Transport; 2] = [Transport::Udp, Transport::Tcp];
/// The SOA of every negative reply of the cluster's zone.
const SOA: &str = "AUTHORITY   cluster.local. 5 SOA ns.dns.cluster.local. hostmaster.cluster.local. <serial> 7200 1800 86400 5";

/// The cluster of docs/dns.md §9.1.
fn shop() -> &'static Core {
    static SHOP: LazyLock<Core> =
        LazyLock::new(|| Core::new(&objects_of("wire").unwrap()).unwrap());
    &SHOP
}

/// That cluster with more in it.
fn shop_with(more: &[Value]) -> Core {
    let mut objects = objects_of("wire").unwrap();
    objects.extend_from_slice(more);
    Core::new(&objects).unwrap()
}

/// The reply of the core to a message, as text.
fn reply_of(core: &Core, question: &Question, transport: Transport) -> Text {
    let reply = core.ask(&question.packet, transport, 1).unwrap().reply;
    read(question, reply.as_deref(), transport, &core.names())
}

/// Every question, one a line, gets this reply over both transports.
fn gets(core: &Core, questions: &str, expected: &str) {
    let expected = Text::parse(&expected.lines().collect::<Vec<_>>());
    for line in questions.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let question = Question::parse(line).unwrap();
        for transport in BOTH {
            let came = reply_of(core, &question, transport);
            assert_eq!(came, expected, "{line} over {transport:?} got\n{came}");
        }
    }
}

/// The counted reason for a message.
fn reason(core: &Core, packet: &[u8], transport: Transport) -> Reason {
    core.decide(packet, transport, 1, &mut vec![0; 65_535]).1
}

/// The reply to a message, which must not be dropped or forwarded.
fn reply(core: &Core, packet: &[u8], transport: Transport) -> Vec<u8> {
    let mut buffer = vec![0; 65_535];
    match core.decide(packet, transport, 1, &mut buffer) {
        (Action::Reply(length), _) => buffer[..length].to_vec(),
        (action, reason) => panic!("{action:?} for {reason:?}"),
    }
}

/// A headless Service of namespace `data` with these endpoints and ports.
fn headless(name: &str, endpoints: &[Value], ports: &Value) -> [Value; 2] {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "data"},
        "spec": {"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "ports": ports},
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{name}-1"), "namespace": "data",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
    });
    [service, slice]
}
