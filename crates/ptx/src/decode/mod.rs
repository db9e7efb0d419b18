//! From the syntax tree to a [`Program`]: names become registers and addresses, opcodes become operations, calls are inlined if
//! possible.
//!
//! An instruction that the simulator does not support becomes [`Op::Unsupported`], so that it matters only if it is reached.

mod architecture;
mod arithmetic;
mod asynchronous;
mod calls;
mod control;
mod convert;
mod matrix;
mod memory;
mod modifiers;
mod names;
mod packed;
mod shared;
mod subroutines;
mod texture;
mod wmma;

use std::collections::{HashMap, HashSet};

pub(crate) use names::{Functions, Symbols, size as variable_size};

use self::{
    modifiers::Modifiers,
    names::{Binding, Scopes},
};
use crate::{
    counters::InstructionClass,
    error::{Place, PtxError},
    isa::{Alu, Atomic, Class, Instruction, Int, Line, Op, Operand, Path, Program, SharedVariable, Type},
    syntax::tree::{self, Function, Statement, Variable},
};

/// How deep calls are inlined.
const CALL_DEPTH: usize = 24;

/// How many instructions a kernel may have before calls are no longer inlined.
const INLINED: usize = 128 << 10;

/// How many instructions a kernel may have after inlining.
const INSTRUCTIONS: usize = 4 << 20;

/// The local memory that a thread may have.
const LOCAL_BYTES: u64 = 512 << 10;

/// The shared memory that a kernel's variables may have.
const SHARED_BYTES: u64 = 228 << 10;

/// Where shared memory starts in its state space. The first kilobyte is reserved for the system on the newest chips, so that no
/// variable has the address zero.
pub(crate) const SHARED_START: u64 = 1024;

/// Decodes one kernel of a module.
pub(crate) fn decode<'a>(
    module: &'a tree::Module<'a>,
    symbols: &Symbols,
    kernel: &'a Function<'a>,
) -> Result<Program, PtxError> {
    let mut decoder = Decoder {
        module,
        prototypes: Vec::new(),
        call_targets: Vec::new(),
        inlining: Vec::new(),
        wanted: Vec::new(),
        subroutine_numbers: HashMap::new(),
        calls_pointers: false,
        frame: None,
        symbols,
        program: Program::default(),
        scopes: Scopes::default(),
        registers: [0; 3],
        words: HashMap::new(),
        longs: HashMap::new(),
        address_constants: HashMap::new(),
        labels: Vec::new(),
        returns: Vec::new(),
        static_shared: HashMap::new(),
        module_shared: HashMap::new(),
        shared_end: SHARED_START,
        local_end: 0,
        line: Line::default(),
        guard: Operand::NONE,
    };
    decoder.program.lines.push(Line::default());
    decoder.kernel(kernel)?;
    let mut program = decoder.program;
    drop_unread_exchanges(&mut program);
    program.predicate_count = decoder.registers[Class::Predicate as usize];
    program.word_count = decoder.registers[Class::Word as usize];
    program.long_count = decoder.registers[Class::Long as usize];
    program.shared_bytes = (decoder.shared_end - SHARED_START) as usize;
    Ok(program)
}

/// Removes the results of atomic exchanges that nothing reads: such an exchange is only a write.
fn drop_unread_exchanges(program: &mut Program) {
    let exchange = |op: &Op| matches!(op, Op::Atomic { op: Atomic::Exchange, reduction: false, .. });
    if !program.instructions.iter().any(|instruction| exchange(&instruction.op)) {
        return;
    }
    let mut read = HashSet::new();
    for Instruction { first, results, operands, .. } in &program.instructions {
        let from = *first as usize + *results as usize;
        read.extend(program.operands[from..from + *operands as usize].iter().copied());
    }
    for instruction in program.instructions.iter().filter(|instruction| exchange(&instruction.op)) {
        let result = &mut program.operands[instruction.first as usize];
        if !read.contains(result) {
            *result = Operand::NONE;
        }
    }
}

/// A label's number; its position is known at the end.
type Label = usize;

