//! What the status says of upstreams that are down, answer with errors only, lead back to ClusterDNS, or are not there.

use super::*;
use crate::observe::observed::{DownServer, EmptyGroup, Reported};

fn down_server(group: &str, server: &str, group_servers: usize) -> DownServer {
    let (group, server) = (group.to_owned(), server.to_owned());
    DownServer { group, server, group_servers, ..DownServer::default() }
}

/// Two pods report this.
fn both_report(story: &mut Story, report: impl Fn(&mut Reported)) {
    for pod in ["dns-0", "dns-1"] {
        report(reported(&mut story.observed, pod));
    }
}

#[test]
fn f12_servers_that_lead_back_and_groups_without_a_server_are_named_with_the_remedy() {
    const REMEDY: &str = "point it at other servers";
    let mut story = Story::settled("{}");
    let looping = DownServer {
        remedy: Some(REMEDY.to_owned()),
        ..down_server("upstreams", "192.0.2.1:53", 2)
    };
    both_report(&mut story, |pod| pod.upstreams_looping = vec![looping.clone()]);
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=UpstreamLooping", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(
        message.contains(": upstreams 192.0.2.1:53 (more than half of the pods). Point them at"),
        "{message}"
    );
    // The other one is silent: none is left.
    let down = vec![down_server("upstreams", "192.0.2.2:53", 2)];
    both_report(&mut story, |pod| pod.upstreams_down = down.clone());
    let status = story.reconcile(20);
    is(&story, "True=Valid True=Serving False=Complete True=NoUsableUpstream", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    let named = format!("cluster): 192.0.2.1:53 ({REMEDY}), 192.0.2.2:53: clients get SERVFAIL");
    assert!(message.contains(&named), "{message}");

    let why = "resolv.conf has no usable nameserver";
    let empty = EmptyGroup { group: "upstreams".to_owned(), why: why.to_owned() };
    both_report(&mut story, |pod| {
        (pod.upstreams_looping, pod.upstreams_down) = (Vec::new(), Vec::new());
        pod.upstreams_without_servers = vec![empty.clone()];
    });
    let status = story.reconcile(30);
    is(&story, "True=Valid True=Serving False=Complete True=NoUsableUpstream", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains(&format!("cluster): no server ({why}): clients")), "{message}");
}

#[test]
fn f12_a_server_that_leads_back_for_one_pod_only_is_named_with_the_pod() {
    let mut story = Story::settled("{}");
    deploy(&mut story.observed, 3);
    story.pods_follow();
    reported(&mut story.observed, "dns-1").upstreams_looping =
        vec![down_server("upstreams", "192.0.2.1:53", 2)];
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=UpstreamLooping", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("192.0.2.1:53 (some pods, such as dns-1). Point"), "{message}");
}

#[test]
fn an_address_with_two_names_is_two_servers() {
    let mut story = Story::settled("{}");
    let named = |name: &str| DownServer {
        transport: "TLS".to_owned(),
        server_name: name.to_owned(),
        ..down_server("upstreams", "192.0.2.1:853", 2)
    };
    both_report(&mut story, |pod| {
        pod.upstreams_down = vec![named("one.example"), named("two.example")];
    });
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=NoUsableUpstream", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    let both = "192.0.2.1:853 over TLS as one.example, 192.0.2.1:853 over TLS as two.example:";
    assert!(message.contains(both), "{message}");
}

#[test]
fn an_address_with_two_transports_is_two_servers_and_each_pod_counts_once() {
    let mut story = Story::settled("{}");
    deploy(&mut story.observed, 3);
    story.pods_follow();
    let over = |transport: &str| DownServer {
        transport: transport.to_owned(),
        ..down_server("corp.example", "10.0.0.1:53", 2)
    };
    reported(&mut story.observed, "dns-0").upstreams_down = vec![over("UDP"), over("TCP")];
    story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
    reported(&mut story.observed, "dns-1").upstreams_down = vec![over("UDP"), over("TCP")];
    let status = story.reconcile(20);
    is(&story, "True=Valid True=Serving False=Complete True=NoUsableUpstream", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("corp.example: 10.0.0.1:53 over TCP, 10.0.0.1:53:"), "{message}");
}

