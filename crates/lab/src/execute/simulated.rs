//! The simulated device.

use kinora_ptx::{
    Argument, Calibration, Checks, ChipSpec, LaunchConfig, Module, PredictOptions, Prediction, PtxError,
    Simulator,
};

use super::{Address, Device, ExecuteError, Launch, Launched, ModuleId};
use crate::{
    compile::{Compiled, Form, Resources},
    feedback::{Feedback, Subject, explain},
};

/// A GPU that the simulator stands for. Fresh memory is not filled: reading it before it is written is a finding.
#[derive(Debug)]
pub struct SimulatedDevice {
    simulator: Simulator,
    modules: Vec<Module>,
    /// Whether memory is only reserved: for predictions of launches whose buffers need not exist.
    reserves: bool,
    calibration: Calibration,
}

impl SimulatedDevice {
    /// A device that makes these checks.
    pub fn new(chip: ChipSpec, checks: Checks) -> SimulatedDevice {
        SimulatedDevice {
            simulator: Simulator::new(chip).with_checks(checks),
            modules: Vec::new(),
            reserves: false,
            calibration: Calibration::default(),
        }
    }

    /// A device for predictions alone: memory reads as zeros, and writes are ignored.
    pub fn for_predictions(chip: ChipSpec) -> SimulatedDevice {
        SimulatedDevice { reserves: true, ..SimulatedDevice::new(chip, Checks::default()) }
    }

    /// Uses what was measured on a real chip of the kind for predictions.
    #[must_use]
    pub fn calibrated(self, calibration: Calibration) -> SimulatedDevice {
        SimulatedDevice { calibration, ..self }
    }

    /// The simulator.
    pub fn simulator(&self) -> &Simulator {
        &self.simulator
    }

    /// A module that was loaded.
    pub fn module(&self, module: ModuleId) -> Option<&Module> {
        self.modules.get(module.0)
    }

    fn loaded(&self, module: ModuleId) -> Result<&Module, ExecuteError> {
        self.module(module).ok_or_else(|| ExecuteError::Device("no such module is loaded".to_owned()))
    }

    /// Predicts a launch; one that `follows` another in the same stream costs less to start.
    ///
    /// # Errors
    /// If the launch would be refused.
    pub fn predict_in_row(
        &self,
        launch: &Launch,
        registers: Option<u32>,
        follows: bool,
    ) -> Result<Prediction, ExecuteError> {
        let module = self.loaded(launch.module)?;
        let calibration = self.calibration.clone();
        let options = PredictOptions { registers, calibration, follows, ..PredictOptions::default() };
        self.simulator.predict(module, &launch.kernel, &config(launch), &options).map_err(device)
    }

    /// Explains a launch: what it costs by line, and what it would gain without each of these costs.
    ///
    /// # Errors
    /// If the launch would be refused.
    pub fn explain(
        &self,
        launch: &Launch,
        resources: Option<Resources>,
        sources: &[(String, String)],
    ) -> Result<Feedback, ExecuteError> {
        let subject = Subject {
            simulator: &self.simulator,
            module: self.loaded(launch.module)?,
            kernel: &launch.kernel,
            config: &config(launch),
            registers: resources.map(|resources| resources.registers).filter(|&registers| registers > 0),
            spill_bytes: resources.map_or(0, |resources| resources.spill_bytes),
            calibration: &self.calibration,
            sources,
        };
        explain(&subject).map_err(device)
    }

    fn memory(&self, bytes: usize, error: &PtxError) -> ExecuteError {
        ExecuteError::Memory { device: self.name(), bytes, why: error.to_string() }
    }
}

/// A launch as the simulator takes it.
fn config(launch: &Launch) -> LaunchConfig {
    LaunchConfig {
        grid: launch.grid,
        block: launch.block,
        shared_bytes: launch.shared_bytes as usize,
        cluster: launch.cluster,
        cooperative: false,
        arguments: launch.arguments.iter().cloned().map(Argument::Bytes).collect(),
    }
}

fn device(error: PtxError) -> ExecuteError {
    match error {
        PtxError::Launch { .. } | PtxError::NoKernel { .. } => ExecuteError::Launch(error.to_string()),
        error => ExecuteError::Device(error.to_string()),
    }
}

impl Device for SimulatedDevice {
    fn name(&self) -> String {
        format!("a simulated {}", self.simulator.chip().name)
    }

    fn multiprocessors(&self) -> usize {
        self.simulator.chip().multiprocessors as usize
    }

    fn shared_bytes(&self) -> usize {
        self.simulator.chip().shared_bytes
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn allocate(&mut self, bytes: usize) -> Result<Address, ExecuteError> {
        if self.reserves {
            return Ok(self.simulator.reserve(bytes));
        }
        self.simulator.allocate(bytes).map_err(|error| self.memory(bytes, &error))
    }

    fn free(&mut self, address: Address) -> Result<(), ExecuteError> {
        self.simulator.free(address).map_err(device)
    }

    fn write(&mut self, to: Address, bytes: &[u8]) -> Result<(), ExecuteError> {
        self.simulator.copy_in(to, bytes).map_err(device)
    }

    fn read(&self, from: Address, into: &mut [u8]) -> Result<(), ExecuteError> {
        self.simulator.copy_out(from, into).map_err(device)
    }

    fn written(&self, from: Address, bytes: usize) -> Result<Option<Vec<bool>>, ExecuteError> {
        self.simulator.written(from, bytes).map(Some).map_err(device)
    }

    fn load(&mut self, code: &Compiled) -> Result<ModuleId, ExecuteError> {
        if code.form != Form::Ptx {
            return Err(ExecuteError::Load("the simulator runs PTX, not machine code".to_owned()));
        }
        let module = Module::load(&mut self.simulator, code.ptx());
        self.modules.push(module.map_err(|error| ExecuteError::Load(error.to_string()))?);
        Ok(ModuleId(self.modules.len() - 1))
    }

    fn launch(&mut self, launch: &Launch) -> Result<Launched, ExecuteError> {
        let module = self
            .modules
            .get(launch.module.0)
            .ok_or_else(|| ExecuteError::Device("no such module is loaded".to_owned()))?;
        let report = self.simulator.launch(module, &launch.kernel, &config(launch)).map_err(device)?;
        Ok(Launched { findings: report.findings, counters: Some(report.counters) })
    }

    fn predict(&self, launch: &Launch, registers: Option<u32>) -> Result<Option<Prediction>, ExecuteError> {
        self.predict_in_row(launch, registers, false).map(Some)
    }
}
