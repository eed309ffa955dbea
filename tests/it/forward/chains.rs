//! Chains over several upstreams (FW42), and addresses that must not come from outside (FW43).

use crds::config::Host;
use crds::rrtype::RrType;
use dataplane::forward::Limit;
use dataplane_core::{Forward, Surroundings};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;

use super::stage::{FIRST, GOLDEN, Stage, answers, failure, options, waiting, waiting_for_ours};

#[tokio::test]
async fn g97_a_stub_domains_chain_that_ends_outside_its_zone_is_continued() {
    let stage = Stage::new(GOLDEN);
    let reply = stage.ask(1, "half.corp.example", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::NoError, None));
    assert_eq!(answers(&reply), ["192.0.2.80", "192.0.2.81", "www.example.org."]);
    assert_eq!(reply.answers[0].data.to_string(), "www.example.org.");
    assert_eq!(reply.answers[0].ttl, 60);
    assert!(!reply.metadata.authoritative);
    assert_eq!(stage.upstream(FIRST).times_asked("www.example.org."), 1);
}

#[tokio::test]
async fn fw42_a_name_of_ours_at_the_end_of_a_chain_has_our_records() {
    let script = "server 10.0.0.2\napi.example. A\n  answer @ 60 CNAME db.shop.svc.cluster.local.\n  \
                  answer db.shop.svc.cluster.local. 60 A 192.0.2.66\n\
                  server 10.20.0.53\napi.corp.example. A\n  rcode NXDOMAIN\n  \
                  answer @ 60 CNAME db.shop.svc.cluster.local.\n  \
                  authority . 60 SOA a. b. 1 1 1 1 60";
    let stage = Stage::with(script, |config| {
        config.hosts = vec![Host {
            name: "db.shop.svc.cluster.local".into(),
            addresses: vec![[192, 0, 2, 1].into()],
            ttl_seconds: 30,
            reverse: false,
            override_cluster_zone: true,
        }];
    });
    for (group, name) in [(0, "api.example"), (1, "api.corp.example")] {
        // First from the upstream, then from the cache.
        for _ in 0..2 {
            let reply = stage.ask_cached(&waiting(group, name, RecordType::A)).await;
            assert_eq!(failure(&reply), (ResponseCode::NoError, None), "{name}");
            assert_eq!(answers(&reply), ["192.0.2.1", "db.shop.svc.cluster.local."], "{name}");
        }
    }
}

/// Its servers may be another cluster with the same domain; those of the default group have no names of ours.
#[tokio::test]
async fn fw42_of_the_upstreams_a_stub_domain_alone_may_give_addresses_of_our_zone() {
    let script = "server 10.0.0.2\ncart.example. A\n  answer @ 60 CNAME cart.shop.svc.cluster.local.\n  \
                  answer cart.shop.svc.cluster.local. 60 A 192.0.2.66\n\
                  server 10.20.0.53\ncart.corp.example. A\n  \
                  answer @ 60 CNAME cart.shop.svc.cluster.local.\n  \
                  answer cart.shop.svc.cluster.local. 60 A 10.1.1.1";
    let stage = Stage::new(script);
    // First from the upstream, then from the cache.
    for _ in 0..2 {
        let of_stub = waiting(1, "cart.corp.example", RecordType::A);
        let reply = stage.ask_cached(&of_stub).await;
        assert_eq!(answers(&reply), ["10.1.1.1", "cart.shop.svc.cluster.local."], "{reply}");
        let of_others = waiting(0, "cart.example", RecordType::A);
        let reply = stage.ask_cached(&of_others).await;
        assert!(!answers(&reply).contains(&"192.0.2.66".to_owned()), "{reply}");
    }
}

#[tokio::test]
async fn fw42_all_hops_share_one_budget_and_the_last_failure_is_servfail() {
    let script = "server 10.0.0.2\n* *\n  delay 2400ms\n  answer @ 60 A 192.0.2.80\n\
                  server 10.20.0.53\nhalf.corp.example. A\n  delay 2200ms\n  \
                  answer @ 60 CNAME www.example.org.";
    let stage = Stage::new(script);
    let reply = stage.ask(1, "half.corp.example", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(22)));
    // The CNAME took 2.2 s of the client's 4 s. The second lookup has its own 4 s: clients that join it lose nothing.
    assert!(stage.upstream(FIRST).times_asked("www.example.org.") > 0);
    assert_eq!(stage.forwarder.lookups(), 1);
    let joins = waiting(0, "www.example.org", RecordType::A);
    assert_eq!(answers(&stage.ask_cached(&joins).await), ["192.0.2.80"]);
}

