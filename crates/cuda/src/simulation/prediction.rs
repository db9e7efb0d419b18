//! Predicts how long a call takes on a GPU, from the launches that it would get.

use std::sync::PoisonError;

use kinora_ptx::{Calibration, PredictOptions, Prediction, Simulator};
use serde::Serialize;

use super::{SimulatedBench, config, registers_of};
use crate::{
    CudaError,
    kernels::{Call, DevicePointer, FAULT_BYTES, Implementation, Kernel, Places, Work},
};

/// What a call is predicted to take.
#[derive(Clone, Debug, Serialize)]
pub struct CallPrediction {
    /// Total seconds.
    pub seconds: f64,
    /// Each launch, by the kernel's name.
    pub launches: Vec<(String, Prediction)>,
}

impl SimulatedBench {
    /// Predicts how long a call takes. Addresses are reserved without memory, so any size works; kernels read zeros.
    ///
    /// # Errors
    /// If a kernel does not compile or cannot be simulated, or the call is to a vendor library.
    pub fn predict(
        &self,
        call: &Call<'_>,
        implementation: &dyn Implementation,
        calibration: &Calibration,
    ) -> Result<CallPrediction, CudaError> {
        let mut simulator = Simulator::new(self.profile.clone());
        let mut reserve = |bytes: usize| -> DevicePointer {
            if bytes == 0 { DevicePointer::NULL } else { DevicePointer::new(simulator.reserve(bytes)) }
        };
        let places = Places {
            inputs: call.inputs.iter().map(|ty| reserve(ty.bytes())).collect(),
            outputs: call.outputs.iter().map(|ty| reserve(ty.bytes())).collect(),
            workspace: reserve(implementation.workspace()),
            fault: reserve(FAULT_BYTES),
            number: 1,
        };
        let mut launches: Vec<(String, Prediction)> = Vec::new();
        for work in implementation.work(&places).map_err(|error| call.blame(error))? {
            let Work::Launch(launch) = work else {
                return Err(CudaError::NotSimulated(implementation.name()));
            };
            let module = self.module(&mut simulator, &launch.kernel)?;
            let options = PredictOptions {
                registers: self.registers(&launch.kernel)?,
                calibration: calibration.clone(),
                follows: !launches.is_empty(),
                ..PredictOptions::default()
            };
            let prediction = simulator.predict(&module, launch.kernel.entry, &config(&launch), &options)?;
            launches.push((launch.kernel.label(), prediction));
        }
        let seconds = launches.iter().map(|(_, prediction)| prediction.seconds).sum();
        Ok(CallPrediction { seconds, launches })
    }

    /// A kernel's registers per thread, if the compiler reports them.
    fn registers(&self, kernel: &Kernel) -> Result<Option<u32>, CudaError> {
        let known = || self.registers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&registers) = known().get(kernel) {
            return Ok(Some(registers));
        }
        let registers = registers_of(&self.assembler.compile(kernel)?);
        if let Some(registers) = registers {
            known().insert(kernel.clone(), registers);
        }
        Ok(registers)
    }
}
