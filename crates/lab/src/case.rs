//! One set of contents for a task's buffers, with the right results.

use crate::{
    expression::Scope,
    inputs::{self, npy::Array},
    reference::{Expected, expected},
    report::{Problem, ProblemKind},
    task::{Buffer, Sizes, Task, Values},
};

/// What buffers hold at the start, and what must come out.
pub(crate) struct Case {
    pub given: Vec<Vec<u8>>,
    pub expected: Option<Expected>,
}

/// What buffers hold at the start, and what must come out.
pub(crate) fn case(task: &Task, sizes: &Sizes, scope: &Scope, seed: u64) -> Result<Case, Problem> {
    let given: Result<Vec<Vec<u8>>, Problem> = task
        .buffers
        .iter()
        .enumerate()
        .map(|(number, buffer)| content(task, buffer, scope, seed, number))
        .collect();
    let given = given?;
    let expected =
        expected(task, sizes, scope, &given).map_err(|error| Problem::new(ProblemKind::Reference, error))?;
    Ok(Case { given, expected })
}

/// What a buffer holds at the start; nothing if that is up to the device.
pub(crate) fn content(
    task: &Task,
    buffer: &Buffer,
    scope: &Scope,
    seed: u64,
    number: usize,
) -> Result<Vec<u8>, Problem> {
    let wrong =
        |what: &dyn std::fmt::Display| Problem::new(ProblemKind::Input, format!("{}: {what}", buffer.name));
    let count = buffer.elements(scope).map_err(|error| wrong(&error))?;
    match &buffer.values {
        Values::Nothing => Ok(Vec::new()),
        Values::Random(values) => {
            let distribution = task.distribution(values, scope).map_err(|error| wrong(&error))?;
            Ok(inputs::numbers(distribution, buffer.element, count, seed, number as u64))
        }
        Values::File(path) => {
            let array = Array::read(path).map_err(|error| wrong(&format!("{}: {error}", path.display())))?;
            let there = array.bytes.len() / array.element.bytes();
            if there != count {
                return Err(wrong(&format!(
                    "{} has {there} numbers, but the buffer has {count}",
                    path.display()
                )));
            }
            if array.element == buffer.element {
                return Ok(array.bytes);
            }
            // NumPy has no bf16, and f64 is what it makes of everything.
            let both = array.element.is_whole() == buffer.element.is_whole();
            if !both {
                let what = format!(
                    "{} holds {}, but the buffer {}",
                    path.display(),
                    array.element.name(),
                    buffer.element.name()
                );
                return Err(wrong(&what));
            }
            Ok(array.element.load(&array.bytes).into_iter().flat_map(|x| buffer.element.store(x)).collect())
        }
    }
}

/// How many numbers are drawn for a buffer that serves a prediction alone. They repeat.
const FRESH: usize = 1 << 20;

/// As [`content`], but numbers that need not be fresh repeat themselves: for a prediction, hundreds of millions would take longer than the
/// prediction itself.
pub(crate) fn content_for_time(
    task: &Task,
    buffer: &Buffer,
    scope: &Scope,
    seed: u64,
    number: usize,
) -> Result<Vec<u8>, Problem> {
    use inputs::Distribution::{Constant, Integers, Normal, Special, Uniform};
    let (Values::Random(values), Ok(count)) = (&buffer.values, buffer.elements(scope)) else {
        return content(task, buffer, scope, seed, number);
    };
    match task.distribution(values, scope) {
        Ok(distribution @ (Uniform(..) | Normal(..) | Integers(..) | Constant(_) | Special))
            if count > FRESH =>
        {
            let fresh = inputs::numbers(distribution, buffer.element, FRESH, seed, number as u64);
            let bytes = count * buffer.element.bytes();
            let mut all = fresh.repeat(bytes.div_ceil(fresh.len()));
            all.truncate(bytes);
            Ok(all)
        }
        _ => content(task, buffer, scope, seed, number),
    }
}
