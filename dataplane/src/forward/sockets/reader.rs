//! A thread that answers clients reads the sockets that it opened towards upstreams too. So what wakes it for one finds what
//! came for the other, and no other thread is woken for a reply.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use dataplane_udp::{Poller, Ready};

use super::MAX_DATAGRAM;
use super::port::Port;
use crate::forward::now;

/// The number of the next thread that reads.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The key of the socket on which clients ask.
const CLIENTS: u64 = u64::MAX;
/// Datagrams that are read between two looks for queries of clients, besides the first of each socket: as many queries as
/// a thread sends meanwhile.
const MAX_MORE: usize = 4;
/// Turns for clients alone after which their socket leaves the set. Misses that come one after the other, each with a socket of
/// its own, would else cost two system calls more each.
const MOST_ALONE: u32 = 64;
/// Time between two looks at sockets on which no reply is awaited, while clients ask. What comes there, such as a second reply,
/// must not fill their buffers.
const LOOK_FOR_OTHERS: Duration = Duration::from_millis(100);
/// Longest wait where the system cannot wait for the socket of clients too (no memory): it is looked at this often.
const LOOK_FOR_CLIENTS: Duration = Duration::from_millis(10);

thread_local! {
    static OWN: RefCell<Option<Arc<Reader>>> = const { RefCell::new(None) };
}

/// The sockets of one thread.
#[derive(Debug)]
pub(crate) struct Reader {
    /// No other thread has it, not even one that began when this one had ended.
    number: u64,
    poller: Poller,
    ports: Mutex<HashMap<u64, Arc<Port>>>,
    next: AtomicU64,
    /// Held once more for each reply that is awaited on these ports. Only this thread sends queries from them, so where none is
    /// awaited, none will be before it sends the next one.
    awaited: Arc<()>,
}

/// What a thread holds while it reads.
#[derive(Debug)]
pub(crate) struct Reading {
    reader: Arc<Reader>,
    ready: Ready,
    buffer: Box<[u8; MAX_DATAGRAM]>,
    /// The socket of clients is among those that are waited for.
    with_clients: bool,
    /// Turns in which clients were waited for alone.
    alone: u32,
    /// When the sockets were looked at.
    looked: Instant,
    /// Something came for one of them.
    found: bool,
    /// How often that socket came into the set or left it.
    #[cfg(test)]
    pub(crate) changes: usize,
    /// How often something came or a time was over.
    #[cfg(test)]
    pub(crate) waits: usize,
}

