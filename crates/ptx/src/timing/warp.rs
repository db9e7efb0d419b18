//! When a warp's values are ready.

use std::collections::VecDeque;

use super::stalls::Trace;
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
    /// What made its values, if its time is divided by instruction.
    pub(super) trace: Option<Box<Trace>>,
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
            trace: None,
        }
    }

    /// The same clock, which also divides its time by instruction.
    #[must_use]
    pub fn traced(mut self, program: &Program) -> WarpClock {
        self.trace = Some(Box::new(Trace::new(program, self.base)));
        self
    }

    /// The warp is at an instruction, which may hold it.
    pub fn at(&mut self, pc: u32) {
        if let Some(trace) = &mut self.trace {
            trace.current = pc;
        }
    }

    /// When the last of some operands is ready, and which instruction makes it, as far as that is known.
    pub(super) fn last(&mut self, guard: Operand, operands: &[Operand]) -> (f64, Option<u32>) {
        let mut ready = self.ready(guard);
        let mut last = guard;
        for &operand in operands {
            let moment = self.ready(operand);
            if moment > ready {
                (ready, last) = (moment, operand);
            }
        }
        let trace = self.trace.as_mut().filter(|_| last.is_register());
        (ready, trace.and_then(|trace| trace.producer(last)))
    }

    /// Sets when results are ready, and what makes them.
    pub(super) fn set_results(&mut self, results: &[Operand], moment: f64, producer: Option<u32>) {
        results.iter().for_each(|&result| self.set_ready(result, moment));
        if let Some(trace) = &mut self.trace {
            let registers = results.iter().filter(|result| result.is_register());
            registers.for_each(|&result| trace.set_producer(result, producer));
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
