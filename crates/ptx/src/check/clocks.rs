//! Which accesses are ordered: vector clocks of the warps of a cluster, over one logical time.
//!
//! Every synchronisation advances the time. For each pair of warps, the clocks hold the time up to which the first has seen the
//! second. An access of warp `a` at time `t` happened before what warp `b` does now if `b` has seen `a` up to `t`.

/// The time, and what every warp has seen. The last row is the TMA unit's.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    now: u32,
    count: usize,
    seen: Vec<u32>,
    /// When each warp last released.
    released: Vec<u32>,
}

impl Clocks {
    pub fn new(warps: usize) -> Clocks {
        let count = warps + 1;
        Clocks { now: 1, count, seen: vec![0; count * count], released: vec![0; count] }
    }

    /// The TMA unit's row.
    pub fn tma(&self) -> usize {
        self.count - 1
    }

    pub fn now(&self) -> u32 {
        self.now
    }

    /// Advances the time, which saturates.
    pub fn advance(&mut self) -> u32 {
        self.now = self.now.saturating_add(1).min(u32::MAX - 1);
        self.now
    }

    /// The time up to which `warp` has seen `other`.
    #[inline(always)]
    pub fn seen(&self, warp: usize, other: usize) -> u32 {
        self.seen[warp * self.count + other]
    }

    /// Everything that a warp has seen, and its own past.
    pub fn row(&self, warp: usize) -> Vec<u32> {
        let mut row = self.seen[warp * self.count..(warp + 1) * self.count].to_vec();
        row[warp] = self.now;
        row
    }

    /// Everything that a warp has seen, and its own past, for others. The time advances, so that what it does next is not included.
    pub fn release(&mut self, warp: usize) -> Vec<u32> {
        let row = self.row(warp);
        self.released[warp] = self.now;
        self.advance();
        row
    }

    /// Whether a warp has released what it did at a time.
    pub fn is_released(&self, warp: usize, at: u32) -> bool {
        self.released[warp] >= at
    }

    /// A warp acquires what was released.
    pub fn acquire(&mut self, warp: usize, published: &[u32]) {
        let mine = &mut self.seen[warp * self.count..(warp + 1) * self.count];
        join(mine, published);
    }

    /// The time up to which a warp has seen all others.
    pub fn floor(&self, warp: usize) -> u32 {
        let row = &self.seen[warp * self.count..(warp + 1) * self.count];
        let others = row[..self.count - 1].iter().enumerate().filter(|(other, _)| *other != warp);
        others.map(|(_, &moment)| moment).min().unwrap_or(u32::MAX)
    }
}

/// The elementwise maximum.
pub(crate) fn join(mine: &mut [u32], theirs: &[u32]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine = (*mine).max(*theirs);
    }
}
