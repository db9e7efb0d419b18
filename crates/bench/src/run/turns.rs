//! Everyone who runs a case, turn by turn.

use std::{thread, time::Duration};

use kinora_profile::Ceilings;

use crate::{
    Distance, Estimate,
    results::{CaseResults, Entry, KINORA, Method},
};

/// Between two turns: the threads of some libraries spin for milliseconds after their work, and would take the next one's cores.
const SETTLE: Duration = Duration::from_millis(10);

/// Something that can be run and timed.
pub trait Layer {
    /// What it computes: as much of it as is compared.
    ///
    /// # Errors
    /// Where it does not run, in words.
    fn result(&mut self) -> Result<Vec<f32>, String>;

    /// Runs it for about so many seconds and at least so many times, and gives the seconds of each run.
    ///
    /// # Errors
    /// As [`Layer::result`].
    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, String>;
}

/// A case as it is told of.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// What kind of op, or which network, it is.
    pub family: String,
    /// Floating-point operations of a run.
    pub flops: u64,
    /// Bytes that a run has to move at the least.
    pub bytes: u64,
    /// How far others may be from us, in root mean squares.
    pub bar: f64,
    /// The least runs of a turn.
    pub least: usize,
}

/// One who runs a case.
pub struct Contestant<'a> {
    /// Who.
    pub by: String,
    /// The kernel, where one was chosen.
    pub kernel: Option<String>,
    /// What it does.
    pub layer: Box<dyn Layer + 'a>,
}

/// A contestant who is still in it, with the turns that it has had.
struct Runner<'a> {
    contestant: Contestant<'a>,
    distance: Option<Distance>,
    turns: Vec<Vec<f64>>,
    failed: Option<String>,
}

impl Runner<'_> {
    fn turn(&mut self, method: &Method, least: usize) {
        if self.failed.is_some() {
            return;
        }
        match self.contestant.layer.time(method.seconds, least) {
            Ok(times) => self.turns.push(times),
            Err(why) => self.failed = Some(why),
        }
    }
}

/// Lets everyone run a case, the first of whom are we. Results are compared before anyone is timed, and one whose result is
/// another is not; ours is looked at once more afterwards. Turns are short and many, so that what else the machine does meets all
/// alike, and every other one goes in the opposite order, since whoever follows finds the device as the one before left it.
pub fn measure(
    subject: &Subject,
    contestants: Vec<Contestant<'_>>,
    method: &Method,
    ceilings: Option<&Ceilings>,
) -> CaseResults {
    let mut runners: Vec<Runner<'_>> = contestants
        .into_iter()
        .map(|contestant| Runner { contestant, distance: None, turns: Vec::new(), failed: None })
        .collect();
    let ours = compare(&mut runners, subject.bar);
    let alone = runners.len() == 1;
    for turn in 0..method.turns {
        let order: Box<dyn Iterator<Item = &mut Runner<'_>>> =
            if turn % 2 == 0 { Box::new(runners.iter_mut()) } else { Box::new(runners.iter_mut().rev()) };
        for runner in order {
            if !alone {
                thread::sleep(SETTLE);
            }
            runner.turn(method, subject.least);
        }
    }
    if let (Some(first), Some(ours)) = (runners.first_mut(), ours)
        && first.failed.is_none()
        && first.contestant.layer.result().as_ref() != Ok(&ours)
    {
        first.failed = Some("another result after the timing than before it".to_owned());
    }
    let entries = runners.into_iter().map(|runner| entry(runner, subject, ceilings)).collect();
    CaseResults {
        name: subject.name.clone(),
        family: subject.family.clone(),
        flops: subject.flops,
        bytes: subject.bytes,
        entries,
    }
}

