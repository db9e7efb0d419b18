//! When a warp's values are ready.

use std::collections::VecDeque;

use crate::isa::{Class, Operand, Program};

/// How far instructions can be reordered by the assembler and the scoreboard: an instruction starts no earlier than the one this many
/// before it, nor than the end of the previous loop iteration.
const WINDOW: usize = 64;

/// A warp's clock.
#[derive(Clone, Debug)]
pub(crate) struct WarpClock {
    /// Its scheduler.
    pub scheduler: usize,
    /// No instruction starts before this time.
    base: f64,
    /// When the latest of its instructions started.
    latest: f64,
    starts: [f64; WINDOW],
    next: usize,
    words: Vec<f64>,
    longs: Vec<f64>,
    predicates: Vec<f64>,
    /// When its asynchronous copies land, by group.
    pub copies: Groups,
    /// When its `wgmma` instructions are done, by group.
    pub wgmma: Groups,
}

/// When groups of asynchronous operations are done: the open one, and those that were committed.
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
            wgmma: Groups::default(),
        }
    }

    /// No instruction starts before this time.
    pub fn base(&self) -> f64 {
        self.base
    }

    /// When everything that was issued has started.
    pub fn now(&self) -> f64 {
        self.latest.max(self.base)
    }

    /// Lets nothing start before a time.
    pub fn wait_until(&mut self, moment: f64) {
        self.base = self.base.max(moment);
    }

    /// Lets nothing start before everything that was issued has started.
    pub fn settle(&mut self) {
        self.base = self.now();
    }

    /// Records the start of an instruction.
    pub fn started(&mut self, at: f64) {
        self.latest = self.latest.max(at);
        self.base = self.base.max(self.starts[self.next]);
        self.starts[self.next] = at;
        self.next = (self.next + 1) % WINDOW;
    }

    /// When an operand is ready.
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

    /// Sets when a result is ready.
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
