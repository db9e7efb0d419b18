//! Shared-memory wavefronts: passes through the 32 banks of 4 bytes each.
//!
//! One wavefront serves 32 lanes of up to 4 bytes, 16 lanes of 8 bytes or 8 lanes of 16 bytes. A bank conflict, several lanes
//! that need different words of one bank, adds a wavefront for each further word; one word serves any number of lanes.

/// The wavefronts of a request, and how many there would be without bank conflicts. Lanes are served in groups of `128 / bytes`.
/// If `pairs` is set and the lanes' addresses are equal in pairs, groups are twice as large if that takes fewer wavefronts.
pub(crate) fn wavefronts(addresses: &[u64; 32], mask: u32, bytes: u64, pairs: bool) -> (u64, u64) {
    if bytes <= 4 {
        return by_groups(addresses, mask, bytes, 32);
    }
    let group = (128 / bytes).max(1) as usize;
    let single = by_groups(addresses, mask, bytes, group);
    if pairs && group <= 16 && in_pairs(addresses, mask) {
        let paired = by_groups(addresses, mask, bytes, 2 * group);
        return if paired.0 < single.0 { paired } else { single };
    }
    single
}

/// As [`wavefronts`], with a fixed number of lanes per group.
fn by_groups(addresses: &[u64; 32], mask: u32, bytes: u64, group: usize) -> (u64, u64) {
    let (mut total, mut groups) = (0, 0);
    for first in (0..32).step_by(group) {
        let lanes = mask >> first & if group == 32 { u32::MAX } else { (1 << group) - 1 };
        if lanes != 0 {
            total += of_group(&addresses[first..first + group], lanes, bytes);
            groups += 1;
        }
    }
    (total, groups)
}

/// Whether every active lane has the same address as its neighbour, or every one the same as the lane two away.
fn in_pairs(addresses: &[u64; 32], mask: u32) -> bool {
    let paired = |by: usize| {
        (0..32).all(|lane| {
            let other = lane ^ by;
            mask >> lane & mask >> other & 1 == 0 || addresses[lane] == addresses[other]
        })
    };
    paired(1) || paired(2)
}

/// The wavefronts of one group of lanes: the most distinct words that any bank has to deliver.
fn of_group(addresses: &[u64], mask: u32, bytes: u64) -> u64 {
    let words = bytes.div_ceil(4);
    // The common case: no two lanes use the same bank.
    let banks = u32::MAX >> (32 - words.clamp(1, 32));
    let (mut used, mut shared) = (0, 0);
    let mut rest = mask;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let lanes_banks = banks.rotate_left((addresses[lane] >> 2) as u32 % 32);
        shared |= used & lanes_banks;
        used |= lanes_banks;
    }
    if shared == 0 {
        return 1;
    }
    let mut owner = [u64::MAX; 32];
    let mut conflict = false;
    let mut rest = mask;
    while rest != 0 {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let word = addresses[lane] >> 2;
        for word in word..word + words {
            let bank = (word % 32) as usize;
            conflict |= owner[bank] != u64::MAX && owner[bank] != word;
            owner[bank] = word;
        }
    }
    if !conflict {
        return 1;
    }
    let mut all = Vec::with_capacity(64);
    for (_, address) in addresses.iter().enumerate().filter(|(lane, _)| mask >> lane & 1 == 1) {
        all.extend((address >> 2)..(address >> 2) + words);
    }
    all.sort_unstable();
    all.dedup();
    let mut banks = [0u64; 32];
    for word in all {
        banks[(word % 32) as usize] += 1;
    }
    banks.into_iter().max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(f: impl Fn(u64) -> u64) -> [u64; 32] {
        std::array::from_fn(|lane| f(lane as u64))
    }

    #[test]
    fn wavefronts_of_known_patterns() {
        let load = |f: &dyn Fn(u64) -> u64, bytes| wavefronts(&addresses(f), u32::MAX, bytes, true);
        assert_eq!(load(&|i| 4 * i, 4), (1, 1));
        assert_eq!(load(&|_| 4, 4), (1, 1));
        assert_eq!(load(&|i| 8 * i, 4), (2, 1));
        assert_eq!(load(&|i| 128 * i, 4), (32, 1));
        assert_eq!(load(&|i| 132 * i, 4), (1, 1));
        // Halves of a word share its bank.
        assert_eq!(load(&|i| 2 * i, 2), (1, 1));
        // A wide access needs one wavefront per 128 bytes; only those beyond that are conflicts.
        assert_eq!(load(&|i| 8 * i, 8), (2, 2));
        assert_eq!(load(&|i| 16 * i, 16), (4, 4));
        assert_eq!(load(&|i| 128 * i, 16), (32, 4));
        assert_eq!(load(&|i| 144 * i, 16), (4, 4));
    }

    #[test]
    fn equal_pairs_of_wide_loads_take_half_the_wavefronts() {
        let taken = |f: &dyn Fn(u64) -> u64, mask, pairs| wavefronts(&addresses(f), mask, 16, pairs);
        assert_eq!(taken(&|i| 16 * (i / 2), u32::MAX, true), (2, 2));
        assert_eq!(taken(&|i| 16 * (i % 2 + i / 4 * 2), u32::MAX, true), (2, 2));
        assert_eq!(taken(&|_| 0, u32::MAX, true), (2, 2));
        // Neither pattern, and a store.
        assert_eq!(taken(&|i| 16 * (i % 8), u32::MAX, true), (4, 4));
        assert_eq!(taken(&|i| 16 * (i / 2), u32::MAX, false), (4, 4));
        // Inactive lanes match any.
        assert_eq!(taken(&|i| 16 * (i / 2), 0x5555_5555, true), (2, 2));
        assert_eq!(taken(&|i| 16 * i, 0x5555_5555, true), (4, 4));
    }
}
