//! `wmma`, and `mma` of f64, of 4-bit integers and of single bits.

use super::{Context, Decoder, matrix::take_shape, modifiers::Modifiers};
use crate::{
    error::PtxError,
    isa::{
        Alu, Class, Conversion, ExactElement, ExactMma, FragmentAccess, Matrix, Memory, Mma, Mode, Op,
        Operand, Type,
    },
};

/// The elements of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Plain(Type),
    /// 4-bit integers, signed or not.
    Int4(bool),
    Bit,
}

impl Element {
    fn bits(self) -> usize {
        match self {
            Element::Plain(kind) => 8 * kind.bytes(),
            Element::Int4(_) => 4,
            Element::Bit => 1,
        }
    }

    /// The type of the registers that hold it.
    fn register(self) -> Type {
        match self {
            Element::Plain(Type::F64) => Type::F64,
            _ => Type::B32,
        }
    }
}

type Shape = (usize, usize, usize);

/// The registers of a fragment; `None` if there is no such fragment.
fn registers(shape: Shape, matrix: Matrix, element: Element) -> Option<usize> {
    let (m, n, _) = shape;
    let sixteen = matches!(shape, (16, 16, 16) | (32, 8, 16) | (8, 32, 16));
    let lines = if matrix == Matrix::A { m } else { n };
    let sum = matrix == Matrix::Sum;
    Some(match element {
        // Several threads hold the same f16 of a small matrix.
        Element::Plain(Type::F16) if sixteen => {
            if sum {
                4
            } else {
                8
            }
        }
        Element::Plain(Type::Bf16) if sixteen && !sum => lines / 4,
        Element::Plain(Type::S8 | Type::U8) if sixteen && !sum => lines / 8,
        Element::Plain(Type::Tf32) if shape == (16, 16, 8) && !sum => 4,
        Element::Plain(Type::F32) if (sixteen || shape == (16, 16, 8)) && sum => 8,
        Element::Plain(Type::S32) if sixteen && sum => 8,
        Element::Plain(Type::S32) if matches!(shape, (8, 8, 32 | 128)) && sum => 2,
        Element::Plain(Type::F64) if shape == (8, 8, 4) => {
            if sum {
                2
            } else {
                1
            }
        }
        Element::Int4(_) if shape == (8, 8, 32) && !sum => 1,
        Element::Bit if shape == (8, 8, 128) && !sum => 1,
        _ => return None,
    })
}

/// Takes all element types, in order.
fn take_elements(modifiers: &mut Modifiers<'_>) -> Vec<Element> {
    let named = |part: &str| match part {
        "s4" => Some(Element::Int4(true)),
        "u4" => Some(Element::Int4(false)),
        "b1" => Some(Element::Bit),
        _ => Type::named(part).map(Element::Plain),
    };
    let parts: Vec<&str> = modifiers.parts().iter().copied().filter(|part| named(part).is_some()).collect();
    parts
        .into_iter()
        .filter_map(|part| {
            modifiers.take(part);
            named(part)
        })
        .collect()
}

