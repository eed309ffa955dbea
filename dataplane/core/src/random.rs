//! Uniform numbers from the seed that each query brings: the core draws none of its own.

/// Output number `turn` of SplitMix64 from this seed: uniform, and independent of the others. The seed
/// itself is the first.
pub(crate) fn scrambled(seed: u64, turn: u64) -> u64 {
    if turn == 0 {
        return seed;
    }
    let z = seed.wrapping_add(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Scales a uniform number to one below a bound.
pub(crate) fn scaled(number: u64, bound: usize) -> usize {
    // The high part of a wide product is uniform up to bound / 2^64.
    ((u128::from(number) * bound as u128) >> 64) as usize
}
