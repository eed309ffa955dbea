//! Numbers that cannot be guessed: ids, ports and case of queries to upstreams (FW10, FW14).

use std::cell::RefCell;

/// Numbers that one call of the system's generator gives: a lookup takes some five, and a call costs as much as drawing
/// many.
const AT_ONCE: usize = 32;

struct Drawn {
    octets: [u8; AT_ONCE * 8],
    left: usize,
}

thread_local! {
    static DRAWN: RefCell<Drawn> = const { RefCell::new(Drawn { octets: [0; AT_ONCE * 8], left: 0 }) };
}

/// A number that cannot be guessed, from the system's generator. The system call behind it fails only where it does not
/// exist.
pub(super) fn random() -> u64 {
    DRAWN.with_borrow_mut(Drawn::next)
}

impl Drawn {
    fn next(&mut self) -> u64 {
        if self.left == 0 {
            getrandom::fill(&mut self.octets).expect("this system gives random numbers");
            self.left = AT_ONCE;
        }
        self.left -= 1;
        let mut number = [0; 8];
        let at = self.left * 8;
        // Numbers that were given out are erased.
        number.swap_with_slice(&mut self.octets[at..at + 8]);
        u64::from_ne_bytes(number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn fw10_no_number_comes_twice_and_none_is_kept() {
        let mut drawn = Drawn { octets: [0; AT_ONCE * 8], left: 0 };
        let numbers: BTreeSet<u64> = (0..10 * AT_ONCE).map(|_| drawn.next()).collect();
        assert_eq!(numbers.len(), 10 * AT_ONCE);
        assert_eq!((drawn.left, drawn.octets), (0, [0; AT_ONCE * 8]));
        let here = random();
        let there = std::thread::spawn(random).join().expect("a number");
        assert_ne!(here, there, "each thread draws its own");
    }
}
