//! References that are plain kernels. They run in the simulator, with every floating-point buffer and number in f64, so that a machine
//! without Python and without a GPU has all that is needed.

use std::path::Path;

use kinora_ptx::{Checks, ChipSpec};

use super::Expected;
use crate::{
    Element,
    attempt::{Manner, attempt, kernels},
    compile::{Request, compile},
    execute::SimulatedDevice,
    expression::{Expression, Scope},
    task::{Argument, LaunchPlan, Task, read_source},
};

/// Warp instructions after which the reference counts as endless.
const STEPS: u64 = 400_000_000;

/// The results.
pub(super) fn results(
    task: &Task,
    scope: &Scope,
    given: &[Vec<u8>],
    source: &Path,
    launch: &LaunchPlan,
) -> Result<Expected, String> {
    let mut wide = task.clone();
    for buffer in &mut wide.buffers {
        buffer.element = in_f64(buffer.element);
        buffer.may_alias = None;
    }
    let mut launch = launch.clone();
    for argument in &mut launch.arguments {
        if let Argument::Number(element, _) = argument {
            *element = in_f64(*element);
        }
    }
    if launch.grid.is_empty() || launch.block.is_empty() {
        let largest =
            task.buffers.iter().filter(|buffer| buffer.is_result()).map(|buffer| buffer.elements(scope));
        let largest = largest.filter_map(Result::ok).max().unwrap_or(1).max(1);
        let number =
            |number: usize| Expression::parse(&number.to_string()).map_err(|error| error.to_string());
        launch.grid = vec![number(largest.div_ceil(256))?];
        launch.block = vec![number(256)?];
    }
    wide.launches = vec![launch];
    let given: Vec<Vec<u8>> = task
        .buffers
        .iter()
        .zip(given)
        .map(|(buffer, bytes)| {
            let element = in_f64(buffer.element);
            match element == buffer.element {
                true => bytes.clone(),
                false => {
                    buffer.element.load(bytes).into_iter().flat_map(|number| element.store(number)).collect()
                }
            }
        })
        .collect();

    let chip = ChipSpec::a100();
    let source = read_source(source).map_err(|error| error.to_string())?;
    let entry = wide.launches[0].entry.clone();
    let request = Request {
        options: task.options.clone(),
        kernels: entry.into_iter().filter(|entry| entry.contains('<')).collect(),
        ..Request::ptx(chip.capability)
    };
    let code = compile(&source, &request).map_err(|error| error.to_string())?;
    let names = kernels(&wide, &code).map_err(|error| error.to_string())?;
    let checks = Checks { races: false, steps: STEPS, ..Checks::default() };
    let mut device = SimulatedDevice::new(chip, checks);
    // Left as it is allocated: what the kernel leaves out is known.
    let manner = Manner::default();
    let done = attempt(&wide, scope, (&code, &names), &mut device, &given, manner, &mut |_, _| {})
        .map_err(|error| error.to_string())?;
    if let Some(finding) = done.findings.first() {
        let place =
            finding.source.as_ref().map_or(String::new(), |at| format!(" at {}:{}", at.file, at.line));
        return Err(format!(
            "the reference kernel is wrong itself: {:?}{place}: {}",
            finding.kind, finding.message
        ));
    }
    for (buffer, unwritten) in wide.buffers.iter().zip(&done.unwritten) {
        if let Some(count @ 1..) = unwritten {
            let elements = if *count == 1 { "element" } else { "elements" };
            return Err(format!(
                "the reference kernel leaves {count} {elements} of {} unwritten",
                buffer.name
            ));
        }
    }
    let mut elements = 0usize;
    let mut results = Vec::new();
    for (buffer, content) in wide.buffers.iter().zip(&done.contents) {
        let numbers = buffer.is_result().then(|| buffer.element.load(content));
        elements += numbers.as_ref().map_or(0, Vec::len);
        results.push(numbers);
    }
    let flops: u64 =
        done.launches.iter().filter_map(|launch| launch.counters).map(|counters| counters.thread_flops).sum();
    Ok(Expected { results, operations: Some(flops as f64 / elements.max(1) as f64) })
}

/// f64 for every floating-point element.
fn in_f64(element: Element) -> Element {
    if element.is_whole() { element } else { Element::F64 }
}
