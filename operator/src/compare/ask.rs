//! Asks two servers the same questions, side by side and not faster than wanted. Only queries are sent.

use std::net::SocketAddr;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use tokio::time::{Instant, sleep_until};

use super::names::Asked;
use crate::probe::compare::once;
use crate::probe::compare::reply::Reply;

/// For one reply: a resolver that asks others may take some seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Datagrams until silence counts.
const ATTEMPTS: usize = 2;
/// Questions in progress: a silent server takes ten seconds of each.
const SIDE_BY_SIDE: usize = 64;

/// What both replied to one question.
pub(super) struct Replies {
    pub(super) asked: Asked,
    pub(super) with: Reply,
    pub(super) against: Reply,
}

/// Asks both servers each question, at most `rate` questions a second.
pub(super) async fn ask(
    questions: &[Asked],
    with: SocketAddr,
    against: SocketAddr,
    rate: u32,
) -> Vec<Replies> {
    let begin = Instant::now();
    let pause = Duration::from_secs(1) / rate.max(1);
    let asking = questions.iter().enumerate().map(|(number, asked)| async move {
        let with = patiently(asked, with);
        let against = patiently(asked, against);
        let turn = begin + pause * u32::try_from(number).unwrap_or(u32::MAX);
        sleep_until(turn).await;
        let (with, against) = futures::join!(with, against);
        Replies { asked: asked.clone(), with, against }
    });
    stream::iter(asking).buffered(SIDE_BY_SIDE).collect().await
}

async fn patiently(asked: &Asked, server: SocketAddr) -> Reply {
    let mut reply = once((&asked.name, asked.kind), server, PATIENCE).await;
    for _ in 1..ATTEMPTS {
        if !matches!(reply, Err(crate::probe::compare::reply::NoReply::Silent(_))) {
            break;
        }
        reply = once((&asked.name, asked.kind), server, PATIENCE).await;
    }
    reply
}
