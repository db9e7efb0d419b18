//! One call by itself, on a GPU: for the tuner, for tests and for benchmarks.

use std::sync::{Mutex, PoisonError};

use kinora_graph::TensorType;

use crate::{
    Chip, CudaError, LoadedKernels,
    compiler::{CompileTarget, Compiler, CompilerOptions},
    driver::{Device, DeviceBuffer, Event, Stream},
    kernels::{Call, Implementation, Kernel, Places},
    target::ALIGNMENT,
    vendor::Libraries,
    work::{PreparedWork, kernels},
};

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
    /// Where the GPU does not, or the driver fails.
    pub fn new(device: &Device, chip: Chip, compiler: CompilerOptions) -> Result<Workbench, CudaError> {
        device.info().accepts(&chip)?;
        let target = CompileTarget { architecture: chip.architecture, form: chip.form };
        Ok(Workbench {
            libraries: Libraries::find(device.context()),
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

    /// The vendors' libraries there are.
    pub fn libraries(&self) -> &Libraries {
        &self.libraries
    }

    /// Compiles a call's kernels and allocates its tensors.
    ///
    /// # Errors
    /// Where a kernel does not compile, or memory is wanting.
    pub fn prepare(
        &self,
        call: &Call<'_>,
        implementation: &dyn Implementation,
    ) -> Result<PreparedCall, CudaError> {
        let mut bytes = 0;
        let mut reserve = |size: usize| {
            let at = bytes;
            bytes += size.next_multiple_of(ALIGNMENT);
            at
        };
        let tensors =
            |types: &[&TensorType], reserve: &mut dyn FnMut(usize) -> usize| -> Vec<(usize, usize)> {
                types.iter().map(|ty| (reserve(ty.bytes()), ty.bytes())).collect()
            };
        let inputs = tensors(call.inputs, &mut reserve);
        let outputs = tensors(call.outputs, &mut reserve);
        let workspace_bytes = implementation.workspace(call);
        let workspace = reserve(workspace_bytes);
        let fault = reserve(8);
        let memory = DeviceBuffer::new(self.stream.context(), bytes)?;
        let address =
            |&(at, bytes): &(usize, usize)| if bytes == 0 { 0 } else { memory.address() + at as u64 };
        let places = Places {
            inputs: inputs.iter().map(address).collect(),
            outputs: outputs.iter().map(address).collect(),
            workspace: address(&(workspace, workspace_bytes)),
            fault: address(&(fault, 8)),
            number: 1,
        };
        let work = implementation.work(call, &places)?;
        let loaded = || self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = kernels(work.iter());
        let missing: Vec<Kernel> = {
            let loaded = loaded();
            wanted.into_iter().filter(|kernel| !loaded.contains(kernel)).collect()
        };
        // Others go on meanwhile; what two compile at a time is loaded twice, and the second one stays.
        let codes = self.compiler.compile_all(&missing, &|_| {})?.codes;
        let mut loaded = loaded();
        loaded.add(self.stream.context(), codes)?;
        let work = work
            .into_iter()
            .map(|work| PreparedWork::new(work, &loaded))
            .collect::<Result<_, CudaError>>()?;
        Ok(PreparedCall { stream: self.stream.clone(), inputs, outputs, memory, fault, work })
    }
}

/// A call with memory of its own.
#[derive(Debug)]
pub struct PreparedCall {
    stream: Stream,
    /// Where each operand and result begins, and its bytes.
    inputs: Vec<(usize, usize)>,
    outputs: Vec<(usize, usize)>,
    fault: usize,
    work: Vec<PreparedWork>,
    /// Dropped after the work that points to it; everything given to the stream has been waited for.
    memory: DeviceBuffer,
}

impl PreparedCall {
    /// Fills everything with a byte, results and scratch memory included, then writes the operands.
    ///
    /// # Errors
    /// Where an operand has another size, or the driver fails.
    pub fn write(&self, poison: u8, operands: &[&[u8]]) -> Result<(), CudaError> {
        let at = |offset: usize| self.memory.address() + offset as u64;
        // SAFETY: all of it is this call's own memory, and is waited for below.
        unsafe { self.stream.fill(at(0), poison, self.memory.bytes())? };
        // SAFETY: likewise.
        unsafe { self.stream.fill(at(self.fault), 0, 8)? };
        for (&(offset, bytes), operand) in self.inputs.iter().zip(operands) {
            if bytes != operand.len() {
                return Err(CudaError::Internal(format!(
                    "an operand of {} bytes for {bytes}",
                    operand.len()
                )));
            }
            // SAFETY: the operand is borrowed until the copy has been waited for, and there is room for it.
            unsafe { self.stream.upload(at(offset), operand)? };
        }
        self.stream.synchronise()
    }

    /// Runs the call once and waits for it.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn run(&self) -> Result<(), CudaError> {
        self.enqueue()?;
        self.stream.synchronise()
    }

    fn enqueue(&self) -> Result<(), CudaError> {
        // SAFETY: the memory is this call's own; whoever puts work into the stream waits for it.
        self.work.iter().try_for_each(|work| unsafe { work.enqueue(&self.stream) })
    }

    /// Runs the call so often, and gives the milliseconds of each run. Before each, `flush` is overwritten: memory larger
    /// than the caches, so that nothing of the call's lies in them.
    ///
    /// # Errors
    /// Where the device fails.
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

    /// A result.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn read(&self, output: usize) -> Result<Vec<u8>, CudaError> {
        let (offset, bytes) = self.outputs[output];
        self.read_at(offset, bytes)
    }

    /// The bad index that a kernel found in its data, where it found one.
    ///
    /// # Errors
    /// Where the driver fails.
    pub fn fault(&self) -> Result<Option<i32>, CudaError> {
        let words = self.read_at(self.fault, 8)?;
        let word = |at: usize| i32::from_le_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]]);
        Ok((word(0) != 0).then(|| word(4)))
    }

    fn read_at(&self, offset: usize, bytes: usize) -> Result<Vec<u8>, CudaError> {
        let mut to = vec![0; bytes];
        // SAFETY: the vector lives until the copy has been waited for, and so many bytes lie there.
        unsafe { self.stream.download(&mut to, self.memory.address() + offset as u64)? };
        self.stream.synchronise()?;
        Ok(to)
    }
}
