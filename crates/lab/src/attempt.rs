//! One run of a task on a device: buffers are placed, the launches run in a row, and what they left is read.

use kinora_ptx::{Counters, Finding, FindingKind};
use serde::Serialize;

use crate::{
    Element,
    compile::Compiled,
    execute::{Address, Device, ExecuteError, Launch, ModuleId},
    expression::{Expression, ExpressionError, Scope},
    task::{Argument, LaunchPlan, MAX_REPEATS, Role, Task},
};

/// The zone on both sides of a buffer that no kernel may touch, on a device that does not see accesses outside of allocations.
const GUARD: usize = 4096;
/// What is in it.
const CANARY: u8 = 0xC5;

/// The largest extents, as CUDA has them; what a chip allows is less.
const MOST_BLOCKS: u64 = i32::MAX as u64;
const MOST_SHARED: u64 = 1 << 20;

/// The most findings that are kept of a run.
const MAX_FINDINGS: usize = 100;

/// How a run differs from others of the same task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Results and scratch memory are filled with this byte first. Without it, they are left as they are allocated.
    pub poison: Option<u8>,
    /// A result that lies in the place of an input.
    pub alias: Option<(usize, usize)>,
}

/// What a run left.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// What each buffer holds at the end.
    pub contents: Vec<Vec<u8>>,
    /// How many elements of each buffer nothing was ever written to, as far as the device knows.
    pub unwritten: Vec<Option<usize>>,
    /// The buffers whose guard zones were touched, and whether before or after the buffer.
    pub beyond: Vec<(usize, &'static str)>,
    /// What the kernels did wrong, each once.
    pub findings: Vec<Finding>,
    /// The launches, each of a plan once.
    pub launches: Vec<LaunchRecord>,
}

/// A launch that ran.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaunchRecord {
    /// The kernel, as the code calls it.
    pub kernel: String,
    /// How often it was launched.
    pub launches: u64,
    /// Blocks on each axis, at the first launch.
    pub grid: [u32; 3],
    /// Threads of a block on each axis.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// What the first launch cost, if the device counts.
    pub counters: Option<Counters>,
}

/// A launch's shape for some sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    pub shared_bytes: u32,
}

impl LaunchPlan {
    /// The launch's shape for some sizes; the part that has none otherwise.
    pub(crate) fn extents(
        &self,
        scope: &Scope,
        step: u64,
    ) -> Result<Extents, (&'static str, ExpressionError)> {
        let mut scope = scope.clone();
        scope.set("step", step as f64);
        let three = |part: &'static str, expressions: &[Expression], most: u64| {
            let mut extents = [1; 3];
            for (extent, expression) in extents.iter_mut().zip(expressions) {
                *extent = expression.count(&scope, 1, most).map_err(|error| (part, error))? as u32;
            }
            Ok(extents)
        };
        let shared = self.shared.as_ref().map_or(Ok(0), |shared| shared.count(&scope, 0, MOST_SHARED));
        Ok(Extents {
            grid: three("grid", &self.grid, MOST_BLOCKS)?,
            block: three("block", &self.block, 1024)?,
            cluster: three("cluster", &self.cluster, 16)?,
            shared_bytes: shared.map_err(|error| ("shared", error))? as u32,
        })
    }

    /// How often it is launched.
    pub(crate) fn repeats(&self, scope: &Scope) -> Result<u64, ExpressionError> {
        self.repeat.as_ref().map_or(Ok(1), |repeat| repeat.count(scope, 0, MAX_REPEATS))
    }
}

/// Buffers on a device.
pub(crate) struct Placed {
    /// The address of each buffer's first element.
    pub addresses: Vec<Address>,
    bytes: Vec<usize>,
    guarded: bool,
}

impl Placed {
    /// Allocates a task's buffers, and fills them with what is given.
    pub fn new(
        task: &Task,
        scope: &Scope,
        device: &mut dyn Device,
        given: &[Vec<u8>],
        manner: Manner,
    ) -> Result<Placed, ExecuteError> {
        let guarded = !device.is_simulated();
        let guard = if guarded { GUARD } else { 0 };
        let (mut addresses, mut sizes) = (Vec::new(), Vec::new());
        for (number, buffer) in task.buffers.iter().enumerate() {
            let elements = buffer.elements(scope).map_err(impossible)?;
            let bytes = elements * buffer.element.bytes();
            sizes.push(bytes);
            if let Some((result, input)) = manner.alias
                && result == number
            {
                addresses.push(addresses[input]);
                continue;
            }
            let start = device.allocate(bytes + 2 * guard)?;
            let address = start + guard as u64;
            if guarded {
                let canaries = vec![CANARY; guard];
                device.write(start, &canaries)?;
                device.write(address + bytes as u64, &canaries)?;
            }
            match (given.get(number), manner.poison) {
                (Some(content), _) if !content.is_empty() => device.write(address, content)?,
                (_, Some(byte)) => device.write(address, &vec![byte; bytes])?,
                _ => {}
            }
            addresses.push(address);
        }
        Ok(Placed { addresses, bytes: sizes, guarded })
    }