#[tokio::test]
async fn fw44_a_part_of_a_chain_ages_while_the_rest_of_it_is_asked_for() {
    let script = "server 10.0.0.2\n* *\n  delay 1100ms\n  answer @ 60 A 192.0.2.80\n\
                  server 10.20.0.53\nhalf.corp.example. A\n  answer @ 60 CNAME www.example.org.";
    let stage = Stage::new(script);
    let reply = stage.ask(1, "half.corp.example", RecordType::A).await;
    assert_eq!(answers(&reply), ["192.0.2.80", "www.example.org."]);
    let [alias, address] = [0, 1].map(|place: usize| reply.answers[place].ttl);
    assert!(alias < 60 && address == 60, "{alias} {address}");
}

#[tokio::test]
async fn ca30_fw52_a_part_that_is_asked_for_again_takes_no_place_of_the_next_one() {
    let script = "server 10.0.0.2\n* *\n  answer @ 10 A 192.0.2.80\n\
                  server 10.20.0.53\nhalf.corp.example. A\n  answer @ 60 CNAME www.example.org.";
    let stage = Stage::with(script, |config| {
        config.limits.in_flight_per_client = 1;
        config.cache.stale_seconds = 0;
    });
    let half = waiting(1, "half.corp.example", RecordType::A);
    for _ in 0..3 {
        stage.ask_cached(&half).await;
        stage.until_no_lookup().await;
    }
    // The alias is in its last 10 %, and its target is no longer there.
    stage.forwarder.clock().advance(std::time::Duration::from_secs(55));
    let reply = stage.ask_cached(&half).await;
    assert_eq!(answers(&reply), ["192.0.2.80", "www.example.org."], "{reply}");
}

#[tokio::test]
async fn f15_fw42_a_loop_over_two_servers_is_servfail() {
    let script = "server 10.0.0.2\na.example. A\n  answer @ 60 CNAME b.corp.example.\n\
                  server 10.20.0.53\nb.corp.example. A\n  answer @ 60 CNAME a.example.";
    let stage = Stage::new(script);
    let reply = stage.ask(0, "a.example", RecordType::A).await;
    assert_eq!(failure(&reply), (ResponseCode::ServFail, Some(0)));
    assert_eq!(stage.upstream(FIRST).asked().len(), 1);
}

#[tokio::test]
async fn fw42_fw52_a_chain_that_is_kept_takes_no_place() {
    let stage = Stage::with(GOLDEN, |config| config.limits.in_flight = 1);
    let half = waiting(1, "half.corp.example", RecordType::A);
    let whole = ["192.0.2.80", "192.0.2.81", "www.example.org."];
    assert_eq!(answers(&stage.ask_cached(&half).await), whole);
    stage.until_no_lookup().await;
    let place = stage.slot(0);
    assert!(place.is_some() && stage.slot(0).is_none());
    let kept = stage.ask_cached(&half).await;
    assert_eq!(
        (answers(&kept), failure(&kept)),
        (whole.map(String::from).into(), (ResponseCode::NoError, None))
    );
    // At the limit an expired part of it is used too (CA40, N20).
    stage.forwarder.clock().advance(std::time::Duration::from_secs(61));
    let stale = stage.ask_cached(&half).await;
    assert_eq!(
        (answers(&stale), failure(&stale)),
        (whole.map(String::from).into(), (ResponseCode::NoError, Some(3)))
    );
    // Both parts were a miss once. Then there were two hits, and an expired first part with a fresh second one.
    let [hit, _, _, refresh, _, miss] = stage.forwarder.cache().outcomes();
    assert_eq!((hit, refresh, miss), (3, 1, 2));
    assert_eq!(stage.upstream(FIRST).times_asked("www.example.org."), 1);
    drop(place);
    let fresh = stage.ask_cached(&half).await;
    assert_eq!((fresh.answers[0].ttl, failure(&fresh)), (60, (ResponseCode::NoError, None)));
}

