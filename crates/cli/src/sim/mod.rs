//! `kinora sim`: a CUDA kernel on a simulated GPU.

pub mod arguments;
mod lines;
mod operands;
mod prediction;
pub mod quantities;
mod report;
mod source;
mod textures;

use std::path::{Path, PathBuf};

use kinora::files::Inputs;
use kinora_lab::Element;
use kinora_outside::read_text;
use kinora_ptx::{Checks, ChipSpec, DeviceAddress, DeviceLimits, LaunchConfig, Module, Simulator};
use serde_json::json;

use self::{
    arguments::{Check, SimArgs},
    operands::{Buffer, Operand, OperandError},
};
use crate::{
    answer,
    failure::Failure,
    files::{self, NewFile},
    print,
};

/// The most bytes of a kernel's source.
const MAX_SOURCE: u64 = 64 << 20;

/// Printed if buffers were given contents that a prediction alone ignores.
const UNREAD: &str = "--predict-only ignores what buffers hold: branches and addresses that depend on it behave as if it were zero; \
                      leave --predict-only out to use it";

/// Runs a kernel, and reports what it did.
pub fn run(arguments: &SimArgs) -> Result<(), Failure> {
    let outputs = outputs(arguments)?;
    let file = |source| Failure::Unreadable { path: arguments.file.clone(), source };
    let text = read_text(&arguments.file, MAX_SOURCE).map_err(file)?;
    let name = arguments.file.display().to_string();
    let is_ptx = source::is_ptx(&arguments.file, &text);
    if is_ptx && !arguments.compile.is_empty() {
        return Err(Failure::Usage(format!(
            "--compile is for CUDA C++, but {name} is PTX, which is not compiled"
        )));
    }
    let source = (!is_ptx).then_some(&text);
    let ptx = match source {
        Some(source) => source::ptx(arguments, &name, source)?,
        None => text.clone(),
    };

    let simulated = |error: kinora_ptx::PtxError| Failure::Simulation(format!("{name}: {error}"));
    let checks = Checks {
        races: !arguments.no_races,
        nonfinite: arguments.check.contains(&Check::Nan),
        contract: arguments.contract,
        steps: arguments.steps,
        seed: arguments.seed,
        by_line: arguments.by_line,
    };
    let mut simulator =
        Simulator::new(chip(arguments).clone()).with_checks(checks).with_limits(DeviceLimits {
            stack_bytes: arguments.stack,
            heap_bytes: arguments.heap,
            ..DeviceLimits::default()
        });
    let module = Module::load(&mut simulator, &ptx).map_err(simulated)?;
    let kernel = entry(arguments, &module)?;
    let function = module.function(&kernel).map_err(simulated)?;
    let (mut values, mut buffers) = (Vec::new(), Vec::new());
    for (number, operand) in arguments.args.iter().enumerate() {
        let placed = if arguments.predict_only {
            operand.reserve(&mut simulator)
        } else {
            operand.place(number, &mut simulator)
        };
        let (argument, buffer) = placed.map_err(placing)?;
        values.push(argument);
        buffers.push(buffer);
    }
    let config = LaunchConfig {
        grid: arguments.grid.0,
        block: arguments.block.0,
        shared_bytes: arguments.shared,
        cluster: arguments.cluster.0,
        cooperative: arguments.cooperative,
        arguments: values,
    };
    let prediction = prediction::predict(arguments, &simulator, &module, &kernel, &config, source)?;
    if arguments.predict_only {
        let unread = arguments.args.iter().filter_map(Operand::buffer).any(Buffer::has_content);
        let notes: Vec<&str> = unread.then_some(UNREAD).into_iter().collect();
        let answer = json!({
            "kernel": kernel, "function": function, "chip": chip(arguments), "prediction": prediction, "notes": notes,
        });
        let mut text = format!("{function} on a simulated {}\n", chip(arguments).name);
        text += &prediction.map_or_else(String::new, |prediction| prediction::text(&prediction));
        notes.iter().for_each(|note| text += &format!("note: {note}\n"));
        return print(&if arguments.json { format!("{answer}\n") } else { text });
    }
    let report = simulator.launch(&module, &kernel, &config).map_err(simulated)?;

    let read = |(address, bytes): (DeviceAddress, usize)| {
        let mut content = vec![0; bytes];
        simulator.copy_out(address, &mut content).map(|()| content).map_err(simulated)
    };
    for (number, file) in &outputs {
        let buffer = buffers.get(*number).copied().flatten();
        let buffer = buffer
            .ok_or_else(|| Failure::Usage(format!("--write {number}: argument {number} is not a buffer")))?;
        file.write(&read(buffer)?)?;
    }
    let mut shown = Vec::new();
    for (number, (operand, buffer)) in arguments.args.iter().zip(&buffers).enumerate() {
        if let (Some(known), Some(place), true) = (operand.buffer(), buffer, arguments.show > 0) {
            shown.push((number, first(known.element, &read(*place)?, arguments.show)));
        }
    }
    if !arguments.json {
        let text_of = |file: &str| text_of(arguments, source, file);
        print(&report::text(function, &chip(arguments).name, &report, text_of))?;
        if let Some(prediction) = &prediction {
            print(&prediction::text(prediction))?;
        }
        for (number, numbers) in &shown {
            print(&format!("argument {number}: {}\n", numbers.join(" ")))?;
        }
    }
    let buffers: Vec<_> =
        shown.iter().map(|(number, numbers)| json!({"argument": number, "first": numbers})).collect();
    let found = json!({
        "kernel": kernel, "function": function, "chip": chip(arguments), "findings": report.findings,
        "counters": report.counters, "by_line": report.by_line, "printf": report.printf,
        "prediction": prediction, "buffers": buffers,
    });
    let count = report.findings.len();
    answer(arguments.json, found, (count > 0).then_some(Failure::Found { count }))
}

