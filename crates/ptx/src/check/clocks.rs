//! Which accesses are ordered: vector clocks of the warps of a block or cluster, with one time for all.
//!
//! Time goes on at every synchronisation. For each pair of warps it is known up to which time the first has seen what the
//! second did. An access of warp `a` at time `t` happened before what warp `b` does now if `b` has seen `a` up to `t`.

/// The time and what every warp has seen. The last row is that of the copy engine.
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

    /// The copy engine's number.
    pub fn engine(&self) -> usize {
        self.count - 1
    }

    pub fn now(&self) -> u32 {
        self.now
    }

    /// Lets time go on. A run of so many synchronisations that time ends keeps the last moment.
    pub fn advance(&mut self) -> u32 {
        self.now = self.now.saturating_add(1).min(u32::MAX - 1);
        self.now
    }

    /// Until when `warp` has seen `other`.
    #[inline(always)]
    pub fn seen(&self, warp: usize, other: usize) -> u32 {
        self.seen[warp * self.count + other]
    }

    /// What a warp knows, itself included up to now. Time goes on, so that what it does next is not part of that.
    pub fn release(&mut self, warp: usize) -> Vec<u32> {
        let mut row = self.seen[warp * self.count..(warp + 1) * self.count].to_vec();
        row[warp] = self.now;
        self.released[warp] = self.now;
        self.advance();
        row
    }

    /// Whether others may know what a warp did at a moment.
    pub fn is_released(&self, warp: usize, at: u32) -> bool {
        self.released[warp] >= at
    }

    /// A warp learns what a release published.
    pub fn acquire(&mut self, warp: usize, published: &[u32]) {
        let mine = &mut self.seen[warp * self.count..(warp + 1) * self.count];
        join(mine, published);
    }

    /// The earliest moment that a warp has seen of any other: what happened before is known to it.
    pub fn floor(&self, warp: usize) -> u32 {
        let row = &self.seen[warp * self.count..(warp + 1) * self.count];
        let others = row[..self.count - 1].iter().enumerate().filter(|(other, _)| *other != warp);
        others.map(|(_, &moment)| moment).min().unwrap_or(u32::MAX)
    }
}

/// The later of two moments, everywhere.
pub(crate) fn join(mine: &mut [u32], theirs: &[u32]) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine = (*mine).max(*theirs);
    }
}
