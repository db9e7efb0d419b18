//! Atomics on the same word of global memory, which L2 serves one after the other.
//!
//! NVIDIA's white paper of the Kepler GK110 gives one operation per clock on a common address, and L2 has done atomics in the same
//! place since. The assembler combines the lanes of a warp before, if it can: "Warp aggregation for atomics" is automatic since CUDA 9.

use std::collections::HashMap;

use crate::isa::{Atomic, Op, Program};

/// The most words that are told apart. A kernel with more has no single one that matters.
const WORDS: usize = 1 << 18;

/// Operations on one word.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    operations: u64,
    /// The first cluster that updated it, and whether others did.
    cluster: u64,
    several: bool,
}

/// The words that atomics of the sampled blocks updated.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContendedWords {
    words: HashMap<u64, Word>,
}

impl ContendedWords {
    /// Counts the atomics of some lanes. If they are `combined`, one per address reaches L2.
    pub fn add(&mut self, addresses: &[u64; 32], mask: u32, combined: bool, cluster: u64) {
        let mut rest = mask;
        while rest != 0 {
            let address = addresses[rest.trailing_zeros() as usize];
            let same = (0..32).filter(|&lane| rest >> lane & 1 == 1 && addresses[lane] == address);
            let same = same.fold(0u32, |all, lane| all | 1 << lane);
            rest &= !same;
            let operations = if combined { 1 } else { u64::from(same.count_ones()) };
            self.count(address, Word { operations, cluster, several: false });
        }
    }

    fn count(&mut self, address: u64, more: Word) {
        let full = self.words.len() >= WORDS;
        if full && !self.words.contains_key(&address) {
            return;
        }
        let word = self.words.entry(address).or_insert(Word { operations: 0, ..more });
        word.operations += more.operations;
        word.several |= more.several || word.cluster != more.cluster;
    }

    /// Adds what another multiprocessor did.
    pub fn merge(&mut self, other: &ContendedWords) {
        other.words.iter().for_each(|(&address, &word)| self.count(address, word));
    }

    /// The operations of a whole grid on the word that most of them update, if it has `factor` times as many blocks: words that
    /// several blocks update are updated by all.
    pub fn most(&self, factor: f64) -> f64 {
        let of = |word: &Word| word.operations as f64 * if word.several { factor } else { 1.0 };
        self.words.values().map(of).fold(0.0, f64::max)
    }
}

/// The instructions whose lanes the assembler combines: it must know that the values are the same, or add them up by `redux`, which
/// exists for integers of 32 bits and needs no lane to have a result of its own.
pub(super) fn combined(program: &Program) -> Vec<bool> {
    let combines = |instruction: &crate::isa::Instruction| {
        let Op::Atomic { op, kind, reduction, .. } = instruction.op else { return false };
        let integer = !kind.is_float() && kind.bytes() == 4;
        let value = program.operands_of(instruction)[usize::from(!reduction)..].get(1);
        let constant = value.is_some_and(|value| value.is_constant());
        let associative =
            matches!(op, Atomic::Add | Atomic::Min | Atomic::Max | Atomic::And | Atomic::Or | Atomic::Xor);
        integer && associative && (constant || reduction)
    };
    program.instructions.iter().map(combines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_all_blocks_update_grow_with_the_grid() {
        let mut words = ContendedWords::default();
        let own = std::array::from_fn(|lane| 4 * lane as u64);
        words.add(&own, u32::MAX, false, 0);
        assert_eq!(words.most(100.0), 1.0);
        words.add(&[4096; 32], u32::MAX, true, 0);
        words.add(&[4096; 32], u32::MAX, true, 0);
        assert_eq!(words.most(100.0), 2.0);
        words.add(&[4096; 32], 0xff, false, 7);
        assert_eq!(words.most(100.0), 1000.0);
        let mut other = ContendedWords::default();
        other.add(&own, 1, false, 3);
        other.merge(&words);
        assert_eq!(other.most(1.0), 10.0);
        assert_eq!(other.most(6.0), 60.0);
    }
}