    /// What the buffers hold.
    pub fn read(&self, device: &dyn Device) -> Result<Vec<Vec<u8>>, ExecuteError> {
        let read = |(&address, &bytes): (&Address, &usize)| {
            let mut content = vec![0; bytes];
            device.read(address, &mut content).map(|()| content)
        };
        self.addresses.iter().zip(&self.bytes).map(read).collect()
    }

    /// Says of a finding which buffer it is about, if it is about one.
    fn name(&self, finding: &mut Finding, task: &Task) {
        if finding.kind == FindingKind::StepLimit {
            finding.suggestion =
                "look for a loop that never ends; `steps` under [kernel], or --steps, allows more".to_owned();
        }
        let Some(address) = finding.address else { return };
        let places = self.addresses.iter().enumerate().filter(|(_, start)| **start <= address);
        let Some((number, start)) = places.max_by_key(|(_, start)| **start) else { return };
        let (buffer, bytes) = (&task.buffers[number], self.bytes[number]);
        let offset = address - start;
        if offset < bytes as u64 {
            let element = offset / buffer.element.bytes() as u64;
            finding.message += &format!(", element {element} of {}", buffer.name);
        } else {
            let allocation = format!("of a {bytes}-byte allocation");
            let named = format!("of {}, which has {bytes} bytes", buffer.name);
            finding.message = finding.message.replace(&allocation, &named);
        }
    }

    /// The buffers whose guard zones were touched.
    fn beyond(
        &self,
        device: &dyn Device,
        alias: Option<(usize, usize)>,
    ) -> Result<Vec<(usize, &'static str)>, ExecuteError> {
        let mut found = Vec::new();
        if !self.guarded {
            return Ok(found);
        }
        for (number, (&address, &bytes)) in self.addresses.iter().zip(&self.bytes).enumerate() {
            if alias.is_some_and(|(result, _)| result == number) {
                continue;
            }
            for (start, side) in [(address - GUARD as u64, "before"), (address + bytes as u64, "after")] {
                let mut zone = vec![0; GUARD];
                device.read(start, &mut zone)?;
                if zone.iter().any(|&byte| byte != CANARY) {
                    found.push((number, side));
                }
            }
        }
        Ok(found)
    }
}

/// The launches of a task in a row, with final addresses: each with the number of its plan.
pub(crate) fn launches(
    task: &Task,
    scope: &Scope,
    kernels: &[String],
    module: ModuleId,
    addresses: &[Address],
) -> Result<Vec<(usize, Launch)>, ExecuteError> {
    let mut all = Vec::new();
    for (number, plan) in task.launches.iter().enumerate() {
        for step in 0..plan.repeats(scope).map_err(impossible)? {
            let Extents { grid, block, cluster, shared_bytes } =
                plan.extents(scope, step).map_err(|(_, error)| impossible(error))?;
            let mut scope = scope.clone();
            scope.set("step", step as f64);
            let argument = |argument: &Argument| match argument {
                Argument::Buffer(place) => Ok(addresses[*place].to_le_bytes().to_vec()),
                Argument::Number(element, expression) => number_bytes(*element, expression, &scope),
            };
            let arguments = plan.arguments.iter().map(argument).collect::<Result<_, _>>()?;
            let kernel = kernels[number].clone();
            all.push((
                number,
                Launch { module, kernel, grid, block, cluster, shared_bytes, arguments, overlaps: false },
            ));
        }
    }
    Ok(all)
}

/// The bytes of a number; one that its type cannot hold is refused.
fn number_bytes(element: Element, expression: &Expression, scope: &Scope) -> Result<Vec<u8>, ExecuteError> {
    let number = expression.evaluate(scope).map_err(impossible)?;
    let bytes = element.store(number);
    let held = element.load(&bytes).first().copied().unwrap_or(f64::NAN);
    if element.is_whole() && held != number {
        return Err(ExecuteError::Launch(format!(
            "`{expression}` is {number}, which {} does not hold",
            element.name()
        )));
    }
    Ok(bytes)
}

