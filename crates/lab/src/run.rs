//! A task from its source to its outcome.

use std::path::Path;

use kinora_ptx::{Calibration, Checks, ChipSpec, Finding, FindingKind};

use crate::{
    attempt::{Attempt, Manner, attempt, kernels},
    case::{Case, case},
    compile::{self, Compiled, Form, Request, Resources},
    execute::{Device, ExecuteError, SimulatedDevice},
    expression::Scope,
    inputs::npy::Array,
    reference::MORE_SECONDS,
    report::{DeviceOutcome, Outcome, Problem, ProblemKind, SCHEMA, SizeOutcome, Verdict},
    task::{Sizes, Task, TaskError},
    time,
    verify::judge,
};

/// Warp instructions after which a launch counts as endless: some seconds.
pub const STEPS: u64 = 100_000_000;

/// What is said of results that are wrong only if sums and products are contracted.
const CONTRACTED: &str = " if the assembler contracts `x * y + z` into one fused multiply-add, as it may";

/// Whether a GPU is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuChoice {
    /// The first there is, if there is one.
    #[default]
    IfThere,
    /// This one.
    Number(usize),
    /// None.
    Never,
}

/// How a task is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The chip that is simulated and predicted.
    pub chip: ChipSpec,
    /// What was measured on such a chip, for predictions.
    pub calibration: Calibration,
    /// Whether a GPU is used.
    pub gpu: GpuChoice,
    /// The seed of the inputs.
    pub seed: u64,
    /// Whether races are looked for.
    pub races: bool,
    /// Whether instructions that make infinities and NaNs are reported.
    pub nonfinite: bool,
    /// Warp instructions after which a launch counts as endless.
    pub steps: Option<u64>,
    /// Whether time is predicted and, on a GPU, measured.
    pub time: bool,
    /// Whether the prediction is explained.
    pub explain: bool,
    /// Only the first size, once: what `watch` shows first.
    pub quick: bool,
    /// More options for the compiler.
    pub compile: Vec<String>,
    /// Whether `torch.compile` of a reference in PyTorch is timed as well.
    pub torch_compile: bool,
    /// The command that does [`launch_once`] with this task, for a profiler that starts the program it looks into.
    pub again: Option<Vec<std::ffi::OsString>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            chip: ChipSpec::h200(),
            calibration: Calibration::of(&ChipSpec::h200()),
            gpu: GpuChoice::default(),
            seed: 1,
            races: true,
            nonfinite: false,
            steps: None,
            time: true,
            explain: true,
            quick: false,
            compile: Vec::new(),
            torch_compile: false,
            again: None,
        }
    }
}

/// How far a task is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// What is being done, in a few words.
    pub what: &'static str,
    /// The size that it is done for.
    pub sizes: Option<Sizes>,
    /// How much is done.
    pub done: usize,
    /// How much there is.
    pub total: usize,
}

/// Told how far a task is.
pub type Observer<'a> = dyn FnMut(&Stage) + 'a;

/// A task with its code.
pub(crate) struct Subject<'a> {
    pub task: &'a Task,
    pub code: Compiled,
    pub kernels: Vec<String>,
    pub resources: Option<Resources>,
}

