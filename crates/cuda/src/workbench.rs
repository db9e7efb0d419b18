//! One call by itself, on a GPU: for the tuner, for tests and for benchmarks.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kinora_graph::TensorType;

use crate::{
    Chip, CudaError, LoadedKernels,
    compiler::{CompileTarget, Compiler, CompilerOptions, Progress},
    driver::{Context, Device, DeviceBuffer, Event, Stream},
    kernels::{Call, FAULT_BYTES, Implementation, Places, Work},
    launch::{DevicePointer, Kernel},
    target::ALIGNMENT,
    vendor::Libraries,
    work::{PreparedWork, kernels},
};

/// Several times the largest level-two cache.
const FLUSH_BYTES: usize = 256 << 20;

/// A GPU with a compiler, on which single calls run. What was compiled is kept for the next call.
#[derive(Debug)]
pub struct Workbench {
    chip: Chip,
    libraries: Libraries,
    compiler: Compiler,
    stream: Stream,
    loaded: Mutex<LoadedKernels>,
}

impl Workbench {
    /// A workbench for a chip on a GPU that runs its code.
    ///
    /// # Errors
    /// If the GPU does not, or the driver fails.
    pub fn new(device: &Device, chip: Chip, compiler: CompilerOptions) -> Result<Workbench, CudaError> {
        device.info().accepts(&chip)?;
        let target = CompileTarget { architecture: chip.architecture, form: chip.form };
        let compiler = CompilerOptions { driver: Some(device.info().driver.major), ..compiler };
        Ok(Workbench {
            libraries: Libraries::of(device.context()),
            compiler: Compiler::new(target, compiler)?,
            stream: Stream::new(device.context())?,
            loaded: Mutex::default(),
            chip,
        })
    }

    /// The chip.
    pub fn chip(&self) -> &Chip {
        &self.chip
    }

    /// The context that calls run in.
    pub fn context(&self) -> &Context {
        self.stream.context()
    }

    /// The vendors' libraries there are.
    pub fn libraries(&self) -> &Libraries {
        &self.libraries
    }

    /// Compiles kernels and keeps them.
    ///
    /// # Errors
    /// If one does not compile.
    pub fn compile(&self, wanted: &[Kernel]) -> Result<(), CudaError> {
        self.compile_observed(wanted, &|_| {})
    }

    /// As [`Workbench::compile`], and reports each kernel.
    ///
    /// # Errors
    /// If one does not compile.
    pub fn compile_observed(
        &self,
        wanted: &[Kernel],
        progress: &(dyn Fn(&Progress) + Sync),
    ) -> Result<(), CudaError> {
        let missing: Vec<Kernel> = {
            let loaded = self.loaded();
            wanted.iter().filter(|kernel| !loaded.contains(kernel)).cloned().collect()
        };
        // Others go on meanwhile; what two compile at a time is loaded twice, and the second one stays.
        let codes = self.compiler.compile_all(&missing, progress)?.codes;
        self.loaded().add(self.stream.context(), codes)
    }

    /// The kernels that an implementation of a call launches.
    ///
    /// # Errors
    /// If a tensor is larger than the kernels count, or a library does not take the call.
    pub fn kernels(
        &self,
        call: &Call<'_>,
        implementation: &dyn Implementation,
    ) -> Result<Vec<Kernel>, CudaError> {
        let work = implementation.work(&Places::anywhere(call)).map_err(|error| call.blame(error))?;
        Ok(kernels(work.iter()))
    }

    fn loaded(&self) -> MutexGuard<'_, LoadedKernels> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for a call's tensors, with so much scratch memory.
    ///
    /// # Errors
    /// If there is too little.
    pub fn memory(&self, call: &Call<'_>, workspace_bytes: usize) -> Result<Arc<CallMemory>, CudaError> {
        let mut bytes = 0;
        let mut reserve = |size: usize| {
            let at = bytes;
            bytes += size.next_multiple_of(ALIGNMENT);
            (at, size)
        };
        let inputs = call.inputs.iter().map(|ty| reserve(ty.bytes())).collect();
        let outputs = call.outputs.iter().map(|ty| reserve(ty.bytes())).collect();
        let workspace = reserve(workspace_bytes);
        let fault = reserve(FAULT_BYTES);
        let buffer = DeviceBuffer::new(self.stream.context(), bytes)?;
        Ok(Arc::new(CallMemory { inputs, outputs, workspace, fault, buffer }))
    }

