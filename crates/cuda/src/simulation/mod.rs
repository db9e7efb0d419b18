//! One call by itself, on a GPU that is none: the launches that a real one would get, executed from their PTX on the CPU,
//! with everything checked that a GPU does not.

mod prediction;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use kinora_graph::TensorType;
use kinora_ptx::{
    Argument as Simulated, Freedom, LaunchConfig, MapElement, Module, Profile, Report, Simulator, Swizzle,
    TensorMap as SimulatedMap, TensorMapKind,
};

use crate::{
    Chip, CodeForm, CudaError,
    compiler::{CompileTarget, Compiler, CompilerOptions},
    kernels::{
        Argument, Call, DevicePointer, FAULT_BYTES, Implementation, Kernel, Launch, Places, TensorMap, Work,
    },
};

pub use prediction::CallPrediction;

/// A simulated GPU with a compiler, on which single calls run. What was compiled is kept for the next call.
#[derive(Debug)]
pub struct SimulatedBench {
    chip: Chip,
    profile: Profile,
    compiler: Compiler,
    /// To machine code, which alone tells the registers.
    assembler: Compiler,
    /// What kernels were compiled to.
    codes: Mutex<HashMap<Kernel, Code>>,
    /// The registers of their threads.
    registers: Mutex<HashMap<Kernel, u32>>,
}

/// A kernel's code.
#[derive(Clone, Debug)]
enum Code {
    /// Loaded, for any device: a call has one of its own, and reading the PTX takes longer than most calls.
    Module(Arc<Module>),
    /// Its PTX, which names variables in the memory of the device that it is loaded to.
    Text(Arc<str>),
}

/// What a call did on a simulated GPU.
#[derive(Debug)]
pub struct SimulatedRun {
    /// The bytes of its results.
    pub results: Vec<Vec<u8>>,
    /// The bad index that a kernel found in its data, where it found one.
    pub fault: Option<i32>,
    /// What each launch did, and what was wrong with it, by the kernel's name.
    pub reports: Vec<(String, Report)>,
    /// What of the kernels' arithmetic a chip may do in another way.
    pub freedom: Freedom,
}

impl SimulatedBench {
    /// A bench for a chip's kernels, on a simulated GPU of its generation.
    ///
    /// # Errors
    /// Where a bundle of kernels was named that is none.
    pub fn new(chip: Chip, compiler: CompilerOptions) -> Result<SimulatedBench, CudaError> {
        let target = |form| CompileTarget { architecture: chip.architecture, form };
        let capability = (chip.architecture.0 / 10, chip.architecture.0 % 10);
        let typical = match capability {
            (7, _) => Profile::t4(),
            (8, _) => Profile::a100(),
            _ => Profile::h200(),
        };
        let profile = Profile {
            name: chip.architecture.to_string(),
            capability,
            multiprocessors: chip.multiprocessors,
            shared_bytes: chip.shared_bytes as usize,
            ..typical
        };
        Ok(SimulatedBench {
            profile,
            compiler: Compiler::new(target(CodeForm::Ptx), compiler.clone())?,
            assembler: Compiler::new(target(CodeForm::Cubin), compiler)?,
            chip,
            codes: Mutex::default(),
            registers: Mutex::default(),
        })
    }