/// Compiles a task's kernel, runs it on every size with all checks, compares its results with the reference, and tells its time. Whatever is
/// wrong is in the outcome.
pub fn run(task: &Task, options: &Options, observe: &mut Observer<'_>) -> Outcome {
    let mut outcome = empty(task);
    observe(&Stage { what: "compiling", sizes: None, done: 0, total: 1 });
    let subject = match subject(task, options, &mut outcome) {
        Ok(subject) => subject,
        Err(problem) => {
            outcome.problems.push(problem);
            return outcome;
        }
    };
    simulate(&subject, options, &mut outcome, observe);
    if options.time && worst(&outcome) <= Verdict::Unchecked {
        observe(&Stage { what: "predicting", sizes: Some(task.time.clone()), done: 0, total: 1 });
        match time::predict(&subject, options) {
            Ok((predicted, feedback)) => {
                outcome.times.push(predicted);
                outcome.feedback = feedback;
            }
            Err(why) => outcome.notes.push(format!("no prediction: {why}")),
        }
    }
    // A kernel that is wrong may end the GPU's context.
    #[cfg(feature = "cuda")]
    if worst(&outcome) <= Verdict::Unchecked {
        time::gpu::on_gpu(&subject, options, &mut outcome, observe);
    }
    let right = worst(&outcome) <= Verdict::Unchecked;
    let measured = outcome.times.iter().any(|time| !time.predicted);
    if right && options.time && !measured && task.is_for_torch() {
        let why = match options.gpu {
            GpuChoice::Never => "no GPU is to be used",
            _ => "there is no GPU here",
        };
        outcome.notes.push(format!("the kernel was not timed beside PyTorch: {why}"));
    }
    if matches!(task.reference, crate::task::Reference::None) {
        outcome.notes.push("the task has no reference: results were not compared with anything".to_owned());
    }
    outcome.verdict = worst(&outcome);
    outcome
}

/// Launches a task's kernels once on a GPU, on the size that is timed, and does nothing else, for a profiler.
///
/// # Errors
/// If there is no GPU, or the task cannot be run on it.
#[cfg(feature = "cuda")]
pub fn launch_once(task: &Task, options: &Options) -> Result<(), Problem> {
    let mut outcome = empty(task);
    let subject = subject(task, &Options { time: false, ..options.clone() }, &mut outcome)?;
    time::gpu::launch_once(&subject, options)
}

/// The seconds that a task is predicted to take, or why that is not known.
pub(crate) fn predicted(task: &Task, options: &Options) -> Result<f64, String> {
    let mut outcome = empty(task);
    let subject = subject(task, options, &mut outcome).map_err(|problem| problem.message)?;
    time::predict(&subject, options).map(|(predicted, _)| predicted.seconds)
}

/// An outcome of nothing yet.
fn empty(task: &Task) -> Outcome {
    Outcome {
        schema: SCHEMA,
        task: task.name.clone(),
        source: task.source.display().to_string(),
        verdict: Verdict::NotRun,
        problems: Vec::new(),
        notes: Vec::new(),
        compiler: None,
        compiler_log: String::new(),
        resources: None,
        devices: Vec::new(),
        times: Vec::new(),
        peers: Vec::new(),
        counted: None,
        feedback: None,
        code: None,
    }
}

/// The worst verdict of all devices and sizes.
fn worst(outcome: &Outcome) -> Verdict {
    let sizes = outcome.devices.iter().flat_map(|device| &device.sizes).map(|size| size.verdict);
    match outcome.problems.is_empty() {
        true => sizes.max().unwrap_or(Verdict::NotRun),
        false => Verdict::NotRun,
    }
}

/// A C++ expression, for which a template has to be instantiated. A plain name is found without.
fn is_expression(entry: &str) -> bool {
    entry.contains('<') || entry.contains(':')
}

/// What a task asks of the compiler.
pub(crate) fn request(task: &Task, form: Form, capability: (u32, u32), options: &Options) -> Request {
    let mut kernels: Vec<String> = task
        .launches
        .iter()
        .filter_map(|launch| launch.entry.clone())
        .filter(|entry| is_expression(entry))
        .collect();
    kernels.sort();
    kernels.dedup();
    let all = task.options.iter().chain(&options.compile).cloned().collect();
    Request { form, options: all, kernels, ..Request::ptx(capability) }
}

fn subject<'a>(task: &'a Task, options: &Options, outcome: &mut Outcome) -> Result<Subject<'a>, Problem> {
    let compiling = |error: &dyn std::fmt::Display| Problem::new(ProblemKind::Compile, error);
    let source = task.read_source().map_err(|error| compiling(&error))?;
    outcome.code = Some((source.name.clone(), source.text.clone()));
    let chip = options.chip.capability;
    let code = compile::compile(&source, &request(task, Form::Ptx, chip, options))
        .map_err(|error| compiling(&error))?;
    outcome.compiler.clone_from(&code.compiler);
    outcome.compiler_log.clone_from(&code.log);
    outcome.notes.extend(code.notes.iter().cloned());
    let kernels = kernels(task, &code).map_err(|error| compiling(&error))?;
    // Only the assembler knows registers. Without its answer they are estimated.
    let assembled = options.time && !source.is_ptx();
    let resources = assembled
        .then(|| compile::compile(&source, &request(task, Form::Cubin, chip, options)).ok())
        .flatten()
        .and_then(|cubin| cubin.resources);
    outcome.resources = resources;
    Ok(Subject { task, code, kernels, resources })
}

