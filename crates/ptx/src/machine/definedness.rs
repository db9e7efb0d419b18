//! Bytes that nobody wrote: which of them a load uses, and where those go that it only copies.
//!
//! Padding within a struct is never written, and copied all the same. So an instruction that loads such bytes is reported only if the
//! kernel uses them, or if it loads nothing else (`flow/demand.rs`). If it only stores them, memory keeps the mark that they were never
//! written.

use super::{access::WarpAccess, unit::Unit, warp::Warp};
use crate::{check::FindingKind, isa::AccessFacts};

impl Unit<'_> {
    /// Whether a lane's load is wrong: the kernel uses a byte that has no value, or copies nothing but bytes that were never stored to.
    /// `unwritten` is a mask of the former, `untouched` of the latter.
    #[inline(always)]
    pub(super) fn is_unwritten_wrong(&self, pc: u32, unwritten: u32, untouched: u32) -> bool {
        let AccessFacts { used, kept, .. } = self.launched.program.access_facts[pc as usize];
        unwritten & used != 0 || kept != 0 && untouched & kept == kept
    }

    /// Notes the bytes that a lane loads although nobody wrote them, for the stores that copy them on.
    #[inline(never)]
    pub(super) fn note_undefined(&self, warp: &mut Warp, pc: u32, lane: usize, unwritten: u32) {
        let program = self.launched.program;
        let copies = program.copies_of(pc);
        let element = program.element_bytes(pc);
        for (i, copy) in copies.iter().enumerate() {
            if let Some(copy) = *copy {
                let bytes = (u64::from(unwritten) >> (i * element)) as u8 & (u8::MAX >> (8 - element));
                warp.undefined[copy as usize][lane] = bytes;
                warp.any_undefined |= bytes != 0;
            }
        }
    }

    /// Forgets what lanes loaded before, since they are about to load anew.
    #[inline(always)]
    pub(super) fn forget_undefined(&self, warp: &mut Warp, pc: u32, mask: u32) {
        if warp.any_undefined && self.launched.program.access_facts[pc as usize].copies {
            for copy in self.launched.program.copies_of(pc).iter().flatten() {
                let lanes = warp.undefined[*copy as usize].iter_mut().enumerate();
                lanes.filter(|(lane, _)| mask >> lane & 1 == 1).for_each(|(_, bytes)| *bytes = 0);
            }
        }
    }

    /// Whether a store may copy bytes that nobody wrote.
    #[inline(always)]
    pub(super) fn may_copy_undefined(&self, warp: &Warp, pc: u32) -> bool {
        warp.any_undefined && self.launched.program.access_facts[pc as usize].copies
    }

    /// The bytes of one lane's store that nobody wrote where they were loaded from, as a mask.
    pub(super) fn copied_undefined(&self, warp: &Warp, pc: u32, lane: usize) -> u32 {
        let program = self.launched.program;
        let element = program.element_bytes(pc);
        program.copies_of(pc).iter().enumerate().fold(0, |all, (i, copy)| match *copy {
            Some(copy) => {
                let bytes = warp.undefined[copy as usize][lane] & (u8::MAX >> (8 - element));
                all | (u64::from(bytes) << (i * element)) as u32
            }
            None => all,
        })
    }

    /// Reports local memory that is read before it was written: an uninitialised variable or element of an array.
    pub(super) fn check_local_written(&mut self, warp: &mut Warp, access: &WarpAccess<'_>) {
        let stride = warp.stack.stride;
        let WarpAccess { pc, addresses, mask, bytes, .. } = *access;
        for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
            // What is out of bounds is reported elsewhere.
            let Some(at) = usize::try_from(addresses[lane])
                .ok()
                .filter(|at| at.saturating_add(bytes) <= warp.stack.end(lane) as usize)
            else {
                continue;
            };
            let written = &warp.local_written[lane * stride + at..][..bytes];
            let unwritten =
                written.iter().zip(0..).fold(0, |all, (&one, byte)| all | u32::from(one == 0) << byte);
            if unwritten == 0 {
                continue;
            }
            let whole = unwritten == (1u32 << bytes.min(16)) - 1;
            if whole && self.launched.program.access_facts[pc as usize].chosen {
                self.note_without_value(warp, pc, lane);
            } else if self.is_unwritten_wrong(pc, unwritten, unwritten) {
                self.report_access(warp, FindingKind::Uninitialised, access.lane(lane), || {
                    format!("reads {bytes} bytes of a local variable or array that the thread never wrote")
                });
            } else {
                self.note_undefined(warp, pc, lane, unwritten);
            }
        }
    }
}
