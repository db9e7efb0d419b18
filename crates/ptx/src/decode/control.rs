//! Branches, calls, barriers, fences and warp-synchronous instructions.

use super::{Binding, Context, Decoder, modifiers::Modifiers};
use crate::{
    error::PtxError,
    isa::{Atomic, Barrier, Class, Fence, Op, Operand, Scope, Shuffle, Type, Vote},
    syntax::tree,
};

impl<'a> Decoder<'a, '_> {
    /// Decodes an instruction of this group.
    pub(super) fn control(
        &mut self,
        context: Context<'_, 'a>,
        modifiers: &mut Modifiers<'a>,
    ) -> Result<bool, PtxError> {
        match modifiers.name() {
            "bra" => {
                modifiers.take("uni");
                let tree::Operand::Name(name) = context.operand(0)? else {
                    return Err(context.wrong("a branch needs a label"));
                };
                let Some(label) = self.scopes.find_label(name) else {
                    return Err(context.wrong(format!("unknown label {name}")));
                };
                self.emit(Op::Branch { target: label as u32 }, &[], &[])?;
            }
            "brx" => {
                modifiers.take("idx");
                modifiers.take("uni");
                context.expect(2)?;
                let index = self.value(context, 0, Type::U32)?;
                let tree::Operand::Name(name) = context.operand(1)? else {
                    return Err(context.wrong("expected a list of branch targets"));
                };
                let Some(Binding::Targets(table)) = self.scopes.find(name) else {
                    return Err(context.wrong(format!("{name} is not a list of branch targets")));
                };
                self.emit(Op::BranchIndexed { table }, &[], &[index])?;
            }
            "ret" => {
                modifiers.take("uni");
                match self.returns.last() {
                    Some(&label) => self.emit(Op::Branch { target: label as u32 }, &[], &[])?,
                    None if self.frame.is_some() => self.return_from_subroutine()?,
                    None => self.emit(Op::Exit, &[], &[])?,
                }
            }
            "exit" => self.emit(Op::Exit, &[], &[])?,
            // Without a debugger, a breakpoint is a trap.
            "trap" | "brkpt" => self.emit(Op::Trap, &[], &[])?,
            name @ ("alloca" | "stacksave" | "stackrestore") => {
                modifiers.take("u64");
                self.stack(context, name)?;
            }
            "call" => {
                modifiers.take("uni");
                self.call(context)?;
            }
            "bar" | "barrier" => self.barrier(context, modifiers)?,
            "fence" | "membar" => self.fence(context, modifiers)?,
            "shfl" => self.shuffle(context, modifiers)?,
            "vote" => {
                modifiers.take("sync");
                modifiers.take("pred");
                modifiers.take("b32");
                let votes = [
                    ("all", Vote::All),
                    ("any", Vote::Any),
                    ("uni", Vote::Uniform),
                    ("ballot", Vote::Ballot),
                ];
                let Some(vote) = modifiers.take_any(&votes) else {
                    return Err(context.unsupported("this form of vote"));
                };
                context.expect(3)?;
                let class = if vote == Vote::Ballot { Class::Word } else { Class::Predicate };
                let result = self.result(context, 0, class)?;
                let operands = self.values(context, 1, &[Type::Pred, Type::B32])?;
                self.emit(Op::Vote(vote), &[result], &operands)?;
            }
            "match" => {
                modifiers.take("sync");
                let any = modifiers.take("any");
                modifiers.take("all");
                let kind = self.type_of(context, modifiers)?;
                let wide = kind.bytes() == 8;
                context.expect(3)?;
                let results = self.result_pair(context)?;
                let operands = self.values(context, 1, &[kind, Type::B32])?;
                let op = if any { Op::MatchAny { wide } } else { Op::MatchAll { wide } };
                self.emit(op, &results, &operands)?;
            }
            "activemask" => {
                modifiers.take("b32");
                let result = self.result(context, 0, Class::Word)?;
                self.emit(Op::ActiveMask, &[result], &[])?;
            }
            "elect" => {
                modifiers.take("sync");
                context.expect(2)?;
                let results = self.result_pair(context)?;
                let mask = self.value(context, 1, Type::B32)?;
                self.emit(Op::Elect, &results, &[mask])?;
            }
            "redux" => {
                modifiers.take("sync");
                let ops = [
                    ("add", Atomic::Add),
                    ("min", Atomic::Min),
                    ("max", Atomic::Max),
                    ("and", Atomic::And),
                    ("or", Atomic::Or),
                    ("xor", Atomic::Xor),
                ];
                let kind = self.type_of(context, modifiers)?;
                let Some(op) = modifiers.take_any(&ops).filter(|_| !kind.is_float()) else {
                    return Err(context.unsupported("this warp reduction"));
                };
                context.expect(3)?;
                let result = self.result(context, 0, Class::Word)?;
                let operands = self.values(context, 1, &[kind, Type::B32])?;
                self.emit(Op::ReduceWarp { op, signed: kind.is_signed() }, &[result], &operands)?;
            }
            "griddepcontrol" | "nanosleep" | "pmevent" => {
                modifiers.take_all();
                self.emit(Op::Nothing, &[], &[])?;
            }
            "setmaxnreg" => {
                for part in ["sync", "aligned", "u32"] {
                    modifiers.take(part);
                }
                let more = modifiers.take("inc");
                modifiers.take("dec");
                let count = self.number(context, 0)?;
                if !(24..=256).contains(&count) || count % 8 != 0 {
                    return Err(context.wrong("the register count must be a multiple of 8 from 24 to 256"));
                }
                self.emit(Op::SetRegisters { count, more }, &[], &[])?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A result and a predicate: `%r1|%p1`.
    fn result_pair(&mut self, context: Context<'_, 'a>) -> Result<[Operand; 2], PtxError> {
        match context.operand(0)?.clone() {
            tree::Operand::Pair(value, predicate) => {
                let value = match value {
                    "_" => Operand::NONE,
                    _ => self.register(context, value, Class::Word)?,
                };
                Ok([value, self.register(context, predicate, Class::Predicate)?])
            }
            _ => Ok([self.result(context, 0, Class::Word)?, Operand::NONE]),
        }
    }

    fn shuffle(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        if !modifiers.take("sync") {
            return Err(context.unsupported("a shuffle without a member mask"));
        }
        modifiers.take("b32");
        let modes = [
            ("up", Shuffle::Up),
            ("down", Shuffle::Down),
            ("bfly", Shuffle::Butterfly),
            ("idx", Shuffle::Index),
        ];
        let Some(mode) = modifiers.take_any(&modes) else {
            return Err(context.unsupported("this form of shuffle"));
        };
        context.expect(5)?;
        let results = self.result_pair(context)?;
        let operands = self.values(context, 1, &[Type::B32; 4])?;
        self.emit(Op::Shuffle(mode), &results, &operands)
    }

    fn barrier(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        if modifiers.take("warp") {
            modifiers.take("sync");
            let mask = self.value(context, 0, Type::B32)?;
            return self.emit(Op::WarpBarrier, &[], &[mask]);
        }
        if modifiers.take("cluster") {
            let relaxed = modifiers.take("relaxed");
            for part in ["release", "acquire", "aligned"] {
                modifiers.take(part);
            }
            if modifiers.take("arrive") {
                return self.emit(Op::ClusterArrive { release: !relaxed }, &[], &[]);
            }
            modifiers.take("wait");
            return self.emit(Op::ClusterWait, &[], &[]);
        }
        // `bar` is `barrier.aligned`.
        let aligned = modifiers.take("aligned") || modifiers.name() == "bar";
        modifiers.take("cta");
        let kind = if modifiers.take("arrive") {
            Barrier::Arrive
        } else if modifiers.take("red") {
            for kind in ["u32", "pred"] {
                modifiers.take(kind);
            }
            let kinds = [("popc", Barrier::Popc), ("and", Barrier::And), ("or", Barrier::Or)];
            modifiers
                .take_any(&kinds)
                .ok_or_else(|| context.wrong("expected the kind of reduction: popc, and or or"))?
        } else {
            modifiers.take("sync");
            Barrier::Sync
        };
        let votes = matches!(kind, Barrier::Popc | Barrier::And | Barrier::Or);
        let at = usize::from(votes);
        let results = match kind {
            Barrier::Popc => vec![self.result(context, 0, Class::Word)?],
            Barrier::And | Barrier::Or => vec![self.result(context, 0, Class::Predicate)?],
            _ => Vec::new(),
        };
        let number =
            if context.count() > at { self.value(context, at, Type::U32)? } else { self.word_constant(0) };
        let mut operands = vec![number];
        let counted = context.count() > at + 1 + usize::from(votes);
        if counted {
            operands.push(self.value(context, at + 1, Type::U32)?);
        } else if kind == Barrier::Arrive {
            return Err(context.wrong("barrier.arrive needs a thread count"));
        }
        if votes {
            operands.push(self.value(context, at + 1 + usize::from(counted), Type::Pred)?);
        }
        self.emit(Op::Barrier { kind, aligned, counted }, &results, &operands)
    }

    fn fence(&mut self, context: Context<'_, 'a>, modifiers: &mut Modifiers<'a>) -> Result<(), PtxError> {
        let fence = if modifiers.take("mbarrier_init") {
            modifiers.take("release");
            modifiers.take("cluster");
            Fence::MbarrierInit
        } else if modifiers.take("proxy") {
            if modifiers.take("async") | modifiers.take("async::generic") {
                for part in [
                    "global",
                    "shared::cta",
                    "shared::cluster",
                    "acquire",
                    "release",
                    "cluster",
                    "sync_restrict::shared::cta",
                    "sync_restrict::shared::cluster",
                ] {
                    modifiers.take(part);
                }
                Fence::AsyncProxy
            } else if modifiers.take("alias") {
                Fence::Memory(Scope::Block)
            } else {
                return Err(context.unsupported("a fence between these proxies"));
            }
        } else {
            for part in ["sc", "acq_rel", "acquire", "release"] {
                modifiers.take(part);
            }
            modifiers.take("gl");
            Fence::Memory(modifiers.take_scope())
        };
        self.emit(Op::Fence(fence), &[], &[])
    }
}
