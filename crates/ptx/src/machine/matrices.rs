//! Matrix products of a warp, and the loads and stores of their operands.
//!
//! Products are exact in f32 for f16, bf16, tf32 and 8-bit operands, and summed in f32 one after the other. The tensor cores add
//! several products at once, in an order and with guard bits that are not published: results agree within a few units in the
//! last place of the largest term.

use super::{
    access::{Touch, for_lanes},
    births::{Birth, product_birth, sums_of},
    registers::Words,
    shared_access::SharedRequest,
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::FindingKind,
    isa::{Mma, Type},
    numeric::{self, Format},
};

/// The value of an operand's element.
#[inline(always)]
pub(super) fn element(kind: Type, bits: u32) -> f32 {
    match kind {
        Type::F16 => numeric::from_f16(bits & 0xffff),
        Type::Bf16 => numeric::from_bf16(bits & 0xffff),
        // The lower bits of a tf32 are not looked at.
        Type::Tf32 => f32::from_bits(bits & 0xffff_e000),
        Type::E4m3 => numeric::widen(bits & 0xff, Format::E4M3) as f32,
        Type::E5m2 => numeric::widen(bits & 0xff, Format::E5M2) as f32,
        Type::S8 => f32::from(bits as u8 as i8),
        Type::U8 => f32::from(bits as u8),
        _ => 0.0,
    }
}

/// sums[row][..n] += a[row][..k] · b[k][..n], for rows of `n` sums that follow each other.
pub(super) fn multiply(wide: bool, sums: &mut [f32], a: &[f32], b: &[f32], n: usize, k: usize) {
    #[cfg(target_arch = "x86_64")]
    if wide {
        // SAFETY: the processor was found to have these instructions.
        return unsafe { multiply_wide(sums, a, b, n, k) };
    }
    let _ = wide;
    multiply_body(sums, a, b, n, k);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn multiply_wide(sums: &mut [f32], a: &[f32], b: &[f32], n: usize, k: usize) {
    multiply_body(sums, a, b, n, k);
}

#[allow(clippy::needless_range_loop, reason = "the form that becomes vector code")]
#[inline(always)]
fn multiply_body(sums: &mut [f32], a: &[f32], b: &[f32], n: usize, k: usize) {
    // Eight columns of eight rows stay in registers while the depth goes by: enough sums that none waits for the one before.
    for (sums, a) in sums.chunks_exact_mut(8 * n).zip(a.chunks_exact(8 * k)) {
        for column in (0..n).step_by(8) {
            let mut block = [[0f32; 8]; 8];
            for (row, block) in block.iter_mut().enumerate() {
                block.copy_from_slice(&sums[row * n + column..row * n + column + 8]);
            }
            for depth in 0..k {
                let mut line = [0f32; 8];
                line.copy_from_slice(&b[depth * n + column..depth * n + column + 8]);
                for row in 0..8 {
                    let x = a[row * k + depth];
                    for i in 0..8 {
                        block[row][i] = x.mul_add(line[i], block[row][i]);
                    }
                }
            }
            for (row, block) in block.iter().enumerate() {
                sums[row * n + column..row * n + column + 8].copy_from_slice(block);
            }
        }
    }
}

/// The elements of a word, the lowest first.
#[inline(always)]
fn unpack(words: &Words, kind: Type, part: usize) -> [f32; 32] {
    let bits = 8 * kind.bytes();
    let ones = u32::MAX >> (32 - bits);
    let shift = bits * part;
    macro_rules! all {
        ($kind:expr) => {{
            let mut out = [0f32; 32];
            for lane in 0..32 {
                out[lane] = element($kind, words[lane] >> shift & ones);
            }
            out
        }};
    }
    // The kinds apart, so that the loops of the common ones become vector code.
    match kind {
        Type::F16 => all!(Type::F16),
        Type::Bf16 => all!(Type::Bf16),
        Type::Tf32 => all!(Type::Tf32),
        _ => all!(kind),
    }
}

/// The rows of a, from the registers of a warp: each row's `k` elements follow each other.
#[inline(always)]
fn rows_of_a(registers: &[&Words], kind: Type, m: usize, k: usize, out: &mut [f32]) {
    let each = 4 / kind.bytes();
    for (r, words) in registers.iter().enumerate() {
        let (row, column) = if m == 16 { (8 * (r % 2), 4 * each * (r / 2)) } else { (0, 4 * each * r) };
        for part in 0..each {
            let values = unpack(words, kind, part);
            for group in 0..8 {
                let line = &mut out[(row + group) * k + column + part..];
                for i in 0..4 {
                    line[i * each] = values[4 * group + i];
                }
            }
        }
    }
}

/// The columns of b, from the registers of a warp: each depth's eight columns follow each other.
#[inline(always)]
fn columns_of_b(registers: &[&Words], kind: Type, out: &mut [f32]) {
    let each = 4 / kind.bytes();
    for (r, words) in registers.iter().enumerate() {
        for part in 0..each {
            let values = unpack(words, kind, part);
            for i in 0..4 {
                let line = &mut out[(4 * each * r + i * each + part) * 8..][..8];
                for group in 0..8 {
                    line[group] = values[4 * group + i];
                }
            }
        }
    }
}

/// A warp's product of floating-point numbers, from registers to registers.
#[derive(Clone, Copy)]
struct WarpProduct<'a> {
    mma: Mma,
    a: &'a [&'a Words],
    b: &'a [&'a Words],
    c: &'a [&'a Words],
}

