//! What is served while no server answers, for minutes and for hours.

use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;

use super::super::stage::{GOLDEN, Stage, failure};
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
