//! How many descriptors the process may hold: TCP wants thousands, and the usual soft limit of 1,024 is only
//! there for programs that call `select`. Their table gets its room before there are threads.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Descriptors that the table of the process has room for from the start: 128 KiB of the kernel.
const ROOM: u64 = 16_384;

/// Raises the soft limit on open descriptors to the hard limit and returns it.
///
/// # Errors
/// When the system refuses; the limit is then unchanged.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the whole call, which only writes it.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is a valid rlimit for the whole call, which only reads it.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    #[allow(clippy::useless_conversion, reason = "rlim_t is u64 on this system only")]
    Ok(limit.rlim_cur.into())
}

/// The same; where the system does not say, no smaller limit is known.
pub fn most_descriptors() -> u64 {
    raise_descriptor_limit().unwrap_or(u64::MAX)
}

/// Makes room for [`ROOM`] descriptors, or as many as the limit allows, and returns how many. The kernel doubles the table
/// of a process when it is full. In a process with threads, the thread that needs the descriptor waits for that until no
/// processor reads the old table: some 20 ms. So this must be called before the first thread starts.
///
/// # Errors
/// When the system refuses; the table then grows when it is full.
pub fn make_room_for_descriptors() -> io::Result<u64> {
    let most = raise_descriptor_limit()?.min(ROOM);
    let last = libc::c_int::try_from(most).map_err(io::Error::other)? - 1;
    // The standard library opens the first three descriptors where the process was started without them.
    let any = io::stderr().as_raw_fd();
    // SAFETY: the call takes numbers only, and changes no other descriptor.
    let copy = unsafe { libc::fcntl(any, libc::F_DUPFD_CLOEXEC, last) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else knows it. It is closed at once: the table keeps its size.
    drop(unsafe { OwnedFd::from_raw_fd(copy) });
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_once_and_stays() {
        let first = raise_descriptor_limit().expect("raise");
        let again = raise_descriptor_limit().expect("raise again");
        assert!(first > 0, "a process has descriptors");
        assert_eq!(first, again, "already at the hard limit");
    }

    #[test]
    fn the_table_has_room_for_what_is_said() {
        let room = make_room_for_descriptors().expect("room");
        assert_eq!(room, raise_descriptor_limit().expect("a limit").min(ROOM));
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).expect("a size");
        assert!(size.trim().parse::<u64>().expect("a number") >= room, "{size}");
    }
}
