//! What a draft does not take.

use crds::v1alpha1::{Server, Upstreams};

use super::*;

fn draft() -> Draft {
    let service = ("kube-system".to_owned(), "kube-dns".to_owned());
    let (name, replaced) = ("default".to_owned(), Vec::new());
    Draft::new(None, &Target { name, service, adopt: false, domain: None, replaced })
}

/// As where one file of dnsmasq has `filter-AAAA` and the next one `server`.
#[test]
fn servers_of_a_later_file_are_asked_and_types_of_an_earlier_one_withheld() {
    let mut draft = draft();
    assert!(draft.withhold("AAAA", true, |_| true).unwrap().is_some());
    assert!(!draft.has_upstreams(), "no server is named");
    let servers = |address: [u8; 4]| Upstreams {
        servers: Some(vec![Server {
            address: IpAddr::from(address).to_string(),
            port: None,
            transport: crds::config::Transport::Udp,
            tls: None,
        }]),
        ..Upstreams::default()
    };
    assert_eq!(draft.upstreams(servers([10, 0, 0, 2])), Ok(None));
    let found = draft.spec.upstreams.clone().unwrap();
    assert_eq!(found.servers, servers([10, 0, 0, 2]).servers);
    assert_eq!(found.withheld_types, Some(vec!["AAAA".to_owned()]));
    assert!(draft.upstreams(servers([10, 0, 0, 3])).is_err(), "they are known now");
}

#[test]
fn what_tries_too_many_names_is_refused_as_a_whole() {
    let mut draft = draft();
    let mut host = |name: &str| draft.host(name, [10, 0, 0, 1].into(), None, false);
    assert_eq!(host("a.example"), Ok(None));
    draft.spend(MAX_TRIES);
    assert!(draft.is_spent());
    let mut host = |name: &str| draft.host(name, [10, 0, 0, 1].into(), None, false);
    assert_eq!(host("b.example"), Err(SPENT.to_owned()));
    let refused = draft.finished().unwrap_err().to_string();
    assert!(refused.contains("more than 1000000 names: name fewer files"), "{refused}");
}
