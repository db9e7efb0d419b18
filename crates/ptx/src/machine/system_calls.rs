//! Calls of the device's run-time library: `printf`, `assert`, `malloc` and `free`.

use super::{
    access::{WarpAccess, for_lanes, set_lane},
    step::{Next, Step},
    unit::Unit,
    warp::Warp,
    warp_splits::Wait,
};
use crate::{
    check::FindingKind,
    decode::SHARED_START,
    device_runtime::{ArgumentKind, FreeError, HeapBlock, HeapMiss, Piece, format, pieces},
    isa::{SystemCall, Type},
    memory::{LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES},
};

/// The longest text that is read from a kernel's memory.
const TEXT_BYTES: usize = 1 << 16;

/// What `malloc` returns when only time is kept: an address in no allocation.
const NO_HEAP: u64 = 0x7a00_0000_0000;

/// Where some bytes are that the run-time library reads.
enum Bytes {
    /// In an allocation of global memory.
    Global(usize, usize),
    /// In shared memory of the block.
    Shared(usize),
    /// In the lane's local memory.
    Local(usize),
}

impl Unit<'_> {
    pub(super) fn system_call(&mut self, warp: &mut Warp, step: Step<'_>, call: SystemCall) -> Next {
        for lane in (0..32).filter(|lane| step.mask >> lane & 1 == 1) {
            let argument = |unit: &Self, warp: &Warp, i: usize| unit.lane(warp, step.operands[1 + i], lane);
            let first = argument(self, warp, 0);
            let result = match call {
                _ if self.launched.timed => NO_HEAP,
                SystemCall::Print => {
                    let arguments = argument(self, warp, 1);
                    self.print(warp, step.pc, lane, first, arguments) as u64
                }
                SystemCall::AssertFail => {
                    let [file, line, function] = [1, 2, 3].map(|i| argument(self, warp, i));
                    let [condition, file, function] =
                        [first, file, function].map(|text| self.lossy_text(warp, lane, text));
                    self.report(warp, FindingKind::Assert, step.pc, lane as u32, None, || {
                        format!("assertion `{condition}` failed in {file}:{line}, {function}")
                    });
                    self.ended = true;
                    0
                }
                SystemCall::Allocate => self.heap_allocate(warp, step.pc, lane, first, 1),
                SystemCall::AllocateAligned => {
                    let align = argument(self, warp, 1);
                    self.heap_allocate(warp, step.pc, lane, first, align)
                }
                SystemCall::Free => {
                    self.heap_free(warp, step.pc, lane, first);
                    0
                }
            };
            let to = step.operands[0];
            if !to.is_none() {
                set_lane(warp, to, lane, Type::B64, result);
            }
        }
        // As on a GPU, nothing of the block goes on after a failed assertion.
        if self.ended { Next::Again(Wait::Nothing) } else { Next::On }
    }

    /// Prints as `printf`; returns the number of arguments, or -1 if there is no format.
    fn print(&mut self, warp: &Warp, pc: u32, lane: usize, format_at: u64, arguments: u64) -> i64 {
        if format_at == 0 {
            return -1;
        }
        let Some(text) = self.text(warp, lane, format_at) else {
            self.report(warp, FindingKind::OutOfBounds, pc, lane as u32, Some(format_at), || {
                "prints a format at an address where there is no text".to_owned()
            });
            return -1;
        };
        let (mut out, mut at, mut count) = (Vec::new(), 0u64, 0);
        for piece in pieces(&text) {
            let conversion = match piece {
                Piece::Literal(text) => {
                    out.extend_from_slice(text);
                    continue;
                }
                Piece::Conversion(conversion) => conversion,
            };
            let (mut values, mut pointed) = (Vec::new(), None);
            for kind in conversion.arguments() {
                let bytes = if kind == ArgumentKind::Word { 4 } else { 8 };
                at = at.next_multiple_of(bytes);
                let address = arguments.wrapping_add(at);
                let Some(value) = self.read(warp, lane, address, bytes as usize) else {
                    self.report(warp, FindingKind::OutOfBounds, pc, lane as u32, Some(address), || {
                        "prints an argument that it was not given".to_owned()
                    });
                    return -1;
                };
                at += bytes;
                count += 1;
                let value = value.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
                values.push(value);
                if kind == ArgumentKind::Text && value != 0 {
                    pointed = self.text(warp, lane, value);
                    if pointed.is_none() {
                        self.report(warp, FindingKind::OutOfBounds, pc, lane as u32, Some(value), || {
                            "prints a text (%s) at an address where there is none".to_owned()
                        });
                        return -1;
                    }
                }
            }
            format(&mut out, &conversion, &values, pointed.as_deref());
        }
        let text = String::from_utf8_lossy(&out).into_owned();
        if let Some(sink) = self.launched.sink {
            (sink.0)(&text);
        }
        let block = self.blocks[warp.block].number;
        self.printed.add(block, text, self.launched.limits.printf_bytes);
        count
    }

    fn lossy_text(&self, warp: &Warp, lane: usize, address: u64) -> String {
        let text = self.text(warp, lane, address).unwrap_or_else(|| b"?".to_vec());
        String::from_utf8_lossy(&text).into_owned()
    }

    /// A text that ends in a zero byte, or at the end of its memory.
    fn text(&self, warp: &Warp, lane: usize, address: u64) -> Option<Vec<u8>> {
        let place = self.find_bytes(warp, lane, address, 1)?;
        let mut text = Vec::new();
        while text.len() < TEXT_BYTES
            && let Some(byte) = self.byte(warp, &place, text.len())
            && byte != 0
        {
            text.push(byte);
        }
        Some(text)
    }

    fn read(&self, warp: &Warp, lane: usize, address: u64, bytes: usize) -> Option<Vec<u8>> {
        let place = self.find_bytes(warp, lane, address, bytes)?;
        (0..bytes).map(|i| self.byte(warp, &place, i)).collect()
    }

    /// Where a lane's bytes at a generic address are.
    fn find_bytes(&self, warp: &Warp, lane: usize, address: u64, bytes: usize) -> Option<Bytes> {
        let within = |window: u64| {
            let offset = address.wrapping_sub(window);
            (offset < WINDOW_BYTES).then_some(offset as usize)
        };
        if let Some(offset) = within(LOCAL_WINDOW) {
            let fits = offset + bytes <= warp.stack.end(lane) as usize;
            return fits.then_some(Bytes::Local(lane * warp.stack.stride + offset));
        }
        if let Some(offset) = within(SHARED_WINDOW) {
            return offset.checked_sub(SHARED_START as usize).map(Bytes::Shared);
        }
        let view = self.launched.global.find(address, bytes).ok()?;
        let allocation = self.launched.views[view].allocation;
        Some(Bytes::Global(view, (address - allocation.base) as usize))
    }

    fn byte(&self, warp: &Warp, place: &Bytes, i: usize) -> Option<u8> {
        match *place {
            Bytes::Global(view, offset) => {
                let allocation = self.launched.views[view].allocation;
                (offset + i < allocation.bytes).then(|| allocation.load(offset + i, 1) as u8)
            }
            Bytes::Shared(offset) => {
                let shared = &self.blocks[warp.block].shared;
                (offset + i < shared.len()).then(|| shared.load(offset + i, 1) as u8)
            }
            Bytes::Local(offset) => warp.local.get(offset + i).copied(),
        }
    }

    fn heap_allocate(&mut self, warp: &Warp, pc: u32, lane: usize, bytes: u64, align: u64) -> u64 {
        let (Some(heap), Some(view)) = (self.launched.heap, self.launched.heap_view) else { return 0 };
        if bytes == 0 {
            return 0;
        }
        let block = HeapBlock {
            bytes,
            freed: false,
            launch: self.launched.number,
            pc,
            block: self.blocks[warp.block].number,
            thread: warp.number as u32 * 32 + lane as u32,
        };
        let Some(offset) = heap.allocate(block, align) else { return 0 };
        // Its bytes may have belonged to a block that was freed.
        let memory = &self.launched.views[view];
        memory.forget(offset as usize, bytes as usize);
        if let Some(grid) = &mut self.grid {
            grid.records.forget(view, memory.granules(offset as usize, bytes as usize));
        }
        heap.base + offset
    }

    fn heap_free(&mut self, warp: &Warp, pc: u32, lane: usize, address: u64) {
        if address == 0 {
            return;
        }
        let freed = match self.launched.heap {
            Some(heap) if address.wrapping_sub(heap.base) < heap.bytes => heap.free(address - heap.base),
            _ => Err(FreeError::Unknown),
        };
        let Err(error) = freed else { return };
        self.report(warp, FindingKind::InvalidFree, pc, lane as u32, Some(address), || match error {
            FreeError::Twice { bytes } => format!("frees a {bytes}-byte block that was freed before"),
            FreeError::Inside { bytes, offset } => {
                format!("frees an address at offset {offset} of a {bytes}-byte block, not its start")
            }
            FreeError::Unknown => "frees an address that malloc did not return".to_owned(),
        });
    }

    /// The lanes of an access to the heap that are within a block; the others are reported.
    #[inline(never)]
    pub(super) fn heap_lanes(&mut self, warp: &Warp, access: &WarpAccess<'_>, group: u32) -> u32 {
        let Some(heap) = self.launched.heap else { return group };
        let mut kept = group;
        for_lanes(group, |lane| {
            let access = access.lane(lane);
            let Some(miss) = heap.miss(access.address - heap.base, access.bytes as u64) else { return };
            kept &= !(1 << lane);
            let (bytes, does) = (access.bytes, access.kind.verb());
            let kind = match miss {
                HeapMiss::Freed { .. } => FindingKind::UseAfterFree,
                _ => FindingKind::OutOfBounds,
            };
            self.report_access(warp, kind, access, || match miss {
                HeapMiss::Freed { bytes: size } => {
                    format!("{does} {bytes} bytes in a {size}-byte block of the heap that was freed")
                }
                HeapMiss::Beyond { bytes: size, offset } => {
                    format!("{does} {bytes} bytes at offset {offset} of a {size}-byte block of the heap")
                }
                HeapMiss::Nowhere => format!("{does} {bytes} bytes of the heap that malloc did not return"),
            });
        });
        kept
    }
}
