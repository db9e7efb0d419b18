//! Calls of subroutines: a stack for each lane, and reconvergence when a function returns.
//!
//! A call saves the registers that its caller needs later, since the called function uses the same ones. Its lanes come together again
//! where it returns, even if each calls another function, or to another depth.

use super::{
    access::for_lanes,
    registers::{Longs, Words},
    step::Step,
    unit::Unit,
    warp::Warp,
};
use crate::{
    check::FindingKind,
    isa::{CallSite, Class, FramePart, Op, Operand, Program, Subroutine},
    memory::LOCAL_WINDOW,
};

/// The alignment of stack frames.
const FRAME_ALIGNMENT: u32 = 16;

/// What a frame takes in addition to variables and saved registers: the return address.
const LINK_BYTES: u32 = 8;

/// Where a split is after a call or a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// In its place, with another program counter.
    There,
    /// Gone: its lanes wait for others of the same call.
    Gone,
    /// The block ends.
    Ended,
}

/// What a call leaves for its return.
#[derive(Debug)]
struct Frame {
    site: u32,
    subroutine: u32,
    words: Vec<Words>,
    longs: Vec<Longs>,
    predicates: Vec<u32>,
    /// The caller's frame.
    caller: LaneFrames,
}

/// Where the frames of a warp's lanes start and end.
#[derive(Clone, Copy, Debug)]
struct LaneFrames {
    base: [u32; 32],
    end: [u32; 32],
}

/// The stacks of a warp's lanes. They are in local memory, behind the kernel's own variables.
#[derive(Debug)]
pub(crate) struct CallStack {
    /// Where each lane's frame starts and ends; none before anything is called.
    lanes: Option<Box<LaneFrames>>,
    /// Bytes of local memory that each lane has so far.
    pub stride: usize,
    kernel_bytes: u32,
    /// By the reconvergence point at which the call's lanes come together again.
    frames: Vec<Option<Box<Frame>>>,
}

impl CallStack {
    pub fn new(program: &Program) -> CallStack {
        CallStack {
            lanes: None,
            stride: program.local_bytes,
            kernel_bytes: program.local_bytes as u32,
            frames: Vec::new(),
        }
    }

    pub fn clear(&mut self) {
        self.lanes = None;
        self.frames.clear();
    }

    /// Where a lane's frame ends.
    pub fn end(&self, lane: usize) -> u32 {
        self.lanes.as_ref().map_or(self.kernel_bytes, |lanes| lanes.end[lane])
    }

    fn lanes(&mut self) -> &mut LaneFrames {
        let end = [self.kernel_bytes; 32];
        self.lanes.get_or_insert_with(|| Box::new(LaneFrames { base: [0; 32], end }))
    }

    fn set_frame(&mut self, point: u32, frame: Frame) {
        let place = point as usize;
        if self.frames.len() <= place {
            self.frames.resize_with(place + 1, || None);
        }
        self.frames[place] = Some(Box::new(frame));
    }
}

