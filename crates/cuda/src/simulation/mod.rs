//! Runs single calls on a simulated GPU: the launches that a real one would get are executed from their PTX on the CPU, with all
//! checks.

mod prediction;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use kinora_graph::{DType, TensorType};
use kinora_ptx::{
    Argument as Simulated, ChipSpec, LaunchConfig, MapElement, Module, Report, RoundingLatitude, Simulator,
    Swizzle, TensorMap as SimulatedMap, TensorMapKind,
};

use crate::{
    Architecture, Chip, CodeForm, CudaError,
    compiler::{Code as CompiledCode, CompileTarget, Compiler, CompilerOptions, Progress},
    kernels::{
        Argument, Call, DevicePointer, FAULT_BYTES, Implementation, Kernel, Launch, Places, TensorMap, Work,
    },
};

pub use prediction::CallPrediction;

/// A simulated GPU with a compiler, which runs single calls. Compiled kernels are kept for the next call.
#[derive(Debug)]
pub struct SimulatedBench {
    chip: Chip,
    profile: ChipSpec,
    compiler: Compiler,
    /// Compiles to machine code, which is needed to know the registers per thread.
    assembler: Compiler,
    /// Compiled kernels.
    codes: Mutex<HashMap<Kernel, Code>>,
    /// Their registers per thread.
    registers: Mutex<HashMap<Kernel, u32>>,
}

/// A kernel's code.
#[derive(Clone, Debug)]
enum Code {
    /// Loaded, for any simulator. Every call has its own, and loading PTX takes longer than most calls.
    Module(Arc<Module>),
    /// Its PTX, because it refers to variables in the memory of the simulator that it is loaded to.
    Text(Arc<str>),
}

/// What a call did on a simulated GPU.
#[derive(Debug)]
pub struct SimulatedRun {
    /// The bytes of the results.
    pub results: Vec<Vec<u8>>,
    /// The bad index that a kernel found in its data, if any.
    pub fault: Option<i32>,
    /// The report of each launch, by the kernel's name.
    pub reports: Vec<(String, Report)>,
    /// The parts of the kernels' arithmetic that a chip may round differently.
    pub latitude: RoundingLatitude,
}

impl SimulatedBench {
    /// A bench for a chip's kernels, on a simulated GPU of its generation.
    ///
    /// # Errors
    /// If the named bundle of kernels is not one.
    pub fn new(chip: Chip, compiler: CompilerOptions) -> Result<SimulatedBench, CudaError> {
        let capability = (chip.architecture.0 / 10, chip.architecture.0 % 10);
        let typical = match capability {
            (7, _) => ChipSpec::t4(),
            (8, _) => ChipSpec::a100(),
            _ => ChipSpec::h200(),
        };
        let profile = ChipSpec {
            name: chip.architecture.to_string(),
            capability,
            multiprocessors: chip.multiprocessors,
            shared_bytes: chip.shared_bytes as usize,
            ..typical
        };
        SimulatedBench::on(chip, profile, compiler)
    }

    /// A bench for the kernels that a known chip would run, on a simulation of that very chip.
    ///
    /// # Errors
    /// As [`SimulatedBench::new`].
    pub fn of_profile(profile: ChipSpec, compiler: CompilerOptions) -> Result<SimulatedBench, CudaError> {
        SimulatedBench::on(chip_of(&profile), profile, compiler)
    }

    fn on(chip: Chip, profile: ChipSpec, compiler: CompilerOptions) -> Result<SimulatedBench, CudaError> {
        let target = |form| CompileTarget { architecture: chip.architecture, form };
        Ok(SimulatedBench {
            profile,
            compiler: Compiler::new(target(CodeForm::Ptx), compiler.clone())?,
            assembler: Compiler::new(target(CodeForm::Cubin), compiler)?,
            chip,
            codes: Mutex::default(),
            registers: Mutex::default(),
        })
    }

    /// The chip.
    pub fn chip(&self) -> &Chip {
        &self.chip
    }

