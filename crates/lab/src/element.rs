//! What the elements of a buffer are.

use half::{bf16, f16};

/// The elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// A signed byte.
    I8,
    /// A byte.
    U8,
    /// A signed integer of 16 bits.
    I16,
    /// An unsigned integer of 16 bits.
    U16,
    /// A signed integer of 32 bits.
    I32,
    /// An unsigned integer of 32 bits.
    U32,
    /// A signed integer of 64 bits.
    I64,
    /// An unsigned integer of 64 bits.
    U64,
    /// Half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

impl Element {
    /// Every element: its name, and its bytes.
    pub const ALL: [(&'static str, Element, usize); 12] = [
        ("i8", Element::I8, 1),
        ("u8", Element::U8, 1),
        ("i16", Element::I16, 2),
        ("u16", Element::U16, 2),
        ("i32", Element::I32, 4),
        ("u32", Element::U32, 4),
        ("i64", Element::I64, 8),
        ("u64", Element::U64, 8),
        ("f16", Element::F16, 2),
        ("bf16", Element::Bf16, 2),
        ("f32", Element::F32, 4),
        ("f64", Element::F64, 8),
    ];

    /// The element of a name such as `f32`.
    pub fn named(name: &str) -> Option<Element> {
        Element::ALL.into_iter().find(|(known, ..)| *known == name).map(|(_, element, _)| element)
    }

    /// Its bytes.
    pub fn bytes(self) -> usize {
        Element::ALL.into_iter().find(|(_, element, _)| *element == self).map_or(1, |(.., bytes)| bytes)
    }

    /// The bytes of a number; one that is out of range saturates.
    pub fn store(self, number: f64) -> Vec<u8> {
        match self {
            Element::I8 => (number as i8).to_le_bytes().to_vec(),
            Element::U8 => vec![number as u8],
            Element::I16 => (number as i16).to_le_bytes().to_vec(),
            Element::U16 => (number as u16).to_le_bytes().to_vec(),
            Element::I32 => (number as i32).to_le_bytes().to_vec(),
            Element::U32 => (number as u32).to_le_bytes().to_vec(),
            Element::I64 => (number as i64).to_le_bytes().to_vec(),
            Element::U64 => (number as u64).to_le_bytes().to_vec(),
            Element::F16 => f16::from_f64(number).to_le_bytes().to_vec(),
            Element::Bf16 => bf16::from_f64(number).to_le_bytes().to_vec(),
            Element::F32 => (number as f32).to_le_bytes().to_vec(),
            Element::F64 => number.to_le_bytes().to_vec(),
        }
    }

    /// The numbers that bytes hold. Beyond 2^53, those of 64-bit integers are rounded.
    pub fn load(self, bytes: &[u8]) -> Vec<f64> {
        let load = |piece: &[u8]| {
            let wide: [u8; 8] = std::array::from_fn(|at| piece.get(at).copied().unwrap_or(0));
            let [a, b, c, d, ..] = wide;
            match self {
                Element::I8 => f64::from(i8::from_le_bytes([a])),
                Element::U8 => f64::from(a),
                Element::I16 => f64::from(i16::from_le_bytes([a, b])),
                Element::U16 => f64::from(u16::from_le_bytes([a, b])),
                Element::I32 => f64::from(i32::from_le_bytes([a, b, c, d])),
                Element::U32 => f64::from(u32::from_le_bytes([a, b, c, d])),
                Element::I64 => i64::from_le_bytes(wide) as f64,
                Element::U64 => u64::from_le_bytes(wide) as f64,
                Element::F16 => f16::from_le_bytes([a, b]).to_f64(),
                Element::Bf16 => bf16::from_le_bytes([a, b]).to_f64(),
                Element::F32 => f64::from(f32::from_le_bytes([a, b, c, d])),
                Element::F64 => f64::from_le_bytes(wide),
            }
        };
        bytes.chunks(self.bytes()).map(load).collect()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Element::ALL.into_iter().find(|(_, element, _)| *element == self).map_or("", |(name, ..)| name)
    }

    /// The distance from 1 to the next number; 0 for an integer.
    pub fn epsilon(self) -> f64 {
        match self {
            Element::F16 => 9.765_625e-4,
            Element::Bf16 => 7.8125e-3,
            Element::F32 => f64::from(f32::EPSILON),
            Element::F64 => f64::EPSILON,
            _ => 0.0,
        }
    }

    /// The numbers that bytes hold, as text.
    pub fn show(self, bytes: &[u8]) -> Vec<String> {
        let show = |piece: &[u8]| {
            let wide: [u8; 8] = std::array::from_fn(|at| piece.get(at).copied().unwrap_or(0));
            let [a, b, c, d, ..] = wide;
            match self {
                Element::I8 => i8::from_le_bytes([a]).to_string(),
                Element::U8 => a.to_string(),
                Element::I16 => i16::from_le_bytes([a, b]).to_string(),
                Element::U16 => u16::from_le_bytes([a, b]).to_string(),
                Element::I32 => i32::from_le_bytes([a, b, c, d]).to_string(),
                Element::U32 => u32::from_le_bytes([a, b, c, d]).to_string(),
                Element::I64 => i64::from_le_bytes(wide).to_string(),
                Element::U64 => u64::from_le_bytes(wide).to_string(),
                Element::F16 => f16::from_le_bytes([a, b]).to_string(),
                Element::Bf16 => bf16::from_le_bytes([a, b]).to_string(),
                Element::F32 => f32::from_le_bytes([a, b, c, d]).to_string(),
                Element::F64 => f64::from_le_bytes(wide).to_string(),
            }
        };
        bytes.chunks(self.bytes()).map(show).collect()
    }

    /// Whether it is an integer.
    pub fn is_whole(self) -> bool {
        !matches!(self, Element::F16 | Element::Bf16 | Element::F32 | Element::F64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stored_and_shown() {
        for (name, element, bytes) in Element::ALL {
            let stored = element.store(3.0);
            assert_eq!(stored.len(), bytes, "{name}");
            assert_eq!(element.show(&stored), ["3"], "{name}");
            assert_eq!((element.load(&stored), element.name()), (vec![3.0], name));
            let next = element.load(&element.store(1.0 + element.epsilon()));
            assert_eq!(next, [1.0 + element.epsilon()], "{name}");
        }
    }
}