/// Runs every size on the simulated device.
fn simulate(subject: &Subject<'_>, options: &Options, outcome: &mut Outcome, observe: &mut Observer<'_>) {
    let task = subject.task;
    let count = if options.quick { 1 } else { task.sizes.len() };
    let mut device = DeviceOutcome {
        device: format!("a simulated {}", options.chip.name),
        simulated: true,
        sizes: Vec::new(),
    };
    let contracted = if options.quick { None } else { contracted(subject, options) };
    for (number, sizes) in task.sizes.iter().take(count).enumerate() {
        let mut stage = |what: &'static str, part: usize| {
            observe(&Stage { what, sizes: Some(sizes.clone()), done: 5 * number + part, total: 5 * count });
        };
        device.sizes.push(simulate_size(subject, options, sizes, contracted.as_deref(), &mut stage));
        if device.sizes.last().is_some_and(is_endless) && number + 1 < count {
            outcome.notes.push("the other sizes were not run, because this one did not end".to_owned());
            break;
        }
    }
    outcome.devices.push(device);
}

/// Where the assembler may contract sums and products of the kernels, in words; `None` if nowhere.
fn contracted(subject: &Subject<'_>, options: &Options) -> Option<String> {
    /// How many lines are named.
    const MOST: usize = 3;
    let checks = Checks { contract: true, ..Checks::default() };
    let mut device = SimulatedDevice::new(options.chip.clone(), checks);
    let module = device.load(&subject.code).ok()?;
    let module = device.module(module)?;
    let mut lines = Vec::new();
    for kernel in &subject.kernels {
        for (source, ptx) in module.contractions(kernel).ok()? {
            let line = match source {
                Some(source) => {
                    let file = Path::new(&source.file).file_name().unwrap_or_default();
                    format!("{}:{}", file.display(), source.line)
                }
                None => format!("line {ptx} of the PTX"),
            };
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let others = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    let more = if others > 0 { format!(" and {others} other lines") } else { String::new() };
    (!lines.is_empty()).then(|| lines.join(", ") + &more)
}

fn simulate_size(
    subject: &Subject<'_>,
    options: &Options,
    sizes: &Sizes,
    contracted: Option<&str>,
    stage: &mut dyn FnMut(&'static str, usize),
) -> SizeOutcome {
    let task = subject.task;
    let mut found = SizeOutcome {
        sizes: sizes.clone(),
        verdict: Verdict::NotRun,
        problems: Vec::new(),
        findings: Vec::new(),
        results: Vec::new(),
        launches: Vec::new(),
        deterministic: None,
    };
    let checks = Checks {
        nonfinite: options.nonfinite,
        steps: options.steps.or(task.steps).unwrap_or(STEPS),
        ..Checks::default()
    };
    let simulated = |races: bool| SimulatedDevice::new(options.chip.clone(), Checks { races, ..checks });
    let once = |device: &mut dyn Device, scope: &Scope, case: &Case, manner: Manner| {
        attempt(task, scope, (&subject.code, &subject.kernels), device, &case.given, manner, &mut |_, _| {})
    };
    let scope = match task.scope(sizes) {
        Ok(scope) => scope,
        Err(error) => return with(found, Problem::new(ProblemKind::Launch, error)),
    };

    if let Some(problem) = too_large(task, &scope) {
        return with(found, problem);
    }

    // Results are left as they are allocated, so that reading them first, or never writing them, is seen.
    stage("reference", 0);
    let first = match case(task, sizes, &scope, options.seed) {
        Ok(first) => first,
        Err(problem) => return with(found, problem),
    };
    stage("simulating", 1);
    let ran = match once(&mut simulated(options.races), &scope, &first, Manner::default()) {
        Ok(ran) => ran,
        Err(error) => return with(found, of_device(&error)),
    };
    found.findings.clone_from(&ran.findings);
    found.launches.clone_from(&ran.launches);
    for finding in &ran.findings {
        found.problems.push(Problem::new(ProblemKind::Finding, finding));
    }
    judge(task, &scope, &first, &ran, &mut found, "");
    found.verdict = if first.expected.is_some() { Verdict::Right } else { Verdict::Unchecked };
    if !found.problems.is_empty() {
        found.verdict = Verdict::Wrong;
        // Further problems would probably have the same cause.
        return found;
    }
    if options.quick {
        return found;
    }

    // Other inputs, over results that hold something: what is left over from somewhere cannot be right by chance twice.
    stage("with other inputs", 2);
    match case(task, sizes, &scope, options.seed.wrapping_add(1)) {
        Err(problem) => return with(found, problem),
        Ok(second) => {
            match once(&mut simulated(false), &scope, &second, Manner { poison: Some(0xFF), alias: None }) {
                Err(error) => return with(found, of_device(&error)),
                Ok(ran) => {
                    report_findings(&ran, &mut found);
                    judge(task, &scope, &second, &ran, &mut found, " with other inputs");
                }
            }
        }
    }
    stage("once more", 3);
    match once(&mut simulated(false), &scope, &first, Manner { poison: Some(0x7F), alias: None }) {
        Err(error) => return with(found, of_device(&error)),
        Ok(again) => {
            report_findings(&again, &mut found);
            let differs = differing(task, &ran, &again);
            found.deterministic = Some(differs.is_none());
            if let Some(name) = differs.filter(|_| task.deterministic) {
                let what = format!("{name} is not the same in two runs on the same inputs");
                found.problems.push(Problem::new(ProblemKind::NotDeterministic, what));
            } else {
                judge(task, &scope, &first, &again, &mut found, " in another run");
            }
        }
    }
    for (number, buffer) in task.buffers.iter().enumerate() {
        let Some(input) = buffer.may_alias else { continue };
        let manner = Manner { poison: Some(0xFF), alias: Some((number, input)) };
        match once(&mut simulated(options.races), &scope, &first, manner) {
            Err(error) => return with(found, of_device(&error)),
            Ok(ran) => {
                report_findings(&ran, &mut found);
                let place = format!(" in the place of {}", task.buffers[input].name);
                judge(task, &scope, &first, &ran, &mut found, &place);
            }
        }
    }
    if let Some(lines) = contracted.filter(|_| found.problems.is_empty() && first.expected.is_some()) {
        stage("contracted", 4);
        let checks = Checks { races: false, contract: true, ..checks };
        let mut device = SimulatedDevice::new(options.chip.clone(), checks);
        match once(&mut device, &scope, &first, Manner { poison: Some(0xFF), alias: None }) {
            Err(error) => return with(found, of_device(&error)),
            Ok(ran) => {
                report_findings(&ran, &mut found);
                judge(task, &scope, &first, &ran, &mut found, CONTRACTED);
                let instead = match subject.code.compiler {
                    Some(_) => "__fmul_rn, __fadd_rn or --fmad=false",
                    None => "mul.rn and add.rn",
                };
                for problem in &mut found.problems {
                    if !problem.message.contains(CONTRACTED) {
                        problem.message += CONTRACTED;
                    }
                    problem.message +=
                        &format!("; use {instead} where the rounding between matters, such as at {lines}");
                }
            }
        }
    }
    if !found.problems.is_empty() {
        found.verdict = Verdict::Wrong;
    }
    found
}

/// What a size needs more than the machine has, if it does: buffers, what the simulator knows of their bytes, and the reference in f64. A
/// system that runs out of memory ends programs without a word.
fn too_large(task: &Task, scope: &Scope) -> Option<Problem> {
    let mut needed = 0.0;
    for buffer in &task.buffers {
        let elements = buffer.elements(scope).ok()? as f64;
        needed += elements * (2.0 * buffer.element.bytes() as f64 + 24.0);
    }
    let free = free_memory()?;
    (needed > free).then(|| {
        let gigabytes = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
        let what = format!(
            "this size needs about {} of memory to be simulated, and {} are free; test smaller sizes: only that under [time] may be large",
            gigabytes(needed),
            gigabytes(free)
        );
        Problem::new(ProblemKind::Device, what)
    })
}

/// The bytes of memory that programs can still get, where the system tells.
fn free_memory() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024.0 * kilobytes)
}

/// Whether something did not end. Other sizes probably would not either, and each would take as long.
fn is_endless(size: &SizeOutcome) -> bool {
    let by_steps = |finding: &Finding| finding.kind == FindingKind::StepLimit;
    let reference = |problem: &Problem| {
        let endless = problem.message.contains(MORE_SECONDS) || problem.message.contains("StepLimit");
        problem.kind == ProblemKind::Reference && endless
    };
    size.findings.iter().any(by_steps) || size.problems.iter().any(reference)
}

fn report_findings(ran: &Attempt, found: &mut SizeOutcome) {
    for finding in &ran.findings {
        found.problems.push(Problem::new(ProblemKind::Finding, finding));
        found.findings.push(finding.clone());
    }
}

/// An outcome that ends with a problem, which kept it from being run.
fn with(mut found: SizeOutcome, problem: Problem) -> SizeOutcome {
    found.problems.push(problem);
    found.verdict = Verdict::NotRun;
    found
}

pub(crate) fn of_device(error: &ExecuteError) -> Problem {
    let kind = match error {
        ExecuteError::Load(_) | ExecuteError::Launch(_) | ExecuteError::Unsupported(_) => ProblemKind::Launch,
        ExecuteError::Memory { .. } | ExecuteError::Fault(_) | ExecuteError::Device(_) => ProblemKind::Device,
    };
    Problem::new(kind, error)
}

/// A result that differs between two runs on the same inputs, bit for bit.
fn differing(task: &Task, one: &Attempt, other: &Attempt) -> Option<String> {
    let results = task.buffers.iter().enumerate().filter(|(_, buffer)| buffer.is_result());
    let mut differing = results.filter(|&(number, _)| one.contents[number] != other.contents[number]);
    differing.next().map(|(_, buffer)| buffer.name.clone())
}

/// What a file of a task holds: for tests of files alone.
impl From<TaskError> for Problem {
    fn from(error: TaskError) -> Problem {
        Problem::new(ProblemKind::Input, error)
    }
}

/// The results of a task on its first size, as NumPy's files: what the kernel leaves in the simulator.
///
/// # Errors
/// If it cannot be run; what is wrong.
pub fn results(task: &Task, options: &Options) -> Result<Vec<(String, Vec<u8>)>, Problem> {
    let mut outcome = run(
        task,
        &Options { quick: true, time: false, gpu: GpuChoice::Never, ..options.clone() },
        &mut |_| {},
    );
    if let Some(problem) = outcome.problems.pop() {
        return Err(problem);
    }
    let sizes = task.sizes.first().cloned().unwrap_or_default();
    let scope = task.scope(&sizes)?;
    let subject = subject(task, &Options { time: false, ..options.clone() }, &mut outcome)?;
    let case = case(task, &sizes, &scope, options.seed)?;
    let steps = options.steps.or(task.steps).unwrap_or(STEPS);
    let mut device =
        SimulatedDevice::new(options.chip.clone(), Checks { races: false, steps, ..Checks::default() });
    let code = (&subject.code, subject.kernels.as_slice());
    let ran = attempt(task, &scope, code, &mut device, &case.given, Manner::default(), &mut |_, _| {});
    let ran = ran.map_err(|error| of_device(&error))?;
    let mut files = Vec::new();
    for (buffer, content) in task.buffers.iter().zip(ran.contents).filter(|(buffer, _)| buffer.is_result()) {
        let shape = buffer.extents(&scope).map_err(|error| Problem::new(ProblemKind::Launch, error))?;
        let element = buffer.element;
        files.push((format!("{}.npy", buffer.name), Array { element, shape, bytes: content }.to_bytes()));
    }
    Ok(files)
}
