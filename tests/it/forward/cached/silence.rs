//! What is served while no server answers, for minutes and for hours.

use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;

use super::super::stage::{GOLDEN, Stage, answers, failure};
use super::{SILENT, ttls};

#[tokio::test]
async fn f11_c6_hours_without_a_server_give_stale_replies_then_fresh_ones() {
    let stage = Stage::new(GOLDEN);
    stage.a("www.example.org").await;
    stage.play(SILENT);
    for minutes in [11, 60, 22 * 60] {
        stage.later(minutes * 60_000);
        let stale = stage.a("www.example.org").await;
        assert_eq!(failure(&stale), (ResponseCode::NoError, Some(3)), "{minutes} minutes later");
        assert_eq!(ttls(&stale), [30, 30]);
        let (rcode, ede) = failure(&stage.a("other.example.org").await);
        assert!(rcode == ResponseCode::ServFail && matches!(ede, Some(13 | 22 | 23)), "{ede:?}");
    }
    stage.play(GOLDEN);
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        // An expired answer is asked for again every 5 s.
        stage.later(5_001);
        let reply = stage.a("www.example.org").await;
        if (failure(&reply), ttls(&reply)) == ((ResponseCode::NoError, None), vec![600, 600]) {
            break;
        }
        assert!(Instant::now() < until, "no fresh answer: {reply:?}");
    }
}

#[tokio::test]
async fn fw26_ca41_a_part_of_the_answer_replaces_no_whole_one() {
    let stage = Stage::new(GOLDEN);
    stage.a("www.example.org").await;
    stage.play(
        "server 10.0.0.2 10.0.0.3\nwww.example.org. A\n  flags tc\n  answer @ 600 A 192.0.2.80",
    );
    stage.later(700_000);
    for asked in 0..2 {
        let stale = stage.a("www.example.org").await;
        assert_eq!(failure(&stale), (ResponseCode::NoError, Some(3)), "{asked}");
        assert_eq!(answers(&stale), ["192.0.2.80", "192.0.2.81"], "{asked}");
    }
}
