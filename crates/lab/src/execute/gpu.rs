//! A GPU of this machine: as little as possible over `kinora_cuda::driver`.

use std::collections::BTreeMap;

use kinora_cuda::{
    CudaError,
    driver::{Context, Device as Gpu, DeviceBuffer, Event, Module, PreparedLaunch, Stream},
    launch::DevicePointer,
};
use kinora_ptx::ChipSpec;

use super::{Address, Device, ExecuteError, Launch, Launched, ModuleId};
use crate::compile::Compiled;

/// Several times the largest level-two cache.
pub(crate) const FLUSH_BYTES: usize = 256 << 20;

/// What is published of a GPU, if its name says which of the known chips it is.
fn published(name: &str) -> Option<ChipSpec> {
    let words: Vec<String> =
        name.to_lowercase().split([' ', '-']).filter(|word| !word.is_empty()).map(str::to_owned).collect();
    // A GeForce has its chip's name in two words.
    let joined = words.windows(2).map(<[String]>::concat);
    joined.chain(words.iter().cloned()).find_map(|word| ChipSpec::named(&word))
}

/// A GPU.
#[derive(Debug)]
pub struct GpuDevice {
    gpu: Gpu,
    stream: Stream,
    buffers: BTreeMap<Address, DeviceBuffer>,
    modules: Vec<Module>,
    flush: Option<DeviceBuffer>,
}

impl GpuDevice {
    /// Opens a GPU by its number.
    ///
    /// # Errors
    /// If there is no driver or no such GPU.
    pub fn open(ordinal: usize) -> Result<GpuDevice, ExecuteError> {
        let gpu = Gpu::shared(ordinal).map_err(device)?;
        let stream = Stream::new(gpu.context()).map_err(device)?;
        Ok(GpuDevice { gpu, stream, buffers: BTreeMap::new(), modules: Vec::new(), flush: None })
    }

    /// Its compute capability.
    pub fn capability(&self) -> (u32, u32) {
        self.gpu.info().capability
    }

    /// What is published of it, if it is one of the known chips.
    pub fn published(&self) -> Option<ChipSpec> {
        published(&self.gpu.info().name)
    }

    /// The milliseconds of launches, done together as often as asked for. Before each time the second-level cache is overwritten,
    /// which also keeps the GPU busy while the launches are given to it, so that the host is not what is timed.
    ///
    /// # Errors
    /// If the device fails.
    pub fn time(&mut self, launches: &[Vec<Launch>], repeats: usize) -> Result<Vec<f32>, ExecuteError> {
        let prepared: Vec<Vec<PreparedLaunch>> = launches
            .iter()
            .map(|set| set.iter().map(|launch| self.prepared(launch)).collect())
            .collect::<Result<_, _>>()?;
        if prepared.is_empty() {
            return Ok(Vec::new());
        }
        self.time_work(repeats, |stream, repeat| {
            prepared[repeat % prepared.len()].iter().try_for_each(|launch| {
                // SAFETY: see `launch`.
                unsafe { launch.enqueue(stream) }
            })
        })
    }

    /// Its stream, for libraries that work in one.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The milliseconds of some work, as [`GpuDevice::time`] takes them. `enqueue` puts it into the device's stream, given the number of the
    /// repeat.
    ///
    /// # Errors
    /// If the work or the device fails.
    pub fn time_work(
        &mut self,
        repeats: usize,
        mut enqueue: impl FnMut(&Stream, usize) -> Result<(), CudaError>,
    ) -> Result<Vec<f32>, ExecuteError> {
        let context: Context = self.gpu.context().clone();
        if self.flush.is_none() {
            self.flush = Some(DeviceBuffer::new(&context, FLUSH_BYTES).map_err(device)?);
        }
        let mut marks = Vec::with_capacity(repeats);
        for repeat in 0..repeats {
            let (start, end) = (Event::new(&context).map_err(device)?, Event::new(&context).map_err(device)?);
            if let Some(flush) = &self.flush {
                // SAFETY: the buffer lives as long as this device, which waits for the stream below.
                unsafe { self.stream.fill(flush.address(), repeat as u8, flush.bytes()).map_err(device)? };
            }
            self.stream.record(&start).map_err(device)?;
            enqueue(&self.stream, repeat).map_err(device)?;
            self.stream.record(&end).map_err(device)?;
            marks.push((start, end));
        }
        self.stream.synchronise().map_err(device)?;
        marks.iter().map(|(start, end)| end.milliseconds_since(start).map_err(device)).collect()
    }

