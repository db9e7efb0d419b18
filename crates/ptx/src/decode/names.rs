//! Names: scopes, variables, special registers.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
};

use super::Label;
use crate::{
    error::PtxError,
    isa::{Class, Operand, Special, Type},
    syntax::tree::{Module, Space, Statement, Variable},
};

/// What a name within a function stands for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Binding {
    Register(Operand),
    /// A register of a range that has not been used before.
    NewRegister(Class),
    Parameter(u64),
    Local(u64),
    Shared(u64),
    Targets(u32),
    Prototype(u32),
    CallTargets(u32),
    /// A register of a type that the simulator does not support.
    Unsupported,
}

#[derive(Default)]
struct Scope<'a> {
    number: usize,
    names: HashMap<&'a str, Binding>,
    /// Declarations such as `%r<19>`: a prefix with a number of registers, of a class that is supported or not.
    ranges: HashMap<&'a str, (Option<Class>, u64)>,
}

/// Names in nested braces. A label is visible in all braces that contain it, even before its position.
#[derive(Default)]
pub(super) struct Scopes<'a> {
    open: Vec<Scope<'a>>,
    count: usize,
    labels: HashMap<(usize, &'a str), Label>,
}

impl<'a> Scopes<'a> {
    pub fn open(&mut self) {
        let number = self.count;
        self.count += 1;
        self.open_numbered(number);
    }

    pub fn open_numbered(&mut self, number: usize) {
        self.open.push(Scope { number, ..Scope::default() });
    }

    /// Opens the scope of a body, and numbers the scopes and labels in it. Returns the number of the outermost one.
    pub fn open_labelled(&mut self, body: &[Statement<'a>], labels: &mut Vec<Option<u32>>) -> usize {
        let first = self.count;
        let mut within = vec![first];
        self.count += 1;
        for statement in body {
            match statement {
                Statement::Open => {
                    within.push(self.count);
                    self.count += 1;
                }
                Statement::Close => {
                    within.pop();
                }
                Statement::Label(name, _) => {
                    let scope = within.last().copied().unwrap_or(first);
                    labels.push(None);
                    self.labels.insert((scope, name), labels.len() - 1);
                }
                _ => {}
            }
        }
        self.open_numbered(first);
        first
    }

    pub fn close(&mut self) {
        self.open.pop();
    }

    /// How many scopes are open.
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// Closes scopes until this many are open.
    pub fn close_to(&mut self, depth: usize) {
        self.open.truncate(depth);
    }

    pub fn bind(&mut self, name: &'a str, binding: Binding) {
        if let Some(scope) = self.open.last_mut() {
            scope.names.insert(name, binding);
        }
    }

    pub fn bind_range(&mut self, prefix: &'a str, class: Option<Class>, count: u64) {
        if let Some(scope) = self.open.last_mut() {
            scope.ranges.insert(prefix, (class, count));
        }
    }

    /// Allocates a register of a range, in the scope of the range.
    pub fn remember(&mut self, name: &'a str, register: Operand) {
        let (prefix, _) = split_number(name);
        if let Some(scope) = self.open.iter_mut().rev().find(|scope| scope.ranges.contains_key(prefix)) {
            scope.names.insert(name, Binding::Register(register));
        }
    }

    pub fn find(&self, name: &str) -> Option<Binding> {
        let (prefix, number) = split_number(name);
        for scope in self.open.iter().rev() {
            if let Some(binding) = scope.names.get(name) {
                return Some(*binding);
            }
            if let (Some(&(class, count)), Some(number)) = (scope.ranges.get(prefix), number)
                && number < count
            {
                return Some(class.map_or(Binding::Unsupported, Binding::NewRegister));
            }
        }
        None
    }

    pub fn find_label(&self, name: &str) -> Option<Label> {
        self.open.iter().rev().find_map(|scope| self.labels.get(&(scope.number, name)).copied())
    }

    /// A label of the innermost scope.
    pub fn label_here(&self, name: &str) -> Option<Label> {
        self.labels.get(&(self.open.last()?.number, name)).copied()
    }
}

fn split_number(name: &str) -> (&str, Option<u64>) {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (prefix, number) = name.split_at(name.len() - digits);
    (prefix, number.parse().ok())
}

/// The size of a variable; `None` for an array without one.
pub(crate) fn size(variable: &Variable<'_>) -> Result<Option<u64>, PtxError> {
    let too_large = || PtxError::syntax(variable.place, format!("{} is too large", variable.name));
    let Some(kind) = Type::named(variable.type_name) else {
        let what = format!("unknown type {}", variable.type_name);
        return Err(PtxError::syntax(variable.place, what));
    };
    let Some(elements) = variable.elements else { return Ok(None) };
    let bytes = elements.checked_mul(variable.lanes * kind.bytes() as u64).ok_or_else(too_large)?;
    if bytes > 1 << 30 { Err(too_large()) } else { Ok(Some(bytes)) }
}

/// The alignment of a variable.
pub(crate) fn alignment(variable: &Variable<'_>) -> Result<u64, PtxError> {
    let natural = Type::named(variable.type_name).map_or(1, |kind| kind.bytes() as u64) * variable.lanes;
    let align = variable.align.max(natural);
    if align.is_power_of_two() && align <= 4096 {
        return Ok(align);
    }
    Err(PtxError::syntax(variable.place, format!("{} has an invalid alignment", variable.name)))
}

/// The offset of a variable at or after `start`, and its end. Updates the largest alignment.
pub(super) fn place(variable: &Variable<'_>, largest: &mut u64, start: u64) -> Result<(u64, u64), PtxError> {
    let align = alignment(variable)?;
    *largest = align.max(*largest);
    let offset = start.next_multiple_of(align);
    Ok((offset, offset + size(variable)?.unwrap_or(0)))
}

/// The distance between the addresses of functions.
const FUNCTION_BYTES: u64 = 16;

/// The functions of a module and their addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    numbers: HashMap<String, usize>,
    names: Vec<String>,
    at: u64,
}

