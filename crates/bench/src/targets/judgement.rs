//! Whether a promised figure was reached.

use serde::{Deserialize, Serialize};

use super::{BASELINE, Goal, Over, Target, TargetCase};
use crate::{Ratio, cases::is_case, results::CaseResults};

/// What a run had to measure with.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    /// Whether a GPU ran.
    pub gpu: bool,
    /// Whether the CPU ran instead, as it was asked to.
    pub cpu: bool,
    /// Whether peers were asked for.
    pub peers: bool,
}

/// Whether a goal was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was.
    Pass,
    /// It was not.
    Fail,
    /// Nobody knows.
    NotMeasured,
}

/// A promised figure beside what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// What it is of.
    pub target: String,
    /// The case that was measured, or would have been.
    pub case: String,
    /// What was promised.
    pub goal: Goal,
    /// Who the peer was, if there was one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub over: Option<String>,
    /// The figure in the goal's own measure: times the speed, or the share of time saved.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub measured: Option<f64>,
    /// Its confidence interval.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interval: Option<[f64; 2]>,
    /// Whether the goal was reached.
    pub outcome: Outcome,
    /// Whether the whole interval says the same.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sure: Option<bool>,
    /// Why nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

impl Goal {
    /// The goal's own figure, of the peer's time over ours.
    pub fn figure(self, ratio: f64) -> f64 {
        match self {
            Goal::Speedup { .. } => ratio,
            Goal::LessTime { .. } => 1.0 - 1.0 / ratio,
        }
    }

    /// Whether a figure reaches the goal. Not a number does not.
    pub fn is_reached(self, figure: f64) -> bool {
        let (Goal::Speedup { least, .. } | Goal::LessTime { least, .. }) = self;
        figure >= least
    }
}

impl Target {
    /// The judgement by the cases of a run.
    pub fn judge(&self, cases: &[CaseResults], means: Means) -> Judgement {
        let base = self.case.name();
        let case = cases.iter().find(|case| is_case(&case.name, base));
        let judgement = Judgement {
            target: self.name.to_owned(),
            case: case.map_or(base, |case| &case.name).to_owned(),
            goal: self.goal,
            over: None,
            measured: None,
            interval: None,
            outcome: Outcome::NotMeasured,
            sure: None,
            why: None,
        };
        let measured = match case {
            None => Err(self.cannot(means, "the run ended before it")),
            Some(case) => self.ratio(case, means),
        };
        match measured {
            Err(why) => Judgement { why: Some(why), ..judgement },
            Ok((over, ratio)) => {
                let figure = self.goal.figure(ratio.median);
                let interval = ratio.interval.map(|end| self.goal.figure(end));
                let reached = self.goal.is_reached(figure);
                Judgement {
                    over: Some(over),
                    measured: Some(figure),
                    interval: Some(interval),
                    outcome: if reached { Outcome::Pass } else { Outcome::Fail },
                    sure: Some(interval.iter().all(|&end| self.goal.is_reached(end) == reached)),
                    ..judgement
                }
            }
        }
    }

    /// The peer's name, and its time over ours; or why it was not measured.
    fn ratio(&self, case: &CaseResults, means: Means) -> Result<(String, Ratio), String> {
        let failure = |why: &str| format!("it failed: {why}");
        match case.ours() {
            Some(ours) if ours.failed.is_some() => {
                return Err(failure(ours.failed.as_deref().unwrap_or_default()));
            }
            Some(_) => {}
            None => return Err("there is no time of Kinora's".to_owned()),
        }
        let peer = match self.over {
            Over::Fastest => case.best_peer().map(|(peer, _)| peer),
            Over::Way(way) => case.entries.iter().find(|entry| entry.by == format!("PyTorch {way}")),
            Over::Baseline => case.entries.iter().find(|entry| entry.by == BASELINE),
        };
        let peer = peer.ok_or_else(|| self.cannot(means, "PyTorch did not run it"))?;
        match (&peer.ratio, &peer.failed) {
            (Some(ratio), None) => Ok((peer.by.clone(), ratio.clone())),
            (_, Some(why)) => Err(format!("{}: {why}", peer.by)),
            (None, None) => Err(format!("{} has no time", peer.by)),
        }
    }