    /// The same bench with another chip's figures: one that runs the same kernels.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> SimulatedBench {
        self.profile = profile;
        self
    }

    /// The chip.
    pub fn chip(&self) -> &Chip {
        &self.chip
    }

    /// Runs a call once, in memory of its own. Nothing is in it but the operands, so that a read of anything else is found.
    ///
    /// # Errors
    /// Where a kernel does not compile, its code is not understood, or the call is of a vendor's library.
    pub fn run(
        &self,
        call: &Call<'_>,
        implementation: &dyn Implementation,
        operands: &[&[u8]],
    ) -> Result<SimulatedRun, CudaError> {
        let said = |problem: kinora_ptx::PtxError| CudaError::Simulation(problem.to_string());
        let mut simulator = Simulator::new(self.profile.clone());
        let allocate = |simulator: &mut Simulator, bytes: usize| -> Result<DevicePointer, CudaError> {
            if bytes == 0 {
                return Ok(DevicePointer::NULL);
            }
            simulator.allocate(bytes).map(DevicePointer::new).map_err(said)
        };
        let tensors =
            |simulator: &mut Simulator, types: &[&TensorType]| -> Result<Vec<DevicePointer>, CudaError> {
                types.iter().map(|ty| allocate(simulator, ty.bytes())).collect()
            };
        let places = Places {
            inputs: tensors(&mut simulator, call.inputs)?,
            outputs: tensors(&mut simulator, call.outputs)?,
            workspace: allocate(&mut simulator, implementation.workspace())?,
            fault: allocate(&mut simulator, FAULT_BYTES)?,
            number: 1,
        };
        simulator.copy_in(places.fault.address(), &[0; FAULT_BYTES]).map_err(said)?;
        for (&address, operand) in places.inputs.iter().zip(operands) {
            if !operand.is_empty() {
                simulator.copy_in(address.address(), operand).map_err(said)?;
            }
        }
        let (mut reports, mut freedom) = (Vec::new(), Freedom::default());
        for work in implementation.work(&places)? {
            let Work::Launch(launch) = work else {
                return Err(CudaError::Simulation(format!("{} is a library's", implementation.name())));
            };
            let module = self.module(&mut simulator, &launch.kernel)?;
            let report = simulator.launch(&module, launch.kernel.entry, &config(&launch)).map_err(said)?;
            freedom.add(module.freedom(launch.kernel.entry).map_err(said)?);
            reports.push((launch.kernel.label(), report));
        }
        let read = |address: DevicePointer, bytes: usize| {
            let mut to = vec![0; bytes];
            if bytes > 0 {
                simulator.copy_out(address.address(), &mut to).map_err(said)?;
            }
            Ok(to)
        };
        let results = places.outputs.iter().zip(call.outputs).map(|(&at, ty)| read(at, ty.bytes()));
        let results = results.collect::<Result<_, CudaError>>()?;
        let words = read(places.fault, FAULT_BYTES)?;
        let word = |at: usize| i32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
        Ok(SimulatedRun { results, fault: (word(0) != 0).then(|| word(4)), reports, freedom })
    }

    /// A kernel, loaded.
    fn module(&self, simulator: &mut Simulator, kernel: &Kernel) -> Result<Arc<Module>, CudaError> {
        let codes = || self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = codes().get(kernel).cloned();
        let text = match known {
            Some(Code::Module(module)) => return Ok(module),
            Some(Code::Text(text)) => text,
            // Others go on meanwhile; what two compile at a time is the same.
            None => self.text(kernel)?,
        };
        let module = Module::load(simulator, &text)
            .map(Arc::new)
            .map_err(|problem| CudaError::Simulation(problem.to_string()))?;
        let code = if module.is_portable() { Code::Module(module.clone()) } else { Code::Text(text) };
        codes().insert(kernel.clone(), code);
        Ok(module)
    }

    /// A kernel's PTX.
    fn text(&self, kernel: &Kernel) -> Result<Arc<str>, CudaError> {
        let code = self.compiler.compile(kernel)?;
        let text = String::from_utf8(code.bytes).map_err(|_| {
            CudaError::Simulation(format!("{}: the compiler's PTX is no text", kernel.label()))
        })?;
        // The compiler ends it with a zero.
        Ok(text.trim_end_matches('\0').into())
    }
}

/// A launch as the simulator takes it.
fn config(launch: &Launch) -> LaunchConfig {
    let argument = |argument: &Argument| match argument {
        Argument::Pointer(pointer) => Simulated::U64(pointer.address()),
        Argument::I32(value) => Simulated::U32(value.cast_unsigned()),
        Argument::I64(value) => Simulated::U64(value.cast_unsigned()),
        Argument::F32(value) => Simulated::F32(*value),
        Argument::Struct(value) => Simulated::Bytes(value.bytes().to_vec()),
        Argument::TensorMap(map) => Simulated::TensorMap(tensor_map(map)),
    };
    LaunchConfig {
        grid: launch.grid,
        block: launch.block,
        shared_bytes: launch.shared_bytes as usize,
        cluster: [launch.cluster, 1, 1],
        arguments: launch.arguments.iter().map(argument).collect(),
    }
}

/// A descriptor of the bulk copy engine as the simulator takes it.
fn tensor_map(map: &TensorMap) -> SimulatedMap {
    SimulatedMap {
        address: map.address.address(),
        element: if map.bf16 { MapElement::Bf16 } else { MapElement::F16 },
        rank: map.rank,
        extents: map.extents,
        strides: map.strides,
        element_strides: [1; 5],
        kind: TensorMapKind::Tiled { tile: map.tile },
        swizzle: match map.swizzle {
            0 => Swizzle::None,
            32 => Swizzle::Bytes32,
            64 => Swizzle::Bytes64,
            _ => Swizzle::Bytes128,
        },
        nan_outside: false,
    }
}