    /// Memory larger than the caches, for [`PreparedCall::time`] to overwrite.
    ///
    /// # Errors
    /// If there is too little.
    pub fn flush_memory(&self) -> Result<DeviceBuffer, CudaError> {
        DeviceBuffer::new(self.stream.context(), FLUSH_BYTES)
    }

    /// Overwrites memory that is larger than the caches, so that nothing else lies in them.
    ///
    /// # Errors
    /// If the device fails.
    pub fn flush(&self, memory: &DeviceBuffer) -> Result<(), CudaError> {
        // SAFETY: the buffer is borrowed until the stream has been waited for.
        unsafe { self.stream.fill(memory.address(), 0, memory.bytes())? };
        self.stream.synchronise()
    }

    /// Compiles a call's kernels and allocates its tensors. The implementation must be one offered for such a call.
    ///
    /// # Errors
    /// If a kernel does not compile, or there is too little memory.
    pub fn prepare(
        &self,
        call: &Call<'_>,
        implementation: &dyn Implementation,
    ) -> Result<PreparedCall, CudaError> {
        let memory = self.memory(call, implementation.workspace())?;
        self.prepare_in(call, implementation, &memory)
    }

    /// As [`Workbench::prepare`], in memory that other ways to run the call share.
    ///
    /// # Errors
    /// If a kernel does not compile, the memory is for tensors of other sizes, or the scratch memory is too little.
    pub fn prepare_in(
        &self,
        call: &Call<'_>,
        implementation: &dyn Implementation,
        memory: &Arc<CallMemory>,
    ) -> Result<PreparedCall, CudaError> {
        if implementation.workspace() > memory.workspace.1 {
            return Err(CudaError::Internal(format!("{} needs more scratch memory", implementation.name())));
        }
        if !memory.fits(call) {
            return Err(CudaError::Internal(format!(
                "the memory for {} is that of another call",
                implementation.name()
            )));
        }
        let work = implementation.work(&memory.places()).map_err(|error| call.blame(error))?;
        self.prepare_work(work, memory)
    }

    /// As [`Workbench::prepare_in`], for what need not compute more than some elements of a call's one result. What can leave out
    /// nothing computes all.
    ///
    /// # Errors
    /// As those of [`Workbench::prepare_in`].
    pub fn prepare_part_in(
        &self,
        call: &Call<'_>,
        implementation: &dyn Implementation,
        memory: &Arc<CallMemory>,
        elements: &[Range<usize>],
    ) -> Result<PreparedCall, CudaError> {
        if !memory.fits(call) {
            return Err(CudaError::Internal("the memory is that of another call".into()));
        }
        match implementation.part(&memory.places(), elements) {
            None => self.prepare_in(call, implementation, memory),
            Some(launches) => {
                let launches = launches.map_err(|error| call.blame(error))?;
                self.prepare_work(launches.into_iter().map(Work::Launch).collect(), memory)
            }
        }
    }

    /// Compiles what some work launches.
    fn prepare_work(&self, work: Vec<Work>, memory: &Arc<CallMemory>) -> Result<PreparedCall, CudaError> {
        self.compile(&kernels(work.iter()))?;
        let loaded = self.loaded();
        let work = work
            .into_iter()
            .map(|work| PreparedWork::new(work, &loaded))
            .collect::<Result<_, CudaError>>()?;
        Ok(PreparedCall { stream: self.stream.clone(), work, memory: memory.clone() })
    }