impl WarpProduct<'_> {
    #[inline(always)]
    fn run(self) -> [Words; 4] {
        let WarpProduct { mma, a, b, c } = self;
        let (m, k) = (mma.m as usize, mma.k as usize);
        let (mut left, mut right, mut sums) = ([0f32; 16 * 32], [0f32; 32 * 8], [0f32; 16 * 8]);
        rows_of_a(a, mma.a, m, k, &mut left);
        columns_of_b(b, mma.b, &mut right);
        load_sums(c, mma.sum, 8, &mut sums);
        multiply_body(&mut sums[..m * 8], &left[..m * k], &right[..8 * k], 8, k);
        let mut out = [[0; 32]; 4];
        for (i, out) in out.iter_mut().enumerate().take(c.len()) {
            *out = store_sums(&sums, mma.sum, 8, i);
        }
        out
    }

    /// The first of its sums that stopped being a number.
    fn birth(self, out: &[Words; 4]) -> Option<Birth> {
        let WarpProduct { mma, a, b, c } = self;
        let (m, k) = (mma.m as usize, mma.k as usize);
        let (mut left, mut right) = ([0f32; 16 * 32], [0f32; 32 * 8]);
        rows_of_a(a, mma.a, m, k, &mut left);
        columns_of_b(b, mma.b, &mut right);
        let out: Vec<&Words> = out[..c.len()].iter().collect();
        let (before, after) = (sums_of(c, mma.sum, 8), sums_of(&out, mma.sum, 8));
        product_birth(&left, &right[..8 * k], 8, &before[..m * 8], &after[..m * 8])
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn run_wide(self) -> [Words; 4] {
        self.run()
    }
}

/// The rows of a warpgroup's operand in registers.
pub(super) fn fragment_a(registers: &[&Words], kind: Type, k: usize, out: &mut [f32]) {
    rows_of_a(registers, kind, 16, k, out);
}

/// The integers of registers, as numbers that are exact.
fn integer_fragments(mma: &Mma, a: &[&Words], b: &[&Words]) -> ([f32; 16 * 32], [f32; 32 * 8]) {
    let (mut left, mut right) = ([0f32; 16 * 32], [0f32; 32 * 8]);
    rows_of_a(a, mma.a, mma.m as usize, mma.k as usize, &mut left);
    columns_of_b(b, mma.b, &mut right);
    (left, right)
}