    /// Runs a call once, in its own memory, which holds nothing but the operands, so that a read of anything else is found.
    ///
    /// # Errors
    /// If a kernel does not compile or cannot be simulated, or the call is to a vendor library.
    pub fn run(
        &self,
        call: &Call<'_>,
        implementation: &dyn Implementation,
        operands: &[&[u8]],
    ) -> Result<SimulatedRun, CudaError> {
        let mut simulator = Simulator::new(self.profile.clone());
        let allocate = |simulator: &mut Simulator, bytes: usize| -> Result<DevicePointer, CudaError> {
            if bytes == 0 {
                return Ok(DevicePointer::NULL);
            }
            Ok(DevicePointer::new(simulator.allocate(bytes)?))
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
        simulator.copy_in(places.fault.address(), &[0; FAULT_BYTES])?;
        for (&address, operand) in places.inputs.iter().zip(operands) {
            if !operand.is_empty() {
                simulator.copy_in(address.address(), operand)?;
            }
        }
        let (mut reports, mut latitude) = (Vec::new(), RoundingLatitude::default());
        for work in implementation.work(&places).map_err(|error| call.blame(error))? {
            let Work::Launch(launch) = work else {
                return Err(CudaError::NotSimulated(implementation.name()));
            };
            let module = self.module(&mut simulator, &launch.kernel)?;
            let report = simulator.launch(&module, launch.kernel.entry, &config(&launch))?;
            latitude.add(module.rounding_latitude(launch.kernel.entry)?);
            reports.push((launch.kernel.label(), report));
        }
        let read = |address: DevicePointer, bytes: usize| {
            let mut to = vec![0; bytes];
            if bytes > 0 {
                simulator.copy_out(address.address(), &mut to)?;
            }
            Ok(to)
        };
        let results = places.outputs.iter().zip(call.outputs).map(|(&at, ty)| read(at, ty.bytes()));
        let results = results.collect::<Result<_, CudaError>>()?;
        let words = read(places.fault, FAULT_BYTES)?;
        let word = |at: usize| i32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
        Ok(SimulatedRun { results, fault: (word(0) != 0).then(|| word(4)), reports, latitude })
    }

    /// Compiles kernels, in parallel, and keeps them. Progress counts each twice: its code is needed in both forms.
    ///
    /// # Errors
    /// If one does not compile, or there is no compiler.
    pub fn compile(
        &self,
        kernels: &[Kernel],
        progress: &(dyn Fn(&Progress) + Sync),
    ) -> Result<(), CudaError> {
        let half = |before: usize| {
            move |one: &Progress| {
                progress(&Progress { done: before + one.done, total: 2 * one.total, ..one.clone() });
            }
        };
        for (kernel, code) in self.compiler.compile_all(kernels, &half(0))?.codes {
            let text = text_of(&code.bytes);
            self.codes
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(kernel)
                .or_insert(Code::Text(text));
        }
        for (kernel, code) in self.assembler.compile_all(kernels, &half(kernels.len()))?.codes {
            if let Some(registers) = registers_of(&code) {
                self.registers.lock().unwrap_or_else(PoisonError::into_inner).insert(kernel, registers);
            }
        }
        Ok(())
    }

    /// A kernel, loaded.
    fn module(&self, simulator: &mut Simulator, kernel: &Kernel) -> Result<Arc<Module>, CudaError> {
        let codes = || self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = codes().get(kernel).cloned();
        let text = match known {
            Some(Code::Module(module)) => return Ok(module),
            Some(Code::Text(text)) => text,
            // The lock is not held: two threads may compile the same kernel, with the same result.
            None => self.text(kernel)?,
        };
        let module = Arc::new(Module::load(simulator, &text)?);
        let code = if module.is_portable() { Code::Module(module.clone()) } else { Code::Text(text) };
        codes().insert(kernel.clone(), code);
        Ok(module)
    }

    /// A kernel's PTX.
    fn text(&self, kernel: &Kernel) -> Result<Arc<str>, CudaError> {
        Ok(text_of(&self.compiler.compile(kernel)?.bytes))
    }
}

/// PTX as the compiler gives it, which terminates it with a zero byte.
fn text_of(bytes: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').into()
}

/// Registers per thread, if the compiler reports them.
fn registers_of(code: &CompiledCode) -> Option<u32> {
    code.resources.map(|resources| resources.registers).filter(|&registers| registers > 0)
}

/// What choosing kernels has to know of a chip that can be simulated.
pub fn chip_of(profile: &ChipSpec) -> Chip {
    let (major, minor) = profile.capability;
    Chip {
        architecture: Architecture(10 * major + minor),
        form: CodeForm::Cubin,
        multiprocessors: profile.multiprocessors,
        shared_bytes: profile.shared_bytes as u32,
    }
}

/// A launch in the simulator's terms.
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
        cooperative: false,
    }
}

/// A tensor map in the simulator's terms.
fn tensor_map(map: &TensorMap) -> SimulatedMap {
    SimulatedMap {
        address: map.address.address(),
        element: match map.dtype {
            DType::F32 => MapElement::F32,
            DType::F16 => MapElement::F16,
            DType::BF16 => MapElement::Bf16,
            DType::F8E4M3 | DType::U8 => MapElement::U8,
            DType::I32 => MapElement::I32,
        },
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