impl Unit<'_> {
    /// Executes a call or a return.
    pub(super) fn transfer(&mut self, warp: &mut Warp, place: usize, step: Step<'_>) -> Transfer {
        match step.instruction.op {
            Op::Call { site } => self.call(warp, place, step, site),
            _ => self.return_from_call(warp, place, step),
        }
    }

    fn call(&mut self, warp: &mut Warp, place: usize, step: Step<'_>, site: u32) -> Transfer {
        let program = self.launched.program;
        let caller = &program.calls[site as usize];
        let mut groups: Vec<(u32, u32)> = Vec::new();
        match caller.target {
            Some(target) => groups.push((target, step.mask)),
            None => {
                let mut addresses: Vec<(u64, u32)> = Vec::new();
                for_lanes(step.mask, |lane| {
                    let address = self.lane(warp, step.operands[0], lane);
                    match addresses.iter_mut().find(|known| known.0 == address) {
                        Some(known) => known.1 |= 1 << lane,
                        None => addresses.push((address, 1 << lane)),
                    }
                });
                for (address, lanes) in addresses {
                    let found = program.subroutines.iter().position(|known| known.address == address);
                    let Some(target) = found else {
                        let lane = lanes.trailing_zeros() as usize;
                        return self.report_call(warp, step, lane, FindingKind::InvalidCall, || {
                            format!("calls the address {address:#x}, where there is no function")
                        });
                    };
                    groups.push((target as u32, lanes));
                }
            }
        }
        for &(target, lanes) in &groups {
            let called = &program.subroutines[target as usize];
            if let Some(why) = mismatch(caller, called) {
                let lane = lanes.trailing_zeros() as usize;
                return self.report_call(warp, step, lane, FindingKind::InvalidCall, || why);
            }
            if let Err(lane) = self.push_frames(warp, caller, called, lanes) {
                let (limit, name) = (self.launched.limits.stack_bytes, called.name.clone());
                return self.report_call(warp, step, lane, FindingKind::StackOverflow, || {
                    format!(
                        "calls {name} with no room for its frame on the stack of {limit} bytes per thread"
                    )
                });
            }
        }
        self.counters.divergent_branches += u64::from(groups.len() > 1);
        let paths = groups.iter().map(|&(target, lanes)| (lanes, program.subroutines[target as usize].entry));
        let paths: Vec<(u32, u32)> = paths.collect();
        let points = warp.splits.call(place, &paths, step.pc + 1);
        for (&point, &(target, lanes)) in points.iter().zip(&groups) {
            let called = &program.subroutines[target as usize];
            let frame = save(warp, caller, site, target);
            for_lanes(lanes, |lane| {
                let base = frame.caller.end[lane].next_multiple_of(FRAME_ALIGNMENT);
                let base = base + saved_bytes(caller);
                warp.forget_local(lane, base, called.frame_bytes);
                for (given, wanted) in caller.arguments.iter().zip(&called.parameters) {
                    copy(warp, lane, frame.caller.base[lane], *given, base, *wanted);
                }
                let own = warp.stack.lanes();
                own.base[lane] = base;
                own.end[lane] = base + called.frame_bytes;
            });
            warp.stack.set_frame(point, frame);
        }
        Transfer::There
    }

    /// Makes room for the frames of some lanes. Fails with the lane that has none.
    fn push_frames(
        &mut self,
        warp: &mut Warp,
        caller: &CallSite,
        called: &Subroutine,
        lanes: u32,
    ) -> Result<(), usize> {
        let most = (warp.stack.kernel_bytes as usize).saturating_add(self.launched.limits.stack_bytes);
        let mut needed = 0;
        for lane in (0..32).filter(|lane| lanes >> lane & 1 == 1) {
            let base = (warp.stack.end(lane) as usize).next_multiple_of(FRAME_ALIGNMENT as usize);
            let end = base + saved_bytes(caller) as usize + called.frame_bytes as usize;
            if end > most {
                return Err(lane);
            }
            needed = needed.max(end);
        }
        warp.grow_local(needed, most);
        Ok(())
    }

    fn return_from_call(&mut self, warp: &mut Warp, place: usize, step: Step<'_>) -> Transfer {
        let program = self.launched.program;
        let found = warp.splits.call_point(place);
        let Some((point, frame)) =
            found.and_then(|point| Some((point, warp.stack.frames[point as usize].take()?)))
        else {
            // Subroutines are only entered by calls.
            self.ended = true;
            return Transfer::Ended;
        };
        let (caller, called) =
            (&program.calls[frame.site as usize], &program.subroutines[frame.subroutine as usize]);
        for_lanes(step.mask, |lane| {
            let from = warp.stack.lanes().base[lane];
            for (wanted, given) in caller.results.iter().zip(&called.results) {
                copy(warp, lane, from, *given, frame.caller.base[lane], *wanted);
            }
            let own = warp.stack.lanes();
            own.base[lane] = frame.caller.base[lane];
            own.end[lane] = frame.caller.end[lane];
        });
        restore(warp, caller, &frame, step.mask);
        warp.stack.frames[point as usize] = Some(frame);
        // Lanes that the guard switches off go on.
        warp.splits.all[place].pc = step.pc + 1;
        if warp.splits.finish_call(place, step.mask) { Transfer::There } else { Transfer::Gone }
    }

    fn report_call(
        &mut self,
        warp: &Warp,
        step: Step<'_>,
        lane: usize,
        kind: FindingKind,
        message: impl FnOnce() -> String,
    ) -> Transfer {
        self.report(warp, kind, step.pc, lane as u32, None, message);
        self.ended = true;
        Transfer::Ended
    }

    /// Reads where the stack frames start, or changes where they end.
    pub(super) fn stack(&mut self, warp: &mut Warp, step: Step<'_>) {
        let operand = step.operands[0];
        let most = (warp.stack.kernel_bytes as usize).saturating_add(self.launched.limits.stack_bytes);
        match step.instruction.op {
            Op::FrameBase => {
                let base = warp.stack.lanes().base.map(u64::from);
                set_long(warp, operand, &base, step.mask);
            }
            Op::SaveStack => {
                let end = warp.stack.lanes().end.map(u64::from);
                set_long(warp, operand, &end, step.mask);
            }
            Op::RestoreStack => {
                for_lanes(step.mask, |lane| {
                    let to = self.lane(warp, operand, lane);
                    let to = if to >= LOCAL_WINDOW { to - LOCAL_WINDOW } else { to };
                    // A stack pointer that was not saved in this function changes nothing.
                    let own = warp.stack.lanes();
                    if to >= u64::from(own.base[lane]) && to <= u64::from(own.end[lane]) {
                        own.end[lane] = to as u32;
                    }
                });
            }
            Op::AllocateStack { align } => {
                for_lanes(step.mask, |lane| {
                    let bytes = self.lane(warp, step.operands[1], lane);
                    let start = (warp.stack.end(lane) as usize).next_multiple_of(usize::from(align.max(1)));
                    let end = usize::try_from(bytes).ok().and_then(|bytes| start.checked_add(bytes));
                    let Some(end) = end.filter(|&end| end <= most) else {
                        let limit = self.launched.limits.stack_bytes;
                        self.report(warp, FindingKind::StackOverflow, step.pc, lane as u32, None, || {
                            format!("allocates {bytes} bytes on the stack of {limit} bytes per thread")
                        });
                        self.ended = true;
                        return;
                    };
                    warp.grow_local(end, most);
                    warp.stack.lanes().end[lane] = end as u32;
                    warp.forget_local(lane, start as u32, (end - start) as u32);
                    if !operand.is_none() {
                        warp.registers.long_mut(operand)[lane] = start as u64;
                    }
                });
            }
            _ => {}
        }
    }
}

