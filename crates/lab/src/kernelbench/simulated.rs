//! Runs the launches of a solution in the simulator, or predicts how long they take on a chip.

use std::{collections::HashMap, fs};

use kinora_cuda::{
    Architecture, CodeForm,
    compiler::{CompileTarget, Compiler, CompilerOptions},
};
use kinora_ptx::{
    Argument as Value, Checks, ChipSpec, DeviceAddress, Finding, LaunchConfig, Module, PredictOptions,
    Simulator,
};
use serde::{Deserialize, Serialize};

use super::{
    KernelBenchError,
    plan::{Argument, Launch, Plan},
};

/// The most findings that are passed on.
const MOST_FINDINGS: usize = 8;

/// What the simulator saw.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Simulated {
    /// What the kernels did wrong, in words; the first of them.
    pub findings: Vec<String>,
    /// How many findings there are.
    pub count: usize,
}

/// What a call of a solution is predicted to take.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Predicted {
    /// Milliseconds of all launches.
    pub milliseconds: f64,
    /// The limit of each kernel.
    pub kernels: Vec<PredictedKernel>,
}

/// What the launches of one kernel are predicted to take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PredictedKernel {
    /// The kernel.
    pub entry: String,
    /// Milliseconds of all its launches.
    pub milliseconds: f64,
    /// What limits it.
    pub limiter: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Blocks that a multiprocessor holds at a time.
    pub resident: u32,
}

fn target((major, minor): (u32, u32)) -> CompileTarget {
    CompileTarget { architecture: Architecture(10 * major + minor), form: CodeForm::Ptx }
}

/// The PTX of a plan's source for a compute capability.
///
/// # Errors
/// If it does not compile, or there is no compiler.
pub fn compile(plan: &Plan, capability: (u32, u32)) -> Result<String, KernelBenchError> {
    let compiler = Compiler::new(target(capability), CompilerOptions::from_environment())?;
    Ok(compiler.compile_text(&plan.name, &plan.text, &plan.options)?)
}

/// Runs a plan on a simulated chip with all checks, and writes what it computed. Sums and products are contracted, as the assembler does
/// it to nearly all that it may.
///
/// # Errors
/// If the source does not compile, a launch is refused, or a file cannot be read or written.
pub fn simulate(plan: &Plan, chip: &ChipSpec) -> Result<Simulated, KernelBenchError> {
    let ptx = compile(plan, chip.capability)?;
    let checks = Checks { contract: true, ..Checks::default() };
    let mut simulator = Simulator::new(chip.clone()).with_checks(checks);
    let module = Module::load(&mut simulator, &ptx)?;
    let mut addresses = Vec::new();
    for buffer in &plan.buffers {
        let address = simulator.allocate(buffer.bytes)?;
        if let Some(file) = &buffer.from {
            let bytes = fs::read(file).map_err(|source| KernelBenchError::file("read", file, source))?;
            simulator.copy_in(address, &bytes)?;
        }
        addresses.push(address);
    }
    let mut simulated = Simulated::default();
    for launch in &plan.launches {
        let report = simulator.launch(&module, &launch.entry, &config(launch, &addresses)?)?;
        simulated.count += report.findings.len();
        let room = MOST_FINDINGS.saturating_sub(simulated.findings.len());
        simulated.findings.extend(report.findings.iter().take(room).map(Finding::to_string));
    }
    for (buffer, &address) in plan.buffers.iter().zip(&addresses) {
        if let Some(file) = &buffer.to {
            let mut bytes = vec![0; buffer.bytes];
            simulator.copy_out(address, &mut bytes)?;
            fs::write(file, bytes).map_err(|source| KernelBenchError::file("write", file, source))?;
        }
    }
    Ok(simulated)
}

/// Predicts how long a plan takes on a chip, without its tensors.
///
/// # Errors
/// As [`simulate`].
pub fn predict(plan: &Plan, chip: &ChipSpec) -> Result<Predicted, KernelBenchError> {
    let ptx = compile(plan, chip.capability)?;
    // The assembler's number of registers; without it they are estimated.
    let compiler = Compiler::new(target(chip.capability), CompilerOptions::from_environment())?;
    let resources = compiler.resources_of_text(&plan.name, &plan.text, &plan.options)?;
    let registers = resources.map(|resources| resources.registers).filter(|&registers| registers > 0);
    let mut simulator = Simulator::new(chip.clone());
    let module = Module::load(&mut simulator, &ptx)?;
    let addresses: Vec<DeviceAddress> =
        plan.buffers.iter().map(|buffer| simulator.reserve(buffer.bytes)).collect();
    let mut predicted = Predicted::default();
    // Launches that differ only in where they work take the same time.
    let mut known: HashMap<(String, [u32; 3], [u32; 3], usize), usize> = HashMap::new();
    let mut times: Vec<(f64, f64)> = Vec::new();
    for (number, launch) in plan.launches.iter().enumerate() {
        let shape = (launch.entry.clone(), launch.grid, launch.block, launch.shared);
        if let Some(&at) = known.get(&shape) {
            predicted.kernels[at].milliseconds += times[at].1;
            continue;
        }
        let config = config(launch, &addresses)?;
        let time = |follows: bool| {
            let options = PredictOptions { follows, registers, ..PredictOptions::default() };
            simulator.predict(&module, &launch.entry, &config, &options)
        };
        let prediction = time(number > 0)?;
        let following = prediction.seconds - prediction.launch_seconds + chip.launch_seconds / 4.0;
        known.insert(shape, predicted.kernels.len());
        times.push((prediction.seconds * 1e3, following * 1e3));
        predicted.kernels.push(PredictedKernel {
            entry: launch.entry.clone(),
            milliseconds: prediction.seconds * 1e3,
            limiter: prediction.limiter.describe().to_owned(),
            registers: prediction.registers,
            resident: prediction.occupancy.blocks,
        });
    }
    predicted.milliseconds = predicted.kernels.iter().map(|kernel| kernel.milliseconds).sum();
    Ok(predicted)
}

fn config(launch: &Launch, addresses: &[DeviceAddress]) -> Result<LaunchConfig, KernelBenchError> {
    let value = |argument: &Argument| {
        Ok(match *argument {
            Argument::Buffer(number) => Value::U64(
                *addresses
                    .get(number)
                    .ok_or(KernelBenchError::NoBuffer { entry: launch.entry.clone(), number })?,
            ),
            Argument::I32(value) => Value::U32(value as u32),
            Argument::I64(value) => Value::U64(value as u64),
            Argument::F32(value) => Value::F32(value),
        })
    };
    Ok(LaunchConfig {
        grid: launch.grid,
        block: launch.block,
        shared_bytes: launch.shared,
        cluster: [1; 3],
        cooperative: false,
        arguments: launch.arguments.iter().map(value).collect::<Result<_, KernelBenchError>>()?,
    })
}
