//! How long the turns of a thread on its processor are. A thread that wakes up begins at once where its turns are shorter than
//! those of the thread that runs (Linux 6.12 and later); otherwise it waits until that one has had its turn, which ends with a
//! tick of the clock: up to 4 ms. A thread with shorter turns gets no more time in all; one of lower priority gets less where
//! others wait for the processor, and they wait less for it.

use std::io;
use std::time::Duration;

/// `struct sched_attr` of sched_setattr(2), as Linux 3.14 has it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const SIZE: u32 = size_of::<Attributes>() as u32;

/// Asks for turns of this length for the calling thread; the system takes 0.1 ms to 100 ms.
/// Kernels that know no such wish, and threads that have real-time turns, stay as they are.
///
/// # Errors
/// What the system says: a filter of system calls may refuse this. Nothing has changed then.
pub fn ask_for_turns(length: Duration) -> io::Result<()> {
    change(|own| own.runtime_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
}

/// Gives the calling thread this nice value (sched(7)), if it has a smaller one, and turns of the usual length. With 5 it gets a
/// quarter of a processor for which one thread of the usual value waits, with 10 a tenth, and all of it while none does. In a
/// control group of their own, such as that of a container, threads compete only with each other. Threads that have real-time turns stay as they are.
///
/// # Errors
/// What the system says: a filter of system calls may refuse this. Nothing has changed then.
pub fn give_way(nice: i32) -> io::Result<()> {
    change(|own| {
        own.nice = own.nice.max(nice);
        // It may have those of the thread that started it.
        own.runtime_ns = 0;
    })
}

/// Changes attributes of the calling thread, unless it has real-time turns.
fn change(to: impl FnOnce(&mut Attributes)) -> io::Result<()> {
    let mut own = attributes()?;
    if own.policy == libc::SCHED_OTHER as u32 {
        to(&mut own);
        // SAFETY: the pointer is to attributes of the size that they name, which outlive the call. The kernel reads them, and
        // writes the size that it knows where it refuses this one.
        let status = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw mut own, 0) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Those of the calling thread.
fn attributes() -> io::Result<Attributes> {
    let mut own = Attributes { size: SIZE, ..Attributes::default() };
    // SAFETY: the pointer is to attributes of SIZE octets, of which the kernel writes at most that many.
    let status = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, SIZE, 0) };
    if status == 0 { Ok(own) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the kernel, such as 6.12.
    fn release() -> (u32, u32) {
        let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
        let mut numbers = text.split(['.', '-']).map_while(|number| number.parse().ok());
        (numbers.next().expect("major"), numbers.next().expect("minor"))
    }

    #[test]
    fn a_thread_gets_the_turns_that_it_asks_for_and_keeps_its_priority() {
        let before = attributes().expect("attributes");
        let asked = std::thread::spawn(|| {
            ask_for_turns(Duration::from_micros(300)).expect("any thread may ask");
            attributes().expect("attributes")
        });
        let after = asked.join().expect("it ends");
        assert_eq!((after.policy, after.nice), (before.policy, before.nice));
        // Linux before 6.12 has the same turns for all.
        let wanted_ns = if release() >= (6, 12) { 300_000 } else { before.runtime_ns };
        assert_eq!(after.runtime_ns, wanted_ns);
        assert_eq!(attributes().expect("attributes").runtime_ns, before.runtime_ns, "this thread");
    }

    #[test]
    fn a_thread_that_gives_way_has_a_lower_priority_and_no_thread_gets_a_higher_one() {
        let before = attributes().expect("attributes");
        let asked = std::thread::spawn(|| [before_and(7), before_and(3)]);
        let after = asked.join().expect("it ends");
        let lowest = before.nice.max(7);
        assert_eq!(after, [lowest; 2]);
        assert_eq!(attributes().expect("attributes").nice, before.nice, "this thread");
    }

    fn before_and(nice: i32) -> i32 {
        give_way(nice).expect("any thread may");
        attributes().expect("attributes").nice
    }
}
