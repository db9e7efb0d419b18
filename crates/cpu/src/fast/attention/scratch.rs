//! Working memory of a task, kept by its thread from task to task: fresh pages would cost more than the copying.

use std::cell::Cell;

use kinora_graph::tensor::ALIGNMENT;

thread_local! {
    static KEPT: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// f32 values of unspecified content from an aligned address.
pub(super) struct Scratch {
    memory: Vec<f32>,
    start: usize,
    len: usize,
}

impl Scratch {
    /// Takes `len` values from the thread; dropping gives them back.
    pub(super) fn take(len: usize) -> Self {
        let mut memory = KEPT.take();
        let slack = ALIGNMENT / size_of::<f32>();
        if memory.len() < len + slack {
            memory.resize(len + slack, 0.0);
        }
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(slack);
        Scratch { memory, start, len }
    }

    /// Cuts the values into parts of these sizes, which together are at most as many.
    pub(super) fn split<const N: usize>(&mut self, sizes: [usize; N]) -> [&mut [f32]; N] {
        let mut rest = &mut self.memory[self.start..][..self.len];
        sizes.map(|size| {
            let (part, other) = std::mem::take(&mut rest).split_at_mut(size);
            rest = other;
            part
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        KEPT.set(std::mem::take(&mut self.memory));
    }
}
