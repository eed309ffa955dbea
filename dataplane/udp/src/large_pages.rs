//! Large pages are for 2 MiB. The C library asks for those of the node, of any size: with pages of 64 KiB, as some kernels
//! for arm64 have, one has 512 MiB, and the first octet in it would take all of them from the limit of the pod.

use std::{fs, io};

/// Where Linux says how many octets a large page has.
const SIZE: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
/// Larger ones are not wanted.
const MAX_OCTETS: u64 = 2 << 20;

/// If the large pages of this machine have more than 2 MiB, the memory of this process has none from here on, also where it
/// asked for them. Returns their octets then. The C library begins with small ones, so before there are threads and records
/// none is in use.
///
/// # Errors
/// What the system says: a filter of system calls may refuse this. Nothing has changed then.
pub fn refuse_too_large_pages() -> io::Result<Option<u64>> {
    let Some(octets) = too_large(fs::read_to_string(SIZE).ok().as_deref()) else { return Ok(None) };
    refuse_large_pages()?;
    Ok(Some(octets))
}

/// The size in this file, if it is too large. A machine without the file has no large pages to give.
fn too_large(file: Option<&str>) -> Option<u64> {
    file?.trim().parse().ok().filter(|octets| *octets > MAX_OCTETS)
}

fn refuse_large_pages() -> io::Result<()> {
    const NONE: libc::c_ulong = 0;
    let is_refused: libc::c_ulong = 1;
    // SAFETY: the call takes numbers only. It has no effect on what memory holds.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, is_refused, NONE, NONE, NONE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of this process, as Linux says since 5.0.
    fn may_have_them() -> bool {
        let status = fs::read_to_string("/proc/self/status").expect("Linux");
        let field = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
        field.expect("the field").trim() == "1"
    }

    #[test]
    fn large_pages_of_more_than_2_mib_are_too_large() {
        for (file, expected) in [
            (Some("2097152\n"), None),
            (Some("1048576\n"), None),
            (Some("33554432\n"), Some(32 << 20)),
            (Some("536870912\n"), Some(512 << 20)),
            (Some("\n"), None),
            (None, None),
        ] {
            assert_eq!(too_large(file), expected, "{file:?}");
        }
    }

    #[test]
    fn a_process_that_refuses_large_pages_has_none() {
        refuse_large_pages().expect("any process may");
        assert!(!may_have_them());
    }
}