impl Unit<'_> {
    /// Instructions that a whole warp must run.
    pub(super) fn whole_warp(&mut self, warp: &Warp, step: Step<'_>) {
        if step.mask != u32::MAX {
            let lane = (!step.mask).trailing_zeros();
            self.report(warp, FindingKind::WarpSyncMismatch, step.pc, lane, None, || {
                "all lanes of a warp must run this instruction together".to_owned()
            });
        }
    }

    pub(super) fn mma(&mut self, warp: &mut Warp, step: Step<'_>, mma: Mma) {
        self.whole_warp(warp, step);
        let (m, n, k) = (mma.m as usize, mma.n as usize, mma.k as usize);
        self.counters.matrix_instructions += 1;
        self.counters.matrix_flops += 2 * (m * n * k) as u64;
        if self.launched.timed {
            return;
        }
        let constants = &self.launched.constants;
        let results = step.instruction.results as usize;
        let (d, rest) = step.operands.split_at(results);
        let count = |rows: usize, kind: Type| rows * k * kind.bytes() / 128;
        let (a, rest) = rest.split_at(count(m, mma.a));
        let (b, c) = rest.split_at(count(n, mma.b));
        let registers = &warp.registers;
        let mut room = [registers.word(constants, a[0]); 12];
        for (place, &operand) in room.iter_mut().zip(a.iter().chain(b).chain(c)) {
            *place = registers.word(constants, operand);
        }
        let (a, rest) = room.split_at(a.len());
        let (b, rest) = rest.split_at(b.len());
        let c = &rest[..c.len()];
        if mma.sum == Type::S32 {
            let sums = integer_product(&mma, a, b, c);
            for (i, &result) in d.iter().enumerate() {
                warp.registers.set_word(result, &sums[i], step.mask);
            }
            return;
        }
        let product = WarpProduct { mma, a, b, c };
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor was found to have these instructions.
        let out = if self.launched.wide { unsafe { product.run_wide() } } else { product.run() };
        #[cfg(not(target_arch = "x86_64"))]
        let out = product.run();
        let birth = if self.launched.births { product.birth(&out) } else { None };
        for (out, &result) in out.iter().zip(d) {
            warp.registers.set_word(result, out, step.mask);
        }
        self.report_birth(warp, step.pc, birth);
    }

    pub(super) fn load_matrix(
        &mut self,
        warp: &mut Warp,
        step: Step<'_>,
        count: u8,
        transposed: bool,
        offset: i64,
    ) {
        self.whole_warp(warp, step);
        let count = count as usize;
        let (results, address) = step.operands.split_at(count);
        let addresses = self.addresses(warp, address[0], offset).map(|address| address & 0xffff_ffff);
        let rows = if count == 4 { u32::MAX } else { (1 << (8 * count)) - 1 };
        let mut places = [(0, 0); 32];
        let ok = self.shared_places(warp, step.pc, &addresses, rows, 16, Touch::Read, &mut places);
        self.count_shared(&addresses, rows, 16, SharedRequest::LoadMatrix);
        let mut data = [[0u16; 8]; 32];
        for_lanes(ok, |lane| {
            let (block, offset) = places[lane];
            let bytes = self.blocks[block].shared.bytes(offset, 16);
            data[lane] = std::array::from_fn(|i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]));
        });
        for (matrix, &result) in results.iter().enumerate() {
            let rows = &data[8 * matrix..8 * matrix + 8];
            let out = std::array::from_fn(|lane| {
                let (i, j) = (lane / 4, lane % 4 * 2);
                let (low, high) =
                    if transposed { (rows[j][i], rows[j + 1][i]) } else { (rows[i][j], rows[i][j + 1]) };
                u32::from(low) | u32::from(high) << 16
            });
            warp.registers.set_word(result, &out, step.mask);
        }
    }

    pub(super) fn store_matrix(
        &mut self,
        warp: &mut Warp,
        step: Step<'_>,
        count: u8,
        transposed: bool,
        offset: i64,
    ) {
        self.whole_warp(warp, step);
        let count = count as usize;
        let addresses = self.addresses(warp, step.operands[0], offset).map(|address| address & 0xffff_ffff);
        let rows = if count == 4 { u32::MAX } else { (1 << (8 * count)) - 1 };
        let mut places = [(0, 0); 32];
        let ok = self.shared_places(warp, step.pc, &addresses, rows, 16, Touch::Write, &mut places);
        self.count_shared(&addresses, rows, 16, SharedRequest::Store);
        let mut data = [[0u16; 8]; 32];
        for (matrix, &source) in step.operands[1..].iter().enumerate() {
            let words = warp.registers.word(&self.launched.constants, source);
            let rows = &mut data[8 * matrix..8 * matrix + 8];
            for (lane, &word) in words.iter().enumerate() {
                let (i, j) = (lane / 4, lane % 4 * 2);
                for (half, value) in [word as u16, (word >> 16) as u16].into_iter().enumerate() {
                    if transposed {
                        rows[j + half][i] = value;
                    } else {
                        rows[i][j + half] = value;
                    }
                }
            }
        }
        for_lanes(ok, |lane| {
            let (block, offset) = places[lane];
            let bytes: Vec<u8> = data[lane].iter().flat_map(|value| value.to_le_bytes()).collect();
            self.blocks[block].shared.store_bytes(offset, &bytes);
        });
    }
}

