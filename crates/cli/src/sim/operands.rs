//! A kernel's arguments as the command line spells them.

use std::{
    io::Read,
    path::{Path, PathBuf},
    str::FromStr,
};

use super::textures::Texels;
use kinora_lab::Element;
use kinora_ptx::{
    Argument, DeviceAddress, MapElement, PtxError, Simulator, Swizzle, TensorMap, TensorMapKind,
};

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// The bytes of a number or a struct.
    Value(Vec<u8>),
    /// Memory.
    Buffer(Buffer),
    /// A tensor map of memory, for TMA copies of boxes; the box's extents, outermost axis first.
    Tiles { buffer: Buffer, tile: Vec<u32>, swizzle: Swizzle },
    /// A texture or a surface.
    Texels { buffer: Buffer, texels: Texels },
}

/// Memory for a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    pub element: Element,
    /// The outermost axis first. Only a tensor map distinguishes axes; otherwise the total number of elements counts.
    extents: Vec<usize>,
    filling: Filling,
}

impl Buffer {
    /// Its extents, outermost axis first.
    pub fn extents(&self) -> &[usize] {
        &self.extents
    }

    /// Whether it is filled with anything but one number.
    pub fn has_content(&self) -> bool {
        matches!(self.filling, Filling::Random | Filling::File(_))
    }

    /// The file that it is filled from.
    pub fn file(&self) -> Option<&Path> {
        match &self.filling {
            Filling::File(path) => Some(path),
            _ => None,
        }
    }
}

/// What a buffer initially holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Filling {
    /// Nothing: reading it is a finding.
    Nothing,
    /// One number, over and over.
    Number(f64),
    /// Pseudorandom numbers, the same in every run.
    Random,
    /// The bytes of a file.
    File(PathBuf),
}

/// The element type of a tensor map.
fn of_map(element: Element) -> MapElement {
    match element {
        Element::I8 | Element::U8 => MapElement::U8,
        Element::I16 | Element::U16 => MapElement::U16,
        Element::I32 => MapElement::I32,
        Element::U32 => MapElement::U32,
        Element::I64 | Element::U64 => MapElement::U64,
        Element::F16 => MapElement::F16,
        Element::Bf16 => MapElement::Bf16,
        Element::F32 => MapElement::F32,
        Element::F64 => MapElement::F64,
    }
}

/// The ways to write an argument.
const FORMS: &str = "write i32:5, f32:0.5, f32[1000], f32[1000]=0, f32[1000]=random, f32[1000]=@FILE, \
                     tiles:16,64:f16[512,64]=random, texture:linear:f32[64,64]=random or surface:f32[64,64]";

/// Why an argument cannot be parsed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ArgumentError {
    /// It has none of the known forms.
    #[error("{FORMS}")]
    Form,
    /// An unknown element type.
    #[error("unknown type {0:?}; {FORMS}")]
    Type(String),
    /// Extents that are not numbers.
    #[error("{0:?} is not a number of elements; write f32[1000] or f32[10,100]")]
    Extents(String),
    /// A buffer beyond all memory.
    #[error("{0} is larger than the memory of any GPU")]
    TooLarge(String),
    /// Text that is not a number of its type.
    #[error("{number:?} is not a valid {name}")]
    Number {
        /// The text.
        number: String,
        /// The type.
        name: String,
    },
    /// Digits that are not whole bytes.
    #[error("{0:?} is not a sequence of bytes; write two hexadecimal digits per byte")]
    Bytes(String),
    /// An unknown swizzle.
    #[error("swizzle{0} does not exist; write swizzle32, swizzle64 or swizzle128")]
    Swizzle(String),
    /// A box that is not numbers.
    #[error("{0:?} is not a box; write its extents, as in tiles:16,64:f16[512,64]")]
    Box(String),
    /// An option that textures or surfaces do not have.
    #[error(
        "{0:?} is no option here; a texture can be point or linear, wrap, clamp, mirror or border, normalised, unit, layered, \
         cube or memory, and a surface layered"
    )]
    Texture(String),
    /// A format or axes that textures do not have.
    #[error(
        "a texture or surface has one to three axes, and one for its layers or its six faces; its texels have 1, 2 or 4 \
         channels of 8 to 32 bits, as in f32x4[64,64]"
    )]
    Texels,
    /// Extents that arrays cannot have.
    #[error("{0}")]
    Array(String),
    /// A tensor or a box without elements.
    #[error("a tensor map needs a tensor and a box with at least one element")]
    Empty,
    /// A box whose axes are not those of its tensor.
    #[error("the box has {tile} axes and the tensor {tensor}; both need the same number, at most 5")]
    Axes {
        /// Axes of the box.
        tile: usize,
        /// Axes of the tensor.
        tensor: usize,
    },
}