/// The first numbers of a buffer.
fn first(element: Element, bytes: &[u8], count: usize) -> Vec<String> {
    element.show(bytes).into_iter().take(count).collect()
}

/// The files to write buffers to, by argument number.
fn outputs(arguments: &SimArgs) -> Result<Vec<(usize, NewFile)>, Failure> {
    let output = |text: &String| {
        let wrong = || Failure::Usage(format!("--write {text}: expected NUMBER=FILE"));
        let (number, path) = text.split_once('=').ok_or_else(wrong)?;
        let number = number.parse().map_err(|_| wrong())?;
        Ok((number, PathBuf::from(path)))
    };
    let outputs: Vec<(usize, PathBuf)> =
        arguments.write.iter().map(output).collect::<Result<_, Failure>>()?;
    files::refuse_same(outputs.iter().map(|(_, path)| path.as_path()))?;
    let filled = arguments.args.iter().filter_map(Operand::buffer).filter_map(Buffer::file);
    let inputs = Inputs::new(filled.chain([arguments.file.as_path()]));
    let check =
        |(number, path): (usize, PathBuf)| Ok((number, files::check(&path, arguments.force, &inputs)?));
    outputs.into_iter().map(check).collect()
}

/// The chip that was asked for.
fn chip(arguments: &SimArgs) -> &ChipSpec {
    arguments.device_profile.as_ref().unwrap_or(&arguments.chip)
}

/// The kernel that was asked for, or the only one.
fn entry(arguments: &SimArgs, module: &Module) -> Result<String, Failure> {
    let kernels: Vec<&str> = module.kernels().collect();
    match (&arguments.entry, kernels.as_slice()) {
        (Some(entry), _) => match module.find(entry) {
            Ok(kernel) => Ok(kernel.to_owned()),
            Err(error) => Err(Failure::Usage(format!("--entry {entry}: {error}"))),
        },
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(Failure::Simulation(format!("{} contains no kernel", arguments.file.display()))),
        (None, several) => Err(Failure::Usage(format!(
            "the file has several kernels; choose one with --entry: {}",
            functions(module, several).join("; ")
        ))),
    }
}

/// The names of kernels in C++.
fn functions<'a>(module: &'a Module, kernels: &[&'a str]) -> Vec<&'a str> {
    kernels.iter().map(|kernel| module.function(kernel).unwrap_or(kernel)).collect()
}

/// The text of a source file that a finding names: the kernel's own, or one that it includes.
fn text_of(arguments: &SimArgs, source: Option<&String>, file: &str) -> Option<String> {
    if let Some(source) = source
        && Path::new(file) == arguments.file
    {
        return Some(source.clone());
    }
    // PTX of a stranger may name any file.
    let known = ["cu", "cuh", "h", "hh", "hpp", "hxx", "inl", "c", "cc", "cpp", "cxx"];
    let extension = Path::new(file).extension()?.to_str()?;
    known.contains(&extension).then(|| read_text(Path::new(file), MAX_SOURCE).ok())?
}

fn placing(error: OperandError) -> Failure {
    match error {
        OperandError::File(path, source) => Failure::Unreadable { path, source },
        OperandError::Length { path, got, wanted } => {
            Failure::Usage(format!("{} has {got} bytes, but the argument needs {wanted}", path.display()))
        }
        OperandError::Simulator(error) => Failure::Simulation(error.to_string()),
    }
}