    /// What a run lacked, or else what happened.
    fn cannot(&self, means: Means, otherwise: &str) -> String {
        match self.case {
            _ if !means.gpu && !means.cpu => "needs a GPU".to_owned(),
            TargetCase::KernelSets if !means.gpu => "needs a GPU".to_owned(),
            TargetCase::Layer(_) | TargetCase::Unet if !means.peers => "needs PyTorch".to_owned(),
            _ => otherwise.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Estimate,
        results::{Entry, KINORA},
        targets::TARGETS,
    };

    const ALL: Means = Means { gpu: true, cpu: false, peers: true };
    const CPU: Means = Means { gpu: false, cpu: true, peers: true };

    fn target(name: &str) -> Target {
        TARGETS.into_iter().find(|target| target.name == name).unwrap()
    }

    /// A case of which every contestant took so many milliseconds.
    fn case(name: &str, times: &[(&str, f64)]) -> CaseResults {
        let seconds = |time: f64| vec![vec![time / 1e3]; 3];
        let ours = seconds(times[0].1);
        let entry = |&(by, time): &(&str, f64)| Entry {
            ratio: (by != KINORA).then(|| Ratio::of(&seconds(time), &ours).unwrap()),
            ..Entry::new(by, Estimate::of(&seconds(time)), (0, 0), None)
        };
        let entries = times.iter().map(entry).collect();
        CaseResults { name: name.into(), family: "conv".into(), flops: 0, bytes: 0, entries }
    }

    fn judged(name: &str, case: CaseResults) -> (Outcome, f64, String) {
        let judgement = target(name).judge(&[case], ALL);
        assert_eq!(judgement.why, None);
        (judgement.outcome, judgement.measured.unwrap(), judgement.over.unwrap())
    }

    #[test]
    fn a_goal_is_the_lower_end_of_what_was_promised() {
        for (theirs, outcome) in [(4.0, Outcome::Pass), (7.0, Outcome::Pass), (3.9, Outcome::Fail)] {
            let times = [(KINORA, 2.0), ("PyTorch eager", 1.0), ("PyTorch unfused", theirs)];
            let found = judged("attention 2×8×77×64", case("attention.small_2x8x77", &times));
            assert_eq!(found, (outcome, theirs / 2.0, "PyTorch unfused".to_owned()));
        }
        for (ours, outcome) in [(7.9, Outcome::Pass), (8.1, Outcome::Fail), (11.0, Outcome::Fail)] {
            let times = [(KINORA, ours), ("PyTorch eager", 10.0)];
            let (found, saved, _) = judged("sampler step", case("sampler.svd", &times));
            assert!((saved - (1.0 - ours / 10.0)).abs() < 1e-9, "{saved}");
            assert_eq!(found, outcome, "{ours}");
        }
        // The guided step has a goal of its own.
        let step = |ours| {
            judged("guided step of a clip", case("unet", &[(KINORA, ours), ("PyTorch eager", 10.0)])).0
        };
        assert_eq!([step(6.9), step(7.1)], [Outcome::Pass, Outcome::Fail]);
    }

    #[test]
    fn the_fastest_of_pytorchs_ways_counts_for_convolutions() {
        let times =
            [(KINORA, 1.0), ("PyTorch cuDNN channels first", 2.0), ("PyTorch cuDNN channels last", 1.4)];
        let found = judged("temporal convolution, 640 channels", case("conv.svd_temporal1, reduced", &times));
        assert_eq!((found.0, found.2.as_str()), (Outcome::Fail, "PyTorch cuDNN channels last"));
        let sets = case("kernel sets", &[(KINORA, 1.0), (BASELINE, 1.2)]);
        assert_eq!(judged("fused kernels", sets).0, Outcome::Pass);
    }

    #[test]
    fn what_was_not_measured_says_why_and_never_passes() {
        let alone = || case("attention.small_2x8x64", &[(KINORA, 1.0)]);
        let attention = target("attention 2×8×64×64");
        let why = |target: Target, cases: &[CaseResults], means: Means| {
            let judgement = target.judge(cases, means);
            assert_eq!((judgement.outcome, judgement.measured), (Outcome::NotMeasured, None));
            judgement.why.unwrap()
        };
        assert_eq!(why(attention, &[alone()], Means { peers: false, ..CPU }), "needs PyTorch");
        assert_eq!(why(attention, &[], Means { peers: false, ..ALL }), "needs PyTorch");
        assert_eq!(why(attention, &[alone()], ALL), "PyTorch did not run it");
        assert_eq!(why(attention, &[], ALL), "the run ended before it");
        assert_eq!(why(target("fused kernels"), &[], CPU), "needs a GPU");
        assert_eq!(why(attention, &[], Means { cpu: false, ..CPU }), "needs a GPU");
        let mut failed = case("attention.small_2x8x64", &[(KINORA, 1.0), ("PyTorch unfused", 9.0)]);
        failed.entries[1] = Entry::failed("PyTorch unfused", "no memory");
        assert_eq!(why(attention, &[failed.clone()], ALL), "PyTorch unfused: no memory");
        failed.entries[0] = Entry::failed(KINORA, "no kernel");
        assert_eq!(why(attention, &[failed], ALL), "it failed: no kernel");
        let mut unknown = case("attention.small_2x8x64", &[(KINORA, 1.0), ("PyTorch unfused", 9.0)]);
        unknown.entries[1].ratio.as_mut().unwrap().median = f64::NAN;
        assert_eq!(attention.judge(&[unknown], ALL).outcome, Outcome::Fail);
    }

    #[test]
    fn a_verdict_is_sure_if_the_whole_interval_says_the_same() {
        let with = |interval: [f64; 2]| {
            let mut case = case("attention.small_2x8x64", &[(KINORA, 1.0), ("PyTorch unfused", 3.0)]);
            case.entries[1].ratio.as_mut().unwrap().interval = interval;
            let judgement = target("attention 2×8×64×64").judge(&[case], ALL);
            assert_eq!(judgement.outcome, Outcome::Pass);
            judgement.sure
        };
        assert_eq!([with([2.5, 3.5]), with([1.9, 3.5])], [Some(true), Some(false)]);
        let missed = case("sampler.svd", &[(KINORA, 9.0), ("PyTorch eager", 10.0)]);
        assert_eq!(target("sampler step").judge(&[missed], ALL).sure, Some(true));
    }
}