    /// Runs a call on operands once, in memory of its own, and gives the bytes of its results. That memory is filled with a
    /// byte first, if one is given, so that what the kernels leave out shows.
    ///
    /// # Errors
    /// If the call cannot be prepared, an operand has another size, a kernel finds a bad index in its data, or the device
    /// fails.
    pub fn run(
        &self,
        call: &Call<'_>,
        implementation: &dyn Implementation,
        poison: Option<u8>,
        operands: &[&[u8]],
    ) -> Result<Vec<Vec<u8>>, CudaError> {
        let prepared = self.prepare(call, implementation)?;
        prepared.write(poison, operands)?;
        prepared.run()?;
        match prepared.fault()? {
            Some(index) => Err(CudaError::BadIndex(index)),
            None => (0..call.outputs.len()).map(|output| prepared.read(output)).collect(),
        }
    }
}

/// Memory for a call: where each tensor begins, and its bytes.
#[derive(Debug)]
pub struct CallMemory {
    inputs: Vec<(usize, usize)>,
    outputs: Vec<(usize, usize)>,
    workspace: (usize, usize),
    fault: (usize, usize),
    buffer: DeviceBuffer,
}

impl CallMemory {
    /// Whether the tensors have the sizes of a call's.
    fn fits(&self, call: &Call<'_>) -> bool {
        let sizes = |tensors: &[(usize, usize)], types: &[&TensorType]| {
            tensors.iter().map(|&(_, bytes)| bytes).eq(types.iter().map(|ty| ty.bytes()))
        };
        sizes(&self.inputs, call.inputs) && sizes(&self.outputs, call.outputs)
    }

    fn address(&self, (at, bytes): (usize, usize)) -> DevicePointer {
        if bytes == 0 { DevicePointer::NULL } else { self.buffer.address().offset(at) }
    }

    fn places(&self) -> Places {
        Places {
            inputs: self.inputs.iter().map(|&tensor| self.address(tensor)).collect(),
            outputs: self.outputs.iter().map(|&tensor| self.address(tensor)).collect(),
            workspace: self.address(self.workspace),
            fault: self.address(self.fault),
            number: 1,
        }
    }
}

/// A call that is ready to run.
#[derive(Debug)]
pub struct PreparedCall {
    stream: Stream,
    work: Vec<PreparedWork>,
    /// Dropped after the work that points to it; everything given to the stream has been waited for.
    memory: Arc<CallMemory>,
}

impl PreparedCall {
    /// Fills everything with a byte, results and scratch memory included, if one is given, then writes the operands.
    ///
    /// # Errors
    /// If an operand has another size, or the driver fails.
    pub fn write(&self, poison: Option<u8>, operands: &[&[u8]]) -> Result<(), CudaError> {
        let buffer = &self.memory.buffer;
        if let Some(byte) = poison {
            // SAFETY: all of it is this call's own memory, and is waited for below.
            unsafe { self.stream.fill(buffer.address(), byte, buffer.bytes())? };
        }
        self.clear_fault()?;
        for (&tensor, operand) in self.memory.inputs.iter().zip(operands) {
            if tensor.1 != operand.len() {
                return Err(CudaError::Internal(format!(
                    "an operand of {} bytes for {}",
                    operand.len(),
                    tensor.1
                )));
            }
            // SAFETY: the operand is borrowed until the copy has been waited for, and there is room for it.
            unsafe { self.stream.upload(self.memory.address(tensor), operand)? };
        }
        self.stream.synchronise()
    }

