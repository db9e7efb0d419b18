//! NumPy's files of arrays: `.npy`, versions 1 to 3. Read within bounds; nothing in them is ever run.

use std::path::Path;

use crate::Element;

/// The longest header. NumPy's own are a few hundred bytes.
const MAX_HEADER: usize = 64 << 10;
/// The most bytes of an array.
pub const MAX_BYTES: u64 = 4 << 30;
/// The most axes, as NumPy has it.
const MAX_AXES: usize = 64;

const MAGIC: &[u8] = b"\x93NUMPY";

/// An array of numbers, the last axis contiguous.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// What its elements are.
    pub element: Element,
    /// The extents, outermost first.
    pub shape: Vec<usize>,
    /// The elements, little-endian.
    pub bytes: Vec<u8>,
}

/// Why a file is no array that can be read.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// It does not begin as such a file does.
    #[error("it is not a file of NumPy's (.npy)")]
    Magic,
    /// The header is damaged.
    #[error("its header is damaged: {0}")]
    Header(String),
    /// The elements are of a kind that kernels have no use for.
    #[error(
        "its elements are {0}; these can be read: f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8, b1, little-endian"
    )]
    Element(String),
    /// The header promises other data than there is.
    #[error("it has {got} bytes of data, but its header promises {wanted}")]
    Length {
        /// The bytes there are.
        got: usize,
        /// The bytes that the header promises.
        wanted: u128,
    },
}

impl Array {
    /// Reads an ordinary file.
    ///
    /// # Errors
    /// If it is not such a file, damaged, or too large.
    pub fn read(path: &Path) -> Result<Array, NpyError> {
        Array::parse(&kinora_outside::read(path, MAX_BYTES)?)
    }

    /// Reads the bytes of such a file.
    ///
    /// # Errors
    /// As [`Array::read`].
    pub fn parse(file: &[u8]) -> Result<Array, NpyError> {
        let rest = file.strip_prefix(MAGIC).ok_or(NpyError::Magic)?;
        let damaged = |what: &str| NpyError::Header(what.to_owned());
        let (length, start) = match rest {
            [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 4),
            [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 6),
            [version, ..] if !(1..=3).contains(version) => {
                return Err(NpyError::Header(format!("version {version} is not known")));
            }
            _ => return Err(damaged("the file ends in it")),
        };
        if length > MAX_HEADER {
            return Err(damaged("it is too long"));
        }
        let header = rest.get(start..start + length).ok_or_else(|| damaged("the file ends in it"))?;
        let header = std::str::from_utf8(header).map_err(|_| damaged("it is not text"))?;
        let Header { element, fortran, shape } = Header::parse(header)?;
        let data = &rest[start + length..];
        let elements = shape.iter().map(|&extent| extent as u128).try_fold(1u128, u128::checked_mul);
        let wanted = elements
            .and_then(|elements| elements.checked_mul(element.bytes() as u128))
            .ok_or_else(|| damaged("its shape is too large"))?;
        if data.len() as u128 != wanted {
            return Err(NpyError::Length { got: data.len(), wanted });
        }
        let bytes = if fortran { transposed(data, &shape, element.bytes()) } else { data.to_vec() };
        Ok(Array { element, shape, bytes })
    }

