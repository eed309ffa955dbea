//! Whether another process answers who asks it in several ways at once. The operator and the data planes class errors alike: a pod
//! leaves its Service when both have heard nothing of it (O20).

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::timeout;

/// What was heard of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It answered, or the kernel of its node said that a port is closed.
    Answer,
    /// No answer came.
    Silence,
    /// It could not be asked, which is a problem of who asks: nothing is known of it.
    Unknown,
}

/// One way to ask. Its error is of [`ErrorKind::InvalidData`] where something else replied.
pub type Attempt<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>>;

/// The first answer counts. It is silence when all ways have failed, or when the time is over.
pub async fn first_answer(attempts: Vec<Attempt<'_>>, patience: Duration) -> Heard {
    let mut attempts: FuturesUnordered<Attempt<'_>> = attempts.into_iter().collect();
    let mut is_unknown = false;
    let is_answered = async {
        while let Some(ended) = attempts.next().await {
            match ended.map_or_else(|error| heard_by(error.kind()), |()| Heard::Answer) {
                Heard::Answer => return true,
                Heard::Silence => {}
                Heard::Unknown => is_unknown = true,
            }
        }
        false
    };
    match timeout(patience, is_answered).await {
        Ok(true) => Heard::Answer,
        Ok(false) | Err(_) if is_unknown => Heard::Unknown,
        Ok(false) | Err(_) => Heard::Silence,
    }
}

/// What an error says of the other side.
fn heard_by(error: ErrorKind) -> Heard {
    match error {
        // The kernel of its node answered: the node is alive, and its kubelet decides.
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => Heard::Answer,
        // Something else replied, or the network between us failed: not an answer of that process.
        ErrorKind::HostUnreachable
        | ErrorKind::TimedOut
        | ErrorKind::UnexpectedEof
        | ErrorKind::InvalidData => Heard::Silence,
        // Such as no file descriptor, no port or no route of our own.
        _ => Heard::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn heard(ways: &[Option<ErrorKind>]) -> Heard {
        let way = |error: Option<ErrorKind>| -> Attempt<'_> {
            Box::pin(async move { error.map_or(Ok(()), |kind| Err(kind.into())) })
        };
        first_answer(ways.iter().copied().map(way).collect(), Duration::from_secs(1)).await
    }

    #[tokio::test]
    async fn o20_a_closed_port_is_an_answer_and_our_own_trouble_is_no_silence() {
        let (unreachable, slow) = (Some(ErrorKind::HostUnreachable), Some(ErrorKind::TimedOut));
        let (another, cut) = (Some(ErrorKind::InvalidData), Some(ErrorKind::UnexpectedEof));
        assert_eq!(heard(&[unreachable, slow, another, cut]).await, Heard::Silence);
        assert_eq!(heard(&[]).await, Heard::Silence);
        for answer in [None, Some(ErrorKind::ConnectionRefused), Some(ErrorKind::ConnectionReset)] {
            assert_eq!(heard(&[unreachable, answer]).await, Heard::Answer, "{answer:?}");
        }
        for ours in [ErrorKind::PermissionDenied, ErrorKind::NetworkUnreachable] {
            assert_eq!(heard(&[slow, Some(ours)]).await, Heard::Unknown, "{ours}");
            assert_eq!(heard(&[Some(ours), None]).await, Heard::Answer, "{ours}, and another way");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn o20_ways_without_an_end_are_silent_when_the_time_is_over() {
        let never = || -> Attempt<'_> { Box::pin(std::future::pending()) };
        let patience = Duration::from_secs(1);
        assert_eq!(first_answer(vec![never(), never()], patience).await, Heard::Silence);
        let ours: Attempt<'_> = Box::pin(async { Err(ErrorKind::PermissionDenied.into()) });
        assert_eq!(first_answer(vec![never(), ours], patience).await, Heard::Unknown);
    }
}
