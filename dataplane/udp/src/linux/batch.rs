//! One worker's buffers: 32 datagrams and their replies, allocated once and handed to the kernel by address.

use std::alloc::{self, Layout};
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::NonNull;
use std::slice;
use std::time::{Duration, SystemTime};

use super::address::Name;
use super::control::Control;
use super::room::Room;
use super::stamps::{self, Stamps};
use crate::{DATAGRAM_OCTETS, Datagram, Local, Sent};

/// Datagrams per system call: past it the gain is below the noise, and the delay of the first grows.
const SLOTS: usize = 32;

/// Replies begin at a multiple of this: a cache line.
const LINE: usize = 64;

/// A reply of any size takes this much room at most.
const _: () = assert!(DATAGRAM_OCTETS.is_multiple_of(LINE));

/// Received datagrams and the replies to them.
pub struct Batch {
    /// Allocated by `new`, never moved and only reached through this pointer: the headers inside hold addresses
    /// of their neighbours.
    storage: NonNull<Storage>,
    /// How many slots hold a datagram.
    received: usize,
    /// The first of them that is not answered yet.
    next: usize,
    /// How many replies wait for `send`.
    replies: usize,
    /// Where the next reply begins in the output: replies lie one behind the other. With each at the start of a page of its
    /// own, where all use the same set of the processor's first cache, a query took 7 ns more (0.5 %, with the kernel's part).
    written: usize,
    /// Slots from here on have their headers as `new` and `reset` leave them.
    used: usize,
    /// Room for ancillary data that each received header offers: none where nothing is asked for.
    control_octets: usize,
    /// Unix time of the last `recv`.
    now: Duration,
    /// Whether the socket's datagrams carry the address they were sent to.
    wildcard: bool,
    /// What to say where they do not.
    local: Local,
    /// How long the newest datagram waited, where only that is known.
    waited: Duration,
}

/// The octets of received datagrams, which stay as they are while they are borrowed.
#[derive(Clone, Debug)]
pub struct Received<'b> {
    storage: NonNull<Storage>,
    slots: Range<usize>,
    borrowed: PhantomData<&'b [u8]>,
}

impl<'b> Iterator for Received<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        let slot = self.slots.next().filter(|slot| *slot < SLOTS)?;
        let storage = self.storage.as_ptr();
        // SAFETY: the slot exists. Its header and input are only written by `recv`, which needs the batch that is borrowed
        // for 'b; replies are written elsewhere.
        let (length, input) = unsafe {
            ((&raw const (*storage).incoming[slot].msg_len).read(), &(*storage).input[slot])
        };
        Some(&input[..(length as usize).min(DATAGRAM_OCTETS)])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.slots.size_hint()
    }
}

impl ExactSizeIterator for Received<'_> {}

/// All of it is plain integers, pointers and octets, for which zero is valid.
#[repr(C)]
struct Storage {
    incoming: [libc::mmsghdr; SLOTS],
    outgoing: [libc::mmsghdr; SLOTS],
    in_parts: [libc::iovec; SLOTS],
    out_parts: [libc::iovec; SLOTS],
    names: [Name; SLOTS],
    in_controls: [Control; SLOTS],
    out_controls: [Control; SLOTS],
    input: [[u8; DATAGRAM_OCTETS]; SLOTS],
    output: [u8; SLOTS * DATAGRAM_OCTETS],
}

// SAFETY: a Batch owns its storage alone, the pointers inside it lead nowhere else, and no thread's state is in it.
unsafe impl Send for Batch {}

impl Batch {
    /// Allocates the buffers, a quarter of a mebibyte of which the system only backs what is used.
    pub fn new() -> Self {
        let layout = Layout::new::<Storage>();
        // SAFETY: the layout is not of size 0; zeroed memory is a valid Storage (see there).
        let storage = unsafe { alloc::alloc_zeroed(layout) }.cast::<Storage>();
        let Some(storage) = NonNull::new(storage) else { alloc::handle_alloc_error(layout) };
        for slot in 0..SLOTS {
            connect(storage, slot);
        }
        Self {
            storage,
            received: 0,
            next: 0,
            replies: 0,
            written: 0,
            used: 0,
            control_octets: Control::OCTETS,
            now: Duration::ZERO,
            wildcard: true,
            local: Local::from(std::net::IpAddr::from([0, 0, 0, 0])),
            waited: Duration::ZERO,
        }
    }