struct Decoder<'a, 's> {
    module: &'a tree::Module<'a>,
    symbols: &'s Symbols,
    program: Program,
    prototypes: Vec<&'a tree::Prototype<'a>>,
    call_targets: Vec<&'a [&'a str]>,
    /// The functions that are being inlined, by their index in the module.
    inlining: Vec<usize>,
    /// The functions of the subroutines, by their numbers, and the reverse.
    wanted: Vec<usize>,
    subroutine_numbers: HashMap<usize, u32>,
    /// Whether functions are called through pointers.
    calls_pointers: bool,
    /// The stack frame of the subroutine that is being decoded; none in the kernel itself.
    frame: Option<subroutines::Frame>,
    scopes: Scopes<'a>,
    /// Registers of each class so far.
    registers: [usize; 3],
    words: HashMap<u32, Operand>,
    longs: HashMap<u64, Operand>,
    /// Constants that are addresses in shared variables.
    address_constants: HashMap<(u16, Class, u64), Operand>,
    labels: Vec<Option<u32>>,
    /// Where the functions that are being inlined return to.
    returns: Vec<Label>,
    /// Shared variables of functions, by where they are declared.
    static_shared: HashMap<(Place, &'a str), u64>,
    /// Shared variables of the module that the kernel needs.
    module_shared: HashMap<&'a str, u64>,
    shared_end: u64,
    local_end: u64,
    line: Line,
    guard: Operand,
}

/// The instruction that is being decoded, for error messages.
#[derive(Clone, Copy)]
struct Context<'i, 'a> {
    instruction: &'i tree::Instruction<'a>,
}

impl<'a> Context<'_, 'a> {
    fn text(&self) -> String {
        let mut text = self.instruction.opcode.to_owned();
        for (i, operand) in self.instruction.operands.iter().take(6).enumerate() {
            text.push_str(if i == 0 { " " } else { ", " });
            text.push_str(&brief(operand));
        }
        text
    }

    fn wrong(&self, what: impl Into<String>) -> PtxError {
        PtxError::Meaning { place: self.instruction.place, what: what.into(), instruction: self.text() }
    }

    fn unsupported(&self, what: impl Into<String>) -> PtxError {
        let (place, instruction) = (self.instruction.place, self.text());
        PtxError::Unsupported { place, what: what.into(), instruction, source_line: None }
    }

    fn operand(&self, index: usize) -> Result<&tree::Operand<'a>, PtxError> {
        self.instruction
            .operands
            .get(index)
            .ok_or_else(|| self.wrong(format!("operand {} is missing", index + 1)))
    }

    fn count(&self) -> usize {
        self.instruction.operands.len()
    }

    /// Checks the number of operands.
    fn expect(&self, count: usize) -> Result<(), PtxError> {
        if self.count() == count {
            return Ok(());
        }
        Err(self.wrong(format!("expected {count} operands, but found {}", self.count())))
    }
}

fn brief(operand: &tree::Operand<'_>) -> String {
    use tree::Operand as O;
    match operand {
        O::Name(name) => (*name).to_owned(),
        O::Not(name) => format!("!{name}"),
        O::Pair(a, b) => format!("{a}|{b}"),
        O::Integer(value) => (*value as i64).to_string(),
        O::Single(bits) => format!("0f{bits:08X}"),
        O::Double(bits) => format!("0d{bits:016X}"),
        O::Vector(all) => format!("{{{} …}}", all.first().map(brief).unwrap_or_default()),
        O::List(_) => "(…)".to_owned(),
        O::Offset(name, offset) => format!("{name}+{}", *offset as i64),
        O::Address { base, offset, .. } => format!("[{}+{}]", base.unwrap_or(""), *offset as i64),
    }
}

