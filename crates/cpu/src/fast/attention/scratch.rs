//! Scratch memory of a task, which its thread keeps from task to task: fresh pages would cost more than the copying.

use std::cell::Cell;

use crate::gemm::AlignedBuffer;

thread_local! {
    static KEPT: Cell<AlignedBuffer<f32>> = const { Cell::new(AlignedBuffer::new()) };
}

/// Registers the destructors of this thread's scratch memory: see [`crate::threads::register_scratch`].
pub(in crate::fast) fn register_scratch() {
    KEPT.with(|_| ());
}

/// f32 values of unspecified content from an aligned address.
pub(super) struct Scratch {
    memory: AlignedBuffer<f32>,
}

impl Scratch {
    /// Takes `len` values from the thread; dropping gives them back.
    pub(super) fn take(len: usize) -> Self {
        let mut memory = KEPT.take();
        memory.reserve(len);
        Scratch { memory }
    }

    /// Splits the values into parts of these sizes, which add up to at most their number.
    pub(super) fn split<const N: usize>(&mut self, sizes: [usize; N]) -> [&mut [f32]; N] {
        let mut rest = self.memory.as_mut_slice();
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
