//! Warp-level matrix loads and stores of `wmma`, and the matrix products that are not computed in f32. A product of `wmma` itself is one or
//! two [`Mma`](super::Mma) or [`ExactMma`], since its fragments consist of theirs.

use super::Memory;

/// A matrix of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Matrix {
    A,
    B,
    /// C or D.
    Sum,
}

/// A load or store of a fragment. Operands: the address, the stride between rows or columns, then the registers of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentAccess {
    pub memory: Memory,
    pub matrix: Matrix,
    pub m: u8,
    pub n: u8,
    /// The depth in units.
    pub k: u8,
    /// The bytes of a unit: an element, or a word of elements that are smaller than a byte.
    pub bytes: u8,
    /// The bits of an element, which the stride counts.
    pub bits: u8,
    /// Whether columns are contiguous, rather than rows.
    pub column_major: bool,
    pub offset: i64,
}

/// What an [`ExactMma`] multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExactElement {
    F64,
    /// Eight 4-bit integers in a word, and which operands are signed.
    Int4 {
        a_signed: bool,
        b_signed: bool,
    },
    /// 32 bits in a word; their exclusive or, or their conjunction, is counted.
    Bit {
        and: bool,
    },
}

/// A warp-level matrix product of f64, of 4-bit integers or of single bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExactMma {
    pub m: u8,
    /// The depth in elements.
    pub k: u16,
    pub element: ExactElement,
    pub saturate: bool,
}

impl ExactMma {
    /// The depth in f64 or in words.
    pub fn units(self) -> usize {
        match self.element {
            ExactElement::F64 => self.k as usize,
            ExactElement::Int4 { .. } => self.k as usize / 8,
            ExactElement::Bit { .. } => self.k as usize / 32,
        }
    }
}