    /// Writes an operand that repeats a pattern.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn repeat(&self, operand: usize, pattern: &[u8]) -> Result<(), CudaError> {
        let (at, bytes) = self.memory.inputs[operand];
        let start = self.memory.buffer.address().offset(at);
        let mut done = pattern.len().min(bytes);
        // SAFETY: the pattern is borrowed until the copy has been waited for, and there is room for it.
        unsafe { self.stream.upload(start, &pattern[..done])? };
        while done > 0 && done < bytes {
            let more = done.min(bytes - done);
            // SAFETY: what is copied lies before what is written, all within the operand.
            unsafe { self.stream.copy(start.offset(done), start, more)? };
            done += more;
        }
        self.stream.synchronise()
    }

    /// Fills the results with a byte.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn poison_results(&self, byte: u8) -> Result<(), CudaError> {
        for &tensor in &self.memory.outputs {
            // SAFETY: the result is this call's own memory, and the stream is waited for before that goes.
            unsafe { self.stream.fill(self.memory.address(tensor), byte, tensor.1)? };
        }
        self.clear_fault()?;
        self.stream.synchronise()
    }

    fn clear_fault(&self) -> Result<(), CudaError> {
        // SAFETY: the word is this call's own memory.
        unsafe { self.stream.fill(self.memory.address(self.memory.fault), 0, FAULT_BYTES) }
    }

    /// Runs the call once and waits for it.
    ///
    /// # Errors
    /// If the device fails.
    pub fn run(&self) -> Result<(), CudaError> {
        self.enqueue()?;
        self.stream.synchronise()
    }

    fn enqueue(&self) -> Result<(), CudaError> {
        // SAFETY: the work addresses only the memory of its call (the contract of `Implementation`). `memory` has the sizes
        // of that call's tensors, as `prepare_in` checked; whoever puts work into the stream waits for it.
        self.work.iter().try_for_each(|work| unsafe { work.enqueue(&self.stream) })
    }

    /// Runs the call so often, and gives the milliseconds of each run. Before each, `flush` is overwritten, which is
    /// [larger than the caches](Workbench::flush_memory), so that nothing of the call's lies in them.
    ///
    /// # Errors
    /// If the device fails.
    pub fn time(&self, repeats: usize, flush: &DeviceBuffer) -> Result<Vec<f32>, CudaError> {
        let context = self.stream.context();
        let mut marks = Vec::with_capacity(repeats);
        for _ in 0..repeats {
            let (start, end) = (Event::new(context)?, Event::new(context)?);
            // SAFETY: the buffer is borrowed until the stream has been waited for.
            unsafe { self.stream.fill(flush.address(), 0, flush.bytes())? };
            self.stream.record(&start)?;
            self.enqueue()?;
            self.stream.record(&end)?;
            marks.push((start, end));
        }
        self.stream.synchronise()?;
        marks.iter().map(|(start, end)| end.milliseconds_since(start)).collect()
    }

    /// The milliseconds of so many runs in a row, with nothing between them.
    ///
    /// # Errors
    /// If the device fails.
    pub fn time_together(&self, repeats: usize) -> Result<f32, CudaError> {
        let context = self.stream.context();
        let (start, end) = (Event::new(context)?, Event::new(context)?);
        self.stream.record(&start)?;
        for _ in 0..repeats {
            self.enqueue()?;
        }
        self.stream.record(&end)?;
        self.stream.synchronise()?;
        end.milliseconds_since(&start)
    }

    /// A result.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn read(&self, output: usize) -> Result<Vec<u8>, CudaError> {
        let bytes = self.memory.outputs[output].1;
        self.read_part(output, 0, bytes)
    }

    /// So many bytes of a result from the given one on, or those there are.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn read_part(&self, output: usize, from: usize, bytes: usize) -> Result<Vec<u8>, CudaError> {
        let (at, all) = self.memory.outputs[output];
        let from = from.min(all);
        self.read_at(at + from, bytes.min(all - from))
    }

    /// The bad index that a kernel found in its data, if it found one.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn fault(&self) -> Result<Option<i32>, CudaError> {
        let words = self.read_at(self.memory.fault.0, FAULT_BYTES)?;
        let word = |at: usize| i32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
        Ok((word(0) != 0).then(|| word(4)))
    }

    fn read_at(&self, offset: usize, bytes: usize) -> Result<Vec<u8>, CudaError> {
        let mut to = vec![0; bytes];
        // SAFETY: the vector lives until the copy has been waited for, and so many bytes lie there.
        unsafe { self.stream.download(&mut to, self.memory.buffer.address().offset(offset))? };
        self.stream.synchronise()?;
        Ok(to)
    }
}
