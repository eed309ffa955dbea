//! The exchanges of one connection that has a stream for each: a query that is overdue may have to give its stream to another
//! one (L16). Its exchange is dropped then, which resets the stream (RFC 9113 §5.4.2, RFC 9250 §4.3.1).

use std::collections::HashMap;
use std::future::pending;

use futures::future::{AbortHandle, Abortable, Aborted};
use futures::stream::{FuturesUnordered, StreamExt};

use super::connection::Ended;
use super::outlet::Query;

/// Exchanges in progress: at most as many as the connection has places, and those that end.
#[derive(Debug)]
pub(super) struct Exchanges<E> {
    running: FuturesUnordered<Abortable<E>>,
    /// By the id of their query.
    ends: HashMap<u16, AbortHandle>,
}

impl<E: Future<Output = (u16, Ended)>> Exchanges<E> {
    pub(super) fn new() -> Exchanges<E> {
        Exchanges { running: FuturesUnordered::new(), ends: HashMap::new() }
    }

    /// Begins the exchange of a query, and ends the one in whose place it is.
    pub(super) fn begin(&mut self, query: Query, exchange: impl FnOnce(Query) -> E) {
        if let Some(end) = query.instead.and_then(|other| self.ends.remove(&other)) {
            end.abort();
        }
        let (end, registration) = AbortHandle::new_pair();
        self.ends.insert(query.id, end);
        self.running.push(Abortable::new(exchange(query), registration));
    }

    /// The id of the next query whose exchange is over, and its reply.
    pub(super) async fn next(&mut self) -> (u16, Ended) {
        loop {
            match self.running.next().await {
                Some(Ok((id, ended))) => {
                    self.ends.remove(&id);
                    return (id, ended);
                }
                Some(Err(Aborted)) => {}
                None => return pending().await,
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::failure::Failure;
    use super::*;

    #[tokio::test]
    async fn l16_an_exchange_that_gives_way_is_dropped_and_the_others_go_on() {
        let (alive, mut exchanges) = (Arc::new(()), Exchanges::new());
        let exchange = |Query { id, .. }| {
            let held = Arc::clone(&alive);
            async move {
                // The last one has a reply.
                if id < 4 {
                    pending::<()>().await;
                }
                drop(held);
                (id, Err(Failure::wrong()))
            }
        };
        for (id, instead) in [(1, None), (2, None), (3, Some(1)), (4, Some(9))] {
            exchanges.begin(Query { id, octets: Vec::new(), instead }, exchange);
        }
        assert_eq!(exchanges.next().await.0, 4);
        let mut next = Box::pin(exchanges.next());
        assert!(futures::poll!(&mut next).is_pending());
        assert_eq!(Arc::strong_count(&alive), 1 + 2, "of 2 and 3");
    }
}
