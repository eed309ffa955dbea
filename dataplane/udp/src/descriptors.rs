//! How many descriptors the process may hold: TCP wants thousands, and the usual soft limit of 1,024 is only
//! there for programs that call `select`. Their table gets its room before there are threads.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Descriptors that the table of the process has room for from the start: 128 KiB of the kernel.
const ROOM: u64 = 16_384;
/// Where the system says no limit: the usual soft limit. Nearly no process has fewer.
const ASSUMED: u64 = 1_024;

/// Raises the soft limit on open descriptors to the hard limit and returns it.
///
/// # Errors
/// When the system refuses; the limit is then unchanged.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = read()?;
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

/// The same; where the limit cannot be raised, the soft limit as it is. A filter of system calls may refuse to read it too.
pub fn most_descriptors() -> u64 {
    let unraised = || {
        #[allow(clippy::useless_conversion, reason = "rlim_t is u64 on this system only")]
        let read = read().map(|limit| limit.rlim_cur.into());
        read.ok().or_else(|| soft_limit(&fs::read_to_string("/proc/self/limits").ok()?))
    };
    raise_descriptor_limit().ok().or_else(unraised).unwrap_or(ASSUMED)
}

/// The soft limit in the text of `/proc/self/limits`.
fn soft_limit(limits: &str) -> Option<u64> {
    let row = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    row.split_whitespace().next()?.parse().ok()
}

fn read() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the whole call, which only writes it.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
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
    fn the_soft_limit_is_read_where_a_system_call_may_not() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax processes  7  8  processes\nMax open files  256  4096  files\n";
        assert_eq!(soft_limit(text), Some(256));
        assert_eq!(soft_limit("Max open files  unlimited  unlimited  files"), None);
        assert_eq!(soft_limit(""), None);
        let own = fs::read_to_string("/proc/self/limits").expect("Linux");
        raise_descriptor_limit().expect("raise");
        assert!(soft_limit(&own).is_some_and(|soft| soft <= most_descriptors()), "{own}");
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
