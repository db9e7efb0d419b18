//! Origins of infinities and NaNs: the instruction that produces an infinity from finite operands, or a NaN from operands that are
//! not NaN. Instructions that only propagate one are not reported.

use super::{
    alu,
    mma_tiles::{SumWords, TileProduct, sums_of_registers},
    registers::Registers,
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::FindingKind,
    isa::{Alu, Class, Conversion, Operand, Type},
    numeric,
};

/// How the bits of an operand represent a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    F32,
    F64,
    F16,
    Bf16,
    /// An integer, which is always finite.
    Integer,
}

impl Format {
    fn of(kind: Type) -> Option<Format> {
        Some(match kind {
            Type::F32 | Type::Tf32 => Format::F32,
            Type::F64 => Format::F64,
            Type::F16 | Type::F16x2 => Format::F16,
            Type::Bf16 | Type::Bf16x2 => Format::Bf16,
            _ if kind.is_float() => return None,
            _ => Format::Integer,
        })
    }

    fn value(self, bits: u64) -> f64 {
        match self {
            Format::F32 => f64::from(f32::from_bits(bits as u32)),
            Format::F64 => f64::from_bits(bits),
            Format::F16 => f64::from(numeric::from_f16(bits as u32 & 0xffff)),
            Format::Bf16 => f64::from(numeric::from_bf16(bits as u32 & 0xffff)),
            Format::Integer => bits as f64,
        }
    }
}

/// The formats of an operation's operands and result.
#[derive(Clone, Copy, Debug)]
struct Formats {
    from: Format,
    to: Format,
    /// Every register holds two numbers.
    pairs: bool,
    /// The result holds two numbers, the upper half from the first operand and the lower half from the second.
    packs: bool,
}

impl Formats {
    /// `None` if the operation cannot produce an infinity or a NaN.
    fn new(alu: Alu) -> Option<Formats> {
        let one = |format| Formats { from: format, to: format, pairs: false, packs: false };
        Some(match alu {
            Alu::F32(..) => one(Format::F32),
            Alu::F64(..) => one(Format::F64),
            Alu::Half { bf16, pair, .. } => {
                Formats { pairs: pair, ..one(if bf16 { Format::Bf16 } else { Format::F16 }) }
            }
            Alu::Convert(Conversion { to, from, .. }) if to.is_float() => Formats {
                from: Format::of(from)?,
                to: Format::of(to)?,
                pairs: false,
                packs: matches!(to, Type::F16x2 | Type::Bf16x2),
            },
            _ => return None,
        })
    }

    /// The operands and the result of one lane; `half` says which of two numbers.
    fn numbers(self, sources: &[[u64; 32]], result: u64, lane: usize, half: usize) -> (Vec<f64>, f64) {
        let part = |bits: u64, parted: bool| if parted { bits >> (16 * half) } else { bits };
        let chosen: Vec<u64> = match sources {
            [upper, lower] if self.packs => vec![if half == 1 { upper[lane] } else { lower[lane] }],
            _ => sources.iter().map(|source| part(source[lane], self.pairs)).collect(),
        };
        let operands = chosen.into_iter().map(|bits| self.from.value(bits)).collect();
        (operands, self.to.value(part(result, self.pairs || self.packs)))
    }
}

/// Whether a result is infinite or NaN and its operands do not explain it.
pub(super) fn originates(result: f64, mut operands: impl Iterator<Item = f64>) -> bool {
    if result.is_nan() {
        !operands.any(f64::is_nan)
    } else {
        result.is_infinite() && operands.all(f64::is_finite)
    }
}

impl Unit<'_> {
    /// Runs an operation, and reports infinities and NaNs that originate in it.
    pub(super) fn run_checking_finite(&mut self, warp: &mut Warp, step: Step<'_>, operation: Alu) {
        let constants = &self.launched.constants;
        let lanes = |registers: &Registers, operand: Operand| -> [u64; 32] {
            match operand.class() {
                Class::Long => *registers.long(constants, operand),
                _ => registers.word(constants, operand).map(u64::from),
            }
        };
        let formats = Formats::new(operation).filter(|_| !step.operands[0].is_none());
        // The result may overwrite an operand.
        let sources: Vec<[u64; 32]> = match formats {
            Some(_) => step.operands[1..].iter().map(|&operand| lanes(&warp.registers, operand)).collect(),
            None => Vec::new(),
        };
        alu::run(self.launched.wide, operation, step.operands, &mut warp.registers, constants, step.mask);
        let Some(formats) = formats else { return };
        let results = lanes(&warp.registers, step.operands[0]);
        for lane in (0..32).filter(|lane| step.mask >> lane & 1 == 1) {
            for half in 0..if formats.pairs || formats.packs { 2 } else { 1 } {
                let (operands, result) = formats.numbers(&sources, results[lane], lane, half);
                if !originates(result, operands.iter().copied()) {
                    continue;
                }
                self.report(warp, FindingKind::NotFinite, step.pc, lane as u32, None, || {
                    let operands: Vec<String> = operands.iter().map(ToString::to_string).collect();
                    format!("produces {result} from {}", operands.join(", "))
                });
            }
        }
    }

    /// Reports an accumulator that became infinite or NaN.
    pub(super) fn report_nonfinite(&mut self, warp: &Warp, pc: u32, found: Option<NonFinite>) {
        let Some(NonFinite { row, column, value, before }) = found else { return };
        // Eight rows of four lanes, each with two columns.
        let lane = (row % 8 * 4 + column % 8 / 2) as u32;
        self.report(warp, FindingKind::NotFinite, pc, lane, None, || {
            format!("the accumulator at row {row}, column {column} of a matrix product goes from {before} to {value}")
        });
    }
}

/// An accumulator of a matrix product that became infinite or NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NonFinite {
    row: usize,
    column: usize,
    before: f32,
    value: f32,
}

impl NonFinite {
    /// Its place in a row of tiles.
    pub(super) fn in_tile(self, tile: usize) -> NonFinite {
        NonFinite { column: self.column + 8 * tile, ..self }
    }

    /// Its row and column.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.row, self.column)
    }
}

/// The first accumulator of a tile that became infinite or NaN, by its registers before and after the product.
pub(super) fn first_nonfinite(
    product: TileProduct<'_>,
    before: &SumWords,
    after: &SumWords,
) -> Option<NonFinite> {
    let TileProduct { left, right, k, sum, .. } = product;
    if sum == Type::S32 {
        return None;
    }
    let [before, after] = [before, after].map(|words| sums_of_registers(words, sum));
    let sums = after.as_flattened().iter().zip(before.as_flattened()).enumerate();
    let odd = sums.filter(|(_, (after, _))| !after.is_finite());
    odd.map(|(place, (&value, &before))| NonFinite { row: place / 8, column: place % 8, before, value }).find(
        |&NonFinite { row, column, before, value }| {
            let depths = (0..k).flat_map(|depth| [left[row][depth], right[depth][column]]);
            originates(f64::from(value), depths.chain([before]).map(f64::from))
        },
    )
}