    /// The bytes of such a file, version 1. bf16, which NumPy does not have, is written as f32.
    pub fn to_bytes(&self) -> Vec<u8> {
        let kind = match self.element {
            Element::I8 => "|i1",
            Element::U8 => "|u1",
            Element::I16 => "<i2",
            Element::U16 => "<u2",
            Element::I32 => "<i4",
            Element::U32 => "<u4",
            Element::I64 => "<i8",
            Element::U64 => "<u8",
            Element::F16 => "<f2",
            Element::Bf16 | Element::F32 => "<f4",
            Element::F64 => "<f8",
        };
        let extents: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        let shape = match extents.as_slice() {
            [only] => format!("({only},)"),
            several => format!("({})", several.join(", ")),
        };
        let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
        // The data begins at a multiple of 64; the header ends in a line break.
        let length = (MAGIC.len() + 4 + header.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
        header = format!("{header:<width$}\n", width = length - 1);
        let mut file = [MAGIC, &[1, 0], &(length as u16).to_le_bytes(), header.as_bytes()].concat();
        match self.element {
            Element::Bf16 => {
                Element::Bf16.load(&self.bytes).into_iter().for_each(|x| file.extend(Element::F32.store(x)));
            }
            _ => file.extend_from_slice(&self.bytes),
        }
        file
    }
}

/// The elements of an array whose first axis is contiguous, in the usual order.
fn transposed(data: &[u8], shape: &[usize], size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(data.len());
    let mut index = vec![0usize; shape.len()];
    for _ in 0..data.len() / size {
        let mut at = 0;
        for (axis, &extent) in shape.iter().enumerate().rev() {
            at = at * extent + index[axis];
        }
        bytes.extend_from_slice(&data[at * size..(at + 1) * size]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    bytes
}

struct Header {
    element: Element,
    fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads the dictionary of a header: three entries with constants, in any order.
    fn parse(text: &str) -> Result<Header, NpyError> {
        let wrong = |what: &str| NpyError::Header(what.to_owned());
        let (mut element, mut fortran, mut shape) = (None, None, None);
        let inner = text.trim().strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        let mut rest = inner.ok_or_else(|| wrong("it is not a dictionary"))?.trim();
        while !rest.is_empty() {
            let (key, after) = quoted(rest).ok_or_else(|| wrong("a key is not a text"))?;
            rest =
                after.trim_start().strip_prefix(':').ok_or_else(|| wrong("a colon is missing"))?.trim_start();
            match key {
                "descr" => {
                    let (kind, after) =
                        quoted(rest).ok_or_else(|| NpyError::Element("structures with fields".to_owned()))?;
                    element = Some(named(kind)?);
                    rest = after;
                }
                "fortran_order" => {
                    let (value, after) = match (rest.strip_prefix("False"), rest.strip_prefix("True")) {
                        (Some(after), _) => (false, after),
                        (_, Some(after)) => (true, after),
                        _ => return Err(wrong("fortran_order is neither True nor False")),
                    };
                    (fortran, rest) = (Some(value), after);
                }
                "shape" => {
                    let open = rest.strip_prefix('(').ok_or_else(|| wrong("the shape is not a tuple"))?;
                    let (inside, after) =
                        open.split_once(')').ok_or_else(|| wrong("the shape does not end"))?;
                    let extents = inside.split(',').map(str::trim).filter(|extent| !extent.is_empty());
                    let extents: Result<Vec<usize>, _> = extents.map(str::parse).collect();
                    shape = Some(extents.map_err(|_| wrong("the shape is not made of numbers"))?);
                    rest = after;
                }
                _ => return Err(wrong("it has an unknown key")),
            }
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        match (element, fortran, shape) {
            (Some(element), Some(fortran), Some(shape)) if shape.len() <= MAX_AXES => {
                Ok(Header { element, fortran, shape })
            }
            _ => Err(wrong("an entry is missing, or there are too many axes")),
        }
    }
}

/// A text in quotation marks at the beginning, and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let mark = text.chars().next().filter(|mark| matches!(mark, '\'' | '"'))?;
    text[1..].split_once(mark)
}

fn named(kind: &str) -> Result<Element, NpyError> {
    Ok(match kind {
        "|i1" | "<i1" => Element::I8,
        "|u1" | "<u1" | "|b1" | "<b1" => Element::U8,
        "<i2" => Element::I16,
        "<u2" => Element::U16,
        "<i4" => Element::I32,
        "<u4" => Element::U32,
        "<i8" => Element::I64,
        "<u8" => Element::U64,
        "<f2" => Element::F16,
        "<f4" => Element::F32,
        "<f8" => Element::F64,
        other => return Err(NpyError::Element(kinora_outside::shortened(other, 40).into_owned())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let length = header.len();
        let length = match version {
            1 => (length as u16).to_le_bytes().to_vec(),
            _ => (length as u32).to_le_bytes().to_vec(),
        };
        [MAGIC, &[version, 0], &length, header.as_bytes(), data].concat()
    }

    /// As NumPy 2 writes `numpy.arange(6, dtype="<i2").reshape(2, 3)`, in each version and order.
    #[test]
    fn every_version_is_read() {
        let data: Vec<u8> = (0..6i16).flat_map(i16::to_le_bytes).collect();
        for version in 1..=3 {
            let header = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }      \n";
            let array = Array::parse(&file(version, header, &data)).unwrap();
            assert_eq!((array.element, array.shape, array.bytes), (Element::I16, vec![2, 3], data.clone()));
        }
        let header = "{'shape': (2, 3), 'fortran_order': True, 'descr': '<i2'}";
        let array = Array::parse(&file(1, header, &data)).unwrap();
        assert_eq!(Element::I16.load(&array.bytes), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
        let scalar =
            Array::parse(&file(1, "{'descr': '<f8', 'fortran_order': False, 'shape': ()}", &[0; 8])).unwrap();
        assert_eq!(scalar.shape, Vec::<usize>::new());
    }

    #[test]
    fn what_is_written_is_read() {
        for (_, element, size) in Element::ALL {
            for shape in [vec![], vec![5], vec![2, 3], vec![0, 7]] {
                let count: usize = shape.iter().product();
                let bytes: Vec<u8> = (0..count).flat_map(|at| element.store(at as f64)).collect();
                let array = Array { element, shape, bytes };
                let file = array.to_bytes();
                let again = Array::parse(&file).unwrap();
                assert_eq!(
                    (&again.shape, element.load(&array.bytes)),
                    (&array.shape, again.element.load(&again.bytes))
                );
                assert_eq!(again.element.bytes(), if element == Element::Bf16 { 4 } else { size });
                assert_eq!((file.len() - again.bytes.len()) % 64, 0);
            }
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let right = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
        assert!(Array::parse(&file(1, right, &[0; 8])).is_ok());
        for (header, data) in [
            (right, 7usize),
            (right, 9),
            ("", 0),
            ("{", 0),
            ("{}", 0),
            ("[]", 0),
            ("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", 16),
            ("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", 8),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", 8),
            ("{'descr': '<f4', 'fortran_order': 1, 'shape': (2,), }", 8),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", 8),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2, }", 8),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,), }", 8),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 18446744073709551615, 18446744073709551615), }",
                8,
            ),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", 8),
            ("{'descr: '<f4'", 8),
            ("{'é", 8),
        ] {
            assert!(Array::parse(&file(1, header, &vec![0; data])).is_err(), "{header}");
        }
        let whole = file(1, right, &[0; 8]);
        for length in 0..whole.len() {
            assert!(Array::parse(&whole[..length]).is_err(), "{length}");
        }
        assert!(matches!(Array::parse(b"no array"), Err(NpyError::Magic)));
        assert!(Array::parse(&file(9, right, &[0; 8])).is_err());
        assert!(Array::parse(&[MAGIC, &[2, 0, 255, 255, 255, 255]].concat()).is_err());
    }
}
