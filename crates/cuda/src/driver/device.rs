//! The GPUs of this machine.

use std::{
    collections::BTreeMap,
    ffi::CStr,
    sync::{Mutex, PoisonError},
};

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute as Attribute};

use super::{
    context::{Context, MemoryFigures},
    library::{CudaVersion, driver_version},
    status::check,
};
use crate::{Architecture, Chip, CodeForm, CudaError};

/// What is known of a GPU before it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number, which CUDA_VISIBLE_DEVICES may change.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability.
    pub capability: (u32, u32),
    /// Its memory in bytes.
    pub memory_bytes: usize,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// The most shared memory that a block may ask for, in bytes.
    pub shared_bytes: u32,
    /// Its second-level cache in bytes.
    pub l2_bytes: u32,
    /// The CUDA version that the driver supports.
    pub driver: CudaVersion,
    /// Where it sits on the bus, such as `0000:17:00.0`.
    pub pci: String,
    /// What no other GPU has, as in `nvidia-smi -L`.
    pub uuid: String,
}

impl DeviceInfo {
    /// The generation.
    pub fn architecture(&self) -> Architecture {
        Architecture(self.capability.0 * 10 + self.capability.1)
    }

    /// The GPU as kernels see it.
    pub fn chip(&self) -> Chip {
        Chip {
            architecture: self.architecture(),
            form: CodeForm::Cubin,
            multiprocessors: self.multiprocessors,
            shared_bytes: self.shared_bytes,
        }
    }

    /// Refuses a GPU that code for `chip` does not run on.
    ///
    /// # Errors
    /// If the architectures do not go together.
    pub fn accepts(&self, chip: &Chip) -> Result<(), CudaError> {
        let (own, code) = (self.architecture(), chip.architecture);
        let runs = match chip.form {
            // Hopper's own instructions run nowhere else, not even on what comes after it.
            _ if code.is_hopper() => own == code,
            // Machine code runs on the same generation's later chips as well.
            CodeForm::Cubin => own >= code && own.0 / 10 == code.0 / 10,
            CodeForm::Ptx => own >= code,
        };
        if runs {
            return Ok(());
        }
        Err(CudaError::WrongArchitecture {
            code: code.to_string(),
            name: self.name.clone(),
            device: own.to_string(),
        })
    }
}

/// A GPU in use. Clones share one context.
#[derive(Clone, Debug)]
pub struct Device {
    info: DeviceInfo,
    context: Context,
}

impl Device {
    /// The GPUs there are.
    ///
    /// # Errors
    /// If there is no driver or no GPU, the driver is too old, or the GPU may not be used.
    pub fn list() -> Result<Vec<DeviceInfo>, CudaError> {
        let driver = driver_version()?;
        (0..count()?).map(|ordinal| describe(ordinal, driver).map(|(info, _)| info)).collect()
    }

    /// Makes a context on a GPU.
    ///
    /// # Errors
    /// As [`Device::list`], and if there is no such GPU, it is too old, or no context can be created.
    pub fn open(ordinal: usize) -> Result<Device, CudaError> {
        let driver = driver_version()?;
        let count = count()?;
        if ordinal >= count {
            return Err(CudaError::NoSuchDevice { ordinal, count });
        }
        let (info, device) = describe(ordinal, driver)?;
        if info.architecture() < Architecture::TURING {
            let (major, minor) = info.capability;
            return Err(CudaError::UnsupportedDevice { name: info.name, major, minor });
        }
        Ok(Device { info, context: Context::create(device)? })
    }

    /// A GPU whose context is made once in a process and shared by all who ask: making one takes a good part of a second.
    /// One that a fault has ended is made again.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn shared(ordinal: usize) -> Result<Device, CudaError> {
        static OPENED: Mutex<BTreeMap<usize, Device>> = Mutex::new(BTreeMap::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = opened.get(&ordinal).filter(|device| !device.context().is_lost()) {
            return Ok(device.clone());
        }
        opened.remove(&ordinal);
        let device = Device::open(ordinal)?;
        opened.insert(ordinal, device.clone());
        Ok(device)
    }

