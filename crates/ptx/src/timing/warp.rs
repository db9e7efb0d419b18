//! When a warp's values are there.

use std::collections::VecDeque;

use crate::isa::{Class, Operand, Program};

/// Instructions that the compiler and the scoreboard move past each other: one starts no earlier than the one so many before
/// it. A loop's end is a limit as well.
const WINDOW: usize = 64;

/// A warp's time, in clocks.
#[derive(Clone, Debug)]
pub(crate) struct WarpClock {
    /// Which of the multiprocessor's schedulers it has.
    pub scheduler: usize,
    /// Nothing of it starts before.
    base: f64,
    /// When the last of its instructions started.
    latest: f64,
    starts: [f64; WINDOW],
    next: usize,
    words: Vec<f64>,
    longs: Vec<f64>,
    predicates: Vec<f64>,
    /// When copies that were started are there: those of the open group, and of those that were closed.
    pub copies: Groups,
    /// The same of products.
    pub products: Groups,
}

/// When the parts of groups are done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    open: f64,
    closed: VecDeque<f64>,
}

impl Groups {
    pub fn add(&mut self, done: f64) {
        self.open = self.open.max(done);
    }

    pub fn close(&mut self) {
        self.closed.push_back(std::mem::take(&mut self.open));
    }

    /// When all but the `pending` newest groups are done.
    pub fn wait(&mut self, pending: usize) -> f64 {
        let mut done = 0.0f64;
        while self.closed.len() > pending {
            done = done.max(self.closed.pop_front().unwrap_or(0.0));
        }
        done
    }
}

impl WarpClock {
    pub fn new(program: &Program, scheduler: usize, start: f64) -> WarpClock {
        WarpClock {
            scheduler,
            base: start,
            latest: start,
            starts: [start; WINDOW],
            next: 0,
            words: vec![start; program.word_count],
            longs: vec![start; program.long_count],
            predicates: vec![start; program.predicate_count],
            copies: Groups::default(),
            products: Groups::default(),
        }
    }

    /// Nothing of it starts before.
    pub fn base(&self) -> f64 {
        self.base
    }

    /// When all that was started has started.
    pub fn now(&self) -> f64 {
        self.latest.max(self.base)
    }

    /// Nothing starts before a moment.
    pub fn wait_until(&mut self, moment: f64) {
        self.base = self.base.max(moment);
    }

    /// Everything before has started before anything after does.
    pub fn settle(&mut self) {
        self.base = self.now();
    }

    /// Notes the start of an instruction.
    pub fn started(&mut self, at: f64) {
        self.latest = self.latest.max(at);
        self.base = self.base.max(self.starts[self.next]);
        self.starts[self.next] = at;
        self.next = (self.next + 1) % WINDOW;
    }

    /// When an operand is there.
    #[inline(always)]
    pub fn ready(&self, operand: Operand) -> f64 {
        if !operand.is_register() {
            return 0.0;
        }
        match operand.class() {
            Class::Word => self.words[operand.index()],
            Class::Long => self.longs[operand.index()],
            Class::Predicate => self.predicates[operand.index()],
        }
    }

    /// Says when a result is there.
    #[inline(always)]
    pub fn set_ready(&mut self, operand: Operand, moment: f64) {
        if !operand.is_register() {
            return;
        }
        match operand.class() {
            Class::Word => self.words[operand.index()] = moment,
            Class::Long => self.longs[operand.index()] = moment,
            Class::Predicate => self.predicates[operand.index()] = moment,
        }
    }
}
