//! Two kernels for one task, side by side.

use serde::Serialize;

use super::Outcome;

/// A figure of both.
#[derive(Clone, Debug, Serialize)]
pub struct Quantity {
    /// What it is.
    pub name: &'static str,
    /// The first one's.
    pub first: Option<f64>,
    /// The second one's.
    pub second: Option<f64>,
}

impl Quantity {
    /// The second over the first.
    pub fn ratio(&self) -> Option<f64> {
        let (first, second) = (self.first?, self.second?);
        (first > 0.0).then(|| second / first)
    }
}

/// The figures of one: those of the time's size, over all launches.
fn figures(outcome: &Outcome) -> Vec<(&'static str, Option<f64>)> {
    let time = |predicted: bool| outcome.times.iter().find(|time| time.predicted == predicted);
    let seconds = |predicted: bool| time(predicted).map(|time| time.seconds);
    let launches = || time(true).map(|time| time.launches.as_slice()).unwrap_or_default();
    let sum = |of: &dyn Fn(&kinora_ptx::Prediction) -> f64| {
        let all = launches();
        (!all.is_empty())
            .then(|| all.iter().map(|launch| launch.launches as f64 * of(&launch.prediction)).sum::<f64>())
    };
    let registers = launches().iter().map(|launch| launch.prediction.registers).max().map(f64::from);
    let occupancy = launches().iter().map(|launch| launch.prediction.occupancy.share).reduce(f64::min);
    vec![
        ("measured time (s)", seconds(false)),
        ("predicted time (s)", seconds(true)),
        (
            "launches",
            (!launches().is_empty()).then(|| launches().iter().map(|launch| launch.launches as f64).sum()),
        ),
        ("registers per thread", registers),
        ("occupancy", occupancy),
        ("warp instructions", sum(&|p| p.counters.warp_instructions() as f64)),
        (
            "active lanes",
            sum(&|p| p.counters.lane_efficiency())
                .map(|sum| sum / launches().iter().map(|l| l.launches as f64).sum::<f64>()),
        ),
        ("divergent branches", sum(&|p| p.counters.divergent_branches as f64)),
        ("global load sectors", sum(&|p| p.counters.global_loads.transactions as f64)),
        ("global store sectors", sum(&|p| p.counters.global_stores.transactions as f64)),
        ("shared load wavefronts", sum(&|p| p.counters.shared_loads.transactions as f64)),
        (
            "bank conflicts",
            sum(&|p| (p.counters.shared_loads.conflicts + p.counters.shared_stores.conflicts) as f64),
        ),
        ("atomics", sum(&|p| p.counters.atomics as f64)),
        ("barriers", sum(&|p| p.counters.barriers as f64)),
        ("bytes of DRAM", sum(&|p| p.dram_bytes)),
        ("bytes of L2", sum(&|p| p.l2_bytes)),
        ("thread FLOP", sum(&|p| p.counters.thread_flops as f64)),
        ("matrix FLOP", sum(&|p| p.counters.matrix_flops as f64)),
    ]
}

/// The figures that at least one of them has.
pub fn quantities(first: &Outcome, second: &Outcome) -> Vec<Quantity> {
    let pairs = figures(first).into_iter().zip(figures(second));
    pairs
        .map(|((name, first), (_, second))| Quantity { name, first, second })
        .filter(|quantity| quantity.first.unwrap_or(0.0) != 0.0 || quantity.second.unwrap_or(0.0) != 0.0)
        .collect()
}

/// Both as text, in columns.
pub fn side_by_side(first: &Outcome, second: &Outcome) -> String {
    let name = |outcome: &Outcome| {
        kinora_outside::printable(&kinora_outside::shortened(&outcome.source, 30)).into_owned()
    };
    let verdict = |outcome: &Outcome| super::text::verdict_words(outcome.verdict);
    let width =
        [first, second].map(|outcome| name(outcome).chars().count().max(16)).into_iter().max().unwrap_or(16);
    let line = |title: &str, one: &str, other: &str, ratio: &str| {
        let text = format!("{title:<24}{one:>width$}  {other:>width$}  {ratio:>8}");
        format!("{}\n", text.trim_end())
    };
    let mut text = line("", &name(first), &name(second), "");
    text += &line("", verdict(first), verdict(second), "");
    for quantity in quantities(first, second) {
        let shown = |value: Option<f64>| value.map_or("-".to_owned(), |value| figure(quantity.name, value));
        let ratio = quantity.ratio().map_or(String::new(), |ratio| format!("{ratio:.2} x"));
        text += &line(
            quantity.name.trim_end_matches(" (s)"),
            &shown(quantity.first),
            &shown(quantity.second),
            &ratio,
        );
    }
    text
}

fn figure(name: &str, value: f64) -> String {
    match name {
        name if name.ends_with("(s)") => super::text::seconds(value),
        "occupancy" | "active lanes" => format!("{:.0} %", 100.0 * value),
        _ if value >= 1e6 => {
            let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M")];
            let (by, prefix) = prefixes.into_iter().find(|(by, _)| value >= *by).unwrap_or((1.0, ""));
            format!("{:.2} {prefix}", value / by)
        }
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_units() {
        assert_eq!(figure("predicted time (s)", 1.5e-5), "15.0 µs");
        assert_eq!(figure("occupancy", 0.5), "50 %");
        assert_eq!(figure("barriers", 1234.0), "1234");
        assert_eq!(figure("bytes of DRAM", 2.5e9), "2.50 G");
        let quantity = Quantity { name: "barriers", first: Some(2.0), second: Some(1.0) };
        assert_eq!(quantity.ratio(), Some(0.5));
        assert_eq!(Quantity { first: Some(0.0), ..quantity }.ratio(), None);
    }
}