/// Runs everyone once; gives our result. Everyone is held against us, or where we have none, against the first who has one.
fn compare(runners: &mut [Runner<'_>], bar: f64) -> Option<Vec<f32>> {
    let mut ours = None;
    let mut held_against: Option<(String, Vec<f32>)> = None;
    for (place, runner) in runners.iter_mut().enumerate() {
        let result = match runner.contestant.layer.result() {
            Ok(result) if result.iter().all(|number| number.is_finite()) => result,
            Ok(_) => {
                runner.failed = Some("its result is not finite".to_owned());
                continue;
            }
            Err(why) => {
                runner.failed = Some(why);
                continue;
            }
        };
        let Some((by, other)) = &held_against else {
            ours = (place == 0).then(|| result.clone());
            held_against = Some((runner.contestant.by.clone(), result));
            continue;
        };
        if result.len() != other.len() {
            runner.failed = Some(format!("{} numbers, where {by} has {}", result.len(), other.len()));
            continue;
        }
        let distance = Distance::between(&result, other);
        runner.distance = Some(distance);
        // What is no number must not pass.
        if distance.relative_rms.is_nan() || distance.relative_rms > bar {
            let off = distance.relative_rms;
            runner.failed = Some(format!("differs from {by} by {off:.1e}, over {bar:.0e}; not timed"));
        }
    }
    ours
}

fn entry(runner: Runner<'_>, subject: &Subject, ceilings: Option<&Ceilings>) -> Entry {
    let Runner { contestant: Contestant { by, kernel, .. }, distance, turns, failed } = runner;
    let time = if failed.is_some() { None } else { Estimate::of(&turns) };
    let entry = Entry::new(&by, time, (subject.flops, subject.bytes), ceilings);
    let distance = distance.filter(|_| by != KINORA).map(|distance| distance.relative_rms);
    Entry { kernel, distance, failed, ..entry }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::*;

    struct Fake {
        name: &'static str,
        result: Result<Vec<f32>, String>,
        log: Rc<RefCell<Vec<&'static str>>>,
    }

    impl Layer for Fake {
        fn result(&mut self) -> Result<Vec<f32>, String> {
            self.result.clone()
        }

        fn time(&mut self, _: f64, least: usize) -> Result<Vec<f64>, String> {
            self.log.borrow_mut().push(self.name);
            Ok(vec![1e-3; least])
        }
    }

    #[test]
    fn turns_alternate_and_those_who_differ_are_not_timed() {
        let log = Rc::new(RefCell::new(Vec::new()));
        let fake = |name: &'static str, result: Result<Vec<f32>, String>| Contestant {
            by: name.to_owned(),
            kernel: None,
            layer: Box::new(Fake { name, result, log: log.clone() }),
        };
        let contestants = vec![
            fake(KINORA, Ok(vec![1.0, 2.0])),
            fake("peer", Ok(vec![1.0, 2.0])),
            fake("wrong", Ok(vec![1.0, 2.5])),
            fake("NaN", Ok(vec![1.0, f32::NAN])),
            fake("short", Ok(vec![1.0])),
            fake("broken", Err("no kernel".into())),
        ];
        let subject = Subject {
            name: "case".into(),
            family: "conv".into(),
            flops: 1_000_000,
            bytes: 4_000,
            bar: 1e-3,
            least: 3,
        };
        let ceilings = Ceilings { flops_per_second: 2e9, bytes_per_second: 1e9, launch_nanoseconds: 1.0 };
        let method = Method { turns: 2, seconds: 0.0, runs: 3, copies: 1 };
        let case = measure(&subject, contestants, &method, Some(&ceilings));
        assert_eq!(*log.borrow(), [KINORA, "peer", "peer", KINORA]);
        let ours = &case.entries[0];
        assert_eq!(ours.milliseconds.as_ref().map(|time| (time.median, time.runs)), Some((1.0, 6)));
        // A million operations take half a millisecond at best, and took one.
        assert!((ours.of_ceiling.unwrap() - 0.5).abs() < 1e-12);
        assert_eq!((ours.distance, case.entries[1].distance), (None, Some(0.0)));
        let failures: Vec<&str> =
            case.entries[2..].iter().map(|entry| entry.failed.as_deref().unwrap()).collect();
        assert!(failures[0].starts_with("differs from kinora by 2.2e-1"), "{failures:?}");
        assert!(failures[1] == "its result is not finite", "{failures:?}");
        assert_eq!(failures[2..], ["1 numbers, where kinora has 2", "no kernel"]);
        assert!(case.entries[2..].iter().all(|entry| entry.milliseconds.is_none()));
        assert!(case.ratio().is_some_and(|ratio| ratio == 1.0));

        // Where ours is no result, it alone is to blame.
        let contestants = vec![
            fake(KINORA, Ok(vec![f32::INFINITY, 2.0])),
            fake("peer", Ok(vec![1.0, 2.0])),
            fake("other", Ok(vec![1.0, 3.0])),
        ];
        let case = measure(&subject, contestants, &method, None);
        let failures: Vec<Option<&str>> = case.entries.iter().map(|entry| entry.failed.as_deref()).collect();
        assert_eq!(failures[..2], [Some("its result is not finite"), None]);
        assert!(failures[2].unwrap().starts_with("differs from peer"), "{failures:?}");
    }
}