impl<'a> Decoder<'a, '_> {
    /// Decodes an instruction of this group.
    pub(super) fn wmma(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<bool, PtxError> {
        match modifiers.name() {
            "mma" if ["f64", "s4", "u4", "b1"].iter().any(|kind| modifiers.has(kind)) => {
                self.exact_mma(context, modifiers)?;
            }
            "wmma" => {
                for part in ["sync", "aligned"] {
                    modifiers.take(part);
                }
                if modifiers.take("mma") {
                    self.fragment_product(context, modifiers)?;
                } else if modifiers.take("load") {
                    self.fragment_access(context, modifiers, true)?;
                } else if modifiers.take("store") {
                    self.fragment_access(context, modifiers, false)?;
                } else {
                    return Err(context.unsupported("this form of wmma"));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn fragment_access(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
        load: bool,
    ) -> Result<(), PtxError> {
        let matrices: &[(&str, Matrix)] = if load {
            &[("a", Matrix::A), ("b", Matrix::B), ("c", Matrix::Sum)]
        } else {
            &[("d", Matrix::Sum)]
        };
        let matrix =
            modifiers.take_any(matrices).ok_or_else(|| context.wrong("expected a matrix: a, b, c or d"))?;
        let column_major = modifiers.take("col");
        modifiers.take("row");
        let shape = take_shape(modifiers);
        let (Some(shape), &[element]) = (shape, &take_elements(modifiers)[..]) else {
            return Err(context.unsupported("a wmma access of this shape"));
        };
        let Some(count) = registers(shape, matrix, element) else {
            return Err(context.unsupported("a wmma fragment of this shape and type"));
        };
        // Smaller elements are contiguous along the depth.
        let bits = element.bits();
        if bits < 8 && column_major != (matrix == Matrix::B) {
            return Err(
                context.wrong("a is row-major and b column-major if elements are smaller than a byte")
            );
        }
        let at = usize::from(load);
        if context.count() != 2 {
            context.expect(3)?;
        }
        let address = self.address(context, at)?;
        let memory = self.space_of(modifiers, address);
        if !matches!(memory, Memory::Generic | Memory::Global | Memory::Shared | Memory::SharedCluster) {
            return Err(context.unsupported("a wmma access to this state space"));
        }
        let (m, n, k) = shape;
        let stride = if context.count() == 3 {
            self.value(context, 2, Type::U32)?
        } else {
            let (rows, columns) = match matrix {
                Matrix::A => (m, k),
                Matrix::B => (k, n),
                Matrix::Sum => (m, n),
            };
            self.word_constant(if column_major { rows } else { columns } as u32)
        };
        let access = FragmentAccess {
            memory,
            matrix,
            m: m as u8,
            n: n as u8,
            k: if bits < 8 { k * bits / 32 } else { k } as u8,
            bytes: if bits < 8 { 4 } else { bits / 8 } as u8,
            bits: bits as u8,
            column_major,
            offset: address.offset,
        };
        let kind = element.register();
        if load {
            let results = self.fragment_results(context, count, kind)?;
            return self.emit(Op::LoadFragment(access), &results, &[address.base, stride]);
        }
        let mut operands = vec![address.base, stride];
        operands.extend(self.fragment(context, 1, count, kind)?);
        self.emit(Op::StoreFragment(access), &[], &operands)
    }

    /// The destination registers of a fragment.
    fn fragment_results(
        &mut self,
        context: Context<'_, 'a>,
        count: usize,
        kind: Type,
    ) -> Result<Vec<Operand>, PtxError> {
        let results = self.result_list(context, 0, kind.class())?;
        let right = |result: &Operand| !result.is_none() && result.class() == kind.class();
        if results.len() != count || !results.iter().all(right) {
            return Err(context.wrong(format!("expected {count} registers of {} bits", 8 * kind.bytes())));
        }
        Ok(results)
    }

    /// The source registers of a fragment.
    fn fragment(
        &mut self,
        context: Context<'_, 'a>,
        index: usize,
        count: usize,
        kind: Type,
    ) -> Result<Vec<Operand>, PtxError> {
        let parts = self.list(context, index)?;
        if parts.len() != count {
            return Err(context.wrong(format!("expected {count} registers, but found {}", parts.len())));
        }
        parts.iter().map(|part| self.value_of(context, part, kind)).collect()
    }

    fn fragment_product(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<(), PtxError> {
        for part in ["row", "col", "rn", "popc"] {
            modifiers.take(part);
        }
        let saturate = modifiers.take("satfinite");
        let and = modifiers.take("and");
        modifiers.take("xor");
        let half = Element::Plain(Type::F16);
        let (Some(shape), Some([d, a, b, c])) = (
            take_shape(modifiers),
            match take_elements(modifiers)[..] {
                [d, c] => Some([d, half, half, c]),
                [d, a, b, c] => Some([d, a, b, c]),
                _ => None,
            },
        ) else {
            return Err(context.unsupported("a wmma of this shape"));
        };
        let alike = match (a, b) {
            (Element::Plain(Type::S8 | Type::U8), Element::Plain(Type::S8 | Type::U8)) => true,
            (Element::Int4(_), Element::Int4(_)) => true,
            _ => a == b,
        };
        let sums: &[Type] = match a {
            Element::Plain(Type::F16) => &[Type::F16, Type::F32],
            Element::Plain(Type::F64) => &[Type::F64],
            Element::Plain(Type::Bf16 | Type::Tf32) => &[Type::F32],
            _ => &[Type::S32],
        };
        let (Element::Plain(d), Element::Plain(c)) = (d, c) else {
            return Err(context.unsupported("wmma with these accumulators"));
        };
        let counts = [
            (Matrix::Sum, Element::Plain(d)),
            (Matrix::A, a),
            (Matrix::B, b),
            (Matrix::Sum, Element::Plain(c)),
        ]
        .map(|(matrix, element)| registers(shape, matrix, element));
        let [Some(d_count), Some(a_count), Some(b_count), Some(c_count)] = counts else {
            return Err(context.unsupported("wmma of this shape and these types"));
        };
        if !alike || !sums.contains(&d) || !sums.contains(&c) {
            return Err(context.unsupported("wmma of these types"));
        }
        context.expect(4)?;
        let kind = a.register();
        let results = self.fragment_results(context, d_count, kind)?;
        let a_list = self.fragment(context, 1, a_count, kind)?;
        let b_list = self.fragment(context, 2, b_count, kind)?;
        let c_list = self.fragment(context, 3, c_count, kind)?;
        let (_, _, k) = shape;
        let exact = match (a, b) {
            (Element::Plain(Type::F64), _) => Some(ExactElement::F64),
            (Element::Int4(a_signed), Element::Int4(b_signed)) => {
                Some(ExactElement::Int4 { a_signed, b_signed })
            }
            (Element::Bit, _) => Some(ExactElement::Bit { and }),
            _ => None,
        };
        if let Some(element) = exact {
            let product = ExactMma { m: 8, k: k as u16, element, saturate };
            return self.emit(Op::ExactMma(product), &results, &[a_list, b_list, c_list].concat());
        }
        let (Element::Plain(a), Element::Plain(b)) = (a, b) else {
            return Err(context.unsupported("wmma of these types"));
        };
        let mma = Mma { m: 16, n: 8, k: k as u16, a, b, sum: d, saturate };
        // Accumulators of one type, which the product of the other type reads or writes.
        match (d, c) {
            (Type::F32, Type::F16) => {
                let sums = self.widened_sums(&c_list)?;
                self.tiles(shape, mma, &results, [&a_list, &b_list, &sums])
            }
            (Type::F16, Type::F32) => {
                let sums: Vec<Operand> = c_list.iter().map(|_| self.new_register(Class::Word)).collect();
                self.tiles(shape, Mma { sum: Type::F32, ..mma }, &sums, [&a_list, &b_list, &c_list])?;
                let narrow = conversion(Type::F16x2, Type::F32);
                for (&result, pair) in results.iter().zip(sums.chunks_exact(2)) {
                    self.emit(Op::Alu(narrow), &[result], &[pair[1], pair[0]])?;
                }
                Ok(())
            }
            _ => self.tiles(shape, mma, &results, [&a_list, &b_list, &c_list]),
        }
    }

    /// The f32 accumulators of pairs of f16.
    fn widened_sums(&mut self, pairs: &[Operand]) -> Result<Vec<Operand>, PtxError> {
        let mut sums = Vec::with_capacity(2 * pairs.len());
        for &pair in pairs {
            let halves = [self.new_register(Class::Word), self.new_register(Class::Word)];
            self.emit(Op::Alu(Alu::Unpack32), &halves, &[pair])?;
            for half in halves {
                let sum = self.new_register(Class::Word);
                self.emit(Op::Alu(conversion(Type::F32, Type::F16)), &[sum], &[half])?;
                sums.push(sum);
            }
        }
        Ok(sums)
    }

    /// The one or two products of 16 × 8 accumulators that a product of `wmma` consists of. If m is 8 and n is 32, the transposed
    /// product is computed, with the operands exchanged.
    fn tiles(
        &mut self,
        (m, n, k): Shape,
        mma: Mma,
        results: &[Operand],
        [a, b, c]: [&[Operand]; 3],
    ) -> Result<(), PtxError> {
        let swapped = n == 32;
        let (left, right) = if swapped { (b, a) } else { (a, b) };
        let mma = if swapped { Mma { a: mma.b, b: mma.a, ..mma } } else { mma };
        let words = |lines: usize, kind: Type| lines * k * kind.bytes() / 128;
        let (left_words, right_words) = (words(16, mma.a), words(8, mma.b));
        let (left_tiles, right_tiles) = if m == 16 { (1, 2) } else { (2, 1) };
        let half = results.len() / 2;
        let operands: Vec<Vec<Operand>> = (0..2)
            .map(|tile| {
                let left = &left[tile % left_tiles * left_words..][..left_words];
                let right = &right[tile % right_tiles * right_words..][..right_words];
                [left, right, &c[tile * half..][..half]].concat()
            })
            .collect();
        // The second product must not see the results of the first.
        let hidden = results[..half].iter().any(|result| operands[1].contains(result));
        let first: Vec<Operand> = match hidden {
            true => (0..half).map(|_| self.new_register(Class::Word)).collect(),
            false => results[..half].to_vec(),
        };
        self.emit(Op::Mma(mma), &first, &operands[0])?;
        self.emit(Op::Mma(mma), &results[half..], &operands[1])?;
        for (&from, &to) in first.iter().zip(results).filter(|_| hidden) {
            self.emit(Op::Alu(Alu::Move32), &[to], &[from])?;
        }
        Ok(())
    }

    fn exact_mma(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        for part in ["sync", "aligned", "row", "col", "rn", "popc"] {
            modifiers.take(part);
        }
        let saturate = modifiers.take("satfinite");
        let and = modifiers.take("and");
        modifiers.take("xor");
        let (Some((m, n, k)), &[d, a, b, c]) = (take_shape(modifiers), &take_elements(modifiers)[..]) else {
            return Err(context.unsupported("an mma of this shape"));
        };
        let element = match (a, b, (m, n, k)) {
            (Element::Plain(Type::F64), Element::Plain(Type::F64), (8, 8, 4) | (16, 8, 4 | 8 | 16)) => {
                Some((ExactElement::F64, Type::F64))
            }
            (Element::Int4(a_signed), Element::Int4(b_signed), (8, 8, 32) | (16, 8, 32 | 64)) => {
                Some((ExactElement::Int4 { a_signed, b_signed }, Type::S32))
            }
            (Element::Bit, Element::Bit, (8, 8, 128) | (16, 8, 128 | 256)) => {
                Some((ExactElement::Bit { and }, Type::S32))
            }
            _ => None,
        };
        let Some((element, sum)) = element.filter(|&(_, sum)| d == Element::Plain(sum) && d == c) else {
            return Err(context.unsupported(format!("mma m{m}n{n}k{k} of these types")));
        };
        context.expect(4)?;
        let product = ExactMma { m: m as u8, k: k as u16, element, saturate };
        let registers = |lines: usize| lines * product.units() / 32;
        let results = self.fragment_results(context, m * 8 / 32, sum)?;
        let mut operands = self.fragment(context, 1, registers(m), sum)?;
        operands.extend(self.fragment(context, 2, registers(8), sum)?);
        operands.extend(self.fragment(context, 3, m * 8 / 32, sum)?);
        self.emit(Op::ExactMma(product), &results, &operands)
    }
}

fn conversion(to: Type, from: Type) -> Alu {
    Alu::Convert(Conversion { to, from, mode: Mode::PLAIN, finite: false, integral: false })
}
