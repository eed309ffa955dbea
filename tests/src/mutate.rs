//! Messages that are nearly valid: seeded mutations, as of a fuzzer, for the stable toolchain.

/// SplitMix64: uniform, and the same in every run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.number()) * bound as u128) >> 64) as usize
    }

    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// Octets with a meaning for a DNS reader: lengths at their limits, label types, pointers, OPT.
const TELLING: [u8; 14] = [0, 1, 2, 12, 41, 63, 64, 0x7f, 0x80, 0xbf, 0xc0, 0xc1, 0xf9, 0xff];
/// Mutations of one message at most.
const MOST: usize = 4;
/// Longer ones are cut: they would only slow the run down.
const LONGEST: usize = 4096;

/// One of the seeds with a few mutations; `others` is what parts are taken from.
pub fn mutated(seed: &[u8], others: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut message = seed.to_vec();
    for _ in 0..=random.below(MOST) {
        mutate(&mut message, others, random);
    }
    message.truncate(LONGEST);
    message
}

fn mutate(message: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
    if message.is_empty() {
        message.push(random.number() as u8);
        return;
    }
    let at = random.below(message.len());
    // Headers, counts and lengths are near the beginning: half of all changes fall there.
    let at = if random.number() & 1 == 0 { at.min(random.below(16)) } else { at };
    match random.below(9) {
        0 => message[at] ^= 1 << random.below(8),
        1 => message[at] = *random.choose(&TELLING),
        2 => message[at] = random.number() as u8,
        3 => message.truncate(at),
        4 => message.insert(at, *random.choose(&TELLING)),
        5 => drop(message.remove(at)),
        6 => {
            let end = (at + 1 + random.below(24)).min(message.len());
            let part = message[at..end].to_vec();
            message.extend(part);
        }
        7 => {
            let other = random.choose(others);
            let from = random.below(other.len().max(1)).min(other.len());
            message.truncate(at);
            message.extend(&other[from..]);
        }
        _ => {
            let pointer = (0xc000 | random.below(64) as u16).to_be_bytes();
            message.splice(at..(at + 2).min(message.len()), pointer);
        }
    }
}
