//! Why a kernel is as slow as it is, and what to try next.
//!
//! Every piece of advice is a question to the simulator: how long would the kernel take without this cost? Counters by source line say which
//! questions are worth asking; the predictions' differences rank the answers. So a gain is an upper bound, by a model of the chip.

mod candidates;
pub(crate) mod page;
mod rule;
mod text;

use kinora_ptx::{
    Calibration, ChipSpec, LaunchConfig, LinePrediction, Mended, Module, PredictOptions, Prediction,
    PtxError, Resource, Simulator, SourceLine,
};
use serde::Serialize;

pub use rule::Rule;
pub(crate) use text::{number_text, time};

use self::candidates::{Candidate, Question, candidates};

/// A smaller gain is not worth telling.
const LEAST_GAIN: f64 = 1.03;

/// Scores, which are logarithms of gains, that differ by less count as equal.
const EQUAL: f64 = 0.04;

/// The kernel that is to be explained.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Holds its memory, and the chip.
    pub simulator: &'a Simulator,
    /// Its module.
    pub module: &'a Module,
    /// Its name.
    pub kernel: &'a str,
    /// The launch.
    pub config: &'a LaunchConfig,
    /// Registers of a thread, if the assembler says so.
    pub registers: Option<u32>,
    /// Bytes that a thread spills.
    pub spill_bytes: u32,
    /// What was measured on a chip of the kind.
    pub calibration: &'a Calibration,
    /// The sources by the names that they were compiled under.
    pub sources: &'a [(String, String)],
}

/// A number that supports a piece of advice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is, in words.
    pub name: &'static str,
    /// Nsight Compute's metric.
    pub metric: Option<&'static str>,
    /// The number.
    pub value: f64,
    /// What it would be at best.
    pub ideal: Option<f64>,
}

/// A piece of advice.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// What is wrong.
    pub rule: Rule,
    /// The rule's name for people.
    pub title: &'static str,
    /// The line that costs most.
    pub line: Option<SourceLine>,
    /// Its text, if the source is known.
    pub excerpt: Option<String>,
    /// What happens there.
    pub what: String,
    /// The numbers behind it.
    pub figures: Vec<Figure>,
    /// What to try.
    pub advice: &'static str,
    /// Predicted seconds without this cost; `None` if the simulator cannot tell.
    pub seconds: Option<f64>,
    /// How many times as fast the kernel would be, at most.
    pub gain: Option<f64>,
    /// What would limit it then.
    pub next_limiter: Option<Resource>,
}

/// A line of the source and what it costs.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedLine {
    /// Its text, if the source is known.
    pub text: Option<String>,
    /// Its counters and waits.
    #[serde(flatten)]
    pub cost: LinePrediction,
    /// The share of a warp's time that is spent there.
    pub share: f64,
}

/// Where a kernel is under the chip's roofs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Roofline {
    /// Floating-point operations of the launch.
    pub flops: f64,
    /// Bytes to and from device memory.
    pub dram_bytes: f64,
    /// Bytes per second of the chip's memory.
    pub peak_bytes: f64,
    /// Operations per second of the units for f32.
    pub peak_flops: f64,
    /// Operations per second of the tensor cores.
    pub peak_tensor_flops: f64,
}

/// What a kernel's time consists of, and what to try next.
#[derive(Clone, Debug, Serialize)]
pub struct Feedback {
    /// The kernel, as the code calls it.
    pub kernel: String,
    /// Its name in the source.
    pub function: String,
    /// The chip.
    pub chip: String,
    /// The prediction as it is.
    pub prediction: Prediction,
    /// What to try, the most promising first.
    pub advice: Vec<Advice>,
    /// The lines that cost most, the costliest first.
    pub lines: Vec<ExplainedLine>,
    /// Where it is under the roofs.
    pub roofline: Roofline,
}

