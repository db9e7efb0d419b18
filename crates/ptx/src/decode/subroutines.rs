//! Functions that are called rather than inlined: each is decoded once, behind the kernel.

use super::{Context, Decoder, calls::register_type};
use crate::{
    error::{Place, PtxError},
    isa::{Class, FramePart, Line, Op, Operand, Subroutine, Type},
    syntax::tree::{self, Function, Statement, Variable},
};

/// The stack frame of the subroutine that is being decoded.
pub(super) struct Frame {
    /// The register that holds where it starts.
    pub base: Operand,
    /// Results that the function keeps in registers: the register, its place in the frame, its type.
    results: Vec<(Operand, u64, Type)>,
}

impl<'a> Decoder<'a, '_> {
    /// Makes subroutines of all functions that a pointer may point to.
    pub(super) fn add_address_taken(&mut self) {
        if std::mem::replace(&mut self.calls_pointers, true) {
            return;
        }
        let module = self.module;
        let initial =
            module.variables.iter().flat_map(|variable| &variable.values).filter_map(|value| match value {
                tree::Value::Address(name, _) | tree::Value::Masked(_, name, _) => Some(*name),
                _ => None,
            });
        let instructions = module.functions.iter().flat_map(|function| &function.body);
        let operands = instructions.filter_map(|statement| match statement {
            Statement::Instruction(instruction) if !instruction.opcode.starts_with("call") => {
                Some(&instruction.operands)
            }
            _ => None,
        });
        let named = operands.flatten().filter_map(|operand| match operand {
            tree::Operand::Name(name) => Some(*name),
            _ => None,
        });
        let taken: Vec<usize> = initial.chain(named).filter_map(|name| self.symbols.function(name)).collect();
        for index in taken {
            self.subroutine(index);
        }
    }

    /// The number of a function's subroutine, which is decoded later.
    pub(super) fn subroutine(&mut self, index: usize) -> u32 {
        let number = self.program.subroutines.len() as u32;
        let new = *self.subroutine_numbers.entry(index).or_insert(number);
        if new == number {
            self.wanted.push(index);
            self.program.subroutines.push(Subroutine {
                name: self.symbols.function_name(index).to_owned(),
                address: self.symbols.function_address(index),
                entry: 0,
                frame_bytes: 0,
                results: Vec::new(),
                parameters: Vec::new(),
            });
        }
        new
    }

    /// Decodes the subroutines that the kernel needs, and those that they need.
    pub(super) fn decode_subroutines(&mut self) -> Result<(), PtxError> {
        let mut number = 0;
        while let Some(&index) = self.wanted.get(number) {
            let entry = self.program.instructions.len();
            self.program.subroutines[number].entry = entry as u32;
            let operands = self.program.operands.len();
            self.local_end = 0;
            let decoded = match self.module.functions.get(index) {
                Some(function) if !function.entry => {
                    self.line = Line { ptx: function.place.line, ..Line::default() };
                    self.subroutine_body(function, index, number)
                }
                _ => Err(PtxError::Meaning {
                    place: Place { line: self.line.ptx, column: 1 },
                    what: "it is declared, but not defined in the module".to_owned(),
                    instruction: "call".to_owned(),
                }),
            };
            self.frame = None;
            self.inlining.clear();
            self.scopes.close_to(0);
            self.guard = Operand::NONE;
            match decoded {
                Ok(()) => {}
                // The function matters only if it is called.
                Err(PtxError::Meaning { place, what, instruction }) => {
                    self.program.instructions.truncate(entry);
                    self.program.operands.truncate(operands);
                    let name = self.symbols.function_name(index);
                    self.line.ptx = place.line;
                    let what = format!("the function {name} ({what})");
                    self.emit_unsupported(PtxError::Unsupported {
                        place,
                        what,
                        instruction,
                        source_line: None,
                    })?;
                    self.emit(Op::Return, &[], &[])?;
                }
                Err(error) => return Err(error),
            }
            number += 1;
        }
        Ok(())
    }

    fn subroutine_body(
        &mut self,
        function: &'a Function<'a>,
        index: usize,
        number: usize,
    ) -> Result<(), PtxError> {
        let base = self.new_register(Class::Long);
        self.emit(Op::FrameBase, &[base], &[])?;
        self.frame = Some(Frame { base, results: Vec::new() });
        self.inlining.push(index);
        self.scopes.open();
        let parts = |decoder: &mut Self, variables: &'a [Variable<'a>]| {
            let place = |variable| decoder.place_formal(variable);
            variables.iter().map(place).collect::<Result<Vec<FramePart>, PtxError>>()
        };
        let results = parts(self, &function.results)?;
        let parameters = parts(self, &function.parameters)?;
        for (variable, slot) in function.results.iter().zip(&results) {
            if let Some(register) = self.bind_formal(variable, slot.offset)?
                && let Some(frame) = &mut self.frame
            {
                frame.results.push((register, u64::from(slot.offset), register_type(variable)?));
            }
        }
        for (variable, slot) in function.parameters.iter().zip(&parameters) {
            if let Some(register) = self.bind_formal(variable, slot.offset)? {
                self.load_local(register, u64::from(slot.offset), register_type(variable)?)?;
            }
        }
        self.body(function)?;
        self.guard = Operand::NONE;
        self.return_from_subroutine()?;
        let frame_bytes = self.local_end as u32;
        let subroutine = &mut self.program.subroutines[number];
        (subroutine.results, subroutine.parameters) = (results, parameters);
        subroutine.frame_bytes = frame_bytes;
        Ok(())
    }

    /// `ret` of a subroutine.
    pub(super) fn return_from_subroutine(&mut self) -> Result<(), PtxError> {
        let results = self.frame.as_ref().map(|frame| frame.results.clone()).unwrap_or_default();
        for (register, offset, kind) in results {
            self.store_local(register, offset, kind)?;
        }
        self.emit(Op::Return, &[], &[])
    }

    /// `alloca`, `stacksave` and `stackrestore`.
    pub(super) fn stack(&mut self, context: Context<'_, 'a>, name: &str) -> Result<(), PtxError> {
        match name {
            "alloca" => {
                let result = self.result(context, 0, Class::Long)?;
                let bytes = self.value(context, 1, Type::U64)?;
                let align = if context.count() > 2 { self.number(context, 2)? } else { 8 };
                if !align.is_power_of_two() || align > 4096 {
                    return Err(context.wrong("the alignment must be a power of two up to 4096"));
                }
                self.emit(Op::AllocateStack { align: align as u16 }, &[result], &[bytes])
            }
            "stacksave" => {
                context.expect(1)?;
                let result = self.result(context, 0, Class::Long)?;
                self.emit(Op::SaveStack, &[result], &[])
            }
            _ => {
                context.expect(1)?;
                let to = self.value(context, 0, Type::U64)?;
                self.emit(Op::RestoreStack, &[], &[to])
            }
        }
    }
}
