//! `wmma.load` and `wmma.store`.
//!
//! PTX leaves the layout of a fragment open. This is the layout of the chips from Turing on, as far as it is known: a fragment consists of
//! the operands of the `mma` instructions that its product becomes. A thread holds the accumulators of two tiles of 16 × 8, and if a
//! matrix of f16 has fewer elements than its fragment has room for, the upper registers repeat the lower ones.

use super::{
    access::{AccessKind, WarpAccess, for_lanes, with_size},
    shared_access::SharedRequest,
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::FindingKind,
    isa::{Class, FragmentAccess, Matrix, Memory, Operand},
};

/// The most bytes that a thread accesses at a time.
const PIECE: usize = 16;

/// Where a lane's units lie in a matrix.
#[derive(Clone, Copy)]
struct Layout {
    access: FragmentAccess,
    /// Whether the product is computed transposed.
    swapped: bool,
}

impl Layout {
    fn new(access: FragmentAccess) -> Layout {
        Layout { access, swapped: access.m == 8 && access.n == 32 }
    }

    fn sizes(self) -> (usize, usize, usize) {
        let FragmentAccess { m, n, k, .. } = self.access;
        (m as usize, n as usize, k as usize)
    }

    /// The units of a register.
    fn per_register(self) -> usize {
        (4 / self.access.bytes as usize).max(1)
    }

    /// The registers before they repeat.
    fn registers(self) -> usize {
        let (m, n, k) = self.sizes();
        let units = match self.access.matrix {
            Matrix::A => m * k,
            Matrix::B => k * n,
            Matrix::Sum => m * n,
        };
        units / 32 / self.per_register()
    }

    /// Whether neighbouring units of a register are neighbours in memory.
    fn is_contiguous(self) -> bool {
        match self.access.matrix {
            Matrix::A => !self.access.column_major,
            Matrix::B => self.access.column_major,
            Matrix::Sum => self.access.column_major == self.swapped,
        }
    }

    /// The units that a lane accesses together.
    fn piece(self) -> usize {
        match self.access.matrix {
            _ if !self.is_contiguous() => 1,
            Matrix::Sum => 2,
            _ => self.per_register(),
        }
    }

    /// The row and column of a lane's unit.
    fn place(self, lane: usize, unit: usize) -> (usize, usize) {
        let (m, n, k) = self.sizes();
        let (group, quarter) = (lane / 4, lane % 4);
        if self.access.matrix == Matrix::Sum {
            let each = if n == 8 && m == 8 { 2 } else { 4 };
            let (tile, i) = (unit / each, unit % each);
            let (line, other) = (group + 8 * (i / 2), 2 * quarter + i % 2);
            let (line, other) = if n == 16 { (line, other + 8 * tile) } else { (line + 16 * tile, other) };
            return if self.swapped { (other, line) } else { (line, other) };
        }
        let per = self.per_register();
        let (register, part) = (unit / per, unit % per);
        let is_a = self.access.matrix == Matrix::A;
        let lines = if is_a { m } else { n };
        let blocks = k / (4 * per);
        let (line, block) = if is_a != self.swapped && lines >= 16 {
            let (tile, r) = (register / (2 * blocks), register % (2 * blocks));
            (16 * tile + 8 * (r % 2) + group, r / 2)
        } else {
            (8 * (register / blocks) + group, register % blocks)
        };
        let depth = 4 * per * block + quarter * per + part;
        if is_a { (line, depth) } else { (depth, line) }
    }
}

