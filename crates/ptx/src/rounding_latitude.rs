//! Which of a kernel's results are not defined to the bit.
//!
//! IEEE 754 defines sums, products, quotients and conversions to the bit, and PTX most of the rest. Four things are left to the chip:
//! approximate functions, the order and precision of sums within a matrix instruction, the order of atomic additions, and whether
//! the assembler fuses a multiplication and an addition without a rounding modifier. A kernel without any of them gives the same bits
//! everywhere.

use std::collections::{BTreeSet, HashSet};

use crate::syntax::tree::{Function, Instruction, Module, Operand, Statement};

/// The opcodes of a kernel whose results are not defined to the bit.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RoundingLatitude {
    /// Approximate functions, such as `ex2.approx.ftz.f32`.
    pub approximate: BTreeSet<String>,
    /// Floating-point matrix products.
    pub matrix: BTreeSet<String>,
    /// Floating-point atomic additions, whose order is not defined.
    pub unordered: BTreeSet<String>,
    /// Additions that the assembler may fuse with a multiplication.
    pub fusible: BTreeSet<String>,
}

impl RoundingLatitude {
    /// Whether every result is defined to the bit.
    pub fn is_bit_exact(&self) -> bool {
        self == &RoundingLatitude::default()
    }

    /// Adds another kernel's opcodes.
    pub fn add(&mut self, other: &RoundingLatitude) {
        self.approximate.extend(other.approximate.iter().cloned());
        self.matrix.extend(other.matrix.iter().cloned());
        self.unordered.extend(other.unordered.iter().cloned());
        self.fusible.extend(other.fusible.iter().cloned());
    }

    /// The opcodes of a kernel and of the functions that it may call.
    pub(crate) fn of(module: &Module<'_>, kernel: &Function<'_>) -> RoundingLatitude {
        let mut latitude = RoundingLatitude::default();
        let called = module.functions.iter().filter(|function| !function.entry);
        for function in called.chain([kernel]) {
            latitude.look_at(function);
        }
        latitude
    }

    fn look_at(&mut self, function: &Function<'_>) {
        let instructions = || {
            function.body.iter().filter_map(|statement| match statement {
                Statement::Instruction(instruction) => Some(instruction),
                _ => None,
            })
        };
        let products = products(instructions);
        for instruction in instructions() {
            let opcode = instruction.opcode;
            let has = |part: &str| opcode.split('.').any(|other| other == part);
            let name = opcode.split('.').next().unwrap_or_default();
            let list = match name {
                _ if has("approx") || has("full") => &mut self.approximate,
                // Integer sums are exact.
                "mma" | "wmma" | "wgmma" if has("mma") || has("mma_async") => {
                    if has("s32") {
                        continue;
                    }
                    &mut self.matrix
                }
                "atom" | "red" if has("add") && is_float(opcode) => &mut self.unordered,
                "add" | "sub" if is_free(opcode) => {
                    let addends = instruction.operands.iter().skip(1);
                    if !addends.filter_map(name_of).any(|addend| products.contains(addend)) {
                        continue;
                    }
                    &mut self.fusible
                }
                _ => continue,
            };
            list.insert(opcode.to_owned());
        }
    }
}

/// Whether an opcode computes with floating-point numbers.
fn is_float(opcode: &str) -> bool {
    let last = opcode.rsplit('.').next().unwrap_or_default();
    ["f16", "f16x2", "bf16", "bf16x2", "f32", "f64"].contains(&last)
}

/// Whether a floating-point operation has no rounding modifier, so that the assembler may fuse it.
fn is_free(opcode: &str) -> bool {
    is_float(opcode) && !opcode.split('.').any(|part| ["rn", "rz", "rm", "rp"].contains(&part))
}

fn name_of<'a>(operand: &Operand<'a>) -> Option<&'a str> {
    match operand {
        Operand::Name(name) => Some(name),
        _ => None,
    }
}

/// Registers that may hold a product that the assembler may fuse, directly or through copies.
fn products<'a: 'b, 'b, I: Iterator<Item = &'b Instruction<'a>>>(
    instructions: impl Fn() -> I,
) -> HashSet<&'a str> {
    let mut products = HashSet::new();
    loop {
        let known = products.len();
        for instruction in instructions() {
            let mut operands = instruction.operands.iter().filter_map(name_of);
            let Some(result) = operands.next() else { continue };
            let name = instruction.opcode.split('.').next().unwrap_or_default();
            let is_product = match name {
                "mul" => is_free(instruction.opcode),
                "mov" | "neg" => operands.any(|operand| products.contains(operand)),
                _ => false,
            };
            if is_product {
                products.insert(result);
            }
        }
        if products.len() == known {
            return products;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax;

    fn latitude(body: &str) -> RoundingLatitude {
        let text = format!(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k() {{\n\
             .reg .f32 %f<9>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<9>;\n{body}\nret;\n}}"
        );
        let module = syntax::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        RoundingLatitude::of(&module, &module.functions[0])
    }

    #[test]
    fn what_ieee_defines_is_bit_exact() {
        let exact = "mul.rn.f32 %f1, %f2, %f3;\nadd.f32 %f4, %f1, %f2;\nfma.rn.f32 %f5, %f1, %f2, %f3;\n\
                     div.rn.f32 %f5, %f1, %f2;\nsqrt.rn.f32 %f5, %f1;\ncvt.rn.f16x2.f32 %r1, %f1, %f2;\n\
                     mul.lo.s32 %r1, %r2, %r3;\nadd.s32 %r4, %r1, %r2;\nred.global.add.u32 [%rd1], %r1;";
        assert!(latitude(exact).is_bit_exact(), "{:?}", latitude(exact));
    }

    #[test]
    fn every_kind_is_found() {
        let seen = latitude("ex2.approx.ftz.f32 %f1, %f2;\ndiv.full.f32 %f1, %f2, %f3;");
        assert_eq!(seen.approximate.len(), 2);
        let mma = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 \
                   {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7}, {%r1, %r2, %r3, %r4};";
        assert_eq!(latitude(mma).matrix.len(), 1);
        assert!(latitude(&mma.replace("f32.f16.f16.f32", "s32.s8.s8.s32")).is_bit_exact());
        assert!(latitude("wgmma.fence.sync.aligned;").is_bit_exact());
        assert_eq!(latitude("red.global.add.f32 [%rd1], %f1;").unordered.len(), 1);
    }

    #[test]
    fn a_sum_of_a_product_may_be_fused() {
        assert_eq!(latitude("mul.f32 %f1, %f2, %f3;\nadd.f32 %f4, %f1, %f2;").fusible.len(), 1);
        // Through copies, in any order in the text.
        let around = "add.f32 %f4, %f5, %f2;\nmov.f32 %f5, %f6;\nneg.f32 %f6, %f1;\nmul.f32 %f1, %f2, %f3;";
        assert_eq!(latitude(around).fusible.len(), 1);
        assert!(latitude("mul.f32 %f1, %f2, %f3;\nadd.rn.f32 %f4, %f1, %f2;").is_bit_exact());
        assert!(latitude("mul.f32 %f1, %f2, %f3;\nmax.f32 %f4, %f1, %f2;").is_bit_exact());
    }
}
