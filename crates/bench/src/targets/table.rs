//! Promised figures as a table for the terminal.

use std::fmt::Write as _;

use super::{Goal, Judgement, Outcome};

/// The width of the column of names.
const NAME: usize = 42;

/// Every target beside its goal. An empty text without targets.
pub fn table(targets: &[Judgement], on_cpu: bool) -> String {
    let mut text = String::new();
    if targets.is_empty() {
        return text;
    }
    let _ = writeln!(text, "\n  {:<NAME$} {:>14} {:>9} {:>18}", "target", "goal", "measured", "within");
    for judgement in targets {
        let _ = writeln!(text, "{}", row(judgement));
    }
    let count = |outcome| targets.iter().filter(|judgement| judgement.outcome == outcome).count();
    let [passed, failed, open] = [Outcome::Pass, Outcome::Fail, Outcome::NotMeasured].map(count);
    let _ = writeln!(text, "  {passed} passed, {failed} failed, {open} not measured");
    if on_cpu {
        text += "  The goals are those of a GPU; these are layers and a small network on the CPU.\n";
    }
    text
}

fn row(judgement: &Judgement) -> String {
    let Judgement { target, goal, measured, interval, outcome, .. } = judgement;
    let begin = format!("  {target:<NAME$} {:>14}", promised(*goal));
    let (Some(measured), Some([low, high])) = (measured, interval) else {
        let why = judgement.why.as_deref().unwrap_or("no time");
        return format!("{begin} {:>9} {:>18}  not measured: {why}", "–", "");
    };
    let verdict = match (outcome, judgement.sure) {
        (Outcome::Pass, Some(false)) => "pass, not surely",
        (Outcome::Pass, _) => "pass",
        (_, Some(false)) => "fail, not surely",
        _ => "fail",
    };
    let within = format!("{} to {}", figure(*goal, *low), figure(*goal, *high));
    let mut line = format!("{begin} {:>9} {within:>18}  {verdict}", figure(*goal, *measured));
    if let Some(over) = &judgement.over {
        let _ = write!(line, ", over {over}");
    }
    if judgement.case.contains(", ") {
        let _ = write!(line, " ({})", judgement.case);
    }
    line
}

/// The goal in words.
fn promised(goal: Goal) -> String {
    match goal {
        Goal::Speedup { least, most: Some(most) } => format!("{least} to {most}×"),
        Goal::Speedup { least, most: None } => format!("over {least}×"),
        Goal::LessTime { least, most: Some(most) } => {
            format!("−{:.0} to −{:.0} %", 100.0 * least, 100.0 * most)
        }
        Goal::LessTime { least, most: None } => format!("−{:.0} %", 100.0 * least),
    }
}

/// A figure in the goal's measure.
fn figure(goal: Goal, figure: f64) -> String {
    match goal {
        Goal::Speedup { .. } => format!("{figure:.2}×"),
        Goal::LessTime { .. } => {
            let sign = if figure >= 0.0 { '−' } else { '+' };
            format!("{sign}{:.1} %", 100.0 * figure.abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::{Means, TARGETS};

    #[test]
    fn a_row_has_the_goal_the_figure_and_the_verdict() {
        let means = Means { gpu: false, cpu: true, peers: false };
        let mut judgements: Vec<Judgement> = TARGETS.iter().map(|target| target.judge(&[], means)).collect();
        judgements[0] = Judgement {
            over: Some("PyTorch unfused".into()),
            measured: Some(2.346),
            interval: Some([2.2, 2.5]),
            outcome: Outcome::Pass,
            sure: Some(true),
            why: None,
            ..judgements[0].clone()
        };
        judgements[7] = Judgement {
            case: "sampler.svd, reduced".into(),
            over: Some("PyTorch eager".into()),
            measured: Some(-0.05),
            interval: Some([-0.1, 0.21]),
            outcome: Outcome::Fail,
            sure: Some(false),
            why: None,
            ..judgements[7].clone()
        };
        let text = table(&judgements, true);
        let line = |name: &str| {
            let line = text.lines().find(|line| line.contains(name)).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            line("attention 2×8×64×64"),
            "attention 2×8×64×64 2 to 3× 2.35× 2.20× to 2.50× pass, over PyTorch unfused"
        );
        assert_eq!(
            line("sampler step"),
            "sampler step −20 to −30 % +5.0 % +10.0 % to −21.0 % fail, not surely, over PyTorch eager (sampler.svd, reduced)"
        );
        assert_eq!(line("guided step"), "guided step of a clip −30 to −40 % – not measured: needs PyTorch");
        assert_eq!(line("fused kernels"), "fused kernels over 1× – not measured: needs a GPU");
        assert!(text.contains("1 passed, 1 failed, 8 not measured"), "{text}");
        assert!(text.contains("goals are those of a GPU"));
        assert_eq!(table(&[], false), "");
    }

    #[test]
    fn judgements_are_kept_as_json() {
        let judgement = TARGETS[0].judge(&[], Means { gpu: true, cpu: false, peers: false });
        let json = serde_json::to_value(&judgement).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "target": "attention 2×8×64×64", "case": "attention.small_2x8x64",
                "goal": {"kind": "speedup", "least": 2.0, "most": 3.0},
                "outcome": "not_measured", "why": "needs PyTorch",
            })
        );
        assert_eq!(serde_json::from_value::<Judgement>(json).unwrap(), judgement);
    }
}
