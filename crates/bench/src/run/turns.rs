//! Everyone who runs a case, turn by turn.

use std::{
    thread,
    time::{Duration, Instant},
};

use kinora_profile::Ceilings;

use crate::{
    BenchError, Distance, Estimate, Ratio,
    results::{CaseResults, Entry, KINORA, Method},
};

/// The pause between two turns: the threads of some libraries spin for milliseconds after their work, and would take the
/// cores of the next one.
const SETTLE: Duration = Duration::from_millis(10);

/// How far a single element may be from the other result, over the largest there: so many times the bar of the whole.
const ELEMENT_BAR: f64 = 10.0;

/// Something that can be run and timed.
pub trait Layer {
    /// Its result: as much of it as is compared.
    ///
    /// # Errors
    /// If it does not run.
    fn result(&mut self) -> Result<Vec<f32>, BenchError>;

    /// Runs it for about `seconds` and at least `least` times; gives the seconds of each run.
    ///
    /// # Errors
    /// As [`Layer::result`].
    fn time(&mut self, seconds: f64, least: usize) -> Result<Vec<f64>, BenchError>;
}

/// The seconds of runs, by their own measure: one that is not counted and warms up, then for about `seconds`, and at least
/// `least` of them.
pub(super) fn samples(
    seconds: f64,
    least: usize,
    mut once: impl FnMut() -> Result<f64, BenchError>,
) -> Result<Vec<f64>, BenchError> {
    once()?;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut samples = Vec::new();
    while samples.len() < least || Instant::now() < end {
        samples.push(once()?);
    }
    Ok(samples)
}

/// What is measured, as results describe it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// The kind of op, or `network`, `pipeline` or `stream`.
    pub family: String,
    /// Floating-point operations of a run.
    pub flops: u64,
    /// Bytes that a run must move at least.
    pub bytes: u64,
    /// How far results may be from ours, as relative root mean square.
    pub bar: f64,
    /// The least number of runs in a turn.
    pub least: usize,
}

/// One who runs a case.
pub struct Contestant<'a> {
    /// Who.
    pub by: String,
    /// The kernel, if one was chosen.
    pub kernel: Option<String>,
    /// What is run, or why it could not be prepared.
    pub layer: Result<Box<dyn Layer + 'a>, BenchError>,
}

/// A contestant with the turns that it has had.
struct Runner<'a> {
    by: String,
    kernel: Option<String>,
    /// What is run, until it fails.
    layer: Option<Box<dyn Layer + 'a>>,
    distance: Option<Distance>,
    turns: Vec<Vec<f64>>,
    failed: Option<String>,
}

