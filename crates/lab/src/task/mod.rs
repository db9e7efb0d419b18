//! A task: a kernel, what goes in, what must come out.

mod arrays;
mod check;
mod description;
mod error;
mod values;

use std::path::{Path, PathBuf};

pub use arrays::Arrays;
pub(crate) use check::MAX_REPEATS;
pub use error::{Place, TaskError};

use crate::{
    Element,
    compile::Source,
    expression::{Expression, ExpressionError, Scope},
    inputs::Distribution,
    reference::imports_torch,
};

/// The most bytes of a description.
const MAX_DESCRIPTION: u64 = 1 << 20;

/// The most bytes that the buffers of one size may have together.
pub const MAX_BYTES: u64 = 4 << 30;

/// The largest extent: up to it, f64 counts every number.
const MAX_EXTENT: u64 = 1 << 53;

/// What a kernel is to do: everything that `task.toml` says, checked.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name, which is that of its folder if it says none.
    pub name: String,
    /// What it is about.
    pub about: Option<String>,
    /// The folder that its files are in.
    pub folder: PathBuf,
    /// The kernel's source file.
    pub source: PathBuf,
    /// Options for the compiler.
    pub options: Vec<String>,
    /// Whether every run must give the same bits.
    pub deterministic: bool,
    /// Warp instructions after which a launch counts as endless.
    pub steps: Option<u64>,
    /// The sizes that are tested, one after the other.
    pub sizes: Vec<Sizes>,
    /// The sizes that are timed.
    pub time: Sizes,
    /// The buffers, in the order: inputs, in-out buffers, outputs, scratch memory.
    pub buffers: Vec<Buffer>,
    /// The launches, in order.
    pub launches: Vec<LaunchPlan>,
    /// What must come out.
    pub reference: Reference,
    /// How far results may be from it.
    pub tolerance: Tolerance,
    /// What the work is at least.
    pub work: Work,
    constants: Vec<(String, Expression, Option<Element>)>,
    /// The bytes of the description, in the form that a line can be found in.
    places: Vec<(String, Place)>,
}

/// Values of a task's size variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct Sizes(pub std::collections::BTreeMap<String, u64>);

impl std::fmt::Display for Sizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        f.write_str(if parts.is_empty() { "the only size".to_owned() } else { parts.join(", ") }.as_str())
    }
}

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The kernel reads it, and must leave it as it is.
    Input,
    /// The kernel reads it and leaves a result in it.
    InOut,
    /// The kernel leaves a result in it, whatever was there.
    Output,
    /// Memory between launches. What it holds in the end is not checked.
    Scratch,
}

/// Memory of a kernel.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// What its elements are.
    pub element: Element,
    /// The extents, outermost first.
    pub shape: Vec<Expression>,
    /// What it holds at the start.
    pub values: Values,
    /// An input that this output may lie in the place of: the kernel has to work in place as well.
    pub may_alias: Option<usize>,
    /// How far results may be from the reference, if that is said of this buffer.
    pub tolerance: Option<Tolerance>,
}

impl Buffer {
    /// Whether it holds a result at the end.
    pub fn is_result(&self) -> bool {
        matches!(self.role, Role::InOut | Role::Output)
    }

    /// Whether the kernel is given something in it.
    pub fn is_given(&self) -> bool {
        matches!(self.role, Role::Input | Role::InOut)
    }

    /// Its extents for some sizes.
    ///
    /// # Errors
    /// If one is no whole number, or is far too large.
    pub fn extents(&self, scope: &Scope) -> Result<Vec<usize>, ExpressionError> {
        self.shape
            .iter()
            .map(|extent| extent.count(scope, 0, MAX_EXTENT).map(|extent| extent as usize))
            .collect()
    }

    /// How many elements it has for some sizes.
    ///
    /// # Errors
    /// As [`Buffer::extents`].
    pub fn elements(&self, scope: &Scope) -> Result<usize, ExpressionError> {
        Ok(self.extents(scope)?.into_iter().fold(1usize, usize::saturating_mul))
    }
}

/// What a buffer holds at the start.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Nothing: the kernel has to write it before it reads it.
    Nothing,
    /// Fresh numbers. The bounds are expressions of the sizes.
    Random(RandomValues),
    /// What a file of NumPy's holds.
    File(PathBuf),
}

/// A distribution whose parameters depend on the sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomValues {
    kind: values::Kind,
    parameters: Vec<Expression>,
}

/// A launch as the task describes it.
#[derive(Clone, Debug)]
pub struct LaunchPlan {
    /// The kernel: its name or a C++ expression; `None` means the only one.
    pub entry: Option<String>,
    /// Blocks on each axis.
    pub grid: Vec<Expression>,
    /// Threads of a block on each axis.
    pub block: Vec<Expression>,
    /// Blocks of a cluster on each axis.
    pub cluster: Vec<Expression>,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: Option<Expression>,
    /// The arguments, in order.
    pub arguments: Vec<Argument>,
    /// How often it is launched; `step` counts from 0.
    pub repeat: Option<Expression>,
}

/// An argument of a launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// The address of a buffer, by its place.
    Buffer(usize),
    /// A number.
    Number(Element, Expression),
}