impl<'a> Decoder<'a, '_> {
    fn kernel(&mut self, kernel: &'a Function<'a>) -> Result<(), PtxError> {
        self.scopes.open();
        self.place_shared_variables(kernel)?;
        let mut offset = 0;
        for parameter in &kernel.parameters {
            offset = names::place(parameter, &mut 0, offset)?.0;
            self.scopes.bind(parameter.name, Binding::Parameter(offset));
            offset += names::size(parameter)?.unwrap_or(0);
        }
        self.body(kernel)?;
        self.emit(Op::Exit, &[], &[])?;
        self.scopes.close();
        self.program.local_bytes = self.local_end as usize;
        self.decode_subroutines()?;
        self.resolve_labels(kernel.place)
    }

    fn resolve_labels(&mut self, place: Place) -> Result<(), PtxError> {
        let at = |label: u32| {
            let found = self.labels.get(label as usize).copied().flatten();
            found.ok_or_else(|| {
                PtxError::syntax(place, "a branch goes to a label that does not exist".to_owned())
            })
        };
        for instruction in &mut self.program.instructions {
            if let Op::Branch { target } = &mut instruction.op {
                *target = at(*target)?;
            }
        }
        for target in self.program.tables.iter_mut().flatten() {
            *target = at(*target)?;
        }
        Ok(())
    }

    fn new_label(&mut self) -> Label {
        self.labels.push(None);
        self.labels.len() - 1
    }

    fn place_label(&mut self, label: Label) {
        self.labels[label] = Some(self.program.instructions.len() as u32);
    }

    /// Decodes a function's statements.
    fn body(&mut self, function: &'a Function<'a>) -> Result<(), PtxError> {
        let first = self.scopes.open_labelled(&function.body, &mut self.labels);
        let mut next_scope = first + 1;
        for statement in &function.body {
            match statement {
                Statement::Open => {
                    self.scopes.open_numbered(next_scope);
                    next_scope += 1;
                }
                Statement::Close => self.scopes.close(),
                Statement::Label(name, place) => match self.scopes.label_here(name) {
                    Some(label) => self.place_label(label),
                    None => return Err(PtxError::syntax(*place, format!("unknown label {name}"))),
                },
                Statement::Targets(name, targets) => {
                    let table = self.targets(targets, function.place)?;
                    self.scopes.bind(name, Binding::Targets(table));
                }
                Statement::Prototype(name, prototype) => {
                    self.prototypes.push(prototype);
                    self.scopes.bind(name, Binding::Prototype(self.prototypes.len() as u32 - 1));
                }
                Statement::CallTargets(name, targets) => {
                    self.call_targets.push(targets);
                    self.scopes.bind(name, Binding::CallTargets(self.call_targets.len() as u32 - 1));
                }
                Statement::Declaration(variable) => self.declare(variable)?,
                Statement::Location(location) => {
                    let files = &self.module.files;
                    let file = |number: u64| {
                        let found = files.iter().position(|&(known, _)| known == number);
                        found.map_or(u32::MAX, |file| file as u32)
                    };
                    let line = |line: u64| line.try_into().unwrap_or(0);
                    self.line.file = file(location.file);
                    self.line.source = line(location.line);
                    self.line.caller =
                        location.inlined_at.map_or((0, 0), |(at, number)| (file(at), line(number)));
                }
                Statement::Instruction(instruction) => self.instruction(instruction)?,
            }
        }
        self.scopes.close();
        Ok(())
    }

    fn targets(&mut self, names: &[&'a str], place: Place) -> Result<u32, PtxError> {
        let label = |name: &&'a str| match self.scopes.find_label(name) {
            Some(label) => Ok(label as u32),
            None => Err(PtxError::syntax(place, format!("unknown label {name}"))),
        };
        let table = names.iter().map(label).collect::<Result<Vec<u32>, PtxError>>()?;
        self.program.tables.push(table);
        Ok(self.program.tables.len() as u32 - 1)
    }

    fn declare(&mut self, variable: &'a Variable<'a>) -> Result<(), PtxError> {
        use tree::Space;
        match variable.space {
            Space::Register => {
                let Some(kind) = Type::named(variable.type_name) else {
                    let what = format!("unknown register type {}", variable.type_name);
                    return Err(PtxError::syntax(variable.place, what));
                };
                let class = (kind != Type::B128 && variable.lanes == 1).then(|| kind.class());
                match variable.copies {
                    Some(copies) => self.scopes.bind_range(variable.name, class, copies),
                    None if class.is_none() => self.scopes.bind(variable.name, Binding::Unsupported),
                    None => {
                        let register = self.new_register(kind.class());
                        self.scopes.bind(variable.name, Binding::Register(register));
                    }
                }
            }
            Space::Local | Space::Parameter => {
                let (offset, end) = names::place(variable, &mut 0, self.local_end)?;
                if end > LOCAL_BYTES {
                    let what = format!("{} does not fit into local memory", variable.name);
                    return Err(PtxError::syntax(variable.place, what));
                }
                self.local_end = end;
                self.scopes.bind(variable.name, Binding::Local(offset));
            }
            Space::Shared => {
                // They were placed before, because dynamic shared memory starts after all of them.
                let offset =
                    self.static_shared.get(&(variable.place, variable.name)).copied().unwrap_or(SHARED_START);
                self.scopes.bind(variable.name, Binding::Shared(offset));
            }
            Space::Global | Space::Constant => {
                let what =
                    format!("{} is declared inside a function, but belongs to the module", variable.name);
                return Err(PtxError::syntax(variable.place, what));
            }
        }
        Ok(())
    }

    fn new_register(&mut self, class: Class) -> Operand {
        let count = &mut self.registers[class as usize];
        *count += 1;
        Operand::register(class, *count - 1)
    }

    fn word_constant(&mut self, value: u32) -> Operand {
        let words = &mut self.program.words;
        *self.words.entry(value).or_insert_with(|| {
            words.push(value);
            Operand::constant(Class::Word, words.len() - 1)
        })
    }

    fn long_constant(&mut self, value: u64) -> Operand {
        let longs = &mut self.program.longs;
        *self.longs.entry(value).or_insert_with(|| {
            longs.push(value);
            Operand::constant(Class::Long, longs.len() - 1)
        })
    }

    fn constant(&mut self, class: Class, value: u64) -> Operand {
        match class {
            Class::Word => self.word_constant(value as u32),
            Class::Long => self.long_constant(value),
            Class::Predicate => Operand::constant(Class::Predicate, usize::from(value != 0)),
        }
    }

    /// Appends an instruction with the guard of the one that is being decoded.
    fn emit(&mut self, op: Op, results: &[Operand], operands: &[Operand]) -> Result<(), PtxError> {
        let place = Place { line: self.line.ptx, column: 1 };
        let program = &mut self.program;
        if program.instructions.len() >= INSTRUCTIONS || program.operands.len() >= Operand::LIMIT / 2 {
            return Err(PtxError::syntax(place, "the kernel has too many instructions".to_owned()));
        }
        if program.lines.last() != Some(&self.line) {
            program.lines.push(self.line);
        }
        let first = program.operands.len() as u32;
        program.operands.extend_from_slice(results);
        program.operands.extend_from_slice(operands);
        program.instructions.push(Instruction {
            op,
            guard: self.guard,
            first,
            results: results.len() as u16,
            operands: operands.len() as u16,
            line: program.lines.len() as u32 - 1,
            class: InstructionClass::of(&op),
            path: Path::Cached,
            uses_wgmma_registers: false,
            watched: false,
        });
        Ok(())
    }

    /// Decodes an instruction; one that the simulator does not support matters only if it is reached.
    fn instruction(&mut self, instruction: &tree::Instruction<'a>) -> Result<(), PtxError> {
        let (instructions, operands) = (self.program.instructions.len(), self.program.operands.len());
        let decoded = match self.supported_instruction(instruction) {
            Err(error @ PtxError::Unsupported { .. }) => {
                self.program.instructions.truncate(instructions);
                self.program.operands.truncate(operands);
                self.emit_unsupported(error)
            }
            decoded => decoded,
        };
        self.guard = Operand::NONE;
        decoded
    }

    fn supported_instruction(&mut self, instruction: &tree::Instruction<'a>) -> Result<(), PtxError> {
        let context = Context { instruction };
        self.line.ptx = instruction.place.line;
        self.guard = match instruction.guard {
            None => Operand::NONE,
            Some((name, negated)) => {
                let guard = self.register(context, name, Class::Predicate)?;
                if negated { guard.negated() } else { guard }
            }
        };
        let mut modifiers = Modifiers::new(instruction.opcode);
        let known = self.packed(context, &mut modifiers)?
            || self.arithmetic(context, &mut modifiers)?
            || self.conversion(context, &mut modifiers)?
            || self.memory(context, &mut modifiers)?
            || self.asynchronous(context, &mut modifiers)?
            || self.control(context, &mut modifiers)?
            || self.texture(context, &mut modifiers)?
            || self.wmma(context, &mut modifiers)?
            || self.matrix(context, &mut modifiers)?;
        if !known {
            return Err(context.unsupported(format!("the instruction {}", modifiers.name())));
        }
        match modifiers.unused() {
            None => self.check_architecture(context),
            Some(left) => Err(context.unsupported(format!("the modifier .{left} of {}", modifiers.name()))),
        }
    }

    fn register(
        &mut self,
        context: Context<'_, 'a>,
        name: &'a str,
        class: Class,
    ) -> Result<Operand, PtxError> {
        let found = self.scopes.find(name);
        let operand = match found {
            Some(Binding::Register(operand)) => operand,
            Some(Binding::NewRegister(class)) => {
                let register = self.new_register(class);
                self.scopes.remember(name, register);
                register
            }
            Some(Binding::Unsupported) => {
                return Err(context.unsupported(format!("a register of the type of {name}")));
            }
            None if names::is_other_special(name) => {
                return Err(context.unsupported(format!("the special register {name}")));
            }
            found => {
                return Err(match self.symbols.unavailable(name).filter(|_| found.is_none()) {
                    Some(why) => context.unsupported(format!("{name}, {why}")),
                    None => context.wrong(format!("{name} is not a register")),
                });
            }
        };
        if operand.class() != class {
            let bits = |class| match class {
                Class::Word => "32 bits or less",
                Class::Long => "64 bits",
                Class::Predicate => "a predicate",
            };
            let what =
                format!("{name} is {}, but the instruction takes {}", bits(operand.class()), bits(class));
            return Err(context.wrong(what));
        }
        Ok(operand)
    }

    /// A destination register.
    fn result(&mut self, context: Context<'_, 'a>, index: usize, class: Class) -> Result<Operand, PtxError> {
        match context.operand(index)? {
            tree::Operand::Name("_") => Ok(Operand::NONE),
            tree::Operand::Name(name) => self.register(context, name, class),
            _ => Err(context.wrong(format!("operand {} must be a register", index + 1))),
        }
    }

    /// A source operand: a register, a constant, an address or a special register.
    fn value(&mut self, context: Context<'_, 'a>, index: usize, kind: Type) -> Result<Operand, PtxError> {
        let operand = context.operand(index)?.clone();
        self.value_of(context, &operand, kind)
    }

    fn value_of(
        &mut self,
        context: Context<'_, 'a>,
        operand: &tree::Operand<'a>,
        kind: Type,
    ) -> Result<Operand, PtxError> {
        let class = kind.class();
        let number = |bits: f64| match kind {
            Type::F64 => bits.to_bits(),
            _ => u64::from((bits as f32).to_bits()),
        };
        match operand {
            tree::Operand::Name(name) => self.named(context, name, 0, class),
            tree::Operand::Offset(name, offset) => self.named(context, name, *offset, class),
            tree::Operand::Not(name) if class == Class::Predicate => {
                Ok(self.register(context, name, class)?.negated())
            }
            tree::Operand::Integer(value) => {
                let value = match kind {
                    Type::F64 => (*value as i64 as f64).to_bits(),
                    Type::F32 => u64::from((*value as i64 as f32).to_bits()),
                    _ if kind.bytes() == 1 => *value & 0xff,
                    _ if kind.bytes() == 2 => *value & 0xffff,
                    _ => *value,
                };
                Ok(self.constant(class, value))
            }
            tree::Operand::Single(bits) if kind == Type::F64 => {
                Ok(self.constant(class, f64::from(f32::from_bits(*bits)).to_bits()))
            }
            tree::Operand::Single(bits) => Ok(self.constant(class, u64::from(*bits))),
            tree::Operand::Double(bits) if kind.bytes() == 8 => Ok(self.constant(class, *bits)),
            tree::Operand::Double(bits) => Ok(self.constant(class, number(f64::from_bits(*bits)))),
            _ => Err(context.wrong("an operand has the wrong form")),
        }
    }

    fn named(
        &mut self,
        context: Context<'_, 'a>,
        name: &'a str,
        offset: u64,
        class: Class,
    ) -> Result<Operand, PtxError> {
        if name == "WARP_SZ" {
            return Ok(self.constant(class, 32));
        }
        if names::is_zero(name) {
            return Ok(self.constant(class, 0));
        }
        if let Some((special, wide)) = names::special(name) {
            if wide != (class == Class::Long) {
                return Err(context.wrong(format!("{name} has the wrong size for this instruction")));
            }
            let register = self.new_register(class);
            let guard = std::mem::replace(&mut self.guard, Operand::NONE);
            self.emit(Op::Special(special), &[register], &[])?;
            self.guard = guard;
            return Ok(register);
        }
        match self.find_address(name) {
            Some((tree::Space::Local, address)) if self.frame.is_some() && class == Class::Long => {
                self.address_in_frame(address.wrapping_add(offset))
            }
            Some((of, address)) => Ok(self.address_constant(name, of, class, address, offset)),
            None if offset == 0 => self.register(context, name, class),
            None => Err(context.wrong(format!("{name} is not a variable"))),
        }
    }

    /// A register with the address of a place in the stack frame.
    fn address_in_frame(&mut self, offset: u64) -> Result<Operand, PtxError> {
        let (base, _) = self.frame_address(offset);
        let offset = self.long_constant(offset);
        let register = self.new_register(Class::Long);
        let guard = std::mem::replace(&mut self.guard, Operand::NONE);
        self.emit(Op::Alu(Alu::I64(Int::Add)), &[register], &[base, offset])?;
        self.guard = guard;
        Ok(register)
    }

    /// A constant that is an address in a variable. Shared variables have constants of their own, although their addresses may be equal
    /// to one beyond the end of others.
    fn address_constant(
        &mut self,
        name: &str,
        of: tree::Space,
        class: Class,
        address: u64,
        offset: u64,
    ) -> Operand {
        let value = address.wrapping_add(offset);
        let within = |variable: &SharedVariable| variable.start == address && variable.name == name;
        let variable = self.program.shared_variables.iter().position(within);
        let Some(variable) = variable.filter(|_| of == tree::Space::Shared && class != Class::Predicate)
        else {
            return self.constant(class, value);
        };
        let key = (variable as u16, class, value);
        if let Some(&known) = self.address_constants.get(&key) {
            return known;
        }
        let constant = if class == Class::Long {
            self.program.longs.push(value);
            Operand::constant(class, self.program.longs.len() - 1)
        } else {
            self.program.words.push(value as u32);
            Operand::constant(class, self.program.words.len() - 1)
        };
        self.address_constants.insert(key, constant);
        self.program.address_constants.push((constant, variable as u16));
        constant
    }

    /// A variable's state space and address.
    fn find_address(&self, name: &str) -> Option<(tree::Space, u64)> {
        match self.scopes.find(name) {
            Some(Binding::Parameter(offset)) => Some((tree::Space::Parameter, offset)),
            Some(Binding::Local(offset)) => Some((tree::Space::Local, offset)),
            Some(Binding::Shared(offset)) => Some((tree::Space::Shared, offset)),
            Some(_) => None,
            None if self.symbols.is_dynamic(name) => Some((tree::Space::Shared, self.shared_end)),
            None => match self.module_shared.get(name) {
                Some(&offset) => Some((tree::Space::Shared, offset)),
                None => self.symbols.find(name),
            },
        }
    }
}

/// The offset of a kernel's parameter after those before it, and where it ends.
pub(crate) fn parameter_place(parameter: &Variable<'_>, end: u64) -> Result<(u64, u64), PtxError> {
    names::place(parameter, &mut 0, end)
}
