//! Calls: inlined if possible, else of a subroutine; and calls of the device's run-time library.

use super::{Binding, CALL_DEPTH, Context, Decoder, INLINED, LOCAL_BYTES, names};
use crate::{
    error::PtxError,
    isa::{
        Access, CallSite, Class, FramePart, Memory, Op, Operand, Semantics, SystemCall, Type, Unsupported,
    },
    syntax::tree::{self, Function, Space, Statement, Variable},
};

/// A call as it is written.
struct Call<'a> {
    results: Vec<tree::Operand<'a>>,
    target: &'a str,
    arguments: Vec<tree::Operand<'a>>,
    prototype: Option<&'a str>,
}

impl<'a> Decoder<'a, '_> {
    pub(super) fn call(&mut self, context: Context<'_, 'a>) -> Result<(), PtxError> {
        let call = parts(context)?;
        let name = call.target;
        match self.scopes.find(name) {
            Some(Binding::Register(_) | Binding::NewRegister(_)) => self.call_pointer(context, &call),
            _ => match (self.symbols.function(name), SystemCall::named(name)) {
                (Some(index), _) if index < self.module.functions.len() => {
                    self.call_function(context, &call, index)
                }
                (_, Some(system)) => self.call_system(context, &call, system),
                _ => Err(context.unsupported(format!("a call of {name}, which is not in the module"))),
            },
        }
    }

    fn call_function(
        &mut self,
        context: Context<'_, 'a>,
        call: &Call<'a>,
        index: usize,
    ) -> Result<(), PtxError> {
        let function = &self.module.functions[index];
        if function.entry {
            return Err(context.wrong(format!("{} is a kernel, which cannot be called", call.target)));
        }
        check_count(context, call, &function.results, &function.parameters)?;
        let is_inlined = self.inlining.len() < CALL_DEPTH
            && self.program.instructions.len() < INLINED
            && !self.inlining.contains(&index)
            && !allocates_stack(function);
        if is_inlined {
            return self.inline(context, call, function, index);
        }
        let target = self.subroutine(index);
        self.call_subroutine(context, call, Some(target), None, &function.results, &function.parameters)
    }

    /// Decodes the function's body in place of the call. Its parameters and results are the caller's variables.
    fn inline(
        &mut self,
        context: Context<'_, 'a>,
        call: &Call<'a>,
        function: &'a Function<'a>,
        index: usize,
    ) -> Result<(), PtxError> {
        let results = self.slots(context, &call.results, &function.results, false)?;
        let arguments = self.slots(context, &call.arguments, &function.parameters, true)?;
        let (finish, end) = (self.new_label(), self.new_label());
        let guard = self.guard;
        if !guard.is_none() {
            self.guard = guard.negated();
            self.emit(Op::Branch { target: end as u32 }, &[], &[])?;
            self.guard = Operand::NONE;
        }
        let depth = self.scopes.depth();
        let (instructions, operands) = (self.program.instructions.len(), self.program.operands.len());
        let line = self.line;
        self.scopes.open();
        self.returns.push(finish);
        self.inlining.push(index);
        let body = self.inlined_body(function, &results, &arguments, finish);
        self.inlining.pop();
        self.returns.pop();
        self.line = line;
        self.scopes.close_to(depth);
        match body {
            Ok(()) => {}
            // The function matters only if it is called.
            Err(error @ PtxError::Meaning { .. }) => {
                self.program.instructions.truncate(instructions);
                self.program.operands.truncate(operands);
                let what = format!("the function {} ({error})", function.name);
                self.emit_unsupported(context.unsupported(what))?;
            }
            Err(error) => return Err(error),
        }
        self.place_label(end);
        self.guard = guard;
        self.take_results(context, call, &function.results, &results)?;
        self.guard = Operand::NONE;
        Ok(())
    }

    /// The body of an inlined function, between its parameters and its results.
    fn inlined_body(
        &mut self,
        function: &'a Function<'a>,
        results: &[FramePart],
        arguments: &[FramePart],
        finish: usize,
    ) -> Result<(), PtxError> {
        let mut in_registers = Vec::new();
        for (variable, slot) in function.results.iter().zip(results) {
            if let Some(register) = self.bind_formal(variable, slot.offset)? {
                in_registers.push((register, *slot, register_type(variable)?));
            }
        }
        for (variable, slot) in function.parameters.iter().zip(arguments) {
            if let Some(register) = self.bind_formal(variable, slot.offset)? {
                self.load_local(register, u64::from(slot.offset), register_type(variable)?)?;
            }
        }
        self.body(function)?;
        self.place_label(finish);
        for (register, slot, kind) in in_registers {
            self.store_local(register, u64::from(slot.offset), kind)?;
        }
        Ok(())
    }

    /// Binds a formal parameter or result to its place; if it is a register, to a new one.
    pub(super) fn bind_formal(
        &mut self,
        variable: &'a Variable<'a>,
        offset: u32,
    ) -> Result<Option<Operand>, PtxError> {
        if variable.space != Space::Register {
            self.scopes.bind(variable.name, Binding::Local(u64::from(offset)));
            return Ok(None);
        }
        let register = self.new_register(register_type(variable)?.class());
        self.scopes.bind(variable.name, Binding::Register(register));
        Ok(Some(register))
    }

    /// Calls a subroutine, by its number or by a pointer.
    fn call_subroutine(
        &mut self,
        context: Context<'_, 'a>,
        call: &Call<'a>,
        target: Option<u32>,
        pointer: Option<Operand>,
        result_list: &'a [Variable<'a>],
        parameters: &'a [Variable<'a>],
    ) -> Result<(), PtxError> {
        let results = self.slots(context, &call.results, result_list, false)?;
        let arguments = self.slots(context, &call.arguments, parameters, true)?;
        let site = self.program.calls.len() as u32;
        let kept = results.clone();
        self.program.calls.push(CallSite { target, results, arguments, saved: Vec::new() });
        self.emit(Op::Call { site }, &[], pointer.as_slice())?;
        self.take_results(context, call, result_list, &kept)
    }

    fn call_pointer(&mut self, context: Context<'_, 'a>, call: &Call<'a>) -> Result<(), PtxError> {
        let pointer = self.register(context, call.target, Class::Long)?;
        let (results, parameters) = match call.prototype.and_then(|name| self.scopes.find(name)) {
            Some(Binding::Prototype(number)) => {
                let prototype = self.prototypes[number as usize];
                (&prototype.results, &prototype.parameters)
            }
            Some(Binding::CallTargets(number)) => {
                let names = self.call_targets[number as usize];
                let known = names.iter().filter_map(|name| self.symbols.function(name));
                let known: Vec<usize> = known.collect();
                for &index in &known {
                    self.subroutine(index);
                }
                let function = known.first().and_then(|&index| self.module.functions.get(index));
                let Some(function) = function else {
                    return Err(context.unsupported("a call of functions that are not in the module"));
                };
                (&function.results, &function.parameters)
            }
            _ => {
                return Err(context
                    .wrong("a call through a pointer needs the label of a .callprototype or .calltargets"));
            }
        };
        check_count(context, call, results, parameters)?;
        self.add_address_taken();
        self.call_subroutine(context, call, None, Some(pointer), results, parameters)
    }

    fn call_system(
        &mut self,
        context: Context<'_, 'a>,
        call: &Call<'a>,
        system: SystemCall,
    ) -> Result<(), PtxError> {
        if call.arguments.len() != system.arguments() || call.results.len() > 1 {
            let name = call.target;
            return Err(context.wrong(format!("the arguments do not match the parameters of {name}")));
        }
        let mut operands = Vec::new();
        for (i, argument) in call.arguments.iter().enumerate() {
            let kind = if system == SystemCall::AssertFail && i == 2 { Type::B32 } else { Type::B64 };
            operands.push(match self.local_variable(argument) {
                Some(offset) => {
                    let register = self.new_register(kind.class());
                    self.load_local(register, offset, kind)?;
                    register
                }
                None => self.value_of(context, argument, kind)?,
            });
        }
        self.program.uses_heap |= system.uses_heap();
        let kind = if system == SystemCall::Print { Type::B32 } else { Type::B64 };
        let Some(result) = call.results.first() else {
            return self.emit(Op::System(system), &[Operand::NONE], &operands);
        };
        if let Some(offset) = self.local_variable(result) {
            let register = self.new_register(kind.class());
            self.emit(Op::System(system), &[register], &operands)?;
            return self.store_local(register, offset, kind);
        }
        let register = match result {
            tree::Operand::Name("_") => Operand::NONE,
            tree::Operand::Name(name) => self.register(context, name, kind.class())?,
            _ => return Err(context.wrong("a call's result must be a variable")),
        };
        self.emit(Op::System(system), &[register], &operands)
    }

    /// Where the caller's frame holds arguments or results. One that is not a variable gets a place there, and an argument is stored to
    /// it.
    fn slots(
        &mut self,
        context: Context<'_, 'a>,
        given: &[tree::Operand<'a>],
        formal: &'a [Variable<'a>],
        store: bool,
    ) -> Result<Vec<FramePart>, PtxError> {
        let mut slots = Vec::new();
        for (given, formal) in given.iter().zip(formal) {
            let bytes = names::size(formal)?
                .ok_or_else(|| context.unsupported("a call with an array of unknown size"))?;
            if let Some(offset) = self.local_variable(given) {
                slots.push(FramePart { offset: offset as u32, bytes: bytes as u32 });
                continue;
            }
            let slot = self.place_formal(formal)?;
            if store {
                let kind = Type::named(formal.type_name).filter(|kind| kind.bytes() as u64 == bytes);
                let kind = kind.filter(|kind| !matches!(kind, Type::Pred | Type::B128)).ok_or_else(|| {
                    context.unsupported("a call argument of this type that is not a .param variable")
                })?;
                let value = self.value_of(context, given, kind)?;
                self.store_local(value, u64::from(slot.offset), kind)?;
            }
            slots.push(slot);
        }
        Ok(slots)
    }

    /// Moves results that the caller wants in registers there.
    fn take_results(
        &mut self,
        context: Context<'_, 'a>,
        call: &Call<'a>,
        formal: &'a [Variable<'a>],
        slots: &[FramePart],
    ) -> Result<(), PtxError> {
        for ((given, formal), slot) in call.results.iter().zip(formal).zip(slots) {
            if self.local_variable(given).is_some() {
                continue;
            }
            match given {
                tree::Operand::Name("_") => {}
                tree::Operand::Name(name) => {
                    let kind = register_type(formal)?;
                    let register = self.register(context, name, kind.class())?;
                    self.load_local(register, u64::from(slot.offset), kind)?;
                }
                _ => return Err(context.wrong("a call's result must be a variable")),
            }
        }
        Ok(())
    }

    /// The place of a variable in the frame, if an operand is one.
    fn local_variable(&self, operand: &tree::Operand<'a>) -> Option<u64> {
        match operand {
            tree::Operand::Name(name) => match self.scopes.find(name) {
                Some(Binding::Local(offset)) => Some(offset),
                _ => None,
            },
            _ => None,
        }
    }

    /// A place in the frame for a parameter or a result.
    pub(super) fn place_formal(&mut self, variable: &Variable<'_>) -> Result<FramePart, PtxError> {
        let (offset, end) = names::place(variable, &mut 0, self.local_end)?;
        if end > LOCAL_BYTES {
            let what = format!("{} does not fit into local memory", variable.name);
            return Err(PtxError::syntax(variable.place, what));
        }
        self.local_end = end;
        Ok(FramePart { offset: offset as u32, bytes: (end - offset) as u32 })
    }

    /// The base and the offset of a place in the frame.
    pub(super) fn frame_address(&mut self, offset: u64) -> (Operand, i64) {
        match &self.frame {
            Some(frame) => (frame.base, offset as i64),
            None => (self.long_constant(offset), 0),
        }
    }

    pub(super) fn load_local(&mut self, register: Operand, offset: u64, kind: Type) -> Result<(), PtxError> {
        let (base, offset) = self.frame_address(offset);
        let access = Access {
            memory: Memory::Local,
            kind,
            lanes: 1,
            offset,
            strong: false,
            volatile: false,
            non_coherent: false,
            semantics: Semantics::default(),
        };
        self.emit(Op::Load(access), &[register], &[base])
    }

    pub(super) fn store_local(&mut self, value: Operand, offset: u64, kind: Type) -> Result<(), PtxError> {
        let (base, offset) = self.frame_address(offset);
        let access = Access {
            memory: Memory::Local,
            kind,
            lanes: 1,
            offset,
            strong: false,
            volatile: false,
            non_coherent: false,
            semantics: Semantics::default(),
        };
        self.emit(Op::Store(access), &[], &[base, value])
    }

    /// An instruction that cannot be executed, in place of the one that an error is about.
    pub(super) fn emit_unsupported(&mut self, error: PtxError) -> Result<(), PtxError> {
        let PtxError::Unsupported { place, what, instruction, .. } = error else { return Err(error) };
        let number = self.program.unsupported.len() as u32;
        self.program.unsupported.push(Unsupported { place, what, instruction });
        self.emit(Op::Unsupported(number), &[], &[])
    }
}