    fn prepared(&self, launch: &Launch) -> Result<PreparedLaunch, ExecuteError> {
        if launch.cluster != [1; 3] {
            let what = "clusters that are set at the launch run in the simulator only; declare them in the kernel with __cluster_dims__";
            return Err(ExecuteError::Unsupported(what.to_owned()));
        }
        let module = self
            .modules
            .get(launch.module.0)
            .ok_or_else(|| ExecuteError::Device("no such module is loaded".to_owned()))?;
        let function = module.function(&launch.kernel).map_err(device)?;
        let shape = (launch.grid, launch.block);
        let prepared = PreparedLaunch::of_bytes(function, shape, launch.shared_bytes, &launch.arguments);
        let prepared = prepared.map_err(device)?;
        match launch.overlaps && self.capability() >= (9, 0) {
            // SAFETY: that its kernel waits is what the launch says.
            true => Ok(unsafe { prepared.overlapping() }),
            false => Ok(prepared),
        }
    }
}

fn device(error: CudaError) -> ExecuteError {
    match error {
        error if error.is_context_lost() => ExecuteError::Fault(error.to_string()),
        error => ExecuteError::Device(error.to_string()),
    }
}

impl Device for GpuDevice {
    fn name(&self) -> String {
        self.gpu.info().name.clone()
    }

    fn multiprocessors(&self) -> usize {
        self.gpu.info().multiprocessors as usize
    }

    fn shared_bytes(&self) -> usize {
        self.gpu.info().shared_bytes as usize
    }

    fn is_simulated(&self) -> bool {
        false
    }

    fn allocate(&mut self, bytes: usize) -> Result<Address, ExecuteError> {
        let buffer = DeviceBuffer::new(self.gpu.context(), bytes.max(1)).map_err(|error| {
            match error.is_out_of_memory() {
                true => ExecuteError::Memory { device: self.name(), bytes, why: error.to_string() },
                false => device(error),
            }
        })?;
        let address = buffer.address().address();
        self.buffers.insert(address, buffer);
        Ok(address)
    }

    fn free(&mut self, address: Address) -> Result<(), ExecuteError> {
        match self.buffers.remove(&address) {
            Some(_) => Ok(()),
            None => Err(ExecuteError::Device("no allocation starts there".to_owned())),
        }
    }

    fn write(&mut self, to: Address, bytes: &[u8]) -> Result<(), ExecuteError> {
        self.within(to, bytes.len())?;
        // SAFETY: the bytes are borrowed until the copy has been waited for, and lie within one allocation.
        unsafe { self.stream.upload(DevicePointer::new(to), bytes).map_err(device)? };
        self.stream.synchronise().map_err(device)
    }

    fn read(&self, from: Address, into: &mut [u8]) -> Result<(), ExecuteError> {
        self.within(from, into.len())?;
        // SAFETY: as above.
        unsafe { self.stream.download(into, DevicePointer::new(from)).map_err(device)? };
        self.stream.synchronise().map_err(device)
    }

    fn written(&self, _from: Address, _bytes: usize) -> Result<Option<Vec<bool>>, ExecuteError> {
        Ok(None)
    }

    fn load(&mut self, code: &Compiled) -> Result<ModuleId, ExecuteError> {
        let module = Module::load(self.gpu.context(), "the kernel", &code.bytes);
        self.modules.push(module.map_err(|error| ExecuteError::Load(error.to_string()))?);
        Ok(ModuleId(self.modules.len() - 1))
    }

    fn launch(&mut self, launch: &Launch) -> Result<Launched, ExecuteError> {
        let prepared = self.prepared(launch)?;
        // SAFETY: the arguments have the sizes of the kernel's parameters, which were compared when the same launch ran in the simulator.
        // What addresses the kernel makes of them is not known: one outside of the device's memory ends the context, which is an error
        // here, and the context is this library's own.
        unsafe { prepared.enqueue(&self.stream).map_err(device)? };
        self.stream.synchronise().map_err(device)?;
        Ok(Launched::default())
    }
}

impl GpuDevice {
    /// Refuses bytes that are not within one allocation.
    fn within(&self, address: Address, bytes: usize) -> Result<(), ExecuteError> {
        let holds = self.buffers.range(..=address).next_back().is_some_and(|(start, buffer)| {
            (address - start).checked_add(bytes as u64).is_some_and(|end| end <= buffer.bytes() as u64)
        });
        if holds {
            Ok(())
        } else {
            Err(ExecuteError::Device(format!("no allocation holds {bytes} bytes at {address:#x}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_known_by_their_names() {
        for (name, chip) in [
            ("NVIDIA H200", Some("h200")),
            ("NVIDIA H200 NVL", Some("h200")),
            ("NVIDIA A100-SXM4-80GB", Some("a100")),
            ("NVIDIA GeForce RTX 4090", Some("rtx4090")),
            ("Tesla T4", Some("t4")),
            // Others, whose names have one of those in them.
            ("NVIDIA GH200 480GB", None),
            ("NVIDIA T400 4GB", None),
            ("", None),
        ] {
            let known = published(name).map(|chip| chip.name);
            assert_eq!(known, chip.and_then(ChipSpec::named).map(|chip| chip.name), "{name}");
        }
    }
}
