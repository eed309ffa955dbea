//! What must be answered about each Service of the cluster, and whether it is.

use super::{Cluster, Kind};
use crate::client::{Section, Text, Transport};
use crate::data_plane::DataPlane;

/// SRV, PTR and denials are asked about one Service in this many, aside from the A record of each.
const SAMPLE: usize = 10;

/// An answer that does not follow from the objects.
#[derive(Clone, Debug)]
pub struct Wrong {
    pub question: String,
    pub expected: Vec<String>,
    pub got: Text,
}

/// Asks for the addresses of every Service (of an alias: what it leads to), and for SRV, PTR and a name that is not
/// there of every tenth. Returns how many questions that were, and which answers were wrong.
pub fn check_all(cluster: &Cluster, server: &DataPlane) -> (usize, Vec<Wrong>) {
    let (mut asked, mut wrong) = (0, Vec::new());
    for service in 0..cluster.services {
        let mut questions = vec![of_service(cluster, service)];
        // Another remainder in each hundred, so that every kind is among them.
        if service % SAMPLE == service / 100 % SAMPLE {
            questions.extend(more_of(cluster, service));
        }
        asked += questions.len();
        wrong.extend(questions.into_iter().filter_map(|question| question.ask(server)));
    }
    (asked, wrong)
}

/// Asks for the addresses of one Service; what was answered when that was wrong.
pub fn check_service(cluster: &Cluster, service: usize, server: &DataPlane) -> Option<Wrong> {
    of_service(cluster, service).ask(server)
}

/// A question and the data of every record in its answer; none means NXDOMAIN.
struct Expected {
    question: String,
    data: Vec<String>,
    transport: Transport,
}

impl Expected {
    fn of(question: String, data: Vec<String>) -> Expected {
        Expected { question, data, transport: Transport::Udp }
    }

    fn ask(mut self, server: &DataPlane) -> Option<Wrong> {
        let text = server.ask(&self.question, self.transport);
        let records = &text.records[Section::Answer as usize];
        // `owner ttl type data`
        let mut data: Vec<&str> =
            records.iter().filter_map(|record| record.splitn(4, ' ').nth(3)).collect();
        data.sort_unstable();
        self.data.sort_unstable();
        let status = if self.data.is_empty() { "NXDOMAIN" } else { "NOERROR" };
        let is_right = data == self.data && text.status.contains(&format!("status: {status} "));
        (!is_right).then_some(Wrong { question: self.question, expected: self.data, got: text })
    }
}

fn of_service(cluster: &Cluster, service: usize) -> Expected {
    let name = format!("{}.svc.cluster.local.", cluster.below_svc(service));
    match cluster.kind(service) {
        Kind::ClusterIp | Kind::TwoPorts => {
            Expected::of(format!("{name} A"), vec![cluster.address(service).to_string()])
        }
        Kind::Headless { .. } => {
            let all = 0..cluster.endpoints_of(service);
            let addresses = all.map(|at| cluster.endpoint(service, at).to_string()).collect();
            Expected::of(format!("{name} A"), addresses)
        }
        Kind::ExternalName => {
            Expected::of(format!("{name} CNAME"), vec![format!("{}.", cluster.external(service))])
        }
    }
}

fn more_of(cluster: &Cluster, service: usize) -> Vec<Expected> {
    let name = format!("{}.svc.cluster.local.", cluster.below_svc(service));
    let absent = Expected::of(format!("absent-{name} A"), Vec::new());
    let srv = |data: Vec<String>| {
        // A dozen targets are more than a datagram holds.
        let transport = Transport::Tcp;
        Expected { question: format!("_http._tcp.{name} SRV"), data, transport }
    };
    let reverse = |address: std::net::Ipv4Addr, target: String| {
        let [a, b, c, d] = address.octets();
        Expected::of(format!("{d}.{c}.{b}.{a}.in-addr.arpa. PTR"), vec![target])
    };
    let mut all = vec![absent];
    match cluster.kind(service) {
        Kind::ClusterIp | Kind::TwoPorts => {
            all.push(srv(vec![format!("0 100 80 {name}")]));
            all.push(reverse(cluster.address(service), name));
        }
        Kind::Headless { .. } => {
            let own_name = |at: usize| format!("{}.{name}", cluster.endpoint_label(service, at));
            let targets = 0..cluster.endpoints_of(service);
            all.push(srv(targets.map(|at| format!("0 100 8080 {}", own_name(at))).collect()));
            let first = cluster.endpoint(service, 0);
            all.push(Expected::of(format!("{} A", own_name(0)), vec![first.to_string()]));
            all.push(reverse(first, own_name(0)));
        }
        Kind::ExternalName => {}
    }
    all
}
