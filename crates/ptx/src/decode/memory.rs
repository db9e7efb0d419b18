//! Loads, stores, atomics and addresses.

use super::{Context, Decoder, modifiers::Modifiers};
use crate::{
    error::PtxError,
    isa::{Access, Atomic, Class, Memory, Op, Operand, Path, Type},
    syntax::tree::{self, Space},
};

/// An address operand: a register or a constant, plus an offset.
#[derive(Clone, Copy)]
pub(super) struct Address {
    pub base: Operand,
    pub offset: i64,
    /// The state space, if the base is a variable.
    pub of: Option<Space>,
}

const SPACES: [(&str, Memory); 9] = [
    ("global", Memory::Global),
    ("const", Memory::Constant),
    ("shared", Memory::Shared),
    ("shared::cta", Memory::Shared),
    ("shared::cluster", Memory::SharedCluster),
    ("local", Memory::Local),
    ("param", Memory::Parameter),
    ("param::entry", Memory::Parameter),
    ("param::func", Memory::Parameter),
];

/// The operations of atomics and reductions.
pub(super) const ATOMICS: [(&str, Atomic); 10] = [
    ("add", Atomic::Add),
    ("min", Atomic::Min),
    ("max", Atomic::Max),
    ("and", Atomic::And),
    ("or", Atomic::Or),
    ("xor", Atomic::Xor),
    ("exch", Atomic::Exchange),
    ("cas", Atomic::CompareAndSwap),
    ("inc", Atomic::Increment),
    ("dec", Atomic::Decrement),
];