/// Explains a kernel.
///
/// # Errors
/// If it cannot be predicted.
pub fn explain(subject: &Subject<'_>) -> Result<Feedback, PtxError> {
    let ask = |by_line: bool, mended: Vec<Mended>, full_occupancy: bool| {
        let options = PredictOptions {
            registers: subject.registers,
            calibration: subject.calibration.clone(),
            follows: false,
            by_line,
            mended,
            full_occupancy,
        };
        subject.simulator.predict(subject.module, subject.kernel, subject.config, &options)
    };
    let base = ask(true, Vec::new(), false)?;
    let chip = subject.simulator.chip();
    let mut advice = Vec::new();
    for candidate in candidates(subject, &base) {
        let answer = match &candidate.question {
            Question::Mended(mended) => Some(ask(false, mended.clone(), false)?),
            Question::FullOccupancy => Some(ask(false, Vec::new(), true)?),
            Question::Seconds(_) | Question::Unknown => None,
        };
        let seconds = match (&answer, &candidate.question) {
            (Some(answer), _) => Some(answer.seconds),
            (None, Question::Seconds(seconds)) => Some(*seconds),
            (None, _) => None,
        };
        let gain = seconds.map(|seconds| base.seconds / seconds.max(f64::MIN_POSITIVE));
        if gain.is_none_or(|gain| gain >= LEAST_GAIN) {
            let next_limiter = answer.map(|answer| answer.limiter);
            advice.push(advise(subject, candidate, seconds, gain, next_limiter));
        }
    }
    rank(&mut advice);
    let lines = explained_lines(subject, &base);
    let roofline = roofline(chip, &base);
    Ok(Feedback {
        kernel: subject.kernel.to_owned(),
        function: crate::compile::base_name(subject.kernel).to_owned(),
        chip: chip.name.clone(),
        prediction: base,
        advice,
        lines,
        roofline,
    })
}

fn advise(
    subject: &Subject<'_>,
    candidate: Candidate,
    seconds: Option<f64>,
    gain: Option<f64>,
    next_limiter: Option<Resource>,
) -> Advice {
    let Candidate { rule, line, what, figures, .. } = candidate;
    let excerpt = line.as_ref().and_then(|line| text_of(subject.sources, line));
    let (title, advice) = (rule.title(), rule.advice());
    Advice { rule, title, line, excerpt, what, figures, advice, seconds, gain, next_limiter }
}

/// The largest gain first; of gains that are nearly equal, what is easiest to mend.
fn rank(advice: &mut Vec<Advice>) {
    let score = |advice: &Advice| advice.gain.unwrap_or(1.0).ln() * advice.rule.ease();
    advice.sort_by(|a, b| score(b).total_cmp(&score(a)));
    let mut ranked: Vec<Advice> = Vec::with_capacity(advice.len());
    while !advice.is_empty() {
        let best = score(&advice[0]);
        let near = |advice: &Advice| score(advice) >= best - EQUAL;
        let easiest = advice.iter().enumerate().filter(|(_, advice)| near(advice));
        let place = easiest.min_by_key(|(_, advice)| advice.rule).map_or(0, |(place, _)| place);
        ranked.push(advice.remove(place));
    }
    *advice = ranked;
}

/// The text of a line.
fn text_of(sources: &[(String, String)], line: &SourceLine) -> Option<String> {
    let (_, text) = sources.iter().find(|(name, _)| *name == line.file)?;
    text.lines().nth(line.line.checked_sub(1)? as usize).map(|text| text.trim().to_owned())
}

fn explained_lines(subject: &Subject<'_>, base: &Prediction) -> Vec<ExplainedLine> {
    let lines = base.by_line.as_ref().map_or(&[][..], |by_line| &by_line.source);
    let total: f64 = lines.iter().map(|line| line.stalls.total()).sum();
    let explained = |cost: &LinePrediction| ExplainedLine {
        text: cost.line.source.as_ref().and_then(|line| text_of(subject.sources, line)),
        cost: cost.clone(),
        share: cost.stalls.total() / total.max(f64::MIN_POSITIVE),
    };
    let mut explained: Vec<ExplainedLine> = lines.iter().map(explained).collect();
    explained.sort_by(|a, b| b.share.total_cmp(&a.share));
    explained
}

fn roofline(chip: &ChipSpec, base: &Prediction) -> Roofline {
    let multiprocessors = f64::from(chip.multiprocessors);
    Roofline {
        flops: (base.counters.thread_flops + base.counters.matrix_flops) as f64,
        dram_bytes: base.dram_bytes,
        peak_bytes: chip.memory.dram_bytes,
        peak_flops: 2.0 * chip.units.float * multiprocessors * chip.clock_hz,
        peak_tensor_flops: chip.tensor_flops(),
    }
}