impl FromStr for Operand {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        if let Some(map) = text.strip_prefix("tiles:") {
            return tiles(map);
        }
        for (prefix, surface) in [("texture:", false), ("surface:", true)] {
            if let Some(text) = text.strip_prefix(prefix) {
                let (texels, buffer) = Texels::parse(text, surface)?;
                return Ok(Operand::Texels { buffer, texels });
            }
        }
        if text.contains('[') {
            return text.parse().map(Operand::Buffer);
        }
        let (name, number) = text.split_once(':').ok_or(ArgumentError::Form)?;
        let bytes = if name == "bytes" { hexadecimal(number) } else { scalar(name, number) };
        Ok(Operand::Value(bytes?))
    }
}

impl FromStr for Buffer {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Self, ArgumentError> {
        let (name, rest) = text.split_once('[').ok_or(ArgumentError::Form)?;
        let element = Element::named(name).ok_or_else(|| ArgumentError::Type(name.to_owned()))?;
        let (extents, rest) = rest.split_once(']').ok_or(ArgumentError::Form)?;
        let axes = extents.split(',').map(|extent| extent.trim().parse().ok());
        let extents: Vec<usize> =
            axes.collect::<Option<_>>().ok_or_else(|| ArgumentError::Extents(extents.to_owned()))?;
        let bytes = extents.iter().try_fold(element.bytes(), |bytes, &extent| bytes.checked_mul(extent));
        if bytes.is_none_or(|bytes| bytes > 1 << 40) {
            return Err(ArgumentError::TooLarge(text.to_owned()));
        }
        let filling = match rest.strip_prefix('=') {
            None if rest.is_empty() => Filling::Nothing,
            None => return Err(ArgumentError::Form),
            Some("random") => Filling::Random,
            Some(file) if file.starts_with('@') => Filling::File(PathBuf::from(&file[1..])),
            Some(number) => Filling::Number(number.parse().map_err(|_| wrong_number(number, name))?),
        };
        Ok(Buffer { element, extents, filling })
    }
}

/// A tensor map, `16,64:f16[512,64]` or with a swizzle `16,64,swizzle128:f16[512,64]`.
fn tiles(text: &str) -> Result<Operand, ArgumentError> {
    let (tile, buffer) = text.split_once(':').ok_or(ArgumentError::Form)?;
    let buffer: Buffer = buffer.parse()?;
    let (tile, swizzle) = match tile.rsplit_once(",swizzle") {
        None => (tile, Swizzle::None),
        Some((tile, "32")) => (tile, Swizzle::Bytes32),
        Some((tile, "64")) => (tile, Swizzle::Bytes64),
        Some((tile, "128")) => (tile, Swizzle::Bytes128),
        Some((_, width)) => return Err(ArgumentError::Swizzle(width.to_owned())),
    };
    let extents = tile.split(',').map(|extent| extent.trim().parse().ok());
    let tile: Vec<u32> = extents.collect::<Option<_>>().ok_or_else(|| ArgumentError::Box(tile.to_owned()))?;
    if buffer.extents.contains(&0) || tile.contains(&0) {
        return Err(ArgumentError::Empty);
    }
    if tile.len() != buffer.extents.len() || tile.len() > 5 {
        return Err(ArgumentError::Axes { tile: tile.len(), tensor: buffer.extents.len() });
    }
    Ok(Operand::Tiles { buffer, tile, swizzle })
}

