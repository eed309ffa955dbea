//! Queries that wait for their turn on a connection (WR41). Where the clock is stopped, time moves on as soon as nothing else
//! can happen.

use tokio::time::{Instant, pause, sleep};

use super::*;

const CLIENT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 5353);
/// Until a client gives up (FW24).
const BUDGET: Duration = Duration::from_secs(4);

/// What a query for www.example.org A gets whose turn comes after this.
async fn in_turn(responder: &Responder, meanwhile: impl Future<Output = ()>) -> Got {
    let packet = question("www.example.org", 1, true);
    let query =
        Query { packet: &packet, client: CLIENT, transport: Transport::Tcp, now_s: 0, seed: 1 };
    let published = responder.state.published.load_full();
    let mut buffer = vec![0; 65_535];
    let came = (CLIENT.ip(), Instant::now().into_std());
    let action = responder.decide((&published, None), 0, &query, Room::Later, &mut buffer);
    let ServeAction::Later(waiting, held) = action else { panic!("an upstream is needed") };
    meanwhile.await;
    let (state, forwarder) = (&responder.state, &responder.forwarder);
    let upstreams = Arc::clone(&published.upstreams);
    let resolved =
        forwarder.resolve_in_turn(&state.published, upstreams, &waiting, held, came).await;
    let octets = resolved.write(&waiting.head, &mut buffer).octets;
    Got(buffer[3] & 15, ttls(&buffer[..octets]), resolved.origin())
}

/// What it gets if another client has asked for the same meanwhile, and the only place is taken then.
async fn after_another(responder: &Responder) -> Got {
    let place = std::cell::Cell::new(None);
    let another = async {
        responder.ask().await;
        responder.until_no_lookup().await;
        place.set(responder.place());
    };
    let got = in_turn(responder, another).await;
    assert!(place.take().is_some(), "the only place was taken");
    got
}

fn refused(responder: &Responder) -> Vec<Limit> {
    let limits = Limit::ALL.into_iter();
    limits.filter(|limit| responder.forwarder.limited(*limit) > 0).collect()
}

#[tokio::test]
async fn wr41_a_query_takes_its_place_in_its_turn() {
    let upstream = Upstream::start().await;
    let responder = responder(&upstream.config());
    let place = responder.place();
    assert!(place.is_some(), "there is one, and another query has it");
    let got = in_turn(&responder, async { drop(place) }).await;
    assert_eq!(got, Got(0, vec![600], Origin::Upstream));
    assert_eq!(refused(&responder), []);
}

#[tokio::test]
async fn n20_a_query_that_finds_no_place_in_its_turn_is_refused() {
    let upstream = Upstream::start().await;
    let responder = responder(&upstream.config());
    let place = responder.place();
    assert!(place.is_some());
    assert_eq!(in_turn(&responder, async {}).await, Got(2, vec![], Origin::Failed));
    assert_eq!((refused(&responder), upstream.asked()), (vec![Limit::Total], 0));
}

#[tokio::test]
async fn fw11_what_another_query_has_left_in_the_cache_needs_no_place() {
    let upstream = Upstream::start().await;
    let responder = responder(&upstream.config());
    assert_eq!(after_another(&responder).await, Got(0, vec![600], Origin::Upstream));
    assert_eq!((refused(&responder), upstream.asked()), (vec![], 1));
}

#[tokio::test]
async fn fw11_what_has_expired_gives_way_to_what_another_query_has_left() {
    let upstream = Upstream::start().await;
    let responder = responder(&upstream.config());
    responder.ask().await;
    responder.later(600_000);
    assert_eq!(after_another(&responder).await, Got(0, vec![600], Origin::Upstream));
    assert_eq!((refused(&responder), upstream.asked()), (vec![], 2));
}

#[tokio::test]
async fn fw24_the_wait_for_its_turn_is_a_part_of_the_time_of_a_query() {
    let upstream = Upstream::start().await;
    upstream.is_silent.store(true, Ordering::Relaxed);
    let responder = responder(&upstream.config());
    pause();
    let start = Instant::now();
    let got = in_turn(&responder, sleep(BUDGET * 3 / 4)).await;
    assert_eq!(got, Got(2, vec![], Origin::Failed));
    let took = start.elapsed();
    assert!((BUDGET..BUDGET + Duration::from_millis(50)).contains(&took), "{took:?}");
    assert_eq!(refused(&responder), [], "it was asked for");
}

#[tokio::test]
async fn fw24_a_query_whose_turn_comes_when_its_client_has_gone_asks_nothing() {
    let upstream = Upstream::start().await;
    let responder = responder(&upstream.config());
    pause();
    let start = Instant::now();
    assert_eq!(in_turn(&responder, sleep(BUDGET)).await, Got(2, vec![], Origin::Failed));
    assert_eq!(start.elapsed().as_secs(), BUDGET.as_secs());
    assert_eq!(refused(&responder), [Limit::Connection]);
    assert_eq!((responder.forwarder.lookups(), upstream.asked()), (0, 0));
}

#[tokio::test]
async fn ca40_a_query_whose_time_is_over_gets_an_answer_that_has_expired() {
    let upstream = Upstream::start().await;
    let responder = responder(&upstream.config());
    responder.ask().await;
    responder.later(600_000);
    pause();
    assert_eq!(in_turn(&responder, sleep(BUDGET)).await, Got(0, vec![30], Origin::Stale));
    assert_eq!((refused(&responder), upstream.asked()), (vec![Limit::Connection], 1));
}
