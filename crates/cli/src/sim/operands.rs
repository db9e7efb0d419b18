//! A kernel's arguments as the command line has them.

use std::{fs, path::PathBuf, str::FromStr};

use half::{bf16, f16};
use kinora::ptx::{Argument, DeviceAddress, PtxError, Simulator};

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A number or a struct, as it is stored.
    Value(Vec<u8>),
    /// Memory.
    Buffer { element: Element, count: usize, filling: Filling },
}

/// The elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    Bf16,
    F32,
    F64,
}

/// What a buffer holds at first.
#[derive(Clone, Debug, PartialEq)]
pub enum Filling {
    /// Nothing: to read it is a finding.
    Nothing,
    /// One number, over and over.
    Number(f64),
    /// Numbers that look like chance, and are the same every time.
    Random,
    /// The bytes of a file.
    File(PathBuf),
}

impl Element {
    const ALL: [(&'static str, Element, usize); 12] = [
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

    fn named(name: &str) -> Option<Element> {
        Element::ALL.into_iter().find(|(known, ..)| *known == name).map(|(_, element, _)| element)
    }

    fn bytes(self) -> usize {
        Element::ALL.into_iter().find(|(_, element, _)| *element == self).map_or(1, |(.., bytes)| bytes)
    }

    /// A number as it is stored; what is too large becomes the largest.
    fn store(self, number: f64) -> Vec<u8> {
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

    /// The numbers in some bytes, in words.
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

    fn is_whole(self) -> bool {
        !matches!(self, Element::F16 | Element::Bf16 | Element::F32 | Element::F64)
    }
}

impl FromStr for Operand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const FORMS: &str =
            "write i32:5, f32:0.5, f32[1000], f32[1000]=0, f32[1000]=random or f32[1000]=@FILE";
        if let Some((name, rest)) = text.split_once('[') {
            let element =
                Element::named(name).ok_or_else(|| format!("there is no element type {name}; {FORMS}"))?;
            let (count, rest) = rest.split_once(']').ok_or(FORMS)?;
            let count: usize = count.parse().map_err(|_| format!("{count} is no number of elements"))?;
            if count.checked_mul(element.bytes()).is_none_or(|bytes| bytes > 1 << 40) {
                return Err(format!("{count} elements are more than any GPU holds"));
            }
            let filling = match rest.strip_prefix('=') {
                None if rest.is_empty() => Filling::Nothing,
                None => return Err(FORMS.to_owned()),
                Some("random") => Filling::Random,
                Some(file) if file.starts_with('@') => Filling::File(PathBuf::from(&file[1..])),
                Some(number) => {
                    Filling::Number(number.parse().map_err(|_| format!("{number} is no number"))?)
                }
            };
            return Ok(Operand::Buffer { element, count, filling });
        }
        let (name, number) = text.split_once(':').ok_or(FORMS)?;
        let bytes = if name == "bytes" { hexadecimal(number) } else { scalar(name, number, FORMS) };
        Ok(Operand::Value(bytes?))
    }
}

/// A number as it is stored.
fn scalar(name: &str, number: &str, forms: &str) -> Result<Vec<u8>, String> {
    let element =
        Element::named(name).ok_or_else(|| format!("there is no argument of type {name}; {forms}"))?;
    let wrong = || format!("{number} is no {name}");
    fn whole<T: FromStr, const N: usize>(number: &str, bytes: fn(T) -> [u8; N]) -> Option<Vec<u8>> {
        number.parse().ok().map(|value| bytes(value).to_vec())
    }
    match element {
        Element::I8 => whole(number, i8::to_le_bytes),
        Element::U8 => whole(number, u8::to_le_bytes),
        Element::I16 => whole(number, i16::to_le_bytes),
        Element::U16 => whole(number, u16::to_le_bytes),
        Element::I32 => whole(number, i32::to_le_bytes),
        Element::U32 => whole(number, u32::to_le_bytes),
        Element::I64 => whole(number, i64::to_le_bytes),
        Element::U64 => whole(number, u64::to_le_bytes),
        Element::F16 | Element::Bf16 | Element::F32 | Element::F64 => {
            number.parse().ok().map(|number| element.store(number))
        }
    }
    .ok_or_else(wrong)
}

/// Bytes of two digits each.
fn hexadecimal(digits: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("{digits} are no bytes of two hexadecimal digits each");
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [high, low] => {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            Some((digit(*high)? * 16 + digit(*low)?) as u8)
        }
        _ => None,
    };
    let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
    bytes.filter(|bytes| !bytes.is_empty()).ok_or_else(wrong)
}