fn wrong_number(number: &str, name: &str) -> ArgumentError {
    ArgumentError::Number { number: number.to_owned(), name: name.to_owned() }
}

/// The bytes of a number.
fn scalar(name: &str, number: &str) -> Result<Vec<u8>, ArgumentError> {
    let element = Element::named(name).ok_or_else(|| ArgumentError::Type(name.to_owned()))?;
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
    .ok_or_else(|| wrong_number(number, name))
}

/// Bytes of two hexadecimal digits each.
fn hexadecimal(digits: &str) -> Result<Vec<u8>, ArgumentError> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [high, low] => {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            Some((digit(*high)? * 16 + digit(*low)?) as u8)
        }
        _ => None,
    };
    let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
    bytes.filter(|bytes| !bytes.is_empty()).ok_or_else(|| ArgumentError::Bytes(digits.to_owned()))
}

/// Why an operand could not be placed on the device.
#[derive(Debug)]
pub enum OperandError {
    /// Its file cannot be read.
    File(PathBuf, std::io::Error),
    /// Its file has another size.
    Length { path: PathBuf, got: u64, wanted: usize },
    /// The simulator cannot hold it.
    Simulator(PtxError),
}

impl Operand {
    /// The memory that it is or describes.
    pub fn buffer(&self) -> Option<&Buffer> {
        match self {
            Operand::Value(_) => None,
            Operand::Buffer(buffer) | Operand::Tiles { buffer, .. } | Operand::Texels { buffer, .. } => {
                Some(buffer)
            }
        }
    }

    /// Reserves addresses for the operand, without memory behind them.
    pub fn reserve(
        &self,
        simulator: &mut Simulator,
    ) -> Result<(Argument, Option<(DeviceAddress, usize)>), OperandError> {
        let place = self.buffer().map(|buffer| (simulator.reserve(buffer.bytes()), buffer.bytes()));
        Ok((self.argument(place, simulator)?, place))
    }

    /// Places the operand on the device: returns the kernel's argument, and the address and size of its memory if it has any.
    pub fn place(
        &self,
        number: usize,
        simulator: &mut Simulator,
    ) -> Result<(Argument, Option<(DeviceAddress, usize)>), OperandError> {
        let place = match self.buffer() {
            Some(buffer) => Some((buffer.place(number, simulator)?, buffer.bytes())),
            None => None,
        };
        Ok((self.argument(place, simulator)?, place))
    }

    fn argument(
        &self,
        place: Option<(DeviceAddress, usize)>,
        simulator: &mut Simulator,
    ) -> Result<Argument, OperandError> {
        let address = place.map_or(0, |(address, _)| address);
        Ok(match self {
            Operand::Value(bytes) => Argument::Bytes(bytes.clone()),
            Operand::Buffer(_) => Argument::U64(address),
            Operand::Tiles { buffer, tile, swizzle } => {
                Argument::TensorMap(buffer.map(address, tile, *swizzle))
            }
            Operand::Texels { buffer, texels } => {
                Argument::U64(texels.make(buffer, address, simulator).map_err(OperandError::Simulator)?)
            }
        })
    }
}

impl Buffer {
    fn count(&self) -> usize {
        self.extents.iter().product()
    }

    fn bytes(&self) -> usize {
        self.count() * self.element.bytes()
    }