impl Warp {
    /// Gives every lane more local memory.
    fn grow_local(&mut self, needed: usize, most: usize) {
        let old = self.stack.stride;
        if needed <= old {
            return;
        }
        let new = needed.max(2 * old).min(most).next_multiple_of(8);
        for memory in [&mut self.local, &mut self.local_written] {
            let mut grown = vec![0; 32 * new];
            if old > 0 {
                for (to, from) in grown.chunks_exact_mut(new).zip(memory.chunks_exact(old)) {
                    to[..old].copy_from_slice(from);
                }
            }
            *memory = grown;
        }
        self.stack.stride = new;
    }

    /// Marks a part of a lane's local memory as not written.
    fn forget_local(&mut self, lane: usize, start: u32, bytes: u32) {
        let start = lane * self.stack.stride + start as usize;
        self.local_written[start..start + bytes as usize].fill(0);
    }
}

fn set_long(warp: &mut Warp, operand: Operand, values: &Longs, mask: u32) {
    if !operand.is_none() {
        warp.registers.set_long(operand, values, mask);
    }
}

/// Why a call cannot be meant for a function: it passes less than the function takes.
fn mismatch(caller: &CallSite, called: &Subroutine) -> Option<String> {
    let fits = |given: &[FramePart], wanted: &[FramePart]| {
        given.len() == wanted.len()
            && given.iter().zip(wanted).all(|(given, wanted)| given.bytes >= wanted.bytes)
    };
    // A function that cannot be decoded has no parameters, and is reported when it runs.
    let is_known = called.frame_bytes > 0 || !called.parameters.is_empty() || !called.results.is_empty();
    let matches = fits(&caller.arguments, &called.parameters) && fits(&caller.results, &called.results);
    (is_known && !matches).then(|| {
        let name = &called.name;
        format!("calls {name} through a pointer to a function with other parameters or results")
    })
}

/// What a call's saved registers take on the stack.
fn saved_bytes(caller: &CallSite) -> u32 {
    let bytes = |register: &Operand| match register.class() {
        Class::Word => 4,
        Class::Long => 8,
        Class::Predicate => 1,
    };
    (caller.saved.iter().map(bytes).sum::<u32>() + LINK_BYTES).next_multiple_of(FRAME_ALIGNMENT)
}

fn save(warp: &mut Warp, caller: &CallSite, site: u32, subroutine: u32) -> Frame {
    let frames = *warp.stack.lanes();
    let (words, longs, predicates) = (Vec::new(), Vec::new(), Vec::new());
    let mut frame = Frame { site, subroutine, words, longs, predicates, caller: frames };
    let registers = &warp.registers;
    for &register in &caller.saved {
        match register.class() {
            Class::Word => frame.words.push(registers.saved_word(register)),
            Class::Long => frame.longs.push(registers.saved_long(register)),
            Class::Predicate => frame.predicates.push(registers.predicate(register)),
        }
    }
    frame
}

fn restore(warp: &mut Warp, caller: &CallSite, frame: &Frame, mask: u32) {
    let (mut words, mut longs) = (frame.words.iter(), frame.longs.iter());
    let mut predicates = frame.predicates.iter();
    for &register in &caller.saved {
        match register.class() {
            Class::Word => {
                if let Some(value) = words.next() {
                    warp.registers.set_word(register, value, mask);
                }
            }
            Class::Long => {
                if let Some(value) = longs.next() {
                    warp.registers.set_long(register, value, mask);
                }
            }
            Class::Predicate => {
                if let Some(&value) = predicates.next() {
                    warp.registers.set_predicate(register, value, mask);
                }
            }
        }
    }
}

/// Copies a part of one frame of a lane to a part of another.
fn copy(warp: &mut Warp, lane: usize, from: u32, given: FramePart, to: u32, wanted: FramePart) {
    let bytes = given.bytes.min(wanted.bytes) as usize;
    let lane = lane * warp.stack.stride;
    let start = lane + from as usize + given.offset as usize;
    let target = lane + to as usize + wanted.offset as usize;
    // Frames are within the lane's memory, which has room for both.
    if start.max(target) + bytes <= warp.local.len() {
        warp.local.copy_within(start..start + bytes, target);
        warp.local_written.copy_within(start..start + bytes, target);
    }
}
