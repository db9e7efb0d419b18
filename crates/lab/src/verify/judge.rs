//! What a run left, beside what must be there.

use super::{Comparison, bound, compare};
use crate::{
    attempt::Attempt,
    case::Case,
    expression::Scope,
    report::{Problem, ProblemKind, ResultOutcome, SizeOutcome},
    task::{Buffer, Role, Task},
};

/// Compares what a run left with what must be there, and keeps what is wrong.
pub(crate) fn judge(
    task: &Task,
    scope: &Scope,
    case: &Case,
    ran: &Attempt,
    found: &mut SizeOutcome,
    manner: &str,
) {
    for &(number, side) in &ran.beyond {
        let what = format!(
            "something is written {side} {}{manner}: beyond its end or before its start",
            task.buffers[number].name
        );
        found.problems.push(Problem::new(ProblemKind::Beyond, what));
    }
    for (number, buffer) in task.buffers.iter().enumerate() {
        let content = &ran.contents[number];
        let aliased = manner.starts_with(" in the place of ");
        if buffer.role == Role::Input && !aliased && *content != case.given[number] {
            let what = format!("the kernel changes its input {}{manner}", buffer.name);
            found.problems.push(Problem::new(ProblemKind::InputChanged, what));
        }
        if !buffer.is_result() {
            continue;
        }
        if let Some(count @ 1..) = ran.unwritten[number].filter(|_| !aliased) {
            let all = content.len() / buffer.element.bytes();
            let what = match all {
                _ if count == all => format!("{} is never written", buffer.name),
                _ => format!("{} never written", of_all(count, all, &buffer.name)),
            };
            found.problems.push(Problem::new(ProblemKind::Unwritten, what));
        }
        let shape = buffer.extents(scope).unwrap_or_default();
        let right = case
            .expected
            .as_ref()
            .and_then(|expected| Some((expected, expected.results[number].as_deref()?)));
        let comparison = right.map(|(expected, right)| {
            let got = buffer.element.load(content);
            let bound = bound(task, number, scope, expected);
            if got.len() != right.len() {
                let what = format!(
                    "the reference gives {} numbers for {}, which has {}",
                    right.len(),
                    buffer.name,
                    got.len()
                );
                found.problems.push(Problem::new(ProblemKind::Reference, what));
            }
            compare(buffer.element, &shape, &got, right, bound)
        });
        // What is never written is wrong as well, which need not be said twice.
        let unwritten = ran.unwritten[number].unwrap_or(0);
        if let Some(comparison) = &comparison
            && comparison.wrong > unwritten
        {
            let what = wrong_result(buffer, comparison, manner);
            found.problems.push(Problem::new(ProblemKind::Result, what));
        }
        let new =
            ResultOutcome { name: buffer.name.clone(), element: buffer.element.name(), shape, comparison };
        keep_worst(&mut found.results, new);
    }
}

/// Of several runs, the worst comparison of each result is kept.
fn keep_worst(results: &mut Vec<ResultOutcome>, new: ResultOutcome) {
    let of_bound =
        |result: &ResultOutcome| result.comparison.as_ref().map_or(0.0, |comparison| comparison.of_bound);
    match results.iter_mut().find(|known| known.name == new.name) {
        Some(known) if of_bound(&new) > of_bound(known) => *known = new,
        Some(_) => {}
        None => results.push(new),
    }
}

fn wrong_result(buffer: &Buffer, comparison: &Comparison, manner: &str) -> String {
    let mut text = format!("{} wrong{manner}", of_all(comparison.wrong, comparison.elements, &buffer.name));
    if let Some(worst) = comparison.worst.as_ref().filter(|_| comparison.elements == 1) {
        text += &format!(": {} instead of {}", worst.got, worst.expected);
    } else if let Some(worst) = &comparison.worst {
        let index = |index: &[usize]| index.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        text +=
            &format!("; the worst is [{}]: {} instead of {}", index(&worst.index), worst.got, worst.expected);
        if let Some(first) = comparison.first_wrong.as_ref().filter(|first| **first != worst.index) {
            text += &format!("; the first is [{}]", index(first));
        }
    }
    match comparison.not_finite {
        0 => {}
        1 if comparison.elements == 1 => {}
        1 => text += "; one is not finite",
        several => text += &format!("; {several} are not finite"),
    }
    let bound = comparison.bound;
    if !(buffer.element.is_whole() && bound.absolute == 0.0 && bound.relative == 0.0) {
        text += &format!("; allowed: {:.1e} + {:.1e} × |reference|", bound.absolute, bound.relative);
    }
    text
}

/// How many of how many elements of a buffer, with the verb.
fn of_all(count: usize, all: usize, name: &str) -> String {
    match (count, all) {
        (1, 1) => format!("{name} is"),
        (1, _) => format!("1 of {all} elements of {name} is"),
        _ if count == all => format!("all {all} elements of {name} are"),
        _ => format!("{count} of {all} elements of {name} are"),
    }
}
