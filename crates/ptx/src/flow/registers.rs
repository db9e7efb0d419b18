//! Register allocation. PTX uses thousands of virtual registers, and a warp's values of all of them would not fit into the L1 cache.
//! Registers that are never live at the same time share a slot. This is sound under divergence, because writes are masked by lane.

use std::collections::HashSet;

use super::graph::Graph;
use crate::isa::{Class, Op, Operand, Program};

/// A set of registers, of all classes.
#[derive(Clone, PartialEq)]
struct Set(Vec<u64>);

impl Set {
    fn new(count: usize) -> Set {
        Set(vec![0; count.div_ceil(64)])
    }

    fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    fn remove(&mut self, i: usize) {
        self.0[i / 64] &= !(1 << (i % 64));
    }

    /// Adds others, and returns whether any was new.
    fn extend(&mut self, others: &Set) -> bool {
        let mut grew = false;
        for (mine, theirs) in self.0.iter_mut().zip(&others.0) {
            grew |= *theirs & !*mine != 0;
            *mine |= theirs;
        }
        grew
    }

    fn for_each(&self, mut see: impl FnMut(usize)) {
        for (w, &word) in self.0.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                see(w * 64 + rest.trailing_zeros() as usize);
                rest &= rest - 1;
            }
        }
    }
}

/// Allocates slots, and rewrites every operand.
pub(super) fn allocate(program: &mut Program, graph: &Graph, wgmma_registers: &HashSet<Operand>) {
    let starts = [0, program.word_count, program.word_count + program.long_count];
    let total = starts[2] + program.predicate_count;
    let number = |operand: Operand| starts[operand.class() as usize] + operand.index();
    let pinned: Vec<usize> = wgmma_registers.iter().map(|&operand| number(operand)).collect();

    // Liveness, backwards through each block.
    let back_over = |i: usize, live: &mut Set, mut see: Option<&mut dyn FnMut(usize, usize)>| {
        let instruction = &program.instructions[i];
        let first = instruction.first as usize;
        let results = first + instruction.results as usize;
        let end = results + instruction.operands as usize;
        let guarded = !instruction.guard.is_none();
        for &operand in program.operands[first..results].iter().filter(|operand| operand.is_register()) {
            if let Some(see) = &mut see {
                see(number(operand), i);
            }
            // Lanes that the guard switches off keep their old value.
            if guarded {
                live.insert(number(operand));
            } else {
                live.remove(number(operand));
            }
        }
        let read = program.operands[results..end].iter().chain(std::iter::once(&instruction.guard));
        for &operand in read.filter(|operand| operand.is_register()) {
            live.insert(number(operand));
            if let Some(see) = &mut see {
                see(number(operand), i);
            }
        }
        // The registers of a `wgmma` are in flight until the wait.
        if matches!(instruction.op, Op::WgmmaWait { .. }) {
            for &register in &pinned {
                live.insert(register);
                if let Some(see) = &mut see {
                    see(register, i);
                }
            }
        }
    };

    let back_through = |block: usize, live: &mut Set, mut see: Option<&mut dyn FnMut(usize, usize)>| {
        let block = &graph.blocks[block];
        for i in (block.first..block.end).rev() {
            match &mut see {
                Some(see) => back_over(i, live, Some(&mut **see)),
                None => back_over(i, live, None),
            }
        }
    };

    let count = graph.blocks.len();
    let mut live_in = vec![Set::new(total); count];
    let mut live_out = vec![Set::new(total); count];
    let mut changed = true;
    while changed {
        changed = false;
        for block in (0..count).rev() {
            for &successor in &graph.blocks[block].successors {
                live_out[block].extend(&live_in[successor]);
            }
            let mut live = live_out[block].clone();
            back_through(block, &mut live, None);
            changed |= live_in[block].extend(&live);
        }
    }

    let mut read_first = Vec::new();
    if let Some(first) = live_in.first() {
        first.for_each(|register| read_first.push(register));
    }

    // From the first to the last instruction at which a register is live.
    let mut spans = vec![(usize::MAX, 0); total];
    for block in 0..count {
        let (first, end) = (graph.blocks[block].first, graph.blocks[block].end);
        live_in[block].for_each(|register| stretch(&mut spans[register], first));
        live_out[block].for_each(|register| stretch(&mut spans[register], end));
        let mut live = live_out[block].clone();
        back_through(block, &mut live, Some(&mut |register, at| stretch(&mut spans[register], at)));
    }

    // What is live after a call, the called function must not change.
    let mut saved = Vec::new();
    let has_call = |block: usize| {
        let block = &graph.blocks[block];
        let all = &program.instructions[block.first..block.end];
        !program.calls.is_empty() && all.iter().any(|instruction| matches!(instruction.op, Op::Call { .. }))
    };
    for block in (0..count).filter(|&block| has_call(block)) {
        let mut live = live_out[block].clone();
        for i in (graph.blocks[block].first..graph.blocks[block].end).rev() {
            if let Op::Call { site } = program.instructions[i].op {
                let mut registers = Vec::new();
                live.for_each(|register| registers.push(register));
                saved.push((site, registers));
            }
            back_over(i, &mut live, None);
        }
    }

    super::undefined::mark(program, read_first.into_iter().filter(|register| !pinned.contains(register)));

    let mut places = vec![0; total];
    let mut counts = [0; 3];
    for class in [Class::Word, Class::Long, Class::Predicate] {
        let first = starts[class as usize];
        let end = match class {
            Class::Word => starts[1],
            Class::Long => starts[2],
            Class::Predicate => total,
        };
        counts[class as usize] = color(&spans[first..end], &mut places[first..end]);
    }
    let move_operand = |operand: &mut Operand| {
        if operand.is_register() {
            *operand = operand.with_index(places[number(*operand)]);
        }
    };
    for (site, registers) in saved {
        let operand = |register: usize| {
            let class = match register {
                _ if register < starts[1] => Class::Word,
                _ if register < starts[2] => Class::Long,
                _ => Class::Predicate,
            };
            Operand::register(class, places[register])
        };
        program.calls[site as usize].saved = registers.into_iter().map(operand).collect();
    }
    program.operands.iter_mut().for_each(move_operand);
    program.instructions.iter_mut().for_each(|instruction| move_operand(&mut instruction.guard));
    [program.word_count, program.long_count, program.predicate_count] = counts;
}

fn stretch(span: &mut (usize, usize), at: usize) {
    span.0 = span.0.min(at);
    span.1 = span.1.max(at);
}

/// Allocates slots in the order in which live ranges start; returns how many are needed.
fn color(spans: &[(usize, usize)], places: &mut [usize]) -> usize {
    let mut order: Vec<usize> = (0..spans.len()).filter(|&i| spans[i].0 != usize::MAX).collect();
    order.sort_unstable_by_key(|&i| spans[i].0);
    let mut busy = std::collections::BinaryHeap::new();
    let mut free = Vec::new();
    let mut count = 0;
    for i in order {
        // A result must not share a slot with an operand, since it may be written before the operand is read.
        while let Some(&std::cmp::Reverse((end, place))) = busy.peek()
            && end < spans[i].0
        {
            busy.pop();
            free.push(place);
        }
        let place = free.pop().unwrap_or_else(|| {
            count += 1;
            count - 1
        });
        places[i] = place;
        busy.push(std::cmp::Reverse((spans[i].1, place)));
    }
    count
}
