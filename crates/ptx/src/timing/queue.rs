//! A unit that serves one after the other.

/// When a unit is free. Warps are run nearly, but not quite, in the order of their time, so that one may come to a unit
/// after another that is ahead of it: the last time in which the unit had nothing to do is kept for those.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    free: f64,
    /// The last time in which it had nothing to do.
    idle: (f64, f64),
}

impl Queue {
    /// Takes the unit for so many clocks, from a moment on at the earliest; gives when it begins. `base` is what the warp has
    /// come to: what waits for its operands after that leaves the unit to others meanwhile, so that it is late only by what
    /// was given to it.
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

    /// When it has served all that it was given.
    pub fn free(&self) -> f64 {
        self.free
    }
}

/// Clocks after which an idle time is forgotten: nobody is so far behind.
const RECENT: f64 = 4000.0;
