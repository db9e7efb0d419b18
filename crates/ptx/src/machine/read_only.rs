//! Memory that a kernel reads as read-only data (`ld.global.nc`: `__ldg`, or `const` and `__restrict__`) and writes too. Such a load may
//! come from a cache that does not see the write, whether or not anything orders the two.

use std::sync::atomic::Ordering::SeqCst;

use super::{access::WarpAccess, access::for_lanes, unit::Unit, warp::Warp};
use crate::{
    check::FindingKind,
    isa::{Access, Op},
};

impl Unit<'_> {
    /// Looks for memory that is both. For every granule there is a word: in its lower half the first instruction, plus one, that read
    /// it as read-only data, and in the upper half the first that wrote it.
    pub(super) fn check_read_only(&mut self, warp: &Warp, view: usize, access: &WarpAccess<'_>) {
        let program = self.launched.program;
        let loads = match program.instructions[access.pc as usize].op {
            Op::Load(Access { non_coherent: true, .. }) => true,
            Op::Store(_) | Op::Atomic { .. } => false,
            _ => return,
        };
        let launched = self.launched;
        let Some(words) = launched.read_only.as_ref().map(|views| &views[view]) else { return };
        let base = launched.views[view].allocation.base;
        let mine = if loads { 0 } else { 32 };
        for_lanes(access.mask, |lane| {
            let offset = (access.addresses[lane] - base) as usize;
            for granule in launched.views[view].granules(offset, access.bytes) {
                let set = |word: u64| {
                    let first = word >> mine & u64::from(u32::MAX);
                    (first == 0).then_some(word | (u64::from(access.pc) + 1) << mine)
                };
                let word = words[granule].load(SeqCst);
                let word = match set(word) {
                    // What another thread did since is in the word that it leaves.
                    Some(_) => words[granule].fetch_update(SeqCst, SeqCst, set).unwrap_or_else(|word| word),
                    None => word,
                };
                let other = (word >> (32 - mine)) as u32;
                if other == 0 {
                    continue;
                }
                let (load, store) = if loads { (access.pc, other - 1) } else { (other - 1, access.pc) };
                let lane = access.lane(lane);
                self.report(warp, FindingKind::ReadOnlyWritten, load, lane.lane as u32, Some(lane.address), || {
                    let line = program.lines[program.instructions[store as usize].line as usize];
                    let place = match line.source {
                        0 => format!("line {} of the PTX", line.ptx),
                        source => format!("line {source}"),
                    };
                    format!("reads memory as read-only data (ld.global.nc), and {place} of the same kernel writes it")
                });
            }
        });
    }
}
