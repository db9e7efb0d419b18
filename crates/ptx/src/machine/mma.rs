//! `mma`, `ldmatrix` and `stmatrix`.

use super::{
    access::{AccessKind, SharedPlace, WarpAccess, for_lanes},
    mma_tiles::{NO_LEFT, NO_RIGHT, TileProduct, WarpOperands},
    nonfinite::first_nonfinite,
    shared_access::SharedRequest,
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::FindingKind,
    isa::{Mma, Operand, Type},
};

impl Unit<'_> {
    /// Checks that all lanes of the warp execute an instruction.
    pub(super) fn whole_warp(&mut self, warp: &Warp, step: Step<'_>) {
        if step.mask != u32::MAX {
            let lane = (!step.mask).trailing_zeros();
            self.report(warp, FindingKind::WarpSyncMismatch, step.pc, lane, None, || {
                "only some lanes of the warp execute an instruction that all of them must execute together"
                    .to_owned()
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
        let mut sums = [[0; 32]; 4];
        for (sums, &words) in sums.iter_mut().zip(&rest[..c.len()]) {
            *sums = *words;
        }
        let wide = self.launched.wide;
        let (mut left, mut right) = (NO_LEFT, NO_RIGHT);
        WarpOperands { a, a_kind: mma.a, b, b_kind: mma.b, m }.spread(wide, &mut left, &mut right);
        let product = TileProduct { left: &left, right: &right, k, sum: mma.sum, saturate: mma.saturate };
        let before = if self.launched.nonfinite { Some(sums) } else { None };
        product.add_to(wide, &mut sums);
        for (sums, &result) in sums.iter().zip(d) {
            warp.registers.set_word(result, sums, step.mask);
        }
        if let Some(before) = before {
            self.report_nonfinite(warp, step.pc, first_nonfinite(product, &before, &sums));
        }
    }

    /// The shared memory that `ldmatrix` reads or `stmatrix` writes: 16 bytes for each of the first `8 * count` lanes. Returns the
    /// places, and the lanes whose accesses are allowed.
    fn matrix_rows(
        &mut self,
        warp: &mut Warp,
        step: Step<'_>,
        (address, offset): (Operand, i64),
        count: usize,
        kind: AccessKind,
    ) -> ([SharedPlace; 32], u32) {
        self.whole_warp(warp, step);
        let addresses = self.addresses(warp, address, offset).map(|address| address & 0xffff_ffff);
        let mask = if count == 4 { u32::MAX } else { (1 << (8 * count)) - 1 };
        let access = WarpAccess { pc: step.pc, addresses: &addresses, mask, bytes: 16, kind };
        let mut places = [(0, 0); 32];
        let ok = self.shared_places(warp, &access, &mut places);
        let loads = kind == AccessKind::Read;
        self.count_shared(&access, if loads { SharedRequest::LoadMatrix } else { SharedRequest::Store });
        (places, ok)
    }

    pub(super) fn load_matrix(
        &mut self,
        warp: &mut Warp,
        step: Step<'_>,
        count: u8,
        transposed: bool,
        offset: i64,
    ) {
        let count = count as usize;
        let (results, address) = step.operands.split_at(count);
        let (places, ok) = self.matrix_rows(warp, step, (address[0], offset), count, AccessKind::Read);
        let mut data = [[0u8; 16]; 32];
        for_lanes(ok, |lane| {
            let (block, offset) = places[lane];
            data[lane].copy_from_slice(self.blocks[block].shared.bytes(offset, 16));
        });
        for (matrix, &result) in results.iter().enumerate() {
            let rows = &data[8 * matrix..8 * matrix + 8];
            let mut out = [0; 32];
            if transposed {
                for (lane, out) in out.iter_mut().enumerate() {
                    let (column, row) = (2 * (lane / 4), lane % 4 * 2);
                    let [low, high] = [rows[row], rows[row + 1]];
                    *out = u32::from_le_bytes([low[column], low[column + 1], high[column], high[column + 1]]);
                }
            } else {
                for (out, bytes) in out.iter_mut().zip(rows.as_flattened().as_chunks().0) {
                    *out = u32::from_le_bytes(*bytes);
                }
            }
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
        let address = (step.operands[0], offset);
        let (places, ok) = self.matrix_rows(warp, step, address, count as usize, AccessKind::Write);
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
