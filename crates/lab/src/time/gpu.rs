//! On a GPU: the same sizes, with guarded buffers, and the time. The simulator has passed the kernel before it comes here.

use crate::{
    attempt::{Attempt, Manner, Placed, attempt, launches},
    case::{Case, case, content_for_time},
    compile::{self, Form},
    execute::{Device, ExecuteError, GpuDevice},
    report::{DeviceOutcome, Outcome, Problem, ProblemKind, SizeOutcome, TimeOutcome, Verdict},
    run::{GpuChoice, Observer, Options, Stage, Subject, of_device, request},
    task::{Role, Sizes},
    time::{counters, pytorch, roofline},
    verify::judge,
};

/// Sets of buffers that timed runs take in turn, so that no run finds its inputs where the one before left them.
const SETS: u64 = 3;
/// Timed runs, after some that are not counted.
pub(super) const RUNS: usize = 60;
pub(super) const WARM_UP: usize = 10;
/// What the buffers of a set hold at the start.
type Given = Vec<Vec<u8>>;

/// How far the last third of the runs may be from the first before the clock is said to have changed.
const DRIFT: f64 = 0.05;

/// Runs a task on a GPU, if one is wanted and there; adds what it shows.
pub(crate) fn on_gpu(
    subject: &Subject<'_>,
    options: &Options,
    outcome: &mut Outcome,
    observe: &mut Observer<'_>,
) {
    let number = match options.gpu {
        GpuChoice::Never => return,
        GpuChoice::IfThere => 0,
        GpuChoice::Number(number) => number,
    };
    let mut gpu = match GpuDevice::open(number) {
        Ok(gpu) => gpu,
        Err(_) if options.gpu == GpuChoice::IfThere => return,
        Err(error) => {
            outcome.problems.push(of_device(&error));
            return;
        }
    };
    let task = subject.task;
    let native = match native(subject, options, &gpu) {
        Ok(native) => native,
        Err(problem) => {
            outcome.problems.push(problem);
            return;
        }
    };
    let mut device = DeviceOutcome { device: gpu.name(), simulated: false, sizes: Vec::new() };
    let count = if options.quick { 1 } else { task.sizes.len() };
    for (number, sizes) in task.sizes.iter().take(count).enumerate() {
        observe(&Stage { what: "on the GPU", sizes: Some(sizes.clone()), done: number, total: count });
        device.sizes.push(size(&native, options, &mut gpu, sizes));
    }
    let right = device.sizes.iter().all(|size| size.verdict <= Verdict::Unchecked);
    outcome.devices.push(device);
    if options.time && right && !options.quick {
        observe(&Stage { what: "timing", sizes: Some(task.time.clone()), done: 0, total: 1 });
        match measure(&native, options, &mut gpu) {
            Ok((time, inputs)) => {
                // What others do on the GPU next has its memory to itself.
                drop(gpu);
                let seconds = time.seconds;
                let device = time.device.clone();
                outcome.times.push(time);
                if task.is_for_torch() {
                    observe(&Stage {
                        what: "timing PyTorch",
                        sizes: Some(task.time.clone()),
                        done: 0,
                        total: 1,
                    });
                    pytorch::time(task, options, (number, &device, seconds), &inputs, outcome);
                }
                drop(inputs);
                if let Some(again) = &options.again {
                    observe(&Stage { what: "counting", sizes: Some(task.time.clone()), done: 0, total: 1 });
                    match counters::count(again, number) {
                        Ok(counted) => outcome.counted = Some(counted),
                        Err(why) => {
                            outcome.notes.push(format!("counters are those of the simulator: {why}"));
                        }
                    }
                }
            }
            Err(problem) => outcome.problems.push(problem),
        }
    }
}

/// The subject in the GPU's machine code.
fn native<'a>(subject: &Subject<'a>, options: &Options, gpu: &GpuDevice) -> Result<Subject<'a>, Problem> {
    let task = subject.task;
    let request = request(task, Form::Cubin, gpu.capability(), options);
    let source = task.read_source().map_err(|error| Problem::new(ProblemKind::Compile, error))?;
    let code =
        compile::compile(&source, &request).map_err(|error| Problem::new(ProblemKind::Compile, error))?;
    Ok(Subject { task, code, kernels: subject.kernels.clone(), resources: subject.resources })
}

/// Launches the kernels once, on the size that is timed.
pub(crate) fn launch_once(subject: &Subject<'_>, options: &Options) -> Result<(), Problem> {
    let number = if let GpuChoice::Number(number) = options.gpu { number } else { 0 };
    let mut gpu = GpuDevice::open(number).map_err(|error| of_device(&error))?;
    let native = native(subject, options, &gpu)?;
    let task = native.task;
    let scope = task.scope(&task.time)?;
    let given: Result<Vec<Vec<u8>>, Problem> = (0..)
        .zip(&task.buffers)
        .map(|(number, buffer)| content_for_time(task, buffer, &scope, options.seed, number))
        .collect();
    let manner = Manner { poison: Some(0xFF), alias: None };
    let code = (&native.code, native.kernels.as_slice());
    let ran = attempt(task, &scope, code, &mut gpu, &given?, manner, &mut |_, _| {});
    ran.map(drop).map_err(|error| of_device(&error))
}

