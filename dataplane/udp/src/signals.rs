//! The signals that ask a process to end, before it can catch them. As the first process of a container it would otherwise
//! lose one: the kernel drops what such a process does not catch.

use std::mem::MaybeUninit;
use std::{io, ptr};

/// SIGTERM and SIGINT wait from here on, in this thread and in those that it starts.
///
/// # Errors
/// When the system refuses; they do not wait then.
pub fn hold_back_ends() -> io::Result<()> {
    change(libc::SIG_BLOCK)
}

/// This thread, and those that it starts from here on, take them again; those that waited come at once.
///
/// # Errors
/// When the system refuses; nothing has changed then.
pub fn let_ends_come() -> io::Result<()> {
    change(libc::SIG_UNBLOCK)
}

fn change(how: libc::c_int) -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` has room for a set. The first call makes it one, which the others change and read; the old one is not asked
    // for. Both signals exist, so the first three calls do not fail.
    let error = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::pthread_sigmask(how, set.as_ptr(), ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: u64 = 1 << (libc::SIGTERM - 1) | 1 << (libc::SIGINT - 1);

    /// Of these signals, those that the calling thread holds back.
    fn held_back() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux");
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        u64::from_str_radix(blocked.expect("the field").trim(), 16).expect("a number") & BOTH
    }

    #[test]
    fn a_thread_and_those_that_it_starts_hold_signals_back_until_they_may_come() {
        let here = std::thread::spawn(|| {
            hold_back_ends().expect("any thread may");
            let child = std::thread::spawn(held_back).join().expect("it ends");
            let before = [held_back(), child];
            let_ends_come().expect("any thread may");
            (before, held_back())
        });
        assert_eq!(here.join().expect("it ends"), ([BOTH; 2], 0));
    }
}