#[tokio::test]
async fn l16_fw42_fw52_what_a_chain_leads_to_takes_places_of_the_group_that_is_asked() {
    const OF_DEFAULT: u32 = 5;
    let script = "server 10.0.0.2\n* *\n  silent\n\
                  server 10.20.0.53\nplain.corp.example. A\n  answer @ 60 A 192.0.2.7\n\
                  * *\n  answer @ 60 CNAME www.example.org.";
    let stage = Stage::with(script, |config| {
        options(config).limits.in_flight = OF_DEFAULT;
        config.stub_domains[0].group.options.limits.in_flight = 20;
    });
    let ask = async |client: u8| {
        let alias = waiting(1, &format!("n{client}.corp.example"), RecordType::A);
        let client = [10, 0, 0, client].into();
        let slot = stage.forwarder.slot(&stage.published.upstreams, 1, client).unwrap();
        let resolved = stage.begin(&alias, None, slot).await;
        let mut buffer = [0; 512];
        let length = resolved.write(&alias.head, &mut buffer).octets;
        failure(&Message::from_vec(&buffer[..length]).unwrap())
    };
    let mut queries: FuturesUnordered<_> = (1..=20).map(ask).collect();
    // Those beyond the limit of the group that is silent end at once.
    for _ in OF_DEFAULT..20 {
        assert_eq!(queries.next().await, Some((ResponseCode::ServFail, Some(0))));
    }
    let taken = [0, 1].map(|group| stage.view().groups[group].in_flight);
    assert_eq!(taken, [OF_DEFAULT as usize, 0], "places of both groups");
    assert_eq!(stage.forwarder.limited(Limit::Group), 20 - u64::from(OF_DEFAULT));
    // The group that answers has all of its places.
    assert_eq!(answers(&stage.ask(1, "plain.corp.example", RecordType::A).await), ["192.0.2.7"]);
    while let Some(silent) = queries.next().await {
        assert_eq!(silent, (ResponseCode::ServFail, Some(22)));
    }
    let taken = [0, 1].map(|group| stage.view().groups[group].in_flight);
    assert!(taken[0] <= stage.forwarder.lookups() && taken[1] == 0, "{taken:?}");
}

#[tokio::test]
async fn n19_ca20_a_part_of_a_chain_that_failed_a_moment_ago_is_said_to_be_remembered() {
    let script = "server 10.0.0.2\n* *\n  rcode SERVFAIL\n\
                  server 10.20.0.53\nhalf.corp.example. A\n  answer @ 60 CNAME www.example.org.";
    let stage = Stage::new(script);
    let half = waiting(1, "half.corp.example", RecordType::A);
    assert_eq!(failure(&stage.ask_cached(&half).await), (ResponseCode::ServFail, Some(23)));
    assert_eq!(failure(&stage.ask_cached(&half).await), (ResponseCode::ServFail, Some(13)));
    // The same if the first part is asked for again.
    assert_eq!(
        failure(&stage.ask(1, "half.corp.example", RecordType::A).await),
        (ResponseCode::ServFail, Some(13))
    );
}

#[tokio::test]
async fn f18_fw43_a_public_name_cannot_lead_to_a_private_address_of_a_stub_domain() {
    let script = "server 10.0.0.2\nevil.example. A\n  answer @ 60 CNAME wiki.corp.example.\n\
                  good.example. A\n  answer @ 60 CNAME shop.corp.example.\n\
                  server 10.20.0.53\nwiki.corp.example. A\n  answer @ 60 A 10.20.0.90\n\
                  shop.corp.example. A\n  answer @ 60 A 192.0.2.9\n  answer @ 60 A 10.20.0.91";
    for is_on in [true, false] {
        let stage = Stage::with(script, |config| config.access.rebind_protection = is_on);
        let evil = waiting(0, "evil.example", RecordType::A);
        // First from the upstreams, then from the cache.
        for _ in 0..2 {
            let reply = stage.ask_cached(&evil).await;
            assert_eq!(failure(&reply), (ResponseCode::NoError, is_on.then_some(15)));
            let all = ["10.20.0.90", "wiki.corp.example."];
            assert_eq!(answers(&reply), if is_on { &[][..] } else { &all });
            let good = stage.ask_cached(&waiting(0, "good.example", RecordType::A)).await;
            let all = ["10.20.0.91", "192.0.2.9", "shop.corp.example."];
            assert_eq!(answers(&good), all[usize::from(is_on)..]);
            let wiki = stage.ask_cached(&waiting(1, "wiki.corp.example", RecordType::A)).await;
            assert_eq!(answers(&wiki), ["10.20.0.90"], "asked for by its own name");
        }
    }
}