fn size(subject: &Subject<'_>, options: &Options, gpu: &mut GpuDevice, sizes: &Sizes) -> SizeOutcome {
    let mut found = SizeOutcome {
        sizes: sizes.clone(),
        verdict: Verdict::NotRun,
        problems: Vec::new(),
        findings: Vec::new(),
        results: Vec::new(),
        launches: Vec::new(),
        deterministic: None,
    };
    let ran = (|| -> Result<Verdict, Problem> {
        let scope = subject.task.scope(sizes)?;
        let mut verdict = Verdict::Unchecked;
        for (number, poison) in [0xFF, 0x7F].into_iter().enumerate() {
            let case = case(subject.task, sizes, &scope, options.seed.wrapping_add(number as u64))?;
            let manner = Manner { poison: Some(poison), alias: None };
            let code = (&subject.code, subject.kernels.as_slice());
            let ran = attempt(subject.task, &scope, code, gpu, &case.given, manner, &mut |_, _| {})
                .map_err(|error| of_device(&error))?;
            judge(subject.task, &scope, &case, &ran, &mut found, "");
            found.launches = ran.launches;
            if case.expected.is_some() {
                verdict = Verdict::Right;
            }
        }
        Ok(verdict)
    })();
    match ran {
        Ok(verdict) => found.verdict = if found.problems.is_empty() { verdict } else { Verdict::Wrong },
        Err(problem) => found.problems.push(problem),
    }
    found
}

/// Times a task: the second-level cache is overwritten before every run, and runs take sets of buffers with different inputs in turn.
/// Afterwards the results of the timed runs are compared like any others. The sets of inputs come back as well.
fn measure(
    subject: &Subject<'_>,
    options: &Options,
    gpu: &mut GpuDevice,
) -> Result<(TimeOutcome, Vec<Given>), Problem> {
    let task = subject.task;
    let failed = |error: ExecuteError| of_device(&error);
    let scope = task.scope(&task.time)?;
    let module = gpu.load(&subject.code).map_err(failed)?;
    let mut sets: Vec<(Case, Placed)> = Vec::new();
    let mut all = Vec::new();
    for number in 0..SETS {
        let case = case(task, &task.time, &scope, options.seed.wrapping_add(number))?;
        let manner = Manner { poison: Some(0xFF), alias: None };
        let placed = Placed::new(task, &scope, gpu, &case.given, manner).map_err(failed)?;
        let set = launches(task, &scope, &subject.kernels, module, &placed.addresses).map_err(failed)?;
        all.push(set.into_iter().map(|(_, launch)| launch).collect::<Vec<_>>());
        sets.push((case, placed));
    }
    gpu.time(&all, WARM_UP).map_err(failed)?;
    let times: Vec<f64> = gpu
        .time(&all, RUNS)
        .map_err(failed)?
        .into_iter()
        .map(|milliseconds| f64::from(milliseconds) / 1e3)
        .collect();
    let mut notes = Vec::new();
    // A kernel that adds to what is there has done so many times by now.
    if task.buffers.iter().any(|buffer| matches!(buffer.role, Role::InOut | Role::Scratch)) {
        notes.push(
            "results of the timed runs were not compared: a run changes what the next one reads".to_owned(),
        );
    } else {
        for (case, placed) in &sets {
            let contents = placed.read(gpu).map_err(failed)?;
            let ran = Attempt { unwritten: vec![None; contents.len()], contents, ..Attempt::default() };
            let mut found = SizeOutcome {
                sizes: task.time.clone(),
                verdict: Verdict::Right,
                problems: Vec::new(),
                findings: Vec::new(),
                results: Vec::new(),
                launches: Vec::new(),
                deterministic: None,
            };
            judge(task, &scope, case, &ran, &mut found, " in a timed run");
            if let Some(problem) = found.problems.into_iter().next() {
                return Err(problem);
            }
        }
    }
    let third = times.len() / 3;
    let (early, late) = (median(&times[..third]), median(&times[times.len() - third..]));
    if (late / early - 1.0).abs() > DRIFT {
        notes.push(format!(
            "the clock seems to have changed: the last runs took {:.0} % of the first",
            100.0 * late / early
        ));
    }
    let seconds = median(&times);
    let time = TimeOutcome {
        device: gpu.name(),
        predicted: false,
        sizes: task.time.clone(),
        seconds,
        range: Some(range(&times)),
        samples: times.len(),
        launches: Vec::new(),
        // Its own limits, not those of the chip that is simulated.
        roofline: gpu.published().and_then(|chip| roofline(task, &chip, seconds)),
        notes,
    };
    Ok((time, sets.into_iter().map(|(case, _)| case.given).collect()))
}

/// The smallest and the largest.
pub(super) fn range(times: &[f64]) -> [f64; 2] {
    times.iter().fold([f64::INFINITY, 0.0], |[low, high], &time| [low.min(time), high.max(time)])
}

pub(super) fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
