//! Bulk copies (TMA) of boxes of tensors, described by tensor maps: `cp.async.bulk.tensor`.

use super::{
    access::{AccessKind, LaneAccess, SharedPlace, for_lanes},
    bulk_copies::{BulkLoad, BulkSource, BulkStore, BulkTarget, Issuer},
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::FindingKind,
    isa::{Atomic, BulkDirection, TensorCopy, Type},
    memory::{PARAMETER_WINDOW, TensorMap, TensorMapKind, WINDOW_BYTES},
};

impl Unit<'_> {
    /// Starts the copy of a box.
    pub(super) fn tensor_copy(&mut self, warp: &mut Warp, step: Step<'_>, copy: TensorCopy) {
        for_lanes(step.mask, |lane| {
            let operand = |i: usize| self.lane(warp, step.operands[i], lane);
            let (shared, map) = (operand(0) & 0xffff_ffff, operand(1));
            let loads = copy.direction == BulkDirection::GlobalToShared;
            let first = if loads { 3 } else { 2 };
            let rank = copy.rank as usize;
            let mut coordinates = [0; 5];
            for (i, coordinate) in coordinates[..rank].iter_mut().enumerate() {
                *coordinate = operand(first + i) as i32;
            }
            let mut next = first + rank;
            let mut offsets = [0; 3];
            if loads && copy.im2col {
                for (i, offset) in offsets[..rank - 2].iter_mut().enumerate() {
                    *offset = operand(next + i) as u32 & 0xffff;
                }
                next += rank - 2;
            }
            let multicast = if copy.multicast { operand(next) as u32 & 0xffff } else { 0 };
            let barrier = if loads { operand(2) & 0xffff_ffff } else { 0 };
            let found = self.read_map(map);
            let problem = match &found {
                None => Some("the address of the tensor map holds no valid tensor map".to_owned()),
                Some(map) => misuse(map, copy, shared),
            };
            if let Some(problem) = problem {
                self.report(warp, FindingKind::TensorMap, step.pc, lane as u32, Some(shared), || problem);
                return;
            }
            let Some(map) = found.map(Box::new) else { return };
            let bytes = map.box_bytes();
            self.counters.bulk_copies += 1;
            if loads {
                let source = BulkSource::Tensor { map, coordinates, offsets };
                let load = BulkLoad { lane, to: shared, bytes, barrier, multicast, source };
                self.start_copy(warp, step.pc, load);
                return;
            }
            let access = LaneAccess { pc: step.pc, lane, address: shared, bytes: 16, kind: AccessKind::Read };
            let Some(from) = self.shared_place(warp, access) else { return };
            let size = self.blocks[from.0].shared.len();
            if from.1 + bytes > size {
                self.report_access(warp, FindingKind::OutOfBounds, access, || {
                    format!(
                        "a tensor copy of {bytes} bytes runs past the block's {size} bytes of shared memory"
                    )
                });
                return;
            }
            self.check_proxy(warp, step.pc, lane, from, bytes);
            let reduce = match copy.direction {
                BulkDirection::ReduceToGlobal(op, _) => Some((op, map.element.kind())),
                _ => None,
            };
            let issuer = self.issuer(warp, step.pc, lane);
            let target = BulkTarget::Tensor { map, coordinates };
            warp.copies.open_stores.push(BulkStore { from, bytes, target, reduce, issuer });
        });
    }

    /// The tensor map at an address, in the kernel's arguments or in global memory.
    fn read_map(&self, address: u64) -> Option<TensorMap> {
        let mut bytes = [0; TensorMap::BYTES];
        let argument = address.wrapping_sub(PARAMETER_WINDOW);
        if argument < WINDOW_BYTES {
            let at = argument as usize;
            bytes.copy_from_slice(self.launched.parameters.get(at..at.checked_add(TensorMap::BYTES)?)?);
        } else {
            let view = self.launched.global.find(address, TensorMap::BYTES).ok()?;
            let allocation = self.launched.views[view].allocation;
            let offset = (address - allocation.base) as usize;
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = allocation.load(offset + i, 1) as u8;
            }
        }
        TensorMap::decode(&bytes)
    }

    /// Reads a box in its shared-memory layout; `start` is its offset there.
    pub(super) fn gather(
        &mut self,
        map: &TensorMap,
        coordinates: &[i32; 5],
        offsets: &[u32; 3],
        start: usize,
        to: &mut [u8],
        issuer: Issuer,
    ) {
        let inner = map.inner_bytes();
        let mut row = vec![0; inner];
        for (i, place) in map.rows(coordinates, offsets).into_iter().enumerate() {
            row.fill(0);
            map.fill(&mut row);
            if let Some(run) = place {
                let (first, end) = run.within;
                self.read_global(run.address, &mut row[first..end], issuer);
            }
            for (piece, bytes) in row.chunks(16).enumerate() {
                // The swizzle depends on the address in shared memory.
                let at = map.swizzle.swizzled(start + i * inner + 16 * piece) - start;
                if let Some(target) = to.get_mut(at..at + bytes.len()) {
                    target.copy_from_slice(bytes);
                }
            }
        }
    }

    /// Writes a box from shared memory, except for the part outside the tensor.
    pub(super) fn scatter(
        &mut self,
        map: &TensorMap,
        coordinates: &[i32; 5],
        from: SharedPlace,
        bytes: usize,
        reduce: Option<(Atomic, Type)>,
        issuer: Issuer,
    ) {
        let inner = map.inner_bytes();
        let (block, start) = from;
        let data = self.blocks[block].shared.bytes(start, bytes).to_vec();
        let mut row = vec![0; inner];
        for (i, place) in map.rows(coordinates, &[0; 3]).into_iter().enumerate() {
            let Some(run) = place else { continue };
            for (piece, target) in row.chunks_mut(16).enumerate() {
                let at = map.swizzle.swizzled(start + i * inner + 16 * piece) - start;
                if let Some(source) = data.get(at..at + target.len()) {
                    target.copy_from_slice(source);
                }
            }
            let (first, end) = run.within;
            self.write_global(run.address, &row[first..end], reduce, issuer);
        }
    }
}

/// What is wrong with a copy by a tensor map, if anything.
fn misuse(map: &TensorMap, copy: TensorCopy, shared: u64) -> Option<String> {
    let align = map.swizzle.alignment();
    if map.rank != copy.rank as usize {
        return Some(format!("a copy of rank {} uses a tensor map of rank {}", copy.rank, map.rank));
    }
    if matches!(map.kind, TensorMapKind::Im2col { .. }) != copy.im2col {
        return Some(if copy.im2col {
            "an im2col copy uses a tiled tensor map".to_owned()
        } else {
            "a tiled copy uses an im2col tensor map".to_owned()
        });
    }
    if !shared.is_multiple_of(align) {
        return Some(format!(
            "the shared memory address {shared:#x} is not a multiple of {align}, which the tensor map's swizzle mode requires"
        ));
    }
    None
}
