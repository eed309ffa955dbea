//! How the queries on a connection leave: a task takes them, or the thread that has one sends it itself. A thread that reads
//! many queries of clients at once sends those on one connection together.

use std::cell::RefCell;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::tls_session::TlsSession;

thread_local! {
    /// Sessions with something to send, while this thread sends [together](Together).
    static UNSENT: RefCell<Option<Vec<Arc<TlsSession>>>> = const { RefCell::new(None) };
}

/// A message on its way out.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) id: u16,
    pub(super) octets: Vec<u8>,
    /// The query whose stream it takes: the exchange with this id must end.
    pub(super) instead: Option<u16>,
}

impl Query {
    /// Over HTTPS and QUIC ids are 0: the stream identifies the reply.
    pub(super) fn without_id(mut self) -> Query {
        self.octets[..2].fill(0);
        self
    }
}

/// Where the queries on one connection leave.
#[derive(Debug)]
pub(super) enum Outlet {
    /// To a task, which sends them, each as a message with its id.
    Task(mpsc::Sender<Query>),
    /// To a task, which opens a stream for each.
    Streams(mpsc::Sender<Query>),
    Tls(Arc<TlsSession>),
}

/// Room for one query.
pub(super) enum Room<'o> {
    Task(mpsc::Permit<'o, Query>),
    Tls(&'o TlsSession),
}

impl Outlet {
    pub(super) fn has_streams(&self) -> bool {
        matches!(self, Outlet::Streams(_))
    }

    /// Room for one query; none once the connection has ended.
    pub(super) fn room(&self) -> Option<Room<'_>> {
        match self {
            Outlet::Task(queries) | Outlet::Streams(queries) => {
                queries.try_reserve().ok().map(Room::Task)
            }
            Outlet::Tls(tls) => Some(Room::Tls(tls)),
        }
    }

    /// Makes sure that what was put in leaves: at once, or with what this thread sends together.
    pub(super) fn send(&self) {
        match self {
            // The task is awake.
            Outlet::Task(_) | Outlet::Streams(_) => {}
            Outlet::Tls(tls) if is_noted(tls) => {}
            Outlet::Tls(tls) => tls.send(),
        }
    }

    /// Closes the socket that no task holds.
    pub(super) fn end(&self) {
        match self {
            // It is closed with the queue, which the task has.
            Outlet::Task(_) | Outlet::Streams(_) => {}
            Outlet::Tls(tls) => tls.end(),
        }
    }

    /// Whether the socket is closed.
    pub(super) fn is_gone(&self) -> bool {
        match self {
            Outlet::Task(queries) | Outlet::Streams(queries) => queries.is_closed(),
            Outlet::Tls(tls) => tls.is_gone(),
        }
    }
}

impl Room<'_> {
    pub(super) fn put(self, query: Query) {
        match self {
            Room::Task(permit) => permit.send(query),
            Room::Tls(tls) => tls.put(&query.octets),
        }
    }
}

/// Notes the session for the end of [`Together`]; false where this thread does not send together.
fn is_noted(tls: &Arc<TlsSession>) -> bool {
    UNSENT.with_borrow_mut(|unsent| {
        let Some(unsent) = unsent else { return false };
        if !unsent.iter().any(|other| Arc::ptr_eq(other, tls)) {
            unsent.push(Arc::clone(tls));
        }
        true
    })
}

/// Until this is dropped, queries that this thread begins wait for each other: those on one connection take one record of TLS
/// and one system call. What begins them must not wait, and must begin a bounded number of them, such as those of one batch.
#[derive(Debug)]
pub(crate) struct Together(());

impl Together {
    pub(crate) fn begin() -> Together {
        UNSENT.set(Some(Vec::new()));
        Together(())
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        for tls in UNSENT.take().into_iter().flatten() {
            tls.send();
        }
    }
}
