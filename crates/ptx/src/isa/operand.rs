//! Registers and constants as operands.

/// The register file that an operand belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// 32 bits or less.
    Word,
    /// 64 bits.
    Long,
    /// A predicate: one bit per lane.
    Predicate,
}

/// A register, a constant, or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Operand(u32);

const CONSTANT: u32 = 1 << 29;
const NEGATED: u32 = 1 << 28;
const INDEX: u32 = NEGATED - 1;

impl Operand {
    /// The `_` of PTX.
    pub const NONE: Operand = Operand(u32::MAX);

    /// How many registers or constants a kernel may have.
    pub const LIMIT: usize = INDEX as usize;

    pub fn register(class: Class, index: usize) -> Operand {
        Operand((class as u32) << 30 | (index as u32 & INDEX))
    }

    pub fn constant(class: Class, index: usize) -> Operand {
        Operand((class as u32) << 30 | CONSTANT | (index as u32 & INDEX))
    }

    #[must_use]
    pub fn negated(self) -> Operand {
        Operand(self.0 ^ NEGATED)
    }

    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.0 == u32::MAX
    }

    #[inline(always)]
    pub fn is_constant(self) -> bool {
        self.0 & CONSTANT != 0
    }

    /// Whether it is a negated predicate.
    #[inline(always)]
    pub fn is_negated(self) -> bool {
        self.0 & NEGATED != 0
    }

    #[inline(always)]
    pub fn index(self) -> usize {
        (self.0 & INDEX) as usize
    }

    pub fn class(self) -> Class {
        match self.0 >> 30 {
            0 => Class::Word,
            1 => Class::Long,
            _ => Class::Predicate,
        }
    }

    /// Whether it is a register, and not a constant or nothing.
    pub fn is_register(self) -> bool {
        !self.is_none() && !self.is_constant()
    }

    #[must_use]
    pub fn with_index(self, index: usize) -> Operand {
        Operand(self.0 & !INDEX | (index as u32 & INDEX))
    }
}

impl std::fmt::Debug for Operand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_none() {
            return write!(f, "_");
        }
        let kind = if self.is_constant() { "constant" } else { "register" };
        write!(f, "{:?} {kind} {}", self.class(), self.index())
    }
}
