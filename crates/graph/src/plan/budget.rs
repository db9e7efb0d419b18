//! Budgets, and what can be wrong with a plan: above all, that it does not fit.

use std::fmt;

use super::Plan;
use crate::{Graph, GraphError, Target};

/// The limits of a plan.
#[derive(Clone, Copy, Default)]
pub struct PlanOptions<'a> {
    /// The bytes available for weights and arena together, as [`Plan::peak_bytes`] counts them: leave room for what
    /// that does not count.
    pub budget: Option<usize>,
    /// What to run instead if the budget is too small, in order of preference.
    pub alternatives: &'a [Alternative<'a>],
}

/// Another way to run that may need less memory.
pub struct Alternative<'a> {
    /// The option to ask for it, such as `--decode-chunk 2`.
    pub flag: String,
    /// Builds the graph that would then run.
    pub graph: &'a dyn Fn() -> Result<Graph, GraphError>,
}

/// Why no plan could be made, or why one does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The plan needs more memory than the budget. Nothing has been allocated.
    #[error("{}", over_budget(*need, *budget, [*weights, *arena], largest, fits.as_ref(), details))]
    OverBudget {
        /// Weights and arena, in bytes.
        need: usize,
        /// What is available.
        budget: usize,
        /// The weights' share of the need.
        weights: usize,
        /// The arena's share of the need.
        arena: usize,
        /// The three largest buffers at the moment when most memory is in use, by layer or input.
        largest: Vec<(String, usize)>,
        /// The flag of the first alternative that fits, and what it needs.
        fits: Option<(String, usize)>,
        /// Whose plan it is and where the peak is.
        details: Box<OverBudgetDetails>,
    },
    /// The plan needs more memory than can be addressed.
    #[error("the plan needs more memory than can be addressed")]
    TooLarge,
    /// The backend aligns to something that is not a power of two.
    #[error("the backend aligns buffers to {0} bytes, which is not a power of two")]
    Alignment(usize),
    /// A plan violates its invariants, or belongs to another graph.
    #[error("the plan is invalid: {0}")]
    Broken(String),
}

/// More about a plan that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverBudgetDetails {
    /// The graph's name.
    pub graph: String,
    /// What runs when most memory is in use.
    pub peak: String,
    /// How many alternatives were planned as well.
    pub alternatives: usize,
    /// The least that the graph or any alternative needs, in bytes.
    pub least: usize,
}

/// Compares a plan with the budget; if it does not fit, looks for an alternative that does.
pub(super) fn check(
    plan: &Plan,
    graph: &Graph,
    target: &dyn Target,
    options: &PlanOptions<'_>,
) -> Result<(), PlanError> {
    let need = plan.peak_bytes();
    let Some(budget) = options.budget.filter(|&budget| need > budget) else { return Ok(()) };
    let mut fits = None;
    let (mut alternatives, mut least) = (0, need);
    for alternative in options.alternatives {
        // An alternative that cannot be built or planned does not count.
        let Ok(other) = (alternative.graph)() else { continue };
        let Ok(other) = Plan::without_budget(&other, target) else { continue };
        alternatives += 1;
        least = least.min(other.peak_bytes());
        if other.peak_bytes() <= budget {
            fits = Some((alternative.flag.clone(), other.peak_bytes()));
            break;
        }
    }
    let (peak, largest) = at_the_peak(plan, graph);
    Err(PlanError::OverBudget {
        need,
        budget,
        weights: plan.weight_bytes(),
        arena: plan.arena_bytes(),
        largest,
        fits,
        details: Box::new(OverBudgetDetails { graph: graph.name().to_owned(), peak, alternatives, least }),
    })
}

/// What runs when most memory is in use, and the three largest buffers then.
fn at_the_peak(plan: &Plan, graph: &Graph) -> (String, Vec<(String, usize)>) {
    let most = plan.lower_bound();
    let moment = plan.live.iter().position(|&bytes| bytes == most).unwrap_or(0);
    let layer = plan.at(moment).map(|(_, step)| graph.node(step.node).name.clone());
    let alive = plan.allocations.iter().filter(|a| a.first <= moment && moment <= a.last);
    let mut largest: Vec<(String, usize)> = alive
        .filter(|a| a.buffer.bytes > 0)
        .map(|a| {
            let name = match a.contents.iter().rev().find(|(made, _)| *made <= moment) {
                Some((_, value)) => graph.value(*value).name.clone(),
                None => format!("workspace of {}", layer.as_deref().unwrap_or("the graph")),
            };
            (name, a.buffer.bytes)
        })
        .collect();
    largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    largest.truncate(3);
    let layer = layer.map(|name| format!("layer {name}"));
    (layer.unwrap_or_else(|| "inputs and results".to_owned()), largest)
}

/// The text of [`PlanError::OverBudget`].
fn over_budget(
    need: usize,
    budget: usize,
    [weights, arena]: [usize; 2],
    largest: &[(String, usize)],
    fits: Option<&(String, usize)>,
    details: &OverBudgetDetails,
) -> impl fmt::Display {
    let sizes = [need, budget].map(format_bytes);
    // "12.0 GiB does not fit in 12.0 GiB": only the exact figures tell the two apart.
    let exact = sizes[0] == sizes[1];
    let [need, budget] = if exact { [need, budget].map(|n| format!("{n} bytes")) } else { sizes };
    let mut text = format!(
        "{} needs {need} (weights {}, activations {}), the budget is {budget}",
        details.graph,
        format_bytes(weights),
        format_bytes(arena),
    );
    if !largest.is_empty() {
        let list: Vec<String> =
            largest.iter().map(|(name, n)| format!("{name} {}", format_bytes(*n))).collect();
        text += &format!("; largest at the peak ({}): {}", details.peak, list.join(", "));
    }
    match fits {
        Some((flag, need)) => text += &format!("; {flag} would fit in {}", format_bytes(*need)),
        None if details.alternatives > 0 => {
            text +=
                &format!("; nothing that was tried fits; at least {} is needed", format_bytes(details.least));
        }
        None => {}
    }
    text
}

/// A number of bytes as a person reads it: `512 B`, `1.5 KiB`, `13.8 GiB`.
pub fn format_bytes(bytes: usize) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.96 would read "1024.0".
    while size >= 1023.95 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (13 << 30, "13.0 GiB"),
            (usize::MAX, "16.0 EiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(format_bytes(bytes), text);
        }
    }
}