    /// Allocates the memory and fills it.
    fn place(&self, number: usize, simulator: &mut Simulator) -> Result<DeviceAddress, OperandError> {
        let address = simulator.allocate(self.bytes()).map_err(OperandError::Simulator)?;
        let content = match &self.filling {
            Filling::Nothing => None,
            Filling::Number(value) => Some(self.element.store(*value).repeat(self.count())),
            Filling::Random => Some(random(self.element, self.count(), number)),
            Filling::File(path) => {
                let unreadable = |error| OperandError::File(path.clone(), error);
                let file = kinora_outside::open(path).map_err(unreadable)?;
                let (got, wanted) = (file.metadata().map_err(unreadable)?.len(), self.bytes());
                if got != wanted as u64 {
                    return Err(OperandError::Length { path: path.clone(), got, wanted });
                }
                let mut content = vec![0; wanted];
                (&file).read_exact(&mut content).map_err(unreadable)?;
                Some(content)
            }
        };
        if let Some(content) = content.filter(|content| !content.is_empty()) {
            simulator.copy_in(address, &content).map_err(OperandError::Simulator)?;
        }
        Ok(address)
    }

    /// The tensor map of it as a contiguous tensor. Tensor maps list the innermost axis first.
    fn map(&self, address: DeviceAddress, tile: &[u32], swizzle: Swizzle) -> TensorMap {
        let rank = self.extents.len();
        let inwards = |axis: usize| rank.checked_sub(axis + 1);
        let extent = |axis| inwards(axis).map_or(1, |place| self.extents[place] as u64);
        let inner = |axis: usize| (0..=axis).map(extent).product::<u64>();
        TensorMap {
            address,
            element: of_map(self.element),
            rank,
            extents: std::array::from_fn(extent),
            strides: std::array::from_fn(|axis| {
                if axis + 1 < rank { inner(axis) * self.element.bytes() as u64 } else { 0 }
            }),
            element_strides: [1; 5],
            kind: TensorMapKind::Tiled {
                tile: std::array::from_fn(|axis| inwards(axis).map_or(1, |place| tile[place])),
            },
            swizzle,
            nan_outside: false,
        }
    }
}

/// Numbers between -1 and 1, or integers from 0 to 9, different for each argument.
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
        let buffer =
            |filling| Ok(Operand::Buffer(Buffer { element: Element::F16, extents: vec![12], filling }));
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
            "u8[1000000,1000000,1000000,1000000]",
            "f32[3,]",
            "tiles:",
            "tiles:4,8",
            "tiles:4:f32[8,8]",
            "tiles:1,1,1:u8[0,1000000000000000000,1000000000000000000]",
            "tiles:0,1:f32[8,8]",
            "tiles:4,x:f32[8,8]",
            "tiles:4,8,swizzle16:f32[8,8]",
            "tiles:1,1,1,1,1,1:f32[1,1,1,1,1,1]",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_tensor_map_has_its_innermost_axis_first() {
        let operand: Operand = "tiles:2,4,8,swizzle32:f32[3,16,32]".parse().unwrap();
        let Operand::Tiles { buffer, tile, swizzle } = &operand else { panic!("{operand:?}") };
        let map = buffer.map(4096, tile, *swizzle);
        assert_eq!((map.address, map.rank, map.element), (4096, 3, MapElement::F32));
        assert_eq!(map.extents, [32, 16, 3, 1, 1]);
        assert_eq!(map.strides, [128, 2048, 0, 0]);
        assert_eq!(map.kind, TensorMapKind::Tiled { tile: [8, 4, 2, 1, 1] });
        assert_eq!(map.swizzle, Swizzle::Bytes32);
        assert!(map.encode().is_ok());
    }

    #[test]
    fn random_numbers_differ_by_argument() {
        assert_ne!(random(Element::F32, 4, 0), random(Element::F32, 4, 1));
        let whole = Element::I32.show(&random(Element::I32, 100, 0));
        assert!(
            whole.iter().all(|number| (0..10).contains(&number.parse::<i32>().unwrap_or(-1))),
            "{whole:?}"
        );
    }
}
