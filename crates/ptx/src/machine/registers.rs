//! A warp's registers: arrays of 32 lanes, so that loops over lanes vectorise.

use crate::isa::{Operand, Program};

/// 32 lanes of 32 bits.
pub(crate) type Words = [u32; 32];
/// 32 lanes of 64 bits.
pub(crate) type Longs = [u64; 32];

/// A program's constants, broadcast to all lanes.
#[derive(Clone, Debug)]
pub(crate) struct Constants {
    words: Vec<Words>,
    longs: Vec<Longs>,
}

impl Constants {
    pub fn new(program: &Program) -> Constants {
        Constants {
            words: program.words.iter().map(|&value| [value; 32]).collect(),
            longs: program.longs.iter().map(|&value| [value; 32]).collect(),
        }
    }
}

/// A warp's registers.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    words: Vec<Words>,
    longs: Vec<Longs>,
    predicates: Vec<u32>,
    /// The carry flag of each lane.
    pub carry: u32,
}

impl Registers {
    pub fn new(program: &Program) -> Registers {
        Registers {
            words: vec![[0; 32]; program.word_count],
            longs: vec![[0; 32]; program.long_count],
            predicates: vec![0; program.predicate_count],
            carry: 0,
        }
    }

    pub fn clear(&mut self) {
        self.words.fill([0; 32]);
        self.longs.fill([0; 32]);
        self.predicates.fill(0);
        self.carry = 0;
    }

    #[inline(always)]
    pub fn word<'a>(&'a self, constants: &'a Constants, operand: Operand) -> &'a Words {
        if operand.is_constant() { &constants.words[operand.index()] } else { &self.words[operand.index()] }
    }

    #[inline(always)]
    pub fn long<'a>(&'a self, constants: &'a Constants, operand: Operand) -> &'a Longs {
        if operand.is_constant() { &constants.longs[operand.index()] } else { &self.longs[operand.index()] }
    }

    /// A register's value, for a call to save.
    pub fn saved_word(&self, register: Operand) -> Words {
        self.words[register.index()]
    }

    pub fn saved_long(&self, register: Operand) -> Longs {
        self.longs[register.index()]
    }

    /// The lanes in which a predicate holds.
    #[inline(always)]
    pub fn predicate(&self, operand: Operand) -> u32 {
        let value = if operand.is_constant() {
            if operand.index() != 0 { u32::MAX } else { 0 }
        } else {
            self.predicates[operand.index()]
        };
        if operand.is_negated() { !value } else { value }
    }

    #[inline(always)]
    pub fn word_mut(&mut self, operand: Operand) -> &mut Words {
        &mut self.words[operand.index()]
    }

    #[inline(always)]
    pub fn long_mut(&mut self, operand: Operand) -> &mut Longs {
        &mut self.longs[operand.index()]
    }

    #[inline(always)]
    pub fn set_word(&mut self, operand: Operand, value: &Words, mask: u32) {
        let place = &mut self.words[operand.index()];
        if mask == u32::MAX {
            *place = *value;
        } else {
            for lane in 0..32 {
                place[lane] = if mask >> lane & 1 == 1 { value[lane] } else { place[lane] };
            }
        }
    }

    #[inline(always)]
    pub fn set_long(&mut self, operand: Operand, value: &Longs, mask: u32) {
        let place = &mut self.longs[operand.index()];
        if mask == u32::MAX {
            *place = *value;
        } else {
            for lane in 0..32 {
                place[lane] = if mask >> lane & 1 == 1 { value[lane] } else { place[lane] };
            }
        }
    }

    #[inline(always)]
    pub fn set_predicate(&mut self, operand: Operand, value: u32, mask: u32) {
        if !operand.is_none() {
            let place = &mut self.predicates[operand.index()];
            *place = *place & !mask | value & mask;
        }
    }
}