impl<'a> Decoder<'a, '_> {
    /// Decodes an instruction of this group.
    pub(super) fn memory(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<bool, PtxError> {
        match modifiers.name() {
            "ld" | "ldu" => self.load(context, modifiers)?,
            "st" => self.store(context, modifiers)?,
            "atom" | "red" => self.atomic(context, modifiers)?,
            "prefetch" | "prefetchu" | "discard" | "applypriority" => {
                modifiers.take_all();
                let address = self.address(context, 0)?;
                self.emit(Op::Prefetch, &[], &[address.base])?;
            }
            "createpolicy" => {
                // A cache policy is only a hint.
                modifiers.take_all();
                let result = self.result(context, 0, Class::Long)?;
                let nothing = self.long_constant(0);
                self.emit(Op::Alu(crate::isa::Alu::Move64), &[result], &[nothing])?;
            }
            "cvta" => {
                let to = modifiers.take("to");
                let memory = self.space(context, modifiers)?;
                modifiers.take("u64");
                context.expect(2)?;
                let result = self.result(context, 0, Class::Long)?;
                let address = self.value(context, 1, Type::U64)?;
                let op = if to { Op::FromGeneric(memory) } else { Op::ToGeneric(memory) };
                self.emit(op, &[result], &[address])?;
            }
            "isspacep" => {
                let memory = self.space(context, modifiers)?;
                context.expect(2)?;
                let result = self.result(context, 0, Class::Predicate)?;
                let address = self.value(context, 1, Type::U64)?;
                self.emit(Op::IsSpace(memory), &[result], &[address])?;
            }
            "mapa" => {
                let generic = !modifiers.take("shared::cluster");
                let kind = self.type_of(context, modifiers)?;
                context.expect(3)?;
                let result = self.result(context, 0, kind.class())?;
                let operands = self.values(context, 1, &[kind, Type::U32])?;
                self.emit(Op::MapShared { generic }, &[result], &operands)?;
            }
            "getctarank" => {
                let generic = !modifiers.take("shared::cluster");
                modifiers.take("u32");
                let wide = modifiers.take("u64");
                context.expect(2)?;
                let result = self.result(context, 0, Class::Word)?;
                let kind = if wide || generic { Type::U64 } else { Type::U32 };
                let address = self.value(context, 1, kind)?;
                self.emit(Op::ClusterRankOf { generic }, &[result], &[address])?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn space(&self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<Memory, PtxError> {
        modifiers.take_any(&SPACES).ok_or_else(|| context.wrong("expected a state space"))
    }

    /// An operand in brackets.
    pub(super) fn address(&mut self, context: Context<'_, 'a>, index: usize) -> Result<Address, PtxError> {
        let tree::Operand::Address { base, offset, .. } = context.operand(index)?.clone() else {
            return Err(context.wrong(format!("operand {} must be an address", index + 1)));
        };
        let Some(name) = base else {
            let base = self.long_constant(offset);
            return Ok(Address { base, offset: 0, of: None });
        };
        if let Some((of, address)) = self.find_address(name) {
            if of == Space::Local {
                let (base, offset) = self.frame_address(address.wrapping_add(offset));
                return Ok(Address { base, offset, of: Some(of) });
            }
            let base = self.address_constant(name, of, Class::Long, address, offset);
            return Ok(Address { base, offset: 0, of: Some(of) });
        }
        let class = match self.scopes.find(name) {
            Some(super::Binding::Register(register)) => register.class(),
            Some(super::Binding::NewRegister(class)) => class,
            found => {
                return Err(match self.symbols.unavailable(name).filter(|_| found.is_none()) {
                    Some(why) => context.unsupported(format!("{name}, {why}")),
                    None => context.wrong(format!("{name} is not an address")),
                });
            }
        };
        if class == Class::Predicate {
            return Err(context.wrong(format!("{name} is not an address")));
        }
        Ok(Address { base: self.register(context, name, class)?, offset: offset as i64, of: None })
    }

    /// The state space of an access. A variable's own state space takes precedence, since parameters of functions are in local memory
    /// here.
    pub(super) fn space_of(&self, modifiers: &mut Modifiers<'a>, address: Address) -> Memory {
        let said = modifiers.take_any(&SPACES).unwrap_or(Memory::Generic);
        match address.of {
            Some(Space::Local) => Memory::Local,
            Some(Space::Parameter) => Memory::Parameter,
            Some(Space::Shared) => Memory::Shared,
            Some(Space::Global) if said == Memory::Generic => Memory::Global,
            _ => said,
        }
    }

    /// The access of an instruction.
    fn access(
        &self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
        address: Address,
        lanes: usize,
    ) -> Result<Access, PtxError> {
        let [volatile, non_coherent] = ["volatile", "nc"].map(|word| modifiers.has(word));
        let (strong, semantics) = modifiers.take_semantics();
        let memory = self.space_of(modifiers, address);
        let kind = self.type_of(context, modifiers)?;
        let vector = modifiers.take_any(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1);
        modifiers.take_hints();
        if vector != lanes {
            return Err(context.wrong(format!("expected {vector} registers, but found {lanes}")));
        }
        if kind == Type::B128 || kind == Type::Pred || kind.bytes() * lanes > 32 {
            return Err(context.unsupported("an access of this size"));
        }
        Ok(Access {
            memory,
            kind,
            lanes: lanes as u8,
            offset: address.offset,
            strong,
            semantics,
            volatile,
            non_coherent,
        })
    }

    /// The registers of a vector, or a single one.
    pub(super) fn list(
        &self,
        context: Context<'_, 'a>,
        index: usize,
    ) -> Result<Vec<tree::Operand<'a>>, PtxError> {
        Ok(match context.operand(index)? {
            tree::Operand::Vector(all) => all.clone(),
            other => vec![other.clone()],
        })
    }

    /// The destination registers of a list.
    pub(super) fn result_list(
        &mut self,
        context: Context<'_, 'a>,
        index: usize,
        class: Class,
    ) -> Result<Vec<Operand>, PtxError> {
        let mut results = Vec::new();
        for part in self.list(context, index)? {
            results.push(match part {
                tree::Operand::Name("_") => Operand::NONE,
                tree::Operand::Name(name) => self.register_for(context, name, class)?,
                _ => return Err(context.wrong("expected a register")),
            });
        }
        Ok(results)
    }

    /// A register of a class or a wider one, since a load may widen.
    fn register_for(
        &mut self,
        context: Context<'_, 'a>,
        name: &'a str,
        class: Class,
    ) -> Result<Operand, PtxError> {
        if class == Class::Word
            && let Ok(wide) = self.register(context, name, Class::Long)
        {
            return Ok(wide);
        }
        self.register(context, name, class)
    }

    fn load(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        let hint = modifiers.has("L2::cache_hint");
        context.expect(if hint { 3 } else { 2 })?;
        let path = Self::path(modifiers);
        let address = self.address(context, 1)?;
        let lanes = self.list(context, 0)?.len();
        let access = self.access(context, modifiers, address, lanes)?;
        let results = self.result_list(context, 0, access.kind.class())?;
        self.emit(Op::Load(access), &results, &[address.base])?;
        self.set_path(path, access);
        Ok(())
    }

    /// The caches that an instruction says it goes through.
    fn path(modifiers: &Modifiers<'a>) -> Path {
        let any = |words: &[&str]| words.iter().any(|word| modifiers.has(word));
        let ordered = any(&["relaxed", "acquire"]) && !any(&["cta"]);
        match () {
            () if any(&["param", "param::func"]) => Path::CallParameter,
            () if ordered || any(&["cg", "cv", "volatile", "mmio"]) => Path::Uncached,
            () => Path::Cached,
        }
    }

    /// Says which caches the instruction that was just decoded goes through.
    fn set_path(&mut self, path: Path, access: Access) {
        // Parameters of kernels are what they are.
        let path =
            if path == Path::CallParameter && access.memory != Memory::Local { Path::Cached } else { path };
        if let Some(newest) = self.program.instructions.last_mut() {
            newest.path = path;
        }
    }

    fn store(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        let hint = modifiers.has("L2::cache_hint");
        context.expect(if hint { 3 } else { 2 })?;
        let path = Self::path(modifiers);
        let address = self.address(context, 0)?;
        let parts = self.list(context, 1)?;
        let access = self.access(context, modifiers, address, parts.len())?;
        let mut operands = vec![address.base];
        for part in &parts {
            let operand = match part {
                tree::Operand::Name(name) if self.find_address(name).is_none() => {
                    self.register_for(context, name, access.kind.class())?
                }
                _ => self.value_of(context, part, access.kind)?,
            };
            operands.push(operand);
        }
        self.emit(Op::Store(access), &[], &operands)?;
        self.set_path(path, access);
        Ok(())
    }

    fn atomic(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        let reduction = modifiers.name() == "red";
        let (_, semantics) = modifiers.take_semantics();
        modifiers.take("noftz");
        let memory = modifiers.take_any(&SPACES).unwrap_or(Memory::Generic);
        let Some(op) = modifiers.take_any(&ATOMICS) else {
            return Err(context.unsupported("this atomic operation"));
        };
        let kind = self.type_of(context, modifiers)?;
        let hint = modifiers.has("L2::cache_hint");
        modifiers.take_hints();
        let lanes = modifiers.take_any(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1);
        let floats =
            matches!(kind, Type::F32 | Type::F64 | Type::F16x2 | Type::Bf16x2 | Type::F16 | Type::Bf16);
        if floats && op != Atomic::Add || kind.bytes() > 8 || kind.bytes() < 2 {
            return Err(context.unsupported("this atomic operation on this type"));
        }
        let at = usize::from(!reduction);
        let values = if op == Atomic::CompareAndSwap { 2 } else { 1 };
        context.expect(at + 1 + values + usize::from(hint))?;
        let address = self.address(context, at)?;
        let memory = match address.of {
            Some(Space::Shared) => Memory::Shared,
            _ => memory,
        };
        if lanes > 1 {
            // Each number of a vector is updated on its own.
            let values = self.list(context, at + 1)?;
            let results = if reduction { Vec::new() } else { self.result_list(context, 0, kind.class())? };
            if values.len() != lanes || !reduction && results.len() != lanes || op == Atomic::CompareAndSwap {
                return Err(context.wrong(format!("expected {lanes} registers")));
            }
            for (i, value) in values.iter().enumerate() {
                let value = self.value_of(context, value, kind)?;
                let offset = address.offset.wrapping_add((i * kind.bytes()) as i64);
                let op = Op::Atomic { memory, op, kind, offset, reduction, semantics };
                self.emit(op, results.get(i).map_or(&[], std::slice::from_ref), &[address.base, value])?;
            }
            return Ok(());
        }
        let mut operands = vec![address.base];
        operands.extend(self.values(context, at + 1, &[kind; 2][..values])?);
        let op = Op::Atomic { memory, op, kind, offset: address.offset, reduction, semantics };
        if reduction {
            return self.emit(op, &[], &operands);
        }
        let result = self.result(context, 0, kind.class())?;
        self.emit(op, &[result], &operands)
    }
}
