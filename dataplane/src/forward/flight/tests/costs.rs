//! What a query that is not in the cache costs where its first query gets a good reply: what can be counted.

use super::*;
use crate::forward::common::{LOCKS, LOOKS};

/// Looks at the clock, and at the state of the server, which all threads share.
#[tokio::test]
async fn a_miss_looks_at_the_clock_eight_times_and_locks_its_server_four_times() {
    for (ports, looks) in [(4096, 9), (1, 8)] {
        let stage = Stage::new((ports, true)).await;
        for name in ["www.example.org", "ftp.example.org"] {
            let counted = |act: &mut dyn FnMut()| {
                let before = (LOOKS.get(), LOCKS.get());
                act();
                (LOOKS.get() - before.0, LOCKS.get() - before.1)
            };
            let mut ended = None;
            let asked = counted(&mut || ended = Some(stage.ask_for(name)));
            let (query, from) = stage.query().await;
            stage.reply(&address(&query), from).await;
            let read = counted(&mut || stage.read_once());
            assert!(ended.unwrap().try_recv().is_ok(), "it has ended");
            assert_eq!((asked.0 + read.0, asked.1 + read.1), (looks, 4), "{ports} ports, {name}");
        }
    }
}
