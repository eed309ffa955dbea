//! What names of CHAOS count (A53, A54). G103: what `servers.bind.` says of the upstreams (A55), whose addresses only the
//! harness knows.

use std::net::IpAddr;

use hickory_proto::op::Message;
use hickory_proto::rr::RData;
use tests::client::{Question, Transport};
use tests::scenario::{Plane, objects_of};

/// The character-strings of the one TXT record that is asked for.
fn strings(plane: &Plane, question: &str) -> Vec<String> {
    let packet = Question::parse(question).unwrap().packet;
    let reply = plane.ask(&packet, Transport::Udp, false).unwrap().reply.unwrap();
    let message = Message::from_vec(&reply).unwrap();
    let [record] = message.answers.as_slice() else { panic!("not one record: {message}") };
    let RData::TXT(text) = &record.data else { panic!("not a TXT: {record}") };
    text.txt_data.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

#[test]
fn g103_each_server_is_listed_once_with_its_questions() {
    let plane = Plane::start(&objects_of("stub-domains").unwrap()).unwrap();
    for name in ["wiki", "nothere"] {
        let asked = Question::parse(&format!("{name}.corp.example. A")).unwrap();
        plane.ask(&asked.packet, Transport::Udp, false).unwrap();
    }

    let listed = strings(&plane, "servers.bind. CH TXT");

    let servers = ["10.0.0.2", "10.0.0.3", "10.20.0.53", "10.30.0.53"];
    let expected: Vec<String> = servers
        .into_iter()
        .zip([0, 0, 2, 0])
        .map(|(server, sent)| {
            let twin = plane.twin_of(server.parse::<IpAddr>().unwrap()).unwrap();
            format!("{}#{} {sent} 0", twin.ip(), twin.port())
        })
        .collect();
    assert_eq!(listed, expected);
}

#[test]
fn a53_a54_the_counters_say_what_was_asked_and_what_the_cache_took() {
    let plane = Plane::start(&objects_of("stub-domains").unwrap()).unwrap();
    let counted = || {
        ["hits", "misses", "insertions", "evictions"]
            .map(|name| strings(&plane, &format!("{name}.bind. CH TXT")).concat())
    };
    assert_eq!(counted(), ["0"; 4]);
    // One answer of ours, one name that exists and is asked once more twice, and one that does not exist.
    let wiki = "wiki.corp.example.";
    for name in ["cart.shop.svc.cluster.local.", wiki, wiki, wiki, "nothere.corp.example."] {
        let asked = Question::parse(&format!("{name} A")).unwrap();
        plane.ask(&asked.packet, Transport::Udp, false).unwrap();
    }
    assert_eq!(counted(), ["3", "2", "2", "0"]);
}