impl Functions {
    /// Functions that the module defines, then those that it only declares; their addresses start at `at`.
    pub fn new(module: &Module<'_>, at: u64) -> Functions {
        let mut functions = Functions { at, ..Functions::default() };
        for function in &module.functions {
            functions.numbers.entry(function.name.to_owned()).or_insert(functions.names.len());
            functions.names.push(function.name.to_owned());
        }
        for &name in &module.declared {
            if !functions.numbers.contains_key(name) {
                functions.numbers.insert(name.to_owned(), functions.names.len());
                functions.names.push(name.to_owned());
            }
        }
        for &(alias, name) in &module.aliases {
            if let Some(&number) = functions.numbers.get(name) {
                functions.numbers.insert(alias.to_owned(), number);
            }
        }
        functions
    }

    /// Where the addresses end.
    pub fn end(&self) -> u64 {
        self.at + self.names.len() as u64 * FUNCTION_BYTES
    }

    /// The names and addresses.
    pub fn addresses(&self) -> impl Iterator<Item = (&String, u64)> {
        self.numbers.iter().map(|(name, &number)| (name, self.at + number as u64 * FUNCTION_BYTES))
    }
}

/// What a module's own names stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    addresses: HashMap<String, (Space, u64)>,
    /// Arrays without a size, which all start where a kernel's static shared memory ends.
    dynamic: HashSet<String>,
    dynamic_align: u64,
    /// Whether code refers to a variable in device memory.
    asked: Cell<bool>,
    /// The functions of the module, then those that are only declared.
    functions: HashMap<String, usize>,
    function_names: Vec<String>,
    /// The address of the first function.
    functions_at: u64,
    /// Names that the module declares, but that cannot be used, and why.
    unavailable: HashMap<String, String>,
}

impl Symbols {
    /// Takes what variables in global memory have been allocated.
    pub fn new(
        module: &Module<'_>,
        functions: Functions,
        allocated: HashMap<String, (Space, u64)>,
        unavailable: HashMap<String, String>,
    ) -> Result<Symbols, PtxError> {
        let mut symbols = Symbols {
            addresses: allocated,
            dynamic_align: 16,
            functions: functions.numbers,
            function_names: functions.names,
            functions_at: functions.at,
            unavailable,
            ..Symbols::default()
        };
        let shared = || module.variables.iter().filter(|variable| variable.space == Space::Shared);
        for variable in shared().filter(|variable| variable.elements.is_none()) {
            symbols.dynamic_align = alignment(variable)?.max(symbols.dynamic_align);
            symbols.dynamic.insert(variable.name.to_owned());
        }
        Ok(symbols)
    }

    pub fn find(&self, name: &str) -> Option<(Space, u64)> {
        let found = self.addresses.get(name).copied();
        if found.is_some() {
            self.asked.set(true);
        }
        found
    }

    /// The index of a function.
    pub fn function(&self, name: &str) -> Option<usize> {
        self.functions.get(name).copied()
    }

    pub fn function_name(&self, index: usize) -> &str {
        self.function_names.get(index).map_or("", String::as_str)
    }

