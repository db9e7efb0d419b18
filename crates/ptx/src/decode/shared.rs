//! The shared variables of a kernel: those of the module that it refers to, or that a function which it may call does, placed as a linker
//! places them.

use std::collections::HashSet;

use super::{Decoder, SHARED_BYTES, SHARED_START, names};
use crate::{
    error::PtxError,
    isa::SharedVariable,
    syntax::tree::{Function, Operand, Space, Statement, Variable},
};

impl<'a> Decoder<'a, '_> {
    /// Places the static variables in shared memory that a kernel needs.
    pub(super) fn place_shared_variables(&mut self, kernel: &'a Function<'a>) -> Result<(), PtxError> {
        let (functions, named) = self.reached(kernel);
        let module = self.module;
        let shared = |variable: &&'a Variable<'a>| variable.space == Space::Shared;
        for variable in module.variables.iter().filter(shared) {
            if variable.elements.is_some() && named.contains(variable.name) {
                let offset = self.place_shared(variable)?;
                self.module_shared.insert(variable.name, offset);
            }
        }
        for function in functions {
            let declared = function.body.iter().filter_map(|statement| match statement {
                Statement::Declaration(variable) => Some(variable),
                _ => None,
            });
            for variable in declared.filter(shared) {
                let offset = self.place_shared(variable)?;
                self.static_shared.insert((variable.place, variable.name), offset);
            }
        }
        self.shared_end = self.symbols.dynamic_start(self.shared_end);
        Ok(())
    }

    fn place_shared(&mut self, variable: &Variable<'_>) -> Result<u64, PtxError> {
        let (offset, end) = names::place(variable, &mut 0, self.shared_end)?;
        if end > SHARED_START + SHARED_BYTES {
            let what = format!("{} does not fit into shared memory", variable.name);
            return Err(PtxError::syntax(variable.place, what));
        }
        self.shared_end = end;
        let (name, bytes) = (variable.name.to_owned(), names::size(variable)?.unwrap_or(0));
        if self.program.shared_variables.len() < usize::from(u16::MAX) - 1 {
            self.program.shared_variables.push(SharedVariable { name, start: offset, bytes });
        }
        Ok(offset)
    }

    /// The functions that a kernel may call and itself, in the module's order, and the names in them. If one of them calls through
    /// pointers, these are all functions.
    fn reached(&self, kernel: &'a Function<'a>) -> (Vec<&'a Function<'a>>, HashSet<&'a str>) {
        let all = &self.module.functions;
        let mut reached = vec![false; all.len()];
        let mut named = HashSet::new();
        let mut waiting = vec![kernel];
        let mut through_pointers = false;
        while let Some(function) = waiting.pop() {
            let mut called = Vec::new();
            for statement in &function.body {
                match statement {
                    Statement::Instruction(instruction) => {
                        for_each_name(&instruction.operands, &mut |name| {
                            if named.insert(name) {
                                called.extend(self.symbols.function(name));
                            }
                        });
                    }
                    Statement::Prototype(..) | Statement::CallTargets(..) if !through_pointers => {
                        through_pointers = true;
                        called.extend(0..all.len());
                    }
                    _ => {}
                }
            }
            for index in called {
                if let Some(function) = all.get(index).filter(|function| !function.entry)
                    && !std::mem::replace(&mut reached[index], true)
                {
                    waiting.push(function);
                }
            }
        }
        let called = all.iter().zip(reached).filter(|&(_, reached)| reached).map(|(function, _)| function);
        (called.chain([kernel]).collect(), named)
    }
}

fn for_each_name<'a>(operands: &'a [Operand<'a>], found: &mut impl FnMut(&'a str)) {
    for operand in operands {
        match operand {
            Operand::Name(name) | Operand::Offset(name, _) | Operand::Address { base: Some(name), .. } => {
                found(name);
            }
            Operand::Vector(all) | Operand::List(all) => for_each_name(all, found),
            _ => {}
        }
    }
}