impl Unit<'_> {
    /// Loads a fragment.
    pub(super) fn load_fragment(&mut self, warp: &mut Warp, step: Step<'_>, access: FragmentAccess) {
        let (results, operands) = step.operands.split_at(step.instruction.results as usize);
        let layout = Layout::new(access);
        let by_lines = self.begin_fragment(warp, step, layout, operands, results.len());
        let (size, per) = (access.bytes as usize, layout.per_register());
        let units = layout.registers() * per;
        let mut values = [[0u64; 32]; 8];
        for first in (0..units).step_by(layout.piece()) {
            let addresses = self.fragment_addresses(warp, layout, operands, first);
            let bytes = layout.piece() * size;
            let mut data = [[0u64; 32]; PIECE / 8];
            self.by_space(
                warp,
                access.memory,
                &addresses,
                step.mask,
                |unit, warp, memory, addresses, mask| {
                    let lanes = WarpAccess { pc: step.pc, addresses, mask, bytes, kind: AccessKind::Read };
                    unit.read_piece(warp, memory, &lanes, by_lines, &mut data);
                },
            );
            for i in 0..layout.piece() {
                let unit = first + i;
                let (word, bit) = (i * size / 8, i * size % 8 * 8);
                let (register, shift) = (unit / per, unit % per * size * 8);
                for (value, data) in values[register].iter_mut().zip(&data[word]) {
                    let part = if size == 8 { *data } else { data >> bit & ((1 << (8 * size)) - 1) };
                    *value |= part << shift;
                }
            }
        }
        for (i, &result) in results.iter().enumerate() {
            let values = &values[i % layout.registers()];
            match result.class() {
                Class::Long => warp.registers.set_long(result, values, step.mask),
                _ => warp.registers.set_word(result, &values.map(|value| value as u32), step.mask),
            }
        }
    }

    /// Stores a fragment.
    pub(super) fn store_fragment(&mut self, warp: &mut Warp, step: Step<'_>, access: FragmentAccess) {
        let layout = Layout::new(access);
        let (operands, sources) = step.operands.split_at(2);
        self.begin_fragment(warp, step, layout, operands, sources.len());
        let (size, per) = (access.bytes as usize, layout.per_register());
        for first in (0..sources.len() * per).step_by(layout.piece()) {
            let addresses = self.fragment_addresses(warp, layout, operands, first);
            let bytes = layout.piece() * size;
            let mut data = [[0u64; 32]; PIECE / 8];
            for i in 0..layout.piece() {
                let unit = first + i;
                let (word, bit) = (i * size / 8, i * size % 8 * 8);
                let values = self.lanes(warp, sources[unit / per]);
                for (data, value) in data[word].iter_mut().zip(values) {
                    let part = value >> (unit % per * size * 8);
                    *data |= if size == 8 { part } else { part & ((1 << (8 * size)) - 1) } << bit;
                }
            }
            self.by_space(
                warp,
                access.memory,
                &addresses,
                step.mask,
                |unit, warp, memory, addresses, mask| {
                    let lanes = WarpAccess { pc: step.pc, addresses, mask, bytes, kind: AccessKind::Write };
                    unit.write_piece(warp, memory, &lanes, &data);
                },
            );
        }
    }

    /// Checks what the whole fragment needs. Returns whether the load counts as rows of 16 bytes from shared memory, as `ldmatrix` reads
    /// them.
    fn begin_fragment(
        &mut self,
        warp: &mut Warp,
        step: Step<'_>,
        layout: Layout,
        operands: &[Operand],
        registers: usize,
    ) -> bool {
        self.whole_warp(warp, step);
        let access = layout.access;
        let addresses = self.addresses(warp, operands[0], access.offset);
        let stride = *warp.registers.word(&self.launched.constants, operands[1]);
        let Some(first) = (0..32usize).find(|lane| step.mask >> lane & 1 == 1) else { return false };
        let odd = (0..32).find(|&lane| {
            step.mask >> lane & 1 == 1
                && (addresses[lane] != addresses[first] || stride[lane] != stride[first])
        });
        if let Some(lane) = odd {
            self.report(warp, FindingKind::WarpSyncMismatch, step.pc, lane as u32, None, || {
                "the lanes of a warp pass different addresses or strides to one matrix load or store"
                    .to_owned()
            });
        }
        let fragment = (registers * if access.bytes == 8 { 8 } else { 4 }) as u64;
        let stride_bytes = u64::from(stride[first]) * u64::from(access.bits) / 8;
        let line = fragment.min(16);
        let address = addresses[first];
        if !address.is_multiple_of(fragment) {
            self.report(warp, FindingKind::Misaligned, step.pc, first as u32, Some(address), || {
                let off = address % fragment;
                format!("loads or stores a matrix at an address that is {off} past a multiple of {fragment}, the size of its fragment")
            });
        } else if !stride_bytes.is_multiple_of(line) {
            self.report(warp, FindingKind::Misaligned, step.pc, first as u32, Some(address), || {
                format!("the stride of a matrix is {stride_bytes} bytes, which is not a multiple of {line}")
            });
        }
        let loads = step.instruction.results > 0;
        let by_lines = loads && access.bytes == 2 && access.matrix != Matrix::Sum;
        if by_lines {
            self.by_space(warp, access.memory, &addresses, 1 << first, |unit, _, memory, addresses, _| {
                if matches!(memory, Memory::Shared | Memory::SharedCluster) {
                    unit.count_lines(step.pc, layout, addresses[first], stride_bytes);
                }
            });
        }
        by_lines
    }

    /// Counts a 16-bit operand in shared memory as the rows of `ldmatrix`, 32 of them at a time.
    fn count_lines(&mut self, pc: u32, layout: Layout, address: u64, stride: u64) {
        let (m, n, k) = layout.sizes();
        let is_a = layout.access.matrix == Matrix::A;
        let (rows, columns) = if is_a { (m, k) } else { (k, n) };
        let (lines, length) = if layout.access.column_major { (columns, rows) } else { (rows, columns) };
        let each = length / 8;
        let places: Vec<u64> = (0..lines * each)
            .map(|i| address.wrapping_add((i % lines) as u64 * stride + (i / lines * 16) as u64))
            .collect();
        for part in places.chunks(32) {
            let addresses = std::array::from_fn(|lane| part.get(lane).copied().unwrap_or(0));
            let mask = if part.len() == 32 { u32::MAX } else { (1 << part.len()) - 1 };
            let access = WarpAccess { pc, addresses: &addresses, mask, bytes: 16, kind: AccessKind::Read };
            self.count_shared(&access, SharedRequest::LoadMatrix);
        }
    }

    /// The addresses of a unit of every lane.
    fn fragment_addresses(
        &self,
        warp: &Warp,
        layout: Layout,
        operands: &[Operand],
        unit: usize,
    ) -> [u64; 32] {
        let access = layout.access;
        let bases = self.addresses(warp, operands[0], access.offset);
        let strides = warp.registers.word(&self.launched.constants, operands[1]);
        std::array::from_fn(|lane| {
            let (row, column) = layout.place(lane, unit);
            let (line, along) = if access.column_major { (column, row) } else { (row, column) };
            let stride = u64::from(strides[lane]) * u64::from(access.bits) / 8;
            bases[lane].wrapping_add(line as u64 * stride + along as u64 * u64::from(access.bytes))
        })
    }

    /// Reads the same piece of every lane's fragment.
    fn read_piece(
        &mut self,
        warp: &mut Warp,
        memory: Memory,
        access: &WarpAccess<'_>,
        counted: bool,
        data: &mut [[u64; 32]; PIECE / 8],
    ) {
        let bytes = access.bytes;
        match memory {
            Memory::Shared | Memory::SharedCluster => {
                let mut places = [(0, 0); 32];
                let ok = self.shared_places(warp, access, &mut places);
                if !counted {
                    self.count_shared(access, SharedRequest::Load);
                }
                for (word, data) in data.iter_mut().enumerate().take(bytes.div_ceil(8)) {
                    with_size!(bytes.min(8), SIZE => for_lanes(ok, |lane| {
                        let (block, offset) = places[lane];
                        data[lane] = self.blocks[block].shared.load(offset + 8 * word, SIZE);
                    }));
                }
            }
            Memory::Global | Memory::Generic => {
                self.counters.global_loads.add_global(access.addresses, access.mask, bytes);
                self.global_groups(warp, access, |unit, _, view, group| {
                    let allocation = unit.launched.views[view].allocation;
                    for (word, data) in data.iter_mut().enumerate().take(bytes.div_ceil(8)) {
                        with_size!(bytes.min(8), SIZE => for_lanes(group, |lane| {
                            let offset = (access.addresses[lane] - allocation.base) as usize;
                            data[lane] = allocation.load(offset + 8 * word, SIZE);
                        }));
                    }
                });
            }
            _ => self.report_fragment_space(warp, access),
        }
    }

    /// Writes the same piece of every lane's fragment.
    fn write_piece(
        &mut self,
        warp: &mut Warp,
        memory: Memory,
        access: &WarpAccess<'_>,
        data: &[[u64; 32]; PIECE / 8],
    ) {
        let bytes = access.bytes;
        match memory {
            Memory::Shared | Memory::SharedCluster => {
                let mut places = [(0, 0); 32];
                let ok = self.shared_places(warp, access, &mut places);
                self.count_shared(access, SharedRequest::Store);
                for (word, data) in data.iter().enumerate().take(bytes.div_ceil(8)) {
                    with_size!(bytes.min(8), SIZE => for_lanes(ok, |lane| {
                        let (block, offset) = places[lane];
                        self.blocks[block].shared.store(offset + 8 * word, SIZE, data[lane]);
                    }));
                }
            }
            Memory::Global | Memory::Generic => {
                self.counters.global_stores.add_global(access.addresses, access.mask, bytes);
                self.global_groups(warp, access, |unit, _, view, group| {
                    let allocation = unit.launched.views[view].allocation;
                    for (word, data) in data.iter().enumerate().take(bytes.div_ceil(8)) {
                        with_size!(bytes.min(8), SIZE => for_lanes(group, |lane| {
                            let offset = (access.addresses[lane] - allocation.base) as usize;
                            allocation.store(offset + 8 * word, SIZE, data[lane]);
                        }));
                    }
                    for_lanes(group, |lane| {
                        allocation.mark_written((access.addresses[lane] - allocation.base) as usize, bytes);
                    });
                });
            }
            _ => self.report_fragment_space(warp, access),
        }
    }

    fn report_fragment_space(&mut self, warp: &Warp, access: &WarpAccess<'_>) {
        let lane = access.lane(access.mask.trailing_zeros() as usize % 32);
        self.report_access(warp, FindingKind::OutOfBounds, lane, || {
            "a matrix load or store needs an address in global or shared memory, and this one is in local memory or \
             the kernel's arguments"
                .to_owned()
        });
    }
}