/// The parts of a call: `call (results), target, (arguments), prototype`.
fn parts<'a>(context: Context<'_, 'a>) -> Result<Call<'a>, PtxError> {
    let mut operands = context.instruction.operands.iter().peekable();
    let list =
        |operands: &mut std::iter::Peekable<std::slice::Iter<'_, tree::Operand<'a>>>| match operands.peek() {
            Some(tree::Operand::List(all)) => {
                operands.next();
                all.clone()
            }
            _ => Vec::new(),
        };
    let results = list(&mut operands);
    let Some(tree::Operand::Name(target)) = operands.next() else {
        return Err(context.unsupported("a call of this form"));
    };
    let arguments = list(&mut operands);
    let prototype = match operands.next() {
        Some(tree::Operand::Name(name)) => Some(*name),
        _ => None,
    };
    Ok(Call { results, target, arguments, prototype })
}

fn check_count(
    context: Context<'_, '_>,
    call: &Call<'_>,
    results: &[Variable<'_>],
    parameters: &[Variable<'_>],
) -> Result<(), PtxError> {
    if call.results.len() != results.len() || call.arguments.len() != parameters.len() {
        let name = call.target;
        return Err(context.wrong(format!("the arguments do not match the parameters of {name}")));
    }
    Ok(())
}

/// The type of a parameter or result in a register.
pub(super) fn register_type(variable: &Variable<'_>) -> Result<Type, PtxError> {
    let kind = Type::named(variable.type_name).filter(|kind| !matches!(kind, Type::Pred | Type::B128));
    kind.filter(|_| variable.elements == Some(1) && variable.lanes == 1).ok_or_else(|| {
        let what = format!("{} cannot be passed in a register", variable.name);
        PtxError::syntax(variable.place, what)
    })
}

/// Whether a function allocates on the stack, which it frees by returning.
fn allocates_stack(function: &Function<'_>) -> bool {
    function.body.iter().any(|statement| match statement {
        Statement::Instruction(instruction) => instruction.opcode.starts_with("alloca"),
        _ => false,
    })
}