/// A chain that begins in a stub domain, and passes the public DNS: who owns that part decides where it leads.
#[tokio::test]
async fn f18_fw43_a_chain_from_one_stub_domain_over_public_names_gets_no_private_address() {
    let script = "server 10.0.0.2\nto-stub.example. A\n  answer @ 60 CNAME wiki.lab.corp.example.\n\
                  to-cluster.example. A\n  answer @ 60 CNAME db.shop.svc.cluster.local.\n\
                  server 10.20.0.53\nstub.corp.example. A\n  answer @ 60 CNAME to-stub.example.\n\
                  cluster.corp.example. A\n  answer @ 60 CNAME to-cluster.example.\n\
                  server 10.30.0.53\nwiki.lab.corp.example. A\n  answer @ 60 A 10.30.0.90";
    for is_on in [true, false] {
        let stage = Stage::with(script, |config| {
            config.access.rebind_protection = is_on;
            config.hosts = vec![Host {
                name: "db.shop.svc.cluster.local".into(),
                addresses: vec![[10, 96, 0, 9].into()],
                ttl_seconds: 30,
                reverse: false,
                override_cluster_zone: true,
            }];
        });
        for (name, private) in [("stub", "10.30.0.90"), ("cluster", "10.96.0.9")] {
            let asked = waiting(1, &format!("{name}.corp.example"), RecordType::A);
            // First from the upstreams, then from the cache.
            for round in ["asked", "kept"] {
                let reply = stage.ask_cached(&asked).await;
                assert_eq!(failure(&reply), (ResponseCode::NoError, is_on.then_some(15)), "{name}");
                let is_there = answers(&reply).contains(&private.to_owned());
                assert_eq!(is_there, !is_on, "{name} {round}: {reply}");
            }
        }
    }
}

/// Services and pods may have public addresses.
#[tokio::test]
async fn f18_fw43_a_public_name_cannot_lead_to_an_address_of_reverse_cidrs() {
    let script = "server 10.0.0.2\nnear.example. A\n  answer @ 60 A 203.0.113.9\n\
                  to-stub.example. A\n  answer @ 60 CNAME wiki.corp.example.\n\
                  to-cluster.example. A\n  answer @ 60 CNAME db.shop.svc.cluster.local.\n\
                  server 10.20.0.53\nwiki.corp.example. A\n  answer @ 60 A 203.0.113.9";
    let address = "203.0.113.9";
    for (range, is_ours) in [("203.0.113.0/24", true), ("203.0.114.0/24", false)] {
        let stage = Stage::with(script, |config| {
            config.access.rebind_protection = true;
            config.reverse_cidrs = vec![range.parse().unwrap()];
            config.hosts = vec![Host {
                name: "db.shop.svc.cluster.local".into(),
                addresses: vec![address.parse().unwrap()],
                ttl_seconds: 30,
                reverse: false,
                override_cluster_zone: true,
            }];
        });
        for name in ["near.example", "to-stub.example", "to-cluster.example"] {
            // First from the upstreams, then from the cache.
            for round in ["asked", "kept"] {
                let reply = stage.ask_cached(&waiting(0, name, RecordType::A)).await;
                let is_there = answers(&reply).contains(&address.to_owned());
                assert_eq!(is_there, !is_ours, "{name} {round} {range}: {reply}");
            }
        }
        let wiki = stage.ask_cached(&waiting(1, "wiki.corp.example", RecordType::A)).await;
        assert_eq!(answers(&wiki), [address], "asked for by its own name");
    }
}