/// Why an operand could not be made.
#[derive(Debug)]
pub enum OperandError {
    File(PathBuf, std::io::Error),
    Length { path: PathBuf, got: usize, wanted: usize },
    Simulator(PtxError),
}

impl Operand {
    /// Gives the operand addresses on a device, without memory behind them.
    pub fn reserve(&self, simulator: &mut Simulator) -> (Argument, Option<(DeviceAddress, usize)>) {
        match self {
            Operand::Value(bytes) => (Argument::Bytes(bytes.clone()), None),
            Operand::Buffer { element, count, .. } => {
                let bytes = count * element.bytes();
                let address = simulator.reserve(bytes);
                (Argument::U64(address), Some((address, bytes)))
            }
        }
    }

    /// Puts the operand onto a device: the kernel's argument, and the buffer's address and bytes where it is one.
    pub fn place(
        &self,
        number: usize,
        simulator: &mut Simulator,
    ) -> Result<(Argument, Option<(DeviceAddress, usize)>), OperandError> {
        let (element, count, filling) = match self {
            Operand::Value(bytes) => return Ok((Argument::Bytes(bytes.clone()), None)),
            Operand::Buffer { element, count, filling } => (*element, *count, filling),
        };
        let bytes = count * element.bytes();
        let address = simulator.allocate(bytes).map_err(OperandError::Simulator)?;
        let content = match filling {
            Filling::Nothing => None,
            Filling::Number(value) => Some(element.store(*value).repeat(count)),
            Filling::Random => Some(random(element, count, number)),
            Filling::File(path) => {
                let read = fs::read(path).map_err(|error| OperandError::File(path.clone(), error))?;
                if read.len() != bytes {
                    return Err(OperandError::Length { path: path.clone(), got: read.len(), wanted: bytes });
                }
                Some(read)
            }
        };
        if let Some(content) = content.filter(|content| !content.is_empty()) {
            simulator.copy_in(address, &content).map_err(OperandError::Simulator)?;
        }
        Ok((Argument::U64(address), Some((address, bytes))))
    }
}

/// Numbers between −1 and 1, or from 0 to 9 where they are whole: others for each argument.
fn random(element: Element, count: usize, number: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9u32.wrapping_mul(number as u32 + 1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 24)
    };
    let number =
        |uniform: f64| if element.is_whole() { (uniform * 10.0).floor() } else { 2.0 * uniform - 1.0 };
    (0..count).flat_map(|_| element.store(number(next()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_numbers_and_buffers() {
        let parse = |text: &str| text.parse::<Operand>();
        let value = |bytes: &[u8]| Ok(Operand::Value(bytes.to_vec()));
        assert_eq!(parse("i32:-5"), value(&(-5i32).to_le_bytes()));
        assert_eq!(parse("u64:18446744073709551615"), value(&[255; 8]));
        assert_eq!(parse("f32:0.5"), value(&0.5f32.to_le_bytes()));
        assert_eq!(parse("f16:0.5"), value(&[0, 0x38]));
        assert_eq!(parse("i16:-2"), value(&[254, 255]));
        assert_eq!(parse("bytes:0aFF"), value(&[10, 255]));
        let buffer = |filling| Ok(Operand::Buffer { element: Element::F16, count: 12, filling });
        assert_eq!(parse("f16[12]"), buffer(Filling::Nothing));
        assert_eq!(parse("f16[12]=-1.5"), buffer(Filling::Number(-1.5)));
        assert_eq!(parse("f16[12]=random"), buffer(Filling::Random));
        assert_eq!(parse("f16[12]=@a.bin"), buffer(Filling::File("a.bin".into())));
        for wrong in [
            "",
            "5",
            "i32",
            "i32:x",
            "i31:5",
            "u8:256",
            "u32:-1",
            "i32:1.5",
            "bytes:",
            "bytes:123",
            "bytes:+1",
            "bytes:0g",
            "f32[",
            "f32[x]",
            "f32[3]x",
            "f32[3]=x",
            "f9[3]",
            "u8[99999999999999]",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_stored_and_shown() {
        for (name, element, bytes) in Element::ALL {
            let stored = element.store(3.0);
            assert_eq!(stored.len(), bytes, "{name}");
            assert_eq!(element.show(&stored), ["3"], "{name}");
        }
        assert_ne!(random(Element::F32, 4, 0), random(Element::F32, 4, 1));
        let whole = Element::I32.show(&random(Element::I32, 100, 0));
        assert!(
            whole.iter().all(|number| (0..10).contains(&number.parse::<i32>().unwrap_or(-1))),
            "{whole:?}"
        );
    }
}
