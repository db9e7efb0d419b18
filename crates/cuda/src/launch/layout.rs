//! Structs that kernels take by value: one declaration in Rust, against which NVRTC checks the one in CUDA.
//!
//! [`c_struct!`] declares a struct whose fields have fixed extents; [`StructValue::named`] makes one whose arrays are as long
//! as the kernel's constants say. Either way the value knows its [`Layout`], and [`Kernel::text`](super::Kernel::text) asserts
//! it: a field that is missing, renamed, swapped or of another type does not compile.

use std::{borrow::Cow, fmt::Write as _};

use super::DevicePointer;
use crate::CudaError;

/// The type of a parameter or of a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CType {
    /// A pointer to anything.
    Pointer,
    /// `int`.
    I32,
    /// `long long`.
    I64,
    /// `float`.
    F32,
    /// `double`.
    F64,
    /// `TensorMap` of `common/hopper.cuh`.
    TensorMap,
    /// A struct.
    Struct(Cow<'static, Layout>),
    /// An array.
    Array(Box<CType>, usize),
}

impl CType {
    /// The type in CUDA, where `AnyPointer` stands for every pointer.
    pub(super) fn spelled(&self) -> String {
        self.spelled_with(String::new())
    }

    /// The type of an array of such elements, whose extents are already spelled.
    fn spelled_with(&self, extents: String) -> String {
        let name = match self {
            CType::Pointer => "launch_check::AnyPointer",
            CType::I32 => "int",
            CType::I64 => "long long",
            CType::F32 => "float",
            CType::F64 => "double",
            CType::TensorMap => "TensorMap",
            CType::Struct(layout) => layout.name,
            CType::Array(of, length) => return of.spelled_with(format!("{extents}[{length}]")),
        };
        format!("{name}{extents}")
    }

    /// The structs in it, innermost first.
    pub(super) fn structs<'a>(&'a self, found: &mut Vec<&'a Layout>) {
        match self {
            CType::Struct(layout) if !found.contains(&&**layout) => {
                for field in &layout.fields {
                    field.ty.structs(found);
                }
                found.push(layout);
            }
            CType::Array(of, _) => of.structs(found),
            _ => {}
        }
    }
}

/// How a struct lies in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Layout {
    /// Its name in CUDA.
    pub name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields, in order.
    pub fields: Vec<Field>,
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Field {
    /// Its name in CUDA.
    pub name: &'static str,
    /// The bytes before it.
    pub offset: usize,
    /// Its type.
    pub ty: CType,
}

impl Layout {
    /// Assertions, in CUDA, that the struct of this name lies in memory as this says.
    pub(super) fn assertions(&self) -> String {
        let Layout { name, size, fields } = self;
        let mut text = format!("static_assert(sizeof({name}) == {size}, \"the size of {name}\");\n");
        for Field { name: field, offset, ty } in fields {
            let ty = ty.spelled();
            _ = writeln!(
                text,
                "static_assert(LAUNCH_CHECK_OFFSET({name}, {field}) == {offset} && \
                 launch_check::Fits<{ty}, decltype({name}::{field})>::value, \"{name}::{field}\");"
            );
        }
        text
    }
}

/// A type that Rust and CUDA lay out alike: a number, a pointer, an array of these, or a struct declared by `c_struct!`.
pub trait Plain: Copy {
    /// Its type in CUDA.
    fn c_type() -> CType;

    /// Appends its bytes.
    fn put(self, bytes: &mut Vec<u8>);
}

macro_rules! plain_number {
    ($($type:ty => $variant:ident),*) => {
        $(impl Plain for $type {
            fn c_type() -> CType {
                CType::$variant
            }

            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }
        })*
    };
}
plain_number!(i32 => I32, i64 => I64, f32 => F32, f64 => F64);

impl Plain for DevicePointer {
    fn c_type() -> CType {
        CType::Pointer
    }

    fn put(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.address().to_le_bytes());
    }
}

