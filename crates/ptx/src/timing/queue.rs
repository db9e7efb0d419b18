//! A unit that serves one request after the other.

/// When a unit is free. Warps run almost, but not quite, in the order of their clocks, so a request may come after one that is ahead of
/// it. The unit's last idle interval is kept for such requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    free: f64,
    /// The last interval in which it was idle.
    idle: (f64, f64),
}

impl Queue {
    /// Occupies the unit for some clocks, no earlier than `ready`; returns when that begins. `base` is the warp's own time: while the
    /// instruction waits for its operands after that, the unit is left to others.
    #[inline(always)]
    pub fn take(&mut self, base: f64, ready: f64, clocks: f64) -> f64 {
        let within = ready.max(self.idle.0);
        if within + clocks <= self.idle.1 {
            self.idle.0 = self.idle.0.max(base) + clocks;
            return within;
        }
        let begin = ready.max(self.free);
        if base > self.free {
            if base - self.free > self.idle.1 - self.idle.0 || self.idle.1 < self.free - RECENT {
                self.idle = (self.free, base);
            }
            self.free = base;
        }
        self.free += clocks;
        begin
    }

    /// When it has served all requests.
    pub fn free(&self) -> f64 {
        self.free
    }
}

/// Clocks after which an idle interval is forgotten: no warp is that far behind.
const RECENT: f64 = 4000.0;
