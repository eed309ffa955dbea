//! A round of which nothing was written: another client had written meanwhile, or the API server failed.

use super::*;

/// What one reconcile asks of hosts, the first and the last.
async fn asked(dns: &ClusterDNS, observed: &Observed, rounds: &RoundPermits) -> (String, String) {
    let Some(Look::Round(round)) = look(dns, observed, rounds) else {
        panic!("a canary is on trial, and a place is free")
    };
    let no_server = api::client(|asked| panic!("no one asks the API server: {asked:?}"));
    let comparison = round.ask(observed, &no_server, &Lists::default()).await;
    let mut hosts: Vec<String> = comparison.checks.into_iter().map(|check| check.what).collect();
    hosts.retain(|what| what.ends_with(".corp.example. A"));
    (hosts.first().cloned().unwrap_or_default(), hosts.last().cloned().unwrap_or_default())
}

#[tokio::test]
async fn o17_a_part_whose_result_was_not_written_is_asked_again() {
    let port = server(("127.0.0.1", 0), false, "10.96.0.10").port();
    server(("127.0.0.2", port), false, "10.96.0.10");
    let host = |n| format!("{{name: h{n:03}.corp.example, addresses: [10.96.0.10]}}");
    let hosts = (0..300).map(host).collect::<Vec<_>>().join(", ");
    let spec = format!("{{hosts: [{hosts}], service: {{podPort: {port}}}}}");
    let (dns, mut observed) = (dns(&spec), on_trial_of(&spec));
    observed.pods[1].status.as_mut().unwrap().pod_ip = Some("127.0.0.1".to_owned());
    observed.pods[2].status.as_mut().unwrap().pod_ip = Some("127.0.0.2".to_owned());
    let rounds = RoundPermits::default();
    let part = |from, until| {
        (format!("h{from:03}.corp.example. A"), format!("h{until:03}.corp.example. A"))
    };
    for is_written in [false, false, true] {
        assert_eq!(asked(&dns, &observed, &rounds).await, part(0, 255));
        if is_written {
            rounds.written("default");
        }
    }
    assert_eq!(asked(&dns, &observed, &rounds).await, part(256, 299));
    // The next reconcile asks nothing, and is written. That says nothing of the round before.
    observed.lost_document = Some("{}".to_owned());
    assert!(look(&dns, &observed, &rounds).is_none());
    rounds.written("default");
    observed.lost_document = None;
    assert_eq!(asked(&dns, &observed, &rounds).await, part(256, 299));
}
