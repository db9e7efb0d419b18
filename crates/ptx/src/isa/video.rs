//! The video instructions.

use super::Compare;

/// What a video instruction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VideoOp {
    Add,
    Sub,
    AbsoluteDifference,
    Min,
    Max,
    Average,
    ShiftLeft,
    ShiftRight,
    Mad,
    Set,
}

impl VideoOp {
    /// The operation of an opcode, and how many numbers of a word it computes.
    pub fn named(name: &str) -> Option<(VideoOp, u8)> {
        let stem = name.trim_end_matches(['2', '4']);
        let lanes = match &name[stem.len()..] {
            "" => 1,
            "2" => 2,
            "4" => 4,
            _ => return None,
        };
        let op = match stem {
            "vadd" => VideoOp::Add,
            "vsub" => VideoOp::Sub,
            "vabsdiff" => VideoOp::AbsoluteDifference,
            "vmin" => VideoOp::Min,
            "vmax" => VideoOp::Max,
            "vset" => VideoOp::Set,
            "vavrg" if lanes > 1 => VideoOp::Average,
            "vshl" if lanes == 1 => VideoOp::ShiftLeft,
            "vshr" if lanes == 1 => VideoOp::ShiftRight,
            "vmad" if lanes == 1 => VideoOp::Mad,
            _ => return None,
        };
        Some((op, lanes))
    }
}

/// A video instruction on one, two or four numbers in a word. Operands: two words, and a third that is merged, added or combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Video {
    pub op: VideoOp,
    pub lanes: u8,
    /// Whether the result and the two operands are signed.
    pub signed: [bool; 3],
    /// The first bit and the number of bits that a scalar operand is taken from.
    pub parts: [(u32, u32); 2],
    pub saturate: bool,
    /// Shifts by an amount modulo 32, instead of at most 32.
    pub wrap: bool,
    pub compare: Option<Compare>,
    /// What combines the result with the third operand; that of several numbers adds them all.
    pub second: Option<VideoOp>,
}