fn impossible(error: ExpressionError) -> ExecuteError {
    ExecuteError::Launch(error.to_string())
}

/// What the code calls the kernel of each launch plan.
pub(crate) fn kernels(task: &Task, code: &Compiled) -> Result<Vec<String>, crate::compile::CompileError> {
    task.launches.iter().map(|plan| code.kernel(plan.entry.as_deref())).collect()
}

/// Runs a task once. Before each launch, `observe` gets the number of launches that are done and that of all.
///
/// # Errors
/// If the device refuses something or fails. What a simulated kernel does wrong is in the result.
pub fn attempt(
    task: &Task,
    scope: &Scope,
    code: (&Compiled, &[String]),
    device: &mut dyn Device,
    given: &[Vec<u8>],
    manner: Manner,
    observe: &mut dyn FnMut(usize, usize),
) -> Result<Attempt, ExecuteError> {
    let placed = Placed::new(task, scope, device, given, manner)?;
    let module = device.load(code.0)?;
    let launches = launches(task, scope, code.1, module, &placed.addresses)?;
    let mut done = Attempt::default();
    let mut plans: Vec<usize> = Vec::new();
    for (at, (plan, launch)) in launches.iter().enumerate() {
        observe(at, launches.len());
        let launched = device.launch(launch).map_err(|error| hinted(error, task, *plan, &launch.kernel))?;
        let hopeless = launched.findings.iter().any(is_hopeless);
        for mut finding in launched.findings {
            placed.name(&mut finding, task);
            add(&mut done.findings, finding);
        }
        match plans.iter().position(|known| known == plan) {
            Some(known) => done.launches[known].launches += 1,
            None => {
                plans.push(*plan);
                done.launches.push(LaunchRecord {
                    kernel: launch.kernel.clone(),
                    launches: 1,
                    grid: launch.grid,
                    block: launch.block,
                    shared_bytes: launch.shared_bytes,
                    counters: launched.counters,
                });
            }
        }
        if hopeless {
            // What would follow works on rubbish, and may not end either.
            break;
        }
    }
    done.contents = placed.read(device)?;
    done.beyond = placed.beyond(device, manner.alias)?;
    for (number, buffer) in task.buffers.iter().enumerate() {
        let known = match buffer.role {
            Role::Output => device.written(placed.addresses[number], placed.bytes[number])?,
            _ => None,
        };
        let size = buffer.element.bytes();
        done.unwritten.push(known.map(|written| {
            written.chunks(size).filter(|element| element.iter().any(|written| !written)).count()
        }));
    }
    Ok(done)
}

/// A finding after which nothing can be said of what follows.
fn is_hopeless(finding: &Finding) -> bool {
    matches!(finding.kind, FindingKind::Deadlock | FindingKind::StepLimit)
}

/// Adds a finding, or counts it if the same was found in an earlier launch.
fn add(findings: &mut Vec<Finding>, finding: Finding) {
    let same = |known: &&mut Finding| {
        (known.kind, &known.kernel, known.ptx_line) == (finding.kind, &finding.kernel, finding.ptx_line)
    };
    if let Some(known) = findings.iter_mut().find(same) {
        known.count += finding.count;
    } else if findings.len() < MAX_FINDINGS {
        findings.push(finding);
    }
}

/// The simulator's refusal of an argument, with the name that the task has for it.
fn hinted(error: ExecuteError, task: &Task, plan: usize, kernel: &str) -> ExecuteError {
    let ExecuteError::Launch(text) = &error else { return error };
    let text = text.replace(kernel, crate::compile::base_name(kernel));
    let arguments = &task.launches[plan].arguments;
    let number =
        text.split("argument ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
    let Some(argument) = number.and_then(|number| arguments.get(number)) else {
        return ExecuteError::Launch(text);
    };
    let hint = match argument {
        Argument::Buffer(place) => format!("it is the address of {}", task.buffers[*place].name),
        Argument::Number(element, expression) => {
            let other = match element {
                Element::I32 => "i64",
                Element::F32 => "f64",
                _ => "i32",
            };
            format!(
                "it is {expression} as {}; give it another type, such as \"{other}: {expression}\"",
                element.name()
            )
        }
    };
    ExecuteError::Launch(format!("{text} ({hint})"))
}