impl<T: Plain, const N: usize> Plain for [T; N] {
    fn c_type() -> CType {
        CType::Array(Box::new(T::c_type()), N)
    }

    fn put(self, bytes: &mut Vec<u8>) {
        self.into_iter().for_each(|element| element.put(bytes));
    }
}

/// A struct by value, and its layout.
#[derive(Clone, Debug, PartialEq)]
pub struct StructValue {
    layout: Cow<'static, Layout>,
    /// The fields, and the padding between and after them.
    bytes: Vec<u8>,
    /// Where the last field ends. Padding follows.
    end: usize,
    /// That of the field with the largest one.
    alignment: usize,
}

impl StructValue {
    /// The value of a struct declared by `c_struct!`.
    pub fn of<T: Plain>(value: T, layout: &'static Layout) -> StructValue {
        let mut bytes = Vec::with_capacity(layout.size);
        value.put(&mut bytes);
        let end = bytes.len();
        StructValue { layout: Cow::Borrowed(layout), bytes, end, alignment: align_of::<T>() }
    }

    /// A struct without fields, to which [`StructValue::with`] adds them in order.
    pub fn named(name: &'static str) -> StructValue {
        let layout = Layout { name, size: 0, fields: Vec::new() };
        StructValue { layout: Cow::Owned(layout), bytes: Vec::new(), end: 0, alignment: 1 }
    }

    /// Adds a field.
    #[must_use]
    pub fn with<T: Plain>(self, name: &'static str, value: T) -> StructValue {
        self.with_field(name, T::c_type(), [value])
    }

    /// Adds an array.
    #[must_use]
    pub fn with_array<T: Plain>(self, name: &'static str, values: &[T]) -> StructValue {
        let ty = CType::Array(Box::new(T::c_type()), values.len());
        self.with_field(name, ty, values.iter().copied())
    }

    /// Adds an array of arrays of one length.
    ///
    /// # Errors
    /// If they differ in length.
    pub fn with_table<T: Plain>(self, name: &'static str, rows: &[Vec<T>]) -> Result<StructValue, CudaError> {
        let length = rows.first().map_or(0, Vec::len);
        if let Some(other) = rows.iter().map(Vec::len).find(|&other| other != length) {
            let table = format!("{}::{name}", self.layout.name);
            return Err(CudaError::Internal(format!("{table} has rows of {length} and of {other} elements")));
        }
        let row = CType::Array(Box::new(T::c_type()), length);
        let ty = CType::Array(Box::new(row), rows.len());
        Ok(self.with_field(name, ty, rows.iter().flatten().copied()))
    }

    fn with_field<T: Plain>(
        mut self,
        name: &'static str,
        ty: CType,
        values: impl IntoIterator<Item = T>,
    ) -> StructValue {
        let offset = self.end.next_multiple_of(align_of::<T>());
        self.bytes.resize(offset, 0);
        values.into_iter().for_each(|value| value.put(&mut self.bytes));
        self.end = self.bytes.len();
        // As in C, the size is a multiple of the alignment.
        self.alignment = self.alignment.max(align_of::<T>());
        self.bytes.resize(self.end.next_multiple_of(self.alignment), 0);
        let layout = self.layout.to_mut();
        layout.fields.push(Field { name, offset, ty });
        layout.size = self.bytes.len();
        self
    }

    /// How it lies in memory.
    pub fn layout(&self) -> &Cow<'static, Layout> {
        &self.layout
    }

    /// Its bytes, as the GPU reads them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Declares a struct that a kernel takes by value, under the name and with the fields that it has in CUDA. It becomes an