    /// What is known of it.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Its memory now.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn memory(&self) -> Result<MemoryFigures, CudaError> {
        self.context.memory()
    }
}

fn count() -> Result<usize, CudaError> {
    let mut count = 0;
    // SAFETY: the driver has been initialised, and the call writes one number.
    check(unsafe { sys::cuDeviceGetCount(&mut count) }, "count the GPUs")?;
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(CudaError::NoDevice),
    }
}

/// The driver has been initialised and has a device of this number.
fn describe(ordinal: usize, driver: CudaVersion) -> Result<(DeviceInfo, CUdevice), CudaError> {
    let mut device: CUdevice = 0;
    // SAFETY: the call writes one number.
    check(unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) }, "find the GPU")?;

    let mut name = [0u8; 128];
    // SAFETY: the call writes a string of at most so many bytes, its zero among them.
    let code = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, device) };
    check(code, "ask for the GPU's name")?;
    let mut pci = [0u8; 32];
    // SAFETY: as above.
    let code = unsafe { sys::cuDeviceGetPCIBusId(pci.as_mut_ptr().cast(), pci.len() as i32, device) };
    check(code, "ask for the GPU's place on the bus")?;
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the call writes 16 bytes.
    check(unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) }, "ask for the GPU's identity")?;
    let mut memory_bytes = 0;
    // SAFETY: the call writes one number.
    let code = unsafe { sys::cuDeviceTotalMem_v2(&mut memory_bytes, device) };
    check(code, "ask for the GPU's memory")?;

    let attribute = |attribute: Attribute| {
        let mut value = 0;
        // SAFETY: the call writes one number.
        let code = unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, device) };
        check(code, "ask for the GPU's properties")?;
        Ok::<u32, CudaError>(u32::try_from(value).unwrap_or(0))
    };
    let info = DeviceInfo {
        ordinal,
        name: text(&name),
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        memory_bytes,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        l2_bytes: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
        driver,
        pci: text(&pci),
        uuid: uuid_text(uuid.bytes.map(|byte| byte as u8)),
    };
    Ok((info, device))
}

fn text(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes).map_or_else(|_| String::new(), |s| s.to_string_lossy().into_owned())
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let group = |range: std::ops::Range<usize>| hex[range].concat();
    format!("GPU-{}-{}-{}-{}-{}", group(0..4), group(4..6), group(6..8), group(8..10), group(10..16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(major: u32, minor: u32) -> DeviceInfo {
        DeviceInfo {
            ordinal: 0,
            name: "a GPU".into(),
            capability: (major, minor),
            memory_bytes: 0,
            multiprocessors: 1,
            shared_bytes: 0,
            l2_bytes: 0,
            driver: CudaVersion { major: 13, minor: 0 },
            pci: String::new(),
            uuid: String::new(),
        }
    }

    #[test]
    fn code_runs_if_the_architecture_allows_it() {
        let runs = |gpu: (u32, u32), code: u32, form| {
            device(gpu.0, gpu.1).accepts(&Chip { form, ..Chip::typical(Architecture(code)) }).is_ok()
        };
        assert!(runs((9, 0), 90, CodeForm::Cubin) && runs((8, 9), 86, CodeForm::Cubin));
        assert!(runs((9, 0), 75, CodeForm::Ptx) && runs((12, 0), 89, CodeForm::Ptx));
        assert!(!runs((9, 0), 80, CodeForm::Cubin) && !runs((8, 0), 86, CodeForm::Cubin));
        assert!(!runs((10, 0), 90, CodeForm::Ptx) && !runs((7, 5), 80, CodeForm::Ptx));
    }

    #[test]
    fn an_identity_reads_as_the_vendor_writes_it() {
        let bytes = std::array::from_fn(|i| i as u8);
        assert_eq!(uuid_text(bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
