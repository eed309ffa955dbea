//! Names outside the cluster, how often each is asked for, and the addresses that the upstream of a measurement gives them
//! (pure).

use std::net::Ipv4Addr;

/// Addresses for measurements: 198.18.0.0/15 (RFC 2544).
const FIRST_ADDRESS: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const ADDRESSES: u32 = 1 << 17;

/// A name outside the cluster, by its rank.
pub fn name(rank: usize) -> String {
    format!("host-{rank}.example.com.")
}

/// The address of the name in a question, which is written as in a message and may have any case.
pub fn address(question: &[u8]) -> Ipv4Addr {
    // FNV-1a.
    let hash = question.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
        (hash ^ u64::from(octet.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01b3)
    });
    (FIRST_ADDRESS + (hash >> 32) as u32 % ADDRESSES).into()
}

/// Zipf's law with exponent 1: the name of rank n is asked for 1/n as often as the first.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// For each rank the share of questions that ask for it or one before.
    up_to: Vec<f64>,
}

impl Zipf {
    /// Of this number of names.
    ///
    /// # Panics
    /// There are none.
    pub fn new(names: usize) -> Zipf {
        assert!(names > 0, "a law about no names");
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=names)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        for share in &mut up_to {
            *share /= sum;
        }
        Zipf { up_to }
    }

    /// The rank, from 0, of a uniform number between 0 and 1.
    pub fn rank(&self, share: f64) -> usize {
        self.up_to.partition_point(|up_to| *up_to < share).min(self.up_to.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_name_is_asked_for_half_as_often_as_the_first() {
        let zipf = Zipf::new(1_000);
        let mut counts = [0_u32; 1_000];
        for number in 0..1_000_000 {
            counts[zipf.rank(f64::from(number) / 1e6)] += 1;
        }
        let ratio = |rank: usize| f64::from(counts[0]) / f64::from(counts[rank]);
        assert!((ratio(1) - 2.0).abs() < 0.01 && (ratio(9) - 10.0).abs() < 0.05);
        assert_eq!((zipf.rank(0.0), zipf.rank(1.0)), (0, 999));
    }

    #[test]
    fn addresses_follow_the_name_in_any_case() {
        assert_eq!(address(b"\x03www\x00"), address(b"\x03WwW\x00"));
        assert_ne!(address(b"\x03www\x00"), address(b"\x03wwx\x00"));
        let [a, b, _, _] = address(b"\x03www\x00").octets();
        assert!(a == 198 && (b == 18 || b == 19));
    }
}