impl Reader {
    /// Of the calling thread; none where the thread reads no such sockets, or the system cannot wait for many.
    pub(super) fn of_thread() -> Option<Arc<Reader>> {
        OWN.with_borrow(Option::clone)
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn awaited(&self) -> Weak<()> {
        Arc::downgrade(&self.awaited)
    }

    fn ports(&self) -> MutexGuard<'_, HashMap<u64, Arc<Port>>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key that no socket had.
    pub(super) fn key(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Reads this port from now on.
    pub(super) fn add(&self, key: u64, port: &Arc<Port>) -> io::Result<()> {
        self.ports().insert(key, Arc::clone(port));
        let added = self.poller.add(port.socket(), key);
        added.inspect_err(|_| drop(self.ports().remove(&key)))
    }

    /// Reads it no more. A port that one query had for itself is closed at once by who else holds it, which takes it out of the set:
    /// a system call less. Any other may be held by queries that wait, and what still comes for it must not wake the thread.
    pub(super) fn forget(&self, key: u64, is_own: bool) {
        let port = self.ports().remove(&key);
        if let Some(port) = port.filter(|_| !is_own) {
            self.poller.remove(port.socket());
        }
    }
}

impl Reading {
    /// The sockets that this thread opens from now on, which must then [read](Reading::read) them. None where the system
    /// cannot wait for many: tasks of the runtime read them then.
    pub(crate) fn begin() -> Option<Reading> {
        let poller = Poller::new().ok()?;
        let (number, next) = (NEXT.fetch_add(1, Ordering::Relaxed), AtomicU64::new(0));
        let reader = Arc::new(Reader {
            number,
            poller,
            ports: Mutex::default(),
            next,
            awaited: Arc::default(),
        });
        OWN.set(Some(Arc::clone(&reader)));
        let buffer = Box::new([0; MAX_DATAGRAM]);
        Some(Reading {
            reader,
            ready: Ready::new(),
            buffer,
            with_clients: false,
            alone: 0,
            looked: now(),
            found: false,
            #[cfg(test)]
            changes: 0,
            #[cfg(test)]
            waits: 0,
        })
    }

    /// Whether there is a socket to read.
    pub(crate) fn has_ports(&self) -> bool {
        !self.reader.ports().is_empty()
    }

    /// Whether clients are waited for alone, with one system call less: no reply is awaited, and the sockets on which some may
    /// still come were looked at a moment ago.
    pub(crate) fn is_alone(&self) -> bool {
        let is_awaited = Arc::strong_count(&self.reader.awaited) > 1;
        let is_seen = || !self.found && now() < self.looked + LOOK_FOR_OTHERS;
        !is_awaited && (!self.has_ports() || is_seen())
    }

    #[cfg(test)]
    pub(crate) fn ports(&self) -> usize {
        self.reader.ports().len()
    }

    /// Waits until something came for the clients' socket or for one of these, at most for this time; whether it may have
    /// come for the clients'. Where more sockets have something than one wait shows, that of clients may be among the
    /// others: queries of clients do not wait for replies of upstreams (FW53).
    pub(crate) fn wait(&mut self, clients: &impl AsFd, time: Duration) -> io::Result<bool> {
        self.alone = 0;
        if !self.with_clients {
            self.with_clients = self.reader.poller.add(clients, CLIENTS).is_ok();
            #[cfg(test)]
            {
                self.changes += 1;
            }
        }
        let time = if self.with_clients { time } else { time.min(LOOK_FOR_CLIENTS) };
        self.reader.poller.wait(&mut self.ready, time)?;
        self.found = self.ready.keys().any(|key| key != CLIENTS);
        if !self.found {
            self.looked = now();
        }
        #[cfg(test)]
        {
            self.waits += 1;
        }
        let has_clients = self.ready.keys().any(|key| key == CLIENTS);
        Ok(has_clients || self.ready.is_full() || !self.with_clients)
    }

    /// The thread waited for clients only; `is_quiet` if none asked meanwhile.
    pub(crate) fn was_alone(&mut self, clients: &impl AsFd, is_quiet: bool) {
        self.alone = self.alone.saturating_add(1);
        if is_quiet || self.alone >= MOST_ALONE {
            self.leave(clients);
        }
    }

    /// The thread waits for clients only from now on.
    pub(crate) fn leave(&mut self, clients: &impl AsFd) {
        if std::mem::take(&mut self.with_clients) {
            self.reader.poller.remove(clients);
            #[cfg(test)]
            {
                self.changes += 1;
            }
        }
    }

    /// Reads one datagram from each socket that has one, and some more from those on which further queries wait. What is
    /// left is found by the next wait. Returns whether there may be some.
    pub(crate) fn read(&mut self) -> bool {
        let mut more = MAX_MORE;
        for key in self.ready.keys().filter(|key| *key != CLIENTS) {
            let port = self.reader.ports().get(&key).cloned();
            let Some(port) = port else { continue };
            while port.read_now(&mut self.buffer[..]) && more > 0 {
                more -= 1;
            }
        }
        let is_behind = more == 0 || self.ready.is_full();
        // A turn without a wait must not take these for new ones.
        self.ready.clear();
        is_behind
    }

    /// Reads until no socket is left: for a thread that answers no clients any more.
    pub(crate) fn finish(mut self, look: Duration) {
        while self.has_ports() {
            if self.reader.poller.wait(&mut self.ready, look).is_err() {
                return;
            }
            self.read();
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let is_this = |own: &Arc<Reader>| Arc::ptr_eq(own, &self.reader);
        OWN.with_borrow_mut(|own| drop(own.take_if(|own| is_this(own))));
    }
}