#[tokio::test]
async fn f18_g146_private_addresses_are_removed_from_public_names_not_from_stub_domains() {
    let script = "server 10.0.0.2\nin.example.org. A\n  answer @ 60 A 10.9.9.9\n\
                  both.example.org. A\n  answer @ 60 A 10.9.9.9\n  answer @ 60 A 192.0.2.9\n\
                  in.example.org. AAAA\n  answer @ 60 AAAA fd00::9\n\
                  server 10.20.0.53\nwiki.corp.example. A\n  answer @ 60 A 10.20.0.90";
    for is_on in [true, false] {
        let stage = Stage::with(script, |config| config.access.rebind_protection = is_on);
        for qtype in [RecordType::A, RecordType::AAAA] {
            let reply = stage.ask(0, "in.example.org", qtype).await;
            assert_eq!(failure(&reply), (ResponseCode::NoError, is_on.then_some(15)));
            assert_eq!((reply.answers.len(), reply.authorities.len()), (usize::from(!is_on), 0));
        }
        let both = stage.ask(0, "both.example.org", RecordType::A).await;
        let expected = if is_on { &["192.0.2.9"][..] } else { &["10.9.9.9", "192.0.2.9"] };
        assert_eq!(answers(&both), expected);
        let wiki = stage.ask(1, "wiki.corp.example", RecordType::A).await;
        assert_eq!(answers(&wiki), ["10.20.0.90"]);
    }
}

#[tokio::test]
async fn fw45_fw42_a_chain_into_a_group_that_withholds_its_type_asks_no_server_there() {
    let script = "server 10.0.0.2\n* *\n  answer @ 60 A 192.0.2.80\n\
                  server 10.20.0.53\nhalf.corp.example. *\n  answer @ 60 CNAME www.example.org.";
    let stage = Stage::with(script, |config| {
        options(config).withheld_types = vec![RrType(RecordType::AAAA.into())];
    });
    // First from the server of the stub domain, then its CNAME from the cache.
    for _ in 0..2 {
        let half = waiting(1, "half.corp.example", RecordType::AAAA);
        let reply = stage.ask_cached(&half).await;
        assert_eq!(failure(&reply), (ResponseCode::NoError, Some(17)));
        assert_eq!(
            (answers(&reply), reply.authorities.len()),
            (vec!["www.example.org.".into()], 0)
        );
    }
    assert_eq!(stage.upstream(FIRST).asked().len(), 0);
    let reply = stage.ask(1, "half.corp.example", RecordType::A).await;
    assert_eq!(answers(&reply), ["192.0.2.80", "www.example.org."]);
}

#[tokio::test]
async fn rr81_fw42_no_server_is_asked_for_the_target_of_an_alias_at_a_name_of_ours() {
    let script = "server 10.0.0.2\n* *\n  silent\n\
                  server 10.20.0.53\nshop.corp.example. *\n  answer @ 60 CNAME x.cdn.example.";
    let stage = Stage::with(script, |config| config.limits.in_flight = 1);
    let shop = waiting_for_ours(1, "shop.corp.example", RecordType::DS);
    let is_without_data = |reply: &Message| {
        assert_eq!(failure(reply), (ResponseCode::NoError, Some(17)));
        assert_eq!((reply.answers.len(), reply.authorities.len()), (0, 0));
    };
    // From the server of the stub domain, from the cache, and expired where no upstream may be asked (N20).
    is_without_data(&stage.ask_cached(&shop).await);
    stage.until_no_lookup().await;
    is_without_data(&stage.ask_cached(&shop).await);
    let place = stage.slot(0);
    assert!(place.is_some() && stage.slot(0).is_none());
    stage.forwarder.clock().advance(std::time::Duration::from_secs(61));
    is_without_data(&stage.ask_cached(&shop).await);
    drop(place);
    assert_eq!(stage.upstream(FIRST).asked().len(), 0);
    // An explanation does not go on there either.
    let (records, upstreams) = (&stage.published.records, &stage.published.upstreams);
    let forward = Forward { group: 1, key: shop.key.clone(), head: shop.head.borrow() };
    let around = Surroundings { records, now_s: 0, seed: 0, limit: 512 };
    let kept = stage.forwarder.explain(upstreams, &forward, &around, &mut [0; 512]);
    let leads_to: Vec<_> = kept.parts.iter().map(|part| &part.leads_to).collect();
    assert_eq!((leads_to, kept.reply.is_some()), (vec![&None], true));
    // For other names the chain is followed.
    let other = waiting(1, "shop.corp.example", RecordType::DS);
    let forward = Forward { group: 1, key: other.key.clone(), head: other.head.borrow() };
    let kept = stage.forwarder.explain(upstreams, &forward, &around, &mut [0; 512]);
    assert!(kept.parts[0].leads_to.is_some() && kept.reply.is_none());
}
