//! How many descriptors the process may hold: TCP wants thousands, and the usual soft limit of 1,024 is only
//! there for programs that call `select`.

use std::io;

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
}