    /// Unix time when the batch was received.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The octets of the datagrams that are not answered yet, in their order.
    pub fn received(&self) -> Received<'_> {
        let slots = self.next..self.received;
        Received { storage: self.storage, slots, borrowed: PhantomData }
    }

    /// Shows each datagram to `answer` with a buffer of [`DATAGRAM_OCTETS`] for the reply; it returns the octets
    /// it wrote, 0 for no reply. If `answer` panics, the next call shows those behind that datagram.
    pub fn answer(&mut self, mut answer: impl FnMut(Datagram<'_>, &mut [u8]) -> usize) {
        self.answer_ahead(|_| (), |(), datagram, output| answer(datagram, output));
    }

    /// The same, with what `ahead` makes of all datagrams first. Their octets stay in place until all are answered.
    pub fn answer_ahead<'b, A>(
        &'b mut self,
        ahead: impl FnOnce(Received<'b>) -> A,
        mut answer: impl FnMut(&A, Datagram<'b>, &mut [u8]) -> usize,
    ) {
        let slots = self.next..self.received;
        let ahead = ahead(Received { storage: self.storage, slots, borrowed: PhantomData });
        while self.next < self.received {
            let slot = self.next;
            // Taken before it is shown, so that no datagram is answered twice.
            self.next += 1;
            // SAFETY: this batch is borrowed mutably for 'b, so no `recv` writes what was received.
            let Some((datagram, output)) = (unsafe { self.slot(slot) }) else {
                continue;
            };
            let from = datagram.local;
            let octets = answer(&ahead, datagram, output).min(DATAGRAM_OCTETS);
            if octets > 0 {
                self.queue(slot, octets, from);
            }
        }
    }

    /// The datagram of a slot and the buffer of its reply; nothing when the kernel gave no sender.
    ///
    /// # Safety
    /// Nothing is received into this batch during 'b.
    unsafe fn slot<'b>(&mut self, slot: usize) -> Option<(Datagram<'b>, &mut [u8])> {
        assert!(slot < SLOTS && self.written <= slot * DATAGRAM_OCTETS);
        let storage = self.storage.as_ptr();
        // SAFETY: the slot exists. Header, name and control are read while no other code writes them (`&mut self`), and the
        // input is only written by `recv`, which is not called during 'b. The reply's room is within `output`, because each
        // slot before this one took DATAGRAM_OCTETS of it at most (assertion); it lies behind all replies that are queued,
        // and is borrowed from `self`.
        let (header, name, control, input, output) = unsafe {
            let output = (&raw mut (*storage).output).cast::<u8>().add(self.written);
            (
                &(*storage).incoming[slot],
                &(*storage).names[slot],
                &(*storage).in_controls[slot],
                &(*storage).input[slot],
                slice::from_raw_parts_mut(output, DATAGRAM_OCTETS),
            )
        };
        let peer = name.get(header.msg_hdr.msg_namelen)?;
        let (mut local, mut waited) = (self.local, self.waited);
        // On one address and under load there is none.
        if header.msg_hdr.msg_controllen > 0 {
            let about = control.get(header.msg_hdr.msg_controllen as _);
            local = about.local.unwrap_or(local);
            waited = about.at.map_or(waited, |at| self.now.saturating_sub(at));
        }
        let length = (header.msg_len as usize).min(DATAGRAM_OCTETS);
        let datagram = Datagram { bytes: &input[..length], peer, local, waited };
        Some((datagram, output))
    }

    pub(super) fn recv(
        &mut self,
        descriptor: RawFd,
        local: SocketAddr,
        stamps: &Stamps,
        flags: libc::c_int,
    ) -> io::Result<usize> {
        let (are_with_each, is_wildcard) = (stamps.are_with_each(), local.ip().is_unspecified());
        let control_octets = if are_with_each || is_wildcard { Control::OCTETS } else { 0 };
        // All of them when that changes.
        let used = if control_octets == self.control_octets { self.used } else { SLOTS };
        self.control_octets = control_octets;
        for slot in 0..used {
            self.reset(slot);
        }
        (self.received, self.next, self.replies, self.written, self.used) = (0, 0, 0, 0, 0);
        (self.wildcard, self.local, self.waited) =
            (is_wildcard, Local::from(local.ip()), Duration::ZERO);
        // SAFETY: `incoming` holds SLOTS headers whose pointers and lengths are those of this storage's names,
        // parts, controls and input buffers (`connect`, `reset`); none of them is borrowed now.
        let count = unsafe {
            libc::recvmmsg(
                descriptor,
                (&raw mut (*self.storage.as_ptr()).incoming).cast(),
                SLOTS as libc::c_uint,
                (libc::MSG_WAITFORONE | flags) as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            self.used = SLOTS;
            let nothing = none_or_error(io::Error::last_os_error());
            stamps.note(descriptor, false, Duration::ZERO);
            return nothing;
        };
        self.now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.used = count;
        if count == 1 && self.is_wake() {
            return Ok(0);
        }
        self.received = count;
        let newest = self.newest(descriptor, count, are_with_each);
        if !are_with_each {
            self.waited = newest;
        }
        stamps.note(descriptor, count == SLOTS, newest);
        Ok(count)
    }

    /// How long the newest datagram of this batch waited; 0 where that matters to no one or is not known.
    fn newest(&self, descriptor: RawFd, count: usize, are_with_each: bool) -> Duration {
        let at = if !are_with_each {
            stamps::newest(descriptor).ok()
        } else if count == SLOTS {
            // SAFETY: the slot exists, and nothing of the storage is borrowed mutably: `recv` has it all.
            let (control, header) = unsafe {
                let storage = self.storage.as_ptr();
                (&(*storage).in_controls[SLOTS - 1], &(*storage).incoming[SLOTS - 1])
            };
            control.get(header.msg_hdr.msg_controllen as _).at
        } else {
            None
        };
        at.map_or(Duration::ZERO, |at| self.now.saturating_sub(at))
    }

    /// What `shutdown` leaves a reader with: as if an empty datagram without a sender had come.
    fn is_wake(&self) -> bool {
        // SAFETY: slot 0 exists, and nothing of the storage is borrowed mutably: `recv` has it all.
        let first = unsafe { (&raw const (*self.storage.as_ptr()).incoming[0]).read() };
        first.msg_hdr.msg_namelen == 0
    }

    pub(super) fn send(&mut self, socket: &impl AsFd, room: &Room) -> Sent {
        let (count, descriptor) = (std::mem::take(&mut self.replies), socket.as_fd().as_raw_fd());
        let mut result = Sent::default();
        if count == 0 {
            return result;
        }
        let mut crowd = room.look(socket, count, self.written);
        let mut lets = |reply| match &mut crowd {
            None => true,
            Some(crowd) => self.peer_of(reply).is_none_or(|peer| crowd.lets(peer)),
        };
        let (mut next, mut end) = (0, 0);
        while next < count {
            if next == end {
                // Up to the next reply that is withheld.
                end += (next..count).take_while(|reply| lets(*reply)).count();
                if next == end {
                    result.withheld += 1;
                    (next, end) = (next + 1, end + 1);
                    continue;
                }
            }
            // SAFETY: `end` is at most `count`, and `queue` wrote that many headers, whose pointers and
            // lengths are those of this storage; none of it is borrowed now, and sendmmsg only writes msg_len.
            let taken = unsafe {
                libc::sendmmsg(
                    descriptor,
                    (&raw mut (*self.storage.as_ptr()).outgoing[next]).cast(),
                    (end - next) as libc::c_uint,
                    (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
                )
            };
            match usize::try_from(taken) {
                Ok(taken) if taken > 0 => {
                    result.sent += taken;
                    next += taken;
                }
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                // The error is that of the first: give it up and continue with the others.
                _ => {
                    result.failed += 1;
                    next += 1;
                }
            }
        }
        result
    }

    /// Who gets this reply, of those that wait for `send`.
    fn peer_of(&self, reply: usize) -> Option<SocketAddr> {
        assert!(reply < SLOTS);
        let storage = self.storage.as_ptr();
        // SAFETY: the slot exists, and nothing of the storage is borrowed mutably (`&self`). Zeroed or written by `queue`, the
        // header points nowhere or to a name of this storage.
        let (name, octets) = unsafe {
            let header = &(*storage).outgoing[reply].msg_hdr;
            (header.msg_name.cast::<Name>().as_ref()?, header.msg_namelen)
        };
        name.get(octets)
    }

    /// Writes the header of the reply to a slot's datagram, behind those already written.
    fn queue(&mut self, slot: usize, octets: usize, from: Local) {
        assert!(slot < SLOTS && self.replies <= slot && octets <= DATAGRAM_OCTETS);
        assert!(self.written <= slot * DATAGRAM_OCTETS);
        let storage = self.storage.as_ptr();
        // SAFETY: both indices are below SLOTS and the reply ends within `output` (assertions), nothing of the storage is
        // borrowed (`&mut self`), and all pointers written are to this storage, with the lengths of their fields.
        unsafe {
            let header = &raw mut (*storage).outgoing[self.replies].msg_hdr;
            let part = &raw mut (*storage).out_parts[self.replies];
            (*part).iov_base = (&raw mut (*storage).output).cast::<u8>().add(self.written).cast();
            (*part).iov_len = octets;
            (*header).msg_name = (&raw mut (*storage).names[slot]).cast();
            (*header).msg_namelen =
                (&raw const (*storage).incoming[slot].msg_hdr.msg_namelen).read();
            (*header).msg_iov = part;
            (*header).msg_iovlen = 1;
            if self.wildcard {
                let control = &raw mut (*storage).out_controls[slot];
                (*header).msg_controllen = (*control).set_source(from) as _;
                (*header).msg_control = control.cast();
            } else {
                (*header).msg_controllen = 0;
                (*header).msg_control = std::ptr::null_mut();
            }
        }
        self.replies += 1;
        self.written += octets.next_multiple_of(LINE);
    }

    /// As if the datagram behind this reply had been sent to another address.
    #[cfg(test)]
    pub(super) fn pretend_asked_at(&mut self, reply: usize, local: Local) {
        assert!(reply < self.replies);
        // SAFETY: the reply exists, so its slot does, and its header points to its control, which is ours.
        unsafe {
            let control = &raw mut (*self.storage.as_ptr()).out_controls[reply];
            (*control).set_source(local);
        }
    }

    /// Gives a received header its full lengths back.
    fn reset(&mut self, slot: usize) {
        // SAFETY: slots below `used` exist, and nothing of the storage is borrowed: `&mut self`.
        unsafe {
            let header = &raw mut (*self.storage.as_ptr()).incoming[slot].msg_hdr;
            (*header).msg_namelen = Name::OCTETS;
            (*header).msg_controllen = self.control_octets as _;
            (*header).msg_flags = 0;
        }
    }
}

/// Points a slot's receiving header to its name, buffer and control.
fn connect(storage: NonNull<Storage>, slot: usize) {
    let storage = storage.as_ptr();
    // SAFETY: called by `new` alone, for each slot of a storage that is not shared yet.
    unsafe {
        let part = &raw mut (*storage).in_parts[slot];
        (*part).iov_base = (&raw mut (*storage).input[slot]).cast();
        (*part).iov_len = DATAGRAM_OCTETS;
        let header = &raw mut (*storage).incoming[slot].msg_hdr;
        (*header).msg_name = (&raw mut (*storage).names[slot]).cast();
        (*header).msg_namelen = Name::OCTETS;
        (*header).msg_iov = part;
        (*header).msg_iovlen = 1;
        (*header).msg_control = (&raw mut (*storage).in_controls[slot]).cast();
        (*header).msg_controllen = Control::OCTETS as _;
    }
}

/// Nothing to receive is no error, for any reason.
fn none_or_error(error: io::Error) -> io::Result<usize> {
    match error.kind() {
        io::ErrorKind::WouldBlock
        | io::ErrorKind::TimedOut
        | io::ErrorKind::Interrupted
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => Ok(0),
        _ => Err(error),
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, and freed only here. Nothing inside needs dropping.
        unsafe { alloc::dealloc(self.storage.as_ptr().cast(), Layout::new::<Storage>()) };
    }
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("received", &self.received).finish_non_exhaustive()
    }
}
