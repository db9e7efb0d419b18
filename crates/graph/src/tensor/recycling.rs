//! Memory of large tensors that is used again instead of being handed back to the system.
//!
//! While weights are loaded, tensors come and go by the thousand. Memory that is new from the system has to be faulted in page by
//! page, and with many threads at it that takes longer than reading the weights.

use std::{cell::RefCell, marker::PhantomData};

use memmap2::MmapMut;

/// The most bytes that a thread keeps.
const KEPT: usize = 32 << 20;

thread_local! {
    /// What this thread has to spare; `None` if it keeps nothing.
    static SPARE: RefCell<Option<Vec<MmapMut>>> = const { RefCell::new(None) };
}

/// As long as one of these lives, its thread keeps the memory of some large tensors that it drops, for the next ones that it makes.
#[derive(Debug)]
#[must_use]
pub struct Recycling {
    /// Whether nothing was kept before.
    outermost: bool,
    /// It belongs to its thread.
    thread: PhantomData<*const ()>,
}

impl Recycling {
    /// Begins to keep memory.
    pub fn begin() -> Recycling {
        let outermost = SPARE.with_borrow_mut(|spare| match spare {
            Some(_) => false,
            None => {
                *spare = Some(Vec::new());
                true
            }
        });
        Recycling { outermost, thread: PhantomData }
    }
}

impl Drop for Recycling {
    fn drop(&mut self) {
        if self.outermost {
            let _ = SPARE.try_with(RefCell::take);
        }
    }
}

/// Memory that was kept, of at least `len` bytes and not many more. It holds anything.
pub(super) fn take(len: usize) -> Option<MmapMut> {
    SPARE.with_borrow_mut(|spare| {
        let spare = spare.as_mut()?;
        let fits = spare.iter().enumerate().filter(|(_, pages)| (len..=2 * len).contains(&pages.len()));
        let (place, _) = fits.min_by_key(|(_, pages)| pages.len())?;
        Some(spare.swap_remove(place))
    })
}

/// Keeps memory, if this thread does and has room for it.
pub(super) fn give(pages: MmapMut) {
    // A thread that ends keeps nothing any more.
    let _ = SPARE.try_with(|spare| {
        if let Some(spare) = spare.borrow_mut().as_mut()
            && spare.iter().map(|pages| pages.len()).sum::<usize>().saturating_add(pages.len()) <= KEPT
        {
            spare.push(pages);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::AlignedBytes;

    const LEN: usize = 1 << 20;

    fn filled(len: usize) -> AlignedBytes {
        let mut bytes = AlignedBytes::zeroed(len);
        assert!(bytes.len() == len && bytes.iter().all(|&byte| byte == 0));
        bytes.fill(7);
        bytes
    }

    fn spare() -> Option<usize> {
        SPARE.with_borrow(|spare| spare.as_ref().map(|spare| spare.iter().map(|pages| pages.len()).sum()))
    }

    #[test]
    fn memory_is_used_again_and_zeroed() {
        assert_eq!(spare(), None);
        let outer = Recycling::begin();
        let first = filled(LEN);
        let place = first.as_ptr().addr();
        drop(first);
        assert_eq!(spare(), Some(LEN));
        {
            let _inner = Recycling::begin();
            // A shorter one fits, one of less than half does not.
            let shorter = filled(LEN - 4099);
            assert_eq!((shorter.as_ptr().addr(), spare()), (place, Some(0)));
            drop(shorter);
            drop(filled(LEN / 2 - 1));
        }
        assert_eq!(spare(), Some(LEN + LEN / 2 - 1));
        drop(outer);
        assert_eq!(spare(), None);
        drop(filled(LEN));
        assert_eq!(spare(), None);
    }

    #[test]
    fn a_thread_keeps_no_more_than_its_share() {
        let _recycling = Recycling::begin();
        let many: Vec<_> = (0..40).map(|_| filled(LEN)).collect();
        drop(many);
        assert_eq!(spare(), Some(KEPT));
        drop(filled(KEPT + 1));
        assert_eq!(spare(), Some(KEPT));
    }

    #[test]
    fn what_another_thread_drops_is_not_kept_here() {
        let _recycling = Recycling::begin();
        let bytes = filled(LEN);
        std::thread::scope(|scope| {
            scope.spawn(|| drop(bytes));
        });
        assert_eq!(spare(), Some(0));
    }
}
