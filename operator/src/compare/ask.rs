//! Asks two servers the same questions, side by side and not faster than the rate. Only queries are sent.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use hickory_proto::rr::Name;
use tokio::time::{Instant, sleep_until};

use super::names::Asked;
use crate::ask_pods::canary_analysis::once;
use crate::ask_pods::canary_analysis::reply::Reply;

/// For one reply: a resolver that asks others may take some seconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Datagrams that are sent before the server counts as silent.
const ATTEMPTS: usize = 2;
/// Questions in progress: a silent server takes ten seconds of each.
const SIDE_BY_SIDE: usize = 64;

/// What both replied to one question.
pub(super) struct Replies {
    pub(super) asked: Asked,
    pub(super) with: Reply,
    pub(super) against: Reply,
}

impl Replies {
    /// Whether a server has records of this name, which is at or below a domain.
    pub(super) fn is_found_below(&self, domain: &Name) -> bool {
        let has_records = |reply: &Reply| reply.as_ref().is_ok_and(|it| !it.answers.is_empty());
        domain.zone_of(&self.asked.name) && (has_records(&self.with) || has_records(&self.against))
    }
}

/// How late a question may be without loss of its turn: timers are coarse, and must not lower the rate.
const GRAIN: Duration = Duration::from_millis(10);

/// Asks both servers each question, at most `rate` questions a second, and gives `heard` its number and what both replied, in
/// any order: a reply may have 64 KiB, and nothing is kept of it here. A server that is silent for a while is not asked faster
/// afterwards.
pub(super) async fn ask(
    questions: &[Asked],
    with: SocketAddr,
    against: SocketAddr,
    rate: u32,
    mut heard: impl FnMut(usize, &Replies),
) {
    let pause = Duration::from_secs(1) / rate.max(1);
    let turns = &RefCell::new(Turns { next: Instant::now(), pause });
    let paced = stream::unfold(questions.iter(), async |mut left| {
        let asked = left.next()?;
        turn(turns).await;
        Some((asked, left))
    });
    let asking = paced.enumerate().map(|(number, asked)| async move {
        let (with, against) = (patiently(asked, with, turns), patiently(asked, against, turns));
        let (with, against) = futures::join!(with, against);
        (number, Replies { asked: asked.clone(), with, against })
    });
    // A question without a reply must not delay the others.
    let mut asking = std::pin::pin!(asking.buffer_unordered(SIDE_BY_SIDE));
    while let Some((number, replies)) = asking.next().await {
        heard(number, &replies);
    }
}

/// When questions are sent: never more of them than the rate allows, however late the last one was.
struct Turns {
    next: Instant,
    pause: Duration,
}

impl Turns {
    /// The time of the next question.
    fn take(&mut self, now: Instant) -> Instant {
        let turn = self.next.max(now.checked_sub(GRAIN).unwrap_or(now));
        self.next = turn + self.pause;
        turn
    }
}

/// Waits for the time of the next question.
async fn turn(turns: &RefCell<Turns>) {
    let at = turns.borrow_mut().take(Instant::now());
    sleep_until(at).await;
}

/// A question that is sent again takes a turn too: the rate is that of all datagrams.
async fn patiently(asked: &Asked, server: SocketAddr, turns: &RefCell<Turns>) -> Reply {
    let mut reply = once((&asked.name, asked.kind), server, PATIENCE).await;
    for _ in 1..ATTEMPTS {
        if !matches!(reply, Err(crate::ask_pods::canary_analysis::reply::NoReply::Silent(_))) {
            break;
        }
        turn(turns).await;
        reply = once((&asked.name, asked.kind), server, PATIENCE).await;
    }
    reply
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::RecordType;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_sent_again_takes_a_turn_of_the_rate() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let silent = silent.local_addr().map(|at| (silent, at)).unwrap();
        let name = |at: usize| Name::from_ascii(format!("n{at}.example.")).unwrap();
        let questions: Vec<Asked> =
            (0..3).map(|at| Asked { name: name(at), kind: RecordType::A }).collect();
        let begin = Instant::now();
        ask(&questions, silent.1, silent.1, 1, |_, _| {}).await;
        // From 0, 1 and 2 s on, each is silent for 5 s. The six datagrams after that take six seconds, and 5 s of silence.
        let took = begin.elapsed();
        assert!(took > Duration::from_secs(14), "{took:?}");
    }

    #[test]
    fn a_server_that_was_silent_for_a_while_is_not_asked_faster_afterwards() {
        let begin = Instant::now();
        let mut turns = Turns { next: begin, pause: Duration::from_millis(20) };
        let early: Vec<_> = (0..3).map(|_| turns.take(begin) - begin).collect();
        assert_eq!(early, [0, 20, 40].map(Duration::from_millis), "50 a second");
        // No question could be sent for ten seconds: the 500 turns of that time are lost.
        let late = begin + Duration::from_secs(10);
        let sent = (0..100).filter(|_| turns.take(late) <= late).count();
        assert_eq!(sent, 1, "one at once, and the next after its pause");
    }
}
