//! References without a program: each result is an expression of the elements at the same place.

use super::Expected;
use crate::{
    expression::{Expression, Scope},
    task::Task,
};

/// Where a name's value comes from.
enum Source {
    /// The elements of a buffer; one element goes with every place.
    Elements(Vec<f64>),
    /// A size or constant.
    Number(f64),
    /// The place.
    Index,
}

/// The results.
pub(super) fn results(
    task: &Task,
    scope: &Scope,
    given: &[Vec<u8>],
    expressions: &[(usize, Expression)],
) -> Result<Expected, String> {
    let mut results = vec![None; task.buffers.len()];
    for (place, expression) in expressions {
        let result = &task.buffers[*place];
        let count = result.elements(scope).map_err(|error| error.to_string())?;
        let mut sources = Vec::new();
        for name in expression.names() {
            sources.push(match task.buffers.iter().position(|buffer| buffer.name == *name) {
                Some(place) => {
                    let numbers = task.buffers[place].element.load(&given[place]);
                    if numbers.len() != count && numbers.len() != 1 {
                        return Err(format!(
                            "`{expression}` takes elements at the same place, but {name} has {} and {} has {count}",
                            numbers.len(),
                            result.name
                        ));
                    }
                    Source::Elements(numbers)
                }
                None if name == "i" => Source::Index,
                None => Source::Number(scope.get(name).unwrap_or(f64::NAN)),
            });
        }
        let mut values = vec![0.0; sources.len()];
        let numbers = (0..count).map(|at| {
            for (value, source) in values.iter_mut().zip(&sources) {
                *value = match source {
                    Source::Elements(numbers) => numbers[if numbers.len() == 1 { 0 } else { at }],
                    Source::Number(number) => *number,
                    Source::Index => at as f64,
                };
            }
            expression.value(&values)
        });
        results[*place] = Some(numbers.collect());
    }
    // A handful of operations, each rounded once.
    Ok(Expected { results, operations: Some(4.0) })
}
