//! Servers that refuse an OPT record, for every name or for those of one owner (FW25).

use std::sync::Mutex;

use super::*;

/// Lets a server answer FORMERR to an OPT record: to every one, or only to those that ask for the name of a tenant. Then it
/// answers for the root later than for all others. Returns the names asked with one.
pub(in crate::forward::probe) fn refusing(far: UdpSocket, all: bool) -> Arc<Mutex<Vec<Vec<u8>>>> {
    let with_opt = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let asked = Arc::clone(&with_opt);
    let far = Arc::new(far);
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((octets, peer)) = far.recv_from(&mut buffer).await {
            let has_opt = buffer[11] == 1;
            let mut reply = buffer[..octets - if has_opt { 11 } else { 0 }].to_vec();
            let name = reply[12..reply.len() - 4].to_vec();
            let refuses = has_opt && (all || name[1..].starts_with(b"evil"));
            let is_late = !all && name == [0];
            if has_opt {
                asked.lock().unwrap().push(name);
            }
            (reply[2], reply[3], reply[11]) = (0x81, if refuses { 0x81 } else { 0x80 }, 0);
            let far = Arc::clone(&far);
            tokio::spawn(async move {
                if is_late {
                    sleep(Duration::from_millis(50)).await;
                }
                let _ = far.send_to(&reply, peer).await;
            });
        }
    });
    with_opt
}

/// Asks for this name as a client's query does.
async fn look_up(upstreams: &Upstreams, name: &str) {
    let key = LookupKey::new(Name::from_text(name).unwrap(), 1, false, false);
    let group = upstreams.group(0).unwrap();
    let answered = crate::forward::lookup::lookup(group, &[0], &key, now()).await;
    answered.expect("a reply, if need be without an OPT record");
}

/// Probes the only server while clients ask for this name. The next probe is due only after that one has ended.
async fn probed_beside(upstreams: &Upstreams, name: &str) {
    probe_due(upstreams, 0, now());
    while upstreams.known()[0].probe_at(false, now()).is_none() {
        look_up(upstreams, name).await;
    }
}

#[tokio::test]
async fn fw25_the_server_of_one_name_switches_edns_off_for_no_other() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = of_one(far.local_addr().unwrap(), Transport::Udp);
    let with_opt = refusing(far, false);
    let server = &upstreams.known()[0];
    look_up(&upstreams, "evil.example").await;
    assert!(server.seen(now()).edns, "it may be about its name");
    probed_beside(&upstreams, "evil.example").await;
    assert!(server.seen(now()).edns);
    assert!(with_opt.lock().unwrap().contains(&vec![0]), "the probe");
    look_up(&upstreams, "www.example.org").await;
    let asked = with_opt.lock().unwrap();
    assert!(asked.last().is_some_and(|name| name.starts_with(b"\x03www")), "{asked:?}");
}

#[tokio::test]
async fn fw25_a_server_that_refuses_edns_is_remembered_after_its_probe() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = of_one(far.local_addr().unwrap(), Transport::Udp);
    let with_opt = refusing(far, true);
    let server = &upstreams.known()[0];
    look_up(&upstreams, "www.example.org").await;
    assert!(server.probe_at(false, now()).is_some_and(|at| at <= now()), "it is due at once");
    probe_due(&upstreams, 0, now());
    while server.seen(now()).edns {
        tokio::task::yield_now().await;
    }
    with_opt.lock().unwrap().clear();
    look_up(&upstreams, "www.example.net").await;
    assert_eq!(with_opt.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn fw25_the_server_of_one_stub_domain_switches_edns_off_for_no_other_group() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = with_stub_domains(&far, &["evil.example"], &far);
    let with_opt = refusing(far, false);
    let server = &upstreams.known()[0];
    look_up(&upstreams, "evil.example").await;
    probed_beside(&upstreams, "evil.example").await;
    let roots = |asked: &[Vec<u8>]| asked.iter().filter(|name| **name == [0]).count();
    assert_eq!(roots(&with_opt.lock().unwrap()), 1);
    assert!(server.seen(now()).edns, "the root is answered with an OPT record, only later");
}

#[tokio::test]
async fn fw25_a_refusal_beside_silence_decides_nothing_about_edns() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = with_stub_domains(&far, &["evil.example", "silent.example"], &far);
    let server = &upstreams.known()[0];
    let refused = |most, all_refuse| Asked { most, all_refuse, over: server.transport() };
    let without = Probed::Reply { shows: Found::NoLoop, with_edns: false };
    for (asked, uses_edns) in [
        (refused(without, false), true),
        (refused(Probed::Error(1, ErrorCodes::default()), false), true),
        (refused(without, true), false),
    ] {
        // A client's query was refused too.
        server.doubt_edns(now());
        let edns = server.probe(now());
        ended(server, edns, asked);
        assert_eq!(server.uses_edns(now()), uses_edns, "{asked:?}");
    }
}

#[tokio::test]
async fn fw25_every_group_of_an_old_server_finds_out_that_it_refuses_edns() {
    let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstreams = with_stub_domains(&far, &["corp.example"], &far);
    refusing(far, true);
    look_up(&upstreams, "www.example.org").await;
    probe_due(&upstreams, 0, now());
    while upstreams.known()[0].seen(now()).edns {
        tokio::task::yield_now().await;
    }
}
