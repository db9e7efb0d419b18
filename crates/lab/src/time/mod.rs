//! How long a task takes: predicted by the simulator or, on a GPU, measured.

#[cfg(feature = "cuda")]
mod counters;
#[cfg(feature = "cuda")]
pub(crate) mod gpu;
#[cfg(feature = "cuda")]
mod pytorch;

use kinora_ptx::{Checks, ChipSpec};

use crate::{
    attempt::{Manner, Placed, launches},
    case::content_for_time,
    execute::{Device, ExecuteError, SimulatedDevice},
    feedback::Feedback,
    report::{LaunchTime, Roofline, TimeOutcome},
    run::{Options, Subject},
    task::Task,
};

/// The most bytes of buffers that are filled for a prediction. Beyond them, memory is only reserved, and reads as zeros.
const FILLED_BYTES: u64 = 256 << 20;

/// The most launches that are predicted one by one.
const MAX_LAUNCHES: usize = 64;

/// Predicts a task's time on the chip, and explains the launch that takes longest, if that is asked for.
pub(crate) fn predict(
    subject: &Subject<'_>,
    options: &Options,
) -> Result<(TimeOutcome, Option<Feedback>), String> {
    let task = subject.task;
    let scope = task.scope(&task.time).map_err(|error| error.to_string())?;
    let bytes = task.bytes(&scope).map_err(|error| error.to_string())?;
    let filled = bytes <= FILLED_BYTES;
    let mut notes = Vec::new();
    let mut device = match filled {
        true => SimulatedDevice::new(options.chip.clone(), Checks { races: false, ..Checks::default() }),
        false => {
            notes.push("buffers of this size are not filled: branches and addresses that depend on data behave as if it were zero".to_owned());
            SimulatedDevice::for_predictions(options.chip.clone())
        }
    }
    .calibrated(options.calibration.clone());
    let given: Result<Vec<Vec<u8>>, _> = task
        .buffers
        .iter()
        .enumerate()
        .map(|(number, buffer)| {
            if filled { content_for_time(task, buffer, &scope, options.seed, number) } else { Ok(Vec::new()) }
        })
        .collect();
    let given = given.map_err(|problem| problem.message)?;
    let failed = |error: ExecuteError| error.to_string();
    let placed =
        Placed::new(task, &scope, &mut device, &given, Manner { poison: filled.then_some(0), alias: None });
    let placed = placed.map_err(failed)?;
    let module = device.load(&subject.code).map_err(failed)?;
    let all = launches(task, &scope, &subject.kernels, module, &placed.addresses).map_err(failed)?;
    let registers = subject.resources.map(|resources| resources.registers);
    let mut times: Vec<(usize, LaunchTime)> = Vec::new();
    let mut seconds = 0.0;
    // What a launch leaves is what the next one reads; that matters only if data decides what is done, and costs a whole run.
    for (number, (plan, launch)) in all.iter().take(MAX_LAUNCHES).enumerate() {
        let prediction = device.predict_in_row(launch, registers, number > 0).map_err(failed)?;
        seconds += prediction.seconds;
        match times.iter_mut().find(|(known, _)| known == plan) {
            Some((_, known)) => {
                known.launches += 1;
                known.seconds += prediction.seconds;
            }
            None => {
                let (kernel, seconds) = (launch.kernel.clone(), prediction.seconds);
                times.push((*plan, LaunchTime { kernel, launches: 1, seconds, prediction }));
            }
        }
    }
    if all.len() > MAX_LAUNCHES {
        seconds *= all.len() as f64 / MAX_LAUNCHES as f64;
        notes.push(format!(
            "{MAX_LAUNCHES} of {} launches were predicted, and the rest extrapolated",
            all.len()
        ));
    }
    let longest = times.iter().max_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds));
    let launch = longest.and_then(|(plan, _)| all.iter().find(|(known, _)| known == plan));
    let feedback = match launch.filter(|_| options.explain) {
        Some((_, launch)) => {
            let sources = subject.task.read_source().map(|source| vec![(source.name, source.text)]);
            Some(device.explain(launch, subject.resources, &sources.unwrap_or_default()).map_err(failed)?)
        }
        None => None,
    };
    let outcome = TimeOutcome {
        device: options.chip.name.clone(),
        predicted: true,
        sizes: task.time.clone(),
        seconds,
        range: None,
        samples: 0,
        launches: times.into_iter().map(|(_, time)| time).collect(),
        roofline: roofline(task, &options.chip, seconds),
        notes,
    };
    Ok((outcome, feedback))
}

/// Where a time stands under a chip's limits, if the task says what the work is.
pub(crate) fn roofline(task: &Task, chip: &ChipSpec, seconds: f64) -> Option<Roofline> {
    let scope = task.scope(&task.time).ok()?;
    let value = |side: &Option<crate::expression::Expression>| {
        side.as_ref().and_then(|side| side.evaluate(&scope).ok())
    };
    let (flops, bytes) = (value(&task.work.flops), value(&task.work.bytes));
    // Half precision may run on the tensor cores; the task does not say.
    let wide = task.buffers.iter().any(|buffer| buffer.element == crate::Element::F64);
    let narrow = task.buffers.iter().any(|buffer| buffer.element.bytes() == 2 && !buffer.element.is_whole());
    let per_multiprocessor = 2.0 * f64::from(chip.multiprocessors) * chip.clock_hz;
    let arithmetic = match (wide, narrow) {
        (true, _) => chip.units.double * per_multiprocessor,
        (_, true) => chip.tensor_flops(),
        _ => chip.units.float * per_multiprocessor,
    };
    let by_arithmetic = flops.map_or(0.0, |flops| flops / arithmetic);
    let by_memory = bytes.map_or(0.0, |bytes| bytes / chip.memory.dram_bytes);
    let limit = by_arithmetic.max(by_memory);
    if flops.is_none() && bytes.is_none() {
        return None;
    }
    Some(Roofline {
        flops,
        bytes,
        seconds: limit,
        limit: if by_memory >= by_arithmetic { "memory" } else { "arithmetic" },
        share: limit / seconds,
    })
}
