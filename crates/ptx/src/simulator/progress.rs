//! How far a launch is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How far a launch is, for another thread to look at while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    all: AtomicU64,
    blocks: AtomicU64,
    instructions: AtomicU64,
}

impl Progress {
    /// The launch's blocks.
    pub fn all_blocks(&self) -> u64 {
        self.all.load(Relaxed)
    }

    /// The blocks that have ended. It falls back to zero if all blocks have to run again, to report races in a fixed order.
    pub fn ended_blocks(&self) -> u64 {
        self.blocks.load(Relaxed)
    }

    /// The warp instructions that were executed.
    pub fn instructions(&self) -> u64 {
        self.instructions.load(Relaxed)
    }

    pub(super) fn start(&self, blocks: u64) {
        self.all.store(blocks, Relaxed);
        self.blocks.store(0, Relaxed);
        self.instructions.store(0, Relaxed);
    }

    pub(super) fn restart(&self) {
        self.blocks.store(0, Relaxed);
    }

    pub(crate) fn add_blocks(&self, blocks: u64) {
        self.blocks.fetch_add(blocks, Relaxed);
    }

    pub(crate) fn add_instructions(&self, instructions: u64) {
        self.instructions.fetch_add(instructions, Relaxed);
    }
}