/// The place of a thread's sum `i` of an accumulator of f32.
#[inline(always)]
fn sum_place(lane: usize, i: usize, n: usize) -> usize {
    (lane / 4 + i / 2 % 2 * 8) * n + i / 4 * 8 + lane % 4 * 2 + i % 2
}

/// The sums of 16 rows from a thread's registers; 16-bit ones are pairs.
#[inline(always)]
pub(super) fn load_sums(registers: &[&Words], kind: Type, n: usize, sums: &mut [f32]) {
    for (i, words) in registers.iter().enumerate() {
        for (lane, &word) in words.iter().enumerate() {
            if kind == Type::F16 {
                sums[sum_place(lane, 2 * i, n)] = numeric::from_f16(word & 0xffff);
                sums[sum_place(lane, 2 * i + 1, n)] = numeric::from_f16(word >> 16);
            } else {
                sums[sum_place(lane, i, n)] = f32::from_bits(word);
            }
        }
    }
}

/// Register `i` of the sums.
#[inline(always)]
pub(super) fn store_sums(sums: &[f32], kind: Type, n: usize, i: usize) -> Words {
    let mut out = [0; 32];
    for (lane, out) in out.iter_mut().enumerate() {
        *out = if kind == Type::F16 {
            let half = |i| numeric::f16_bits(sums[sum_place(lane, i, n)]);
            half(2 * i) | half(2 * i + 1) << 16
        } else {
            sums[sum_place(lane, i, n)].to_bits()
        };
    }
    out
}

/// Products of 8-bit integers, with 32-bit sums that wrap or saturate.
fn integer_product(mma: &Mma, a: &[&Words], b: &[&Words], c: &[&Words]) -> Vec<Words> {
    let (n, k) = (mma.n as usize, mma.k as usize);
    let (left, right) = integer_fragments(mma, a, b);
    let sum = |lane: usize, i: usize| {
        let place = sum_place(lane, i, n);
        let (row, column) = (place / n, place % n);
        // Every product and their sum are whole numbers below 2^24, which an f32 holds.
        let product: f32 = (0..k).map(|depth| left[row * k + depth] * right[depth * n + column]).sum();
        let exact = i64::from(c[i][lane] as i32) + product as i64;
        let kept = if mma.saturate { exact.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) } else { exact };
        kept as u32
    };
    (0..c.len()).map(|i| std::array::from_fn(|lane| sum(lane, i))).collect()
}
