//! Basic blocks, and the immediate post-dominators of branches, where diverged lanes reconverge.

use crate::isa::{Op, Program};

/// A basic block.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    pub first: usize,
    /// One beyond the last.
    pub end: usize,
    pub successors: Vec<usize>,
    /// Whether lanes may exit here.
    pub exits: bool,
}

/// A program's blocks, in the order of their instructions.
pub(super) struct Graph {
    pub blocks: Vec<Block>,
}

impl Graph {
    pub fn new(program: &Program) -> Graph {
        let count = program.instructions.len();
        let mut begins = vec![false; count + 1];
        begins[0] = true;
        for (i, instruction) in program.instructions.iter().enumerate() {
            match instruction.op {
                Op::Branch { target } => {
                    begins[target as usize] = true;
                    begins[i + 1] = true;
                }
                Op::BranchIndexed { table } => {
                    for &target in &program.tables[table as usize] {
                        begins[target as usize] = true;
                    }
                    begins[i + 1] = true;
                }
                Op::Exit | Op::Trap | Op::Return => begins[i + 1] = true,
                _ => {}
            }
        }
        let mut block_of = vec![0; count + 1];
        let mut blocks: Vec<Block> = Vec::new();
        for i in 0..count {
            if begins[i] {
                blocks.push(Block { first: i, ..Block::default() });
            }
            block_of[i] = blocks.len() - 1;
            if let Some(block) = blocks.last_mut() {
                block.end = i + 1;
            }
        }
        for block in &mut blocks {
            let last = &program.instructions[block.end - 1];
            let guarded = !last.guard.is_none();
            let mut falls = guarded;
            match last.op {
                Op::Branch { target } => block.successors.push(block_of[target as usize]),
                Op::BranchIndexed { table } => {
                    block
                        .successors
                        .extend(program.tables[table as usize].iter().map(|&t| block_of[t as usize]));
                }
                Op::Exit | Op::Trap | Op::Return => block.exits = true,
                _ => falls = true,
            }
            if falls && block.end < count {
                block.successors.push(block_of[block.end]);
            } else if falls {
                block.exits = true;
            }
            block.successors.sort_unstable();
            block.successors.dedup();
        }
        Graph { blocks }
    }

    /// The immediate post-dominators of blocks; the number of blocks stands for the end of the program. `None` if no path ends.
    fn post_dominators(&self) -> Vec<Option<usize>> {
        let end = self.blocks.len();
        let mut predecessors = vec![Vec::new(); end + 1];
        for (i, block) in self.blocks.iter().enumerate() {
            for &successor in &block.successors {
                predecessors[successor].push(i);
            }
            if block.exits {
                predecessors[end].push(i);
            }
        }
        // The order of the reversed graph, from the end.
        let mut order = Vec::new();
        let mut seen = vec![false; end + 1];
        let mut stack = vec![(end, 0)];
        seen[end] = true;
        while let Some((node, next)) = stack.pop() {
            if let Some(&before) = predecessors[node].get(next) {
                stack.push((node, next + 1));
                if !seen[before] {
                    seen[before] = true;
                    stack.push((before, 0));
                }
            } else {
                order.push(node);
            }
        }
        let mut rank = vec![usize::MAX; end + 1];
        for (i, &node) in order.iter().enumerate() {
            rank[node] = i;
        }
        // The algorithm of Cooper, Harvey and Kennedy: intersect along the tree until nothing changes.
        let mut dominator: Vec<Option<usize>> = vec![None; end + 1];
        dominator[end] = Some(end);
        let mut changed = true;
        while changed {
            changed = false;
            for &node in order.iter().rev().filter(|&&node| node != end) {
                let block = &self.blocks[node];
                let exit = block.exits.then_some(end);
                let mut new: Option<usize> = None;
                for successor in block.successors.iter().copied().chain(exit) {
                    if dominator[successor].is_none() {
                        continue;
                    }
                    new = Some(match new {
                        None => successor,
                        Some(other) => meet(&dominator, &rank, successor, other),
                    });
                }
                if new.is_some() && dominator[node] != new {
                    dominator[node] = new;
                    changed = true;
                }
            }
        }
        dominator
    }

    /// Where the lanes of a divergent branch reconverge, by instruction; `u32::MAX` if only at the end of the program.
    pub fn reconvergence(&self, program: &Program) -> Vec<u32> {
        let dominators = self.post_dominators();
        let mut meeting = vec![u32::MAX; program.instructions.len()];
        for (i, block) in self.blocks.iter().enumerate() {
            if let Some(at) = dominators[i].and_then(|dominator| self.blocks.get(dominator)) {
                meeting[block.end - 1] = at.first as u32;
            }
        }
        meeting
    }
}

fn meet(dominator: &[Option<usize>], rank: &[usize], mut a: usize, mut b: usize) -> usize {
    while a != b {
        while rank[a] < rank[b] {
            a = dominator[a].unwrap_or(b);
        }
        while rank[b] < rank[a] {
            b = dominator[b].unwrap_or(a);
        }
    }
    a
}