impl<'a> Runner<'a> {
    fn new(contestant: Contestant<'a>) -> Runner<'a> {
        let Contestant { by, kernel, layer } = contestant;
        let mut runner = Runner { by, kernel, layer: None, distance: None, turns: Vec::new(), failed: None };
        match layer {
            Ok(layer) => runner.layer = Some(layer),
            Err(error) => runner.fail(error.with_causes()),
        }
        runner
    }

    fn fail(&mut self, why: String) {
        self.layer = None;
        self.failed = Some(why);
    }

    /// Runs it once. `None` if it has failed, or fails now.
    fn result(&mut self) -> Option<Vec<f32>> {
        match self.layer.as_mut()?.result() {
            Ok(result) if result.iter().all(|number| number.is_finite()) => Some(result),
            Ok(_) => {
                self.fail("its result is not finite".to_owned());
                None
            }
            Err(error) => {
                self.fail(error.with_causes());
                None
            }
        }
    }

    fn turn(&mut self, method: &Method, least: usize) {
        let Some(layer) = &mut self.layer else { return };
        match layer.time(method.seconds, least) {
            Ok(times) => self.turns.push(times),
            Err(error) => self.fail(error.with_causes()),
        }
    }
}

/// Lets everyone run a case; the first contestant is ours. Results are compared before anyone is timed, and a contestant
/// with a different result is not timed; our result is checked again at the end. Turns are short and many, so that other
/// load of the machine meets all contestants alike. Every other round goes in the opposite order, since each contestant
/// finds the device as the one before left it.
pub fn measure(
    subject: &Subject,
    contestants: Vec<Contestant<'_>>,
    method: &Method,
    ceilings: Option<&Ceilings>,
) -> CaseResults {
    let mut runners: Vec<Runner<'_>> = contestants.into_iter().map(Runner::new).collect();
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
        && first.result().is_some_and(|result| result != ours)
    {
        first.fail("its result after the timing differs from that before it".to_owned());
    }
    let our_turns = match runners.first() {
        Some(first) if first.failed.is_none() => first.turns.clone(),
        _ => Vec::new(),
    };
    let entries = runners.into_iter().map(|runner| entry(runner, subject, ceilings, &our_turns)).collect();
    CaseResults {
        name: subject.name.clone(),
        family: subject.family.clone(),
        flops: subject.flops,
        bytes: subject.bytes,
        entries,
    }
}

/// Runs everyone once; gives our result. Everyone is compared with us or, if we have no result, with the first who has.
fn compare(runners: &mut [Runner<'_>], bar: f64) -> Option<Vec<f32>> {
    let mut ours = None;
    let mut reference: Option<(String, Vec<f32>)> = None;
    for (place, runner) in runners.iter_mut().enumerate() {
        let Some(result) = runner.result() else { continue };
        let Some((by, expected)) = &reference else {
            ours = (place == 0).then(|| result.clone());
            reference = Some((runner.by.clone(), result));
            continue;
        };
        if result.len() != expected.len() {
            runner.fail(format!("its result has {} numbers, that of {by} {}", result.len(), expected.len()));
            continue;
        }
        let distance = Distance::between(&result, expected);
        runner.distance = Some(distance);
        let Distance { relative_rms, relative_largest, .. } = distance;
        // Written so that NaN does not pass.
        let near = relative_rms <= bar && relative_largest <= ELEMENT_BAR * bar;
        if !near && relative_rms <= bar {
            let most = ELEMENT_BAR * bar;
            runner.fail(format!(
                "an element differs from {by} by {relative_largest:.1e}, over {most:.0e}; not timed"
            ));
        } else if !near {
            runner.fail(format!("differs from {by} by {relative_rms:.1e}, over {bar:.0e}; not timed"));
        }
    }
    ours
}

fn entry(
    runner: Runner<'_>,
    subject: &Subject,
    ceilings: Option<&Ceilings>,
    our_turns: &[Vec<f64>],
) -> Entry {
    let Runner { by, kernel, distance, turns, failed, .. } = runner;
    let time = if failed.is_some() { None } else { Estimate::of(&turns) };
    let is_peer = !by.starts_with(KINORA);
    let ratio = if is_peer && failed.is_none() { Ratio::of(&turns, our_turns) } else { None };
    let entry = Entry::new(&by, time, (subject.flops, subject.bytes), ceilings);
    let distance = distance.filter(|_| by != KINORA).map(|distance| distance.relative_rms);
    Entry { kernel, ratio, distance, failed, ..entry }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::*;

    struct Fake {
        name: &'static str,
        result: Result<Vec<f32>, &'static str>,
        log: Rc<RefCell<Vec<&'static str>>>,
    }

    impl Layer for Fake {
        fn result(&mut self) -> Result<Vec<f32>, BenchError> {
            self.result.clone().map_err(|why| BenchError::PeerRefused(why.to_owned()))
        }

        fn time(&mut self, _: f64, least: usize) -> Result<Vec<f64>, BenchError> {
            self.log.borrow_mut().push(self.name);
            Ok(vec![1e-3; least])
        }
    }

    #[test]
    fn turns_alternate_and_results_that_differ_are_not_timed() {
        let log = Rc::new(RefCell::new(Vec::new()));
        let fake = |name: &'static str, result: Result<Vec<f32>, &'static str>| Contestant {
            by: name.to_owned(),
            kernel: None,
            layer: Ok(Box::new(Fake { name, result, log: log.clone() })),
        };
        let contestants = vec![
            fake(KINORA, Ok(vec![1.0, 2.0])),
            fake("peer", Ok(vec![1.0, 2.0])),
            fake("wrong", Ok(vec![1.0, 2.5])),
            fake("NaN", Ok(vec![1.0, f32::NAN])),
            fake("short", Ok(vec![1.0])),
            fake("broken", Err("no kernel")),
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
        assert_eq!(failures[2..], ["its result has 1 numbers, that of kinora 2", "no kernel"]);
        assert!(case.entries[2..].iter().all(|entry| entry.milliseconds.is_none()));
        assert!(case.ratio().is_some_and(|ratio| ratio == 1.0));
        assert_eq!(case.entries[1].ratio.as_ref().map(|ratio| ratio.interval), Some([1.0, 1.0]));
        assert_eq!((&ours.ratio, &case.entries[2].ratio), (&None, &None));

        // Without a result of ours, peers are compared with each other.
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
    #[test]
    fn a_single_element_may_not_be_far_off() {
        let mut theirs = vec![1.0; 10_000];
        theirs[5_000] = 1.02;
        let fake = |by: &str, result: Vec<f32>| Contestant {
            by: by.to_owned(),
            kernel: None,
            layer: Ok(Box::new(Fake { name: "fake", result: Ok(result), log: Rc::default() })),
        };
        let mut runners = [fake(KINORA, vec![1.0; 10_000]), fake("peer", theirs)].map(Runner::new);
        // As a whole they differ by 2e-4.
        compare(&mut runners, 1e-3);
        assert_eq!(
            runners[1].failed.as_deref(),
            Some("an element differs from kinora by 2.0e-2, over 1e-2; not timed")
        );
    }
}