    pub fn function_address(&self, index: usize) -> u64 {
        self.functions_at + index as u64 * FUNCTION_BYTES
    }

    /// Why a name that the module declares cannot be used.
    pub fn unavailable(&self, name: &str) -> Option<&str> {
        self.unavailable.get(name).map(String::as_str)
    }

    /// Whether decoded code contains the address of a variable in device memory.
    pub fn in_code(&self) -> bool {
        self.asked.get()
    }

    pub fn is_dynamic(&self, name: &str) -> bool {
        self.dynamic.contains(name)
    }

    /// Where dynamic shared memory starts, after static memory that ends at `end`.
    pub fn dynamic_start(&self, end: u64) -> u64 {
        if self.dynamic.is_empty() { end } else { end.next_multiple_of(self.dynamic_align) }
    }
}

/// Whether it is a special register that is always zero here: the environment's or a profiler's. Two of the environment's are not: they
/// hold the address of the workspace of a cooperative launch.
pub(super) fn is_zero(name: &str) -> bool {
    let number = |prefix: &str| name.strip_prefix(prefix).and_then(|rest| rest.parse::<u8>().ok());
    number("%envreg").is_some_and(|number| number < 32 && !matches!(number, 1 | 2))
        || number("%pm").is_some_and(|number| number < 8)
}

/// Whether a name is that of a special register that the simulator does not have.
pub(super) fn is_other_special(name: &str) -> bool {
    let numbered = |prefix: &str| {
        let number = name.strip_prefix(prefix).map(|rest| rest.trim_end_matches("_64"));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    numbered("%reserved_smem_offset_")
        || [
            "%is_explicit_cluster",
            "%current_graph_exec",
            "%reserved_smem_offset_begin",
            "%reserved_smem_offset_end",
            "%reserved_smem_offset_cap",
        ]
        .contains(&name)
}

/// A special register, and whether it has 64 bits.
pub(super) fn special(name: &str) -> Option<(Special, bool)> {
    let (stem, axis) = match name.rsplit_once('.') {
        Some((stem, "x")) => (stem, Some(0)),
        Some((stem, "y")) => (stem, Some(1)),
        Some((stem, "z")) => (stem, Some(2)),
        _ => (name, None),
    };
    let special = match (stem, axis) {
        ("%tid", Some(axis)) => Special::Tid(axis),
        ("%ntid", Some(axis)) => Special::Ntid(axis),
        ("%ctaid", Some(axis)) => Special::Ctaid(axis),
        ("%nctaid", Some(axis)) => Special::Nctaid(axis),
        ("%cluster_ctaid", Some(axis)) => Special::ClusterCtaid(axis),
        ("%cluster_nctaid", Some(axis)) => Special::ClusterNctaid(axis),
        ("%clusterid", Some(axis)) => Special::Clusterid(axis),
        ("%nclusterid", Some(axis)) => Special::Nclusterid(axis),
        ("%cluster_ctarank", None) => Special::ClusterCtarank,
        ("%cluster_nctarank", None) => Special::ClusterNctarank,
        ("%laneid", None) => Special::LaneId,
        ("%warpid", None) => Special::WarpId,
        ("%nwarpid", None) => Special::NwarpId,
        ("%lanemask_eq", None) => Special::LaneMaskEq,
        ("%lanemask_le", None) => Special::LaneMaskLe,
        ("%lanemask_lt", None) => Special::LaneMaskLt,
        ("%lanemask_ge", None) => Special::LaneMaskGe,
        ("%lanemask_gt", None) => Special::LaneMaskGt,
        ("%smid", None) => Special::SmId,
        ("%nsmid", None) => Special::NsmId,
        ("%gridid", None) => return Some((Special::GridId, true)),
        ("%clock", None) => Special::Clock,
        ("%clock_hi" | "%globaltimer_hi", None) => Special::ClockHigh,
        ("%globaltimer_lo", None) => Special::Clock,
        ("%clock64", None) => return Some((Special::Clock64, true)),
        ("%globaltimer", None) => return Some((Special::GlobalTimer, true)),
        ("%dynamic_smem_size", None) => Special::DynamicSharedBytes,
        ("%total_smem_size", None) => Special::TotalSharedBytes,
        ("%aggr_smem_size", None) => Special::AggregateSharedBytes,
        ("%envreg1", None) => Special::Workspace { high: true },
        ("%envreg2", None) => Special::Workspace { high: false },
        _ => return None,
    };
    Some((special, false))
}