/// [`Argument`](super::Argument) by `into()`.
macro_rules! c_struct {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)* }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[repr(C)]
        $visibility struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        // Without padding the bytes are those of the fields, one after the other.
        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*, "the struct has padding");

        impl $name {
            fn layout() -> &'static $crate::launch::Layout {
                static LAYOUT: std::sync::OnceLock<$crate::launch::Layout> = std::sync::OnceLock::new();
                LAYOUT.get_or_init(|| $crate::launch::Layout {
                    name: stringify!($name),
                    size: size_of::<$name>(),
                    fields: vec![$($crate::launch::Field {
                        name: stringify!($field),
                        offset: std::mem::offset_of!($name, $field),
                        ty: <$type as $crate::launch::Plain>::c_type(),
                    }),*],
                })
            }
        }

        impl $crate::launch::Plain for $name {
            fn c_type() -> $crate::launch::CType {
                $crate::launch::CType::Struct(std::borrow::Cow::Borrowed($name::layout()))
            }

            fn put(self, bytes: &mut Vec<u8>) {
                $($crate::launch::Plain::put(self.$field, bytes);)*
            }
        }

        impl From<$name> for $crate::launch::Argument {
            fn from(value: $name) -> $crate::launch::Argument {
                $crate::launch::StructValue::of(value, $name::layout()).into()
            }
        }
    };
}
pub(crate) use c_struct;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Argument;

    c_struct! {
        struct Inner {
            first: i32,
            pair: [i32; 3],
        }
    }

    c_struct! {
        struct Outer {
            at: DevicePointer,
            inner: Inner,
            factor: f64,
        }
    }

    #[test]
    fn fields_lie_where_rust_puts_them() {
        let inner = Inner { first: 1, pair: [2, 3, -1] };
        let value = Argument::from(Outer { at: DevicePointer::new(0x0102), inner, factor: 1.0 });
        let Argument::Struct(value) = value else { panic!("{value:?}") };
        assert_eq!(value.bytes().len(), size_of::<Outer>());
        assert_eq!(value.bytes()[..9], [2, 1, 0, 0, 0, 0, 0, 0, 1]);
        let offsets: Vec<usize> = value.layout().fields.iter().map(|field| field.offset).collect();
        assert_eq!(offsets, [0, 8, 24]);
        let mut structs = Vec::new();
        let outer = Outer::c_type();
        outer.structs(&mut structs);
        assert_eq!(structs.iter().map(|layout| layout.name).collect::<Vec<_>>(), ["Inner", "Outer"]);
    }

    #[test]
    fn a_struct_of_arrays_is_laid_out_as_it_is_built() {
        let value = StructValue::named("Axes")
            .with("count", 7i32)
            .with_array("at", &[DevicePointer::new(1)])
            .with_table("stride", &[vec![2i64, 3], vec![4, 5], vec![6, 7]])
            .unwrap();
        let fields: Vec<(&str, usize, String)> =
            value.layout().fields.iter().map(|f| (f.name, f.offset, f.ty.spelled())).collect();
        let pointer = "launch_check::AnyPointer[1]".to_owned();
        let expected = [
            ("count", 0, "int".to_owned()),
            ("at", 8, pointer),
            ("stride", 16, "long long[3][2]".to_owned()),
        ];
        assert_eq!(fields, expected);
        assert_eq!((value.layout().size, value.bytes().len()), (64, 64));
    }

    #[test]
    fn a_struct_is_padded_at_its_end_as_in_c() {
        let value = StructValue::named("Padded").with("wide", 1i64).with("narrow", 2i32);
        assert_eq!((value.layout().size, value.bytes().len()), (16, 16));
        // The next field takes the place of the padding.
        let value = value.with("next", 3i32);
        assert_eq!((value.layout().fields[2].offset, value.layout().size), (12, 16));
        assert_eq!(value.bytes()[8..], [2, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(StructValue::named("Narrow").with("only", 1i32).layout().size, 4);
    }

    #[test]
    fn the_rows_of_a_table_have_one_length() {
        let error = StructValue::named("Axes").with_table("stride", &[vec![1i64, 2], vec![3]]).unwrap_err();
        assert!(error.to_string().contains("Axes::stride has rows of 2 and of 1 elements"), "{error}");
    }
}
