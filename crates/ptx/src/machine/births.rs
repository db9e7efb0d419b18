//! Numbers that stop being numbers: the instruction that makes an infinity of finite operands, or a NaN of operands of which
//! none is one. What only hands on an infinity or a NaN that it was given is not reported.

use super::{
    alu,
    matrix_tiles::{SumWords, TileProduct, sums_of_registers},
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

/// What the bits of an operand stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Single,
    Double,
    Half,
    Brain,
    /// An integer, which is always finite.
    Whole,
}

impl Number {
    fn of(kind: Type) -> Option<Number> {
        Some(match kind {
            Type::F32 | Type::Tf32 => Number::Single,
            Type::F64 => Number::Double,
            Type::F16 | Type::F16x2 => Number::Half,
            Type::Bf16 | Type::Bf16x2 => Number::Brain,
            _ if kind.is_float() => return None,
            _ => Number::Whole,
        })
    }

    fn value(self, bits: u64) -> f64 {
        match self {
            Number::Single => f64::from(f32::from_bits(bits as u32)),
            Number::Double => f64::from_bits(bits),
            Number::Half => f64::from(numeric::from_f16(bits as u32 & 0xffff)),
            Number::Brain => f64::from(numeric::from_bf16(bits as u32 & 0xffff)),
            Number::Whole => bits as f64,
        }
    }
}

/// How an operation's numbers lie in its registers.
#[derive(Clone, Copy, Debug)]
struct Watched {
    from: Number,
    to: Number,
    /// Two numbers in each register.
    pairs: bool,
    /// Two numbers in the result, the upper one of the first operand and the lower one of the second.
    packs: bool,
}

impl Watched {
    /// `None` where no number can stop being one.
    fn new(alu: Alu) -> Option<Watched> {
        let one = |number| Watched { from: number, to: number, pairs: false, packs: false };
        Some(match alu {
            Alu::F32(..) => one(Number::Single),
            Alu::F64(..) => one(Number::Double),
            Alu::Half { bf16, pair, .. } => {
                Watched { pairs: pair, ..one(if bf16 { Number::Brain } else { Number::Half }) }
            }
            Alu::Convert(Conversion { to, from, .. }) if to.is_float() => Watched {
                from: Number::of(from)?,
                to: Number::of(to)?,
                pairs: false,
                packs: matches!(to, Type::F16x2 | Type::Bf16x2),
            },
            _ => return None,
        })
    }

    /// The operands and the result of a lane's number `half`.
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

/// Whether a number stopped being one here.
fn is_born(result: f64, mut operands: impl Iterator<Item = f64>) -> bool {
    if result.is_nan() {
        !operands.any(f64::is_nan)
    } else {
        result.is_infinite() && operands.all(f64::is_finite)
    }
}

impl Unit<'_> {
    /// Runs an operation, and reports what stopped being a number.
    pub(super) fn run_watched(&mut self, warp: &mut Warp, step: Step<'_>, operation: Alu) {
        let constants = &self.launched.constants;
        let lanes = |registers: &Registers, operand: Operand| -> [u64; 32] {
            match operand.class() {
                Class::Long => *registers.long(constants, operand),
                _ => registers.word(constants, operand).map(u64::from),
            }
        };
        let watched = Watched::new(operation).filter(|_| !step.operands[0].is_none());
        // A result may take an operand's place.
        let sources: Vec<[u64; 32]> = match watched {
            Some(_) => step.operands[1..].iter().map(|&operand| lanes(&warp.registers, operand)).collect(),
            None => Vec::new(),
        };
        alu::run(self.launched.wide, operation, step.operands, &mut warp.registers, constants, step.mask);
        let Some(watched) = watched else { return };
        let results = lanes(&warp.registers, step.operands[0]);
        for lane in (0..32).filter(|lane| step.mask >> lane & 1 == 1) {
            for half in 0..if watched.pairs || watched.packs { 2 } else { 1 } {
                let (operands, result) = watched.numbers(&sources, results[lane], lane, half);
                if !is_born(result, operands.iter().copied()) {
                    continue;
                }
                self.report(warp, FindingKind::NotFinite, step.pc, lane as u32, None, || {
                    let operands: Vec<String> = operands.iter().map(ToString::to_string).collect();
                    format!("{result} comes out of {}", operands.join(", "))
                });
            }
        }
    }

    /// Reports a sum of a matrix product that stopped being a number.
    pub(super) fn report_birth(&mut self, warp: &Warp, pc: u32, birth: Option<Birth>) {
        let Some(Birth { row, column, value, before }) = birth else { return };
        // Eight rows of four lanes, of which each has two columns.
        let lane = (row % 8 * 4 + column % 8 / 2) as u32;
        self.report(warp, FindingKind::NotFinite, pc, lane, None, || {
            format!("row {row}, column {column} of a matrix product goes from {before} to {value}")
        });
    }
}

/// A sum of a matrix product that stopped being a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Birth {
    row: usize,
    column: usize,
    before: f32,
    value: f32,
}

impl Birth {
    /// As one of a row of tiles.
    pub(super) fn in_tile(self, tile: usize) -> Birth {
        Birth { column: self.column + 8 * tile, ..self }
    }

    /// Its row and column.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.row, self.column)
    }
}

/// The first sum of a tile that stopped being a number, by the registers before and after its product was added.
pub(super) fn product_birth(product: TileProduct<'_>, before: &SumWords, after: &SumWords) -> Option<Birth> {
    let TileProduct { left, right, k, sum, .. } = product;
    if sum == Type::S32 {
        return None;
    }
    let [before, after] = [before, after].map(|words| sums_of_registers(words, sum));
    let sums = after.as_flattened().iter().zip(before.as_flattened()).enumerate();
    let odd = sums.filter(|(_, (after, _))| !after.is_finite());
    odd.map(|(place, (&value, &before))| Birth { row: place / 8, column: place % 8, before, value }).find(
        |&Birth { row, column, before, value }| {
            let depths = (0..k).flat_map(|depth| [left[row][depth], right[depth][column]]);
            is_born(f64::from(value), depths.chain([before]).map(f64::from))
        },
    )
}
