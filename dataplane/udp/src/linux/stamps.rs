//! When datagrams reached the kernel, at a price that depends on the load.
//!
//! The kernel notes the time of every datagram of the socket, which costs some 3 ns. To hand each of them over costs 49 ns,
//! which is nothing while a thread sleeps between batches, and a ninth of what we add to an echo when batches are full. So
//! after [`FULL_BATCHES`] of these in a row only the newest datagram of a batch is asked for, once for all.

use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{enable, set};

/// Full batches in a row after which datagrams no longer carry their time. Few, because the gain begins with them; more than
/// one, because each change is a system call.
const FULL_BATCHES: u32 = 8;

/// A queue in which the newest datagram of a batch waited for this long is read with the time of each: a quarter of what
/// WR46 allows, so that the limit itself is never judged by a neighbour in a queue that grows steadily.
const LONG: Duration = Duration::from_secs(1);

/// The time of the last datagram that was received (linux/sockios.h, `SIOCGSTAMPNS_OLD`), which the crate `libc` lacks. Its
/// `timespec` is that of systems with 64 bits.
const SIOCGSTAMPNS: u32 = 0x8907;

/// Which datagrams of a socket come with their time. Only the thread that receives writes it.
#[derive(Debug)]
pub(super) struct Stamps {
    /// Full batches in a row, up to [`FULL_BATCHES`].
    full: AtomicU32,
    /// Whether the time of the newest datagram can be asked for.
    has_newest: bool,
}

impl Stamps {
    /// Asks for the time of each datagram. Where the system knows none, every datagram counts as fresh: worse, but no reason
    /// not to serve.
    pub(super) fn begin(descriptor: RawFd) -> Stamps {
        let is_on = enable(descriptor, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS).is_ok();
        Stamps { full: AtomicU32::new(0), has_newest: is_on && has_newest(descriptor) }
    }

    /// Whether the next batch brings the time of each datagram.
    pub(super) fn are_with_each(&self) -> bool {
        !self.has_newest || self.full.load(Ordering::Relaxed) < FULL_BATCHES
    }

    /// Notes a batch, and prepares the socket for the next one. `waited` is the time of its newest datagram in the queue.
    pub(super) fn note(&self, descriptor: RawFd, is_full: bool, waited: Duration) {
        let (full, before) = (self.full.load(Ordering::Relaxed), self.are_with_each());
        self.full.store(next(full, is_full, waited), Ordering::Relaxed);
        let now = self.are_with_each();
        if before != now {
            // The kernel continues to note times when it does not hand them over. It refuses neither, once it took the first.
            let _ = set(descriptor, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, now.into());
        }
    }
}

/// How many full batches there were in a row, with this one.
fn next(full: u32, is_full: bool, waited: Duration) -> u32 {
    if is_full && waited < LONG { (full + 1).min(FULL_BATCHES) } else { 0 }
}

/// Whether [`newest`] works. A sandbox may refuse the call; before the first datagram the kernel says that there is none.
fn has_newest(descriptor: RawFd) -> bool {
    match newest(descriptor) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() == Some(libc::ENOENT),
    }
}

/// When the last datagram that was received had reached the kernel, since the Unix epoch.
#[cfg(target_pointer_width = "64")]
pub(super) fn newest(descriptor: RawFd) -> io::Result<Duration> {
    // SAFETY: timespec is plain integers, for which zero is valid.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to `time`, which outlives the call; the kernel writes one timespec there.
    let status = unsafe { libc::ioctl(descriptor, SIOCGSTAMPNS as _, &raw mut time) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    unix_time(time).ok_or_else(|| io::Error::other("a time before 1970"))
}

/// The call has another layout there.
#[cfg(not(target_pointer_width = "64"))]
pub(super) fn newest(_: RawFd) -> io::Result<Duration> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The time since the Unix epoch; none before it.
pub(super) fn unix_time(time: libc::timespec) -> Option<Duration> {
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
    Some(Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Full batches in a row after these batches: `f` full, `s` one that is not, `o` full and old.
    fn after(batches: &str) -> u32 {
        batches.chars().fold(0, |full, batch| match batch {
            'f' => next(full, true, Duration::from_millis(3)),
            'o' => next(full, true, LONG),
            _ => next(full, false, Duration::ZERO),
        })
    }

    #[test]
    fn only_full_batches_in_a_row_that_are_not_old_end_the_times_of_each() {
        assert!(after("fffffff") < FULL_BATCHES);
        assert_eq!(after("ffffffff"), FULL_BATCHES);
        assert_eq!(after("fffffffffffff"), FULL_BATCHES);
        assert_eq!(after("ffffffffs"), 0);
        assert_eq!(after("ffffffffo"), 0, "a queue that is old is read with the time of each");
        assert_eq!(after("ffffffsffff"), 4);
    }
}