/// Where the right results come from.
#[derive(Clone, Debug)]
pub enum Reference {
    /// Each result is an expression of elements at the same place, in f64: the buffer's place and the expression.
    Expressions(Vec<(usize, Expression)>),
    /// A plain kernel, which runs in the simulator with floating-point buffers in f64.
    Kernel {
        /// Its source.
        source: PathBuf,
        /// Its launch.
        launch: Box<LaunchPlan>,
    },
    /// A function in Python over arrays of NumPy's, in f64.
    Python {
        /// The file.
        file: PathBuf,
        /// The function's name.
        function: String,
        /// How long it may take.
        seconds: f64,
    },
    /// Files of NumPy's: the buffer's place and the file.
    Files(Vec<(usize, PathBuf)>),
    /// None: only what the simulator finds is reported.
    None,
}

/// How far a result may be from the reference. What is not said is derived.
#[derive(Clone, Debug, Default)]
pub struct Tolerance {
    /// Any difference up to this is right.
    pub absolute: Option<f64>,
    /// As is any up to this part of the reference.
    pub relative: Option<f64>,
    /// How many rounded operations lead to a result, one after the other.
    pub depth: Option<Expression>,
}

/// What the work is at least: for the roofline.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Floating-point operations.
    pub flops: Option<Expression>,
    /// Bytes to and from memory.
    pub bytes: Option<Expression>,
}

impl Task {
    /// Reads `task.toml`, or the file of that name in a folder. A Python file is asked for its `TASK`.
    ///
    /// # Errors
    /// If a file cannot be read, or the description is wrong: which field, and in which line.
    pub fn open(path: &Path) -> Result<Task, TaskError> {
        let path = if path.is_dir() { path.join("task.toml") } else { path.to_owned() };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("py")) {
            let (text, file) = crate::reference::declared(&path)?;
            return check::task(&text, &folder, path.display().to_string(), Some(file), false);
        }
        let text = kinora_outside::read_text(&path, MAX_DESCRIPTION)
            .map_err(|source| TaskError::Unreadable { path: path.clone(), source })?;
        check::task(&text, &folder, path.display().to_string(), None, false)
    }

    /// A task from a text, such as one that a command line was made to. Its files may lie anywhere.
    ///
    /// # Errors
    /// If the description is wrong.
    pub fn from_text(text: &str, folder: &Path) -> Result<Task, TaskError> {
        check::task(text, folder, "the command line".to_owned(), None, true)
    }

    /// The same task for another source.
    #[must_use]
    pub fn with_source(&self, source: &Path) -> Task {
        let mut task = self.clone();
        // A reference in the task's own source stays where it was.
        task.source = source.to_owned();
        task
    }

    /// Gives a constant another value; there is nothing to give one to if the task has none of the name.
    pub(crate) fn set_constant(&mut self, name: &str, value: f64) {
        for (_, expression, _) in self.constants.iter_mut().filter(|(known, ..)| known == name) {
            *expression = Expression::number(value);
        }
    }

    /// The files that it reads, as far as they are named.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = vec![self.source.clone()];
        files.extend(self.buffers.iter().filter_map(|buffer| match &buffer.values {
            Values::File(path) => Some(path.clone()),
            _ => None,
        }));
        match &self.reference {
            Reference::Kernel { source, .. } => files.push(source.clone()),
            Reference::Python { file, .. } => files.push(file.clone()),
            Reference::Files(named) => files.extend(named.iter().map(|(_, path)| path.clone())),
            Reference::Expressions(_) | Reference::None => {}
        }
        files.sort();
        files.dedup();
        files
    }

    /// Whether its reference is written for PyTorch, so that it can be timed beside the kernel.
    pub(crate) fn is_for_torch(&self) -> bool {
        matches!(&self.reference, Reference::Python { file, .. } if imports_torch(file))
    }

    /// Reads the kernel's source.
    ///
    /// # Errors
    /// If it is no ordinary file, or no text.
    pub fn read_source(&self) -> Result<Source, TaskError> {
        read_source(&self.source)
    }

    /// What names mean for some sizes.
    ///
    /// # Errors
    /// If a constant has no value: each may use the sizes and other constants, but not itself.
    pub fn scope(&self, sizes: &Sizes) -> Result<Scope, TaskError> {
        let mut scope = Scope::default();
        for (name, value) in &sizes.0 {
            scope.set(name, *value as f64);
        }
        // They are in an order in which each uses only those before it.
        for (name, expression, _) in &self.constants {
            let value = expression
                .evaluate(&scope)
                .map_err(|error| self.wrong(&format!("constants.{name}"), &error))?;
            scope.set(name, value);
        }
        Ok(scope)
    }

    /// A buffer's distribution for some sizes.
    ///
    /// # Errors
    /// If a parameter has no value.
    pub fn distribution(
        &self,
        values: &RandomValues,
        scope: &Scope,
    ) -> Result<Distribution, ExpressionError> {
        values.kind.distribution(&values.parameters, scope)
    }

    /// The buffers' bytes together, for some sizes.
    ///
    /// # Errors
    /// If an extent has no value.
    pub fn bytes(&self, scope: &Scope) -> Result<u64, ExpressionError> {
        let mut all = 0u64;
        for buffer in &self.buffers {
            let elements = buffer.elements(scope)? as u64;
            all = all.saturating_add(elements.saturating_mul(buffer.element.bytes() as u64));
        }
        Ok(all)
    }

    fn wrong(&self, field: &str, what: &dyn std::fmt::Display) -> TaskError {
        let place = self.places.iter().find(|(known, _)| known == field);
        let place = place.map_or_else(|| self.places[0].1.clone(), |(_, place)| place.clone());
        TaskError::Field { place, field: field.to_owned(), what: what.to_string() }
    }
}

/// Reads a source that a task names.
pub(crate) fn read_source(path: &Path) -> Result<Source, TaskError> {
    Source::read(path).map_err(|source| TaskError::Unreadable { path: path.to_owned(), source })
}