#[test]
fn o18_a_group_without_a_server_left_is_named_with_the_remedy() {
    let mut story = Story::settled("{}");
    let renew = DownServer {
        remedy: Some("the name is wrong".to_owned()),
        ..down_server("upstreams", "192.0.2.2:853", 2)
    };
    let all = vec![
        down_server("corp.example", "10.0.0.1:53", 3),
        down_server("upstreams", "192.0.2.1:853", 2),
        renew,
    ];
    for pod in ["dns-0", "dns-1"] {
        reported(&mut story.observed, pod).upstreams_down = all[..2].to_vec();
    }
    story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=UpstreamDown", Kstatus::Current);
    for pod in ["dns-0", "dns-1"] {
        reported(&mut story.observed, pod).upstreams_down = all.clone();
    }
    let status = story.reconcile(20);
    is(&story, "True=Valid True=Serving False=Complete True=NoUsableUpstream", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    let named = "any server of spec.upstreams (all names outside of the cluster): 192.0.2.1:853, 192.0.2.2:853 (the name is \
                 wrong): clients get SERVFAIL";
    assert!(message.contains(named), "{message}");
}

/// The nodes of three zones, whose resolv.conf name other servers each.
#[test]
fn o18_pods_with_servers_of_their_own_are_without_any_when_those_are_down() {
    let mut story = Story::settled("{}");
    deploy(&mut story.observed, 3);
    story.pods_follow();
    for (pod, server) in [("dns-0", "192.0.2.1:53"), ("dns-1", "192.0.2.2:53")] {
        reported(&mut story.observed, pod).upstreams_down =
            vec![down_server("upstreams", server, 1)];
    }
    let status = story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=NoUsableUpstream", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains("cluster): 192.0.2.1:53, 192.0.2.2:53: clients"), "{message}");
}

/// Each server is unusable for three of five pods, and one pod only has none.
#[test]
fn o18_servers_that_are_down_for_other_pods_each_leave_most_pods_with_one() {
    let mut story = Story::settled("{}");
    deploy(&mut story.observed, 5);
    story.pods_follow();
    for (pod, servers) in [(0, &[1][..]), (1, &[1]), (2, &[1, 2]), (3, &[2]), (4, &[2])] {
        let down = |server: &i32| down_server("upstreams", &format!("192.0.2.{server}:53"), 2);
        reported(&mut story.observed, &format!("dns-{pod}")).upstreams_down =
            servers.iter().map(down).collect();
    }
    story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete True=UpstreamDown", Kstatus::Current);
}

/// An access list that was changed: the servers answer REFUSED to all.
#[test]
fn fw28_servers_that_give_errors_only_are_named_and_leave_their_group_without_one() {
    let mut story = Story::settled("{}");
    let refusing = DownServer {
        remedy: Some("it answers with errors only".to_owned()),
        ..down_server("upstreams", "192.0.2.1:53", 2)
    };
    reported(&mut story.observed, "dns-0").upstreams_failing = vec![refusing.clone()];
    story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
    both_report(&mut story, |pod| pod.upstreams_failing = vec![refusing.clone()]);
    let status = story.reconcile(20);
    is(&story, "True=Valid True=Serving False=Complete True=UpstreamFailing", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    assert!(message.contains(": upstreams 192.0.2.1:53. Check that they allow"), "{message}");
    // The other one is silent: none gives an answer.
    let down = vec![down_server("upstreams", "192.0.2.2:53", 2)];
    both_report(&mut story, |pod| pod.upstreams_down = down.clone());
    let status = story.reconcile(30);
    is(&story, "True=Valid True=Serving False=Complete True=NoUsableUpstream", Kstatus::Current);
    let message = &condition(&status, "Degraded").unwrap().message;
    let named = "192.0.2.1:53 (it answers with errors only), 192.0.2.2:53: clients get SERVFAIL";
    assert!(message.contains(named), "{message}");
}

#[test]
fn an_upstream_is_down_when_most_pods_say_so() {
    let mut story = Story::settled("{}");
    deploy(&mut story.observed, 3);
    story.pods_follow();
    let down = |story: &mut Story, pod: &str| {
        reported(&mut story.observed, pod).upstreams_down =
            vec![down_server("corp.example", "10.0.0.1:53", 2)];
    };
    down(&mut story, "dns-0");
    story.reconcile(10);
    is(&story, "True=Valid True=Serving False=Complete False=AsExpected", Kstatus::Current);
    down(&mut story, "dns-1");
    let status = story.reconcile(20);
    is(&story, "True=Valid True=Serving False=Complete True=UpstreamDown", Kstatus::Current);
    assert!(
        condition(&status, "Degraded")
            .unwrap()
            .message
            .contains(": corp.example 10.0.0.1:53. Check")
    );
}
