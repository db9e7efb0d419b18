//! The syntax tree: a module as it is written, before names are resolved.

use crate::error::Place;

/// A module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Module<'a> {
    /// The language's version, such as 9.0.
    pub version: (u32, u32),
    /// The target, such as `sm_90a`.
    pub target: &'a str,
    /// Source files by their number in `.loc`.
    pub files: Vec<(u64, &'a str)>,
    /// Variables outside functions.
    pub variables: Vec<Variable<'a>>,
    /// Functions and kernels that have a body.
    pub functions: Vec<Function<'a>>,
    /// The names of functions that are declared.
    pub declared: Vec<&'a str>,
    /// Other names of functions, and what they stand for.
    pub aliases: Vec<(&'a str, &'a str)>,
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    Register,
    Global,
    Constant,
    Shared,
    Local,
    Parameter,
}

/// A declaration: registers, variables, parameters.
#[derive(Clone, Debug)]
pub(crate) struct Variable<'a> {
    pub space: Space,
    pub name: &'a str,
    pub place: Place,
    /// Such as `b32`.
    pub type_name: &'a str,
    /// Lanes of a vector type.
    pub lanes: u64,
    /// How many registers a declaration such as `%r<19>` makes.
    pub copies: Option<u64>,
    /// In bytes; 0 if it is not given.
    pub align: u64,
    /// Elements of an array; 1 for a scalar, `None` for an array without a size.
    pub elements: Option<u64>,
    pub external: bool,
    pub values: Vec<Value<'a>>,
}

/// An element of a variable's initial value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Integer(u64),
    Single(u32),
    Double(u64),
    /// The address of another variable, generic or not, and an offset.
    Address(&'a str, u64),
    /// Some bits of such an address, which the mask selects.
    Masked(u64, &'a str, u64),
}

/// A kernel or a function.
#[derive(Clone, Debug)]
pub(crate) struct Function<'a> {
    pub name: &'a str,
    pub place: Place,
    pub entry: bool,
    pub results: Vec<Variable<'a>>,
    pub parameters: Vec<Variable<'a>>,
    /// `.maxntid` or `.reqntid`.
    pub threads: Option<[u64; 3]>,
    /// Whether it is `.reqntid`, which blocks must match exactly.
    pub threads_required: bool,
    /// `.reqnctapercluster`.
    pub cluster: Option<[u64; 3]>,
    pub body: Vec<Statement<'a>>,
}

/// What is known of a function that is called through a pointer.
#[derive(Clone, Debug)]
pub(crate) struct Prototype<'a> {
    pub results: Vec<Variable<'a>>,
    pub parameters: Vec<Variable<'a>>,
}

/// A position in the source that PTX was compiled from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Location {
    pub file: u64,
    pub line: u64,
    /// The file and line that it was inlined at.
    pub inlined_at: Option<(u64, u64)>,
}

/// A statement. Braces are statements of their own, so that nothing is nested.
#[derive(Clone, Debug)]
pub(crate) enum Statement<'a> {
    Open,
    Close,
    Label(&'a str, Place),
    Declaration(Variable<'a>),
    /// A list of labels to branch to.
    Targets(&'a str, Vec<&'a str>),
    /// The results and parameters of functions that a function pointer may point to.
    Prototype(&'a str, Prototype<'a>),
    /// A list of functions that a function pointer may point to.
    CallTargets(&'a str, Vec<&'a str>),
    Location(Location),
    Instruction(Instruction<'a>),
}

/// An instruction; everything after its opcode's first dot is a modifier.
#[derive(Clone, Debug)]
pub(crate) struct Instruction<'a> {
    pub place: Place,
    /// A predicate, and whether it is negated.
    pub guard: Option<(&'a str, bool)>,
    /// The opcode and its modifiers, such as `ld.global.v4.u32`.
    pub opcode: &'a str,
    pub operands: Vec<Operand<'a>>,
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand<'a> {
    /// A register, a special register, a variable, a label; `_` for none.
    Name(&'a str),
    /// A negated predicate.
    Not(&'a str),
    /// Two predicates: `%p1|%p2`.
    Pair(&'a str, &'a str),
    Integer(u64),
    Single(u32),
    Double(u64),
    Vector(Vec<Operand<'a>>),
    /// A list in parentheses, in a call.
    List(Vec<Operand<'a>>),
    /// A variable's address with an offset, outside brackets.
    Offset(&'a str, u64),
    /// `[base+offset]`, with the coordinates of a tensor copy and its im2col offsets.
    Address {
        base: Option<&'a str>,
        offset: u64,
        coordinates: Vec<Operand<'a>>,
    },
}
