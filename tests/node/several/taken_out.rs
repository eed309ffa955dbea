//! Whether operators took pods out of their Service (O20), as the operators count it themselves, and as Events say it. Both are
//! compared with what they were before a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;
use tests::http;

use crate::installed::{OPERATORS, SYSTEM};
use crate::site::{Site, text};

/// Reason of the pod's condition, of `Degraded`, and of the Event.
pub(super) const LOST: &str = "PodLost";
const COUNTER: &str = "clusterdns_operator_lost_pods_total";

/// What operators and the API server knew before something happened.
pub(super) struct Before {
    counted: BTreeMap<String, f64>,
    events: BTreeSet<String>,
}

impl Before {
    pub(super) fn read(site: &Site) -> Before {
        let operators = site.pods(SYSTEM, OPERATORS);
        let counted = operators.iter().map(|pod| (process(pod), counted(pod))).collect();
        Before { counted, events: events(site).into_iter().map(|event| event.which).collect() }
    }

    /// How many pods these operators have taken out since then. Only running ones can be asked.
    pub(super) fn counted(&self, operators: &[Value]) -> f64 {
        // The counter of a new process begins with 0.
        let since = |pod| counted(pod) - self.counted.get(&process(pod)).unwrap_or(&0.0);
        operators.iter().map(since).sum()
    }

    /// What the Events since then say.
    pub(super) fn events(&self, site: &Site) -> Vec<String> {
        let new = events(site).into_iter().filter(|event| !self.events.contains(&event.which));
        new.map(|event| event.message).collect()
    }

    /// # Panics
    /// An operator took a pod out since then, also if its kubelet set it back.
    pub(super) fn nothing_was_taken_out(&self, site: &Site, operators: &[Value], what: &str) {
        assert!(!operators.is_empty(), "{what}: no operator can be asked");
        assert_eq!(self.counted(operators), 0.0, "{what}: operators count\n{}", site.story());
        let events = self.events(site);
        assert!(events.is_empty(), "{what}: {events:?}\n{}", site.story());
    }

    /// # Panics
    /// These operators took out another number of pods since then than one, or no Event names this pod.
    pub(super) async fn one_was_taken_out(
        &self,
        site: &Site,
        operators: &[Value],
        (pod, what): (&str, &str),
    ) {
        assert_eq!(self.counted(operators), 1.0, "{what}: operators count\n{}", site.story());
        // The operator that leads writes it, and it may lead only since its predecessor died.
        site.until(&format!("{what}: an Event of the lost pod {pod}"), || {
            self.events(site).iter().any(|message| message.contains(pod)).then_some(())
        })
        .await;
    }
}

/// One process of an operator: a container that starts again counts from 0.
fn process(pod: &Value) -> String {
    let restarts = &pod["status"]["containerStatuses"][0]["restartCount"];
    format!("{} {restarts}", text(pod, "/metadata/name"))
}

fn counted(pod: &Value) -> f64 {
    let address: IpAddr = text(pod, "/status/podIP").parse().expect("an address");
    let ports = pod["spec"]["containers"][0]["ports"].as_array().into_iter().flatten();
    let port =
        ports.filter(|port| port["name"] == "http").find_map(|it| it["containerPort"].as_u64());
    let port = port.and_then(|port| u16::try_from(port).ok()).expect("its port of HTTP");
    let page = http::get_whole(SocketAddr::new(address, port), "/metrics");
    let (_, page) = page.unwrap_or_else(|error| panic!("{}: {error:#}", process(pod)));
    http::metric(&page, COUNTER).unwrap_or_else(|| panic!("no {COUNTER} in\n{page}"))
}

/// An Event of a lost pod. One that is counted again is another one.
struct Event {
    which: String,
    message: String,
}

/// In every namespace: a ClusterDNS has none, so its Events are in `default`.
fn events(site: &Site) -> Vec<Event> {
    let all = site.get("events --all-namespaces");
    let all = all["items"].as_array().cloned().unwrap_or_default();
    let lost = all.iter().filter(|event| event["reason"] == LOST);
    let event = |event: &Value| Event {
        which: format!("{} {}", text(event, "/metadata/uid"), event["series"]["count"]),
        message: text(event, "/message").to_owned(),
    };
    lost.map(event).collect()
}
