//! The library, loaded when it is first needed.

use std::{
    ffi::{CStr, c_char, c_void},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use cudarc::driver::sys::{CUcontext, CUstream};
use kinora_profile::Profiler;
use libloading::Library;

use crate::{
    CudaError,
    installed::{LoadError, Sought, Surroundings},
};

/// CUPTI. A CUDA install has it in a folder of its own, beside the other libraries, or both.
const CUPTI: Sought = Sought {
    variable: "KINORA_CUPTI",
    // On Windows its file name contains the release, so the variable must name it.
    #[cfg(windows)]
    names: &[],
    #[cfg(not(windows))]
    names: &["libcupti.so.13", "libcupti.so.12"],
    install_folders: &["extras/CUPTI/lib64"],
    wheel_folders: &["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"],
};

/// The versions whose records have their fields where `records` reads them, by the library's own version numbers: CUDA
/// 12.0 to 12.9, and 13.0. From 13.0 on, the number encodes CUDA's version.
const KNOWN_VERSIONS: [RangeInclusive<u32>; 2] = [19..=28, 130_000..=130_099];

pub(super) type Status = u32;
pub(super) const SUCCESS: Status = 0;

/// Asks for an empty buffer: its address, its size, and how many records it may hold, 0 for as many as fit.
pub(super) type BufferRequested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Gives a buffer back: its address, its size, and how much of it holds records.
pub(super) type BufferCompleted = unsafe extern "C" fn(CUcontext, u32, *mut u8, usize, usize);

/// The functions of the library that we use.
pub(super) struct Functions {
    version: unsafe extern "C" fn(*mut u32) -> Status,
    result_string: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    pub timestamp: unsafe extern "C" fn(*mut u64) -> Status,
    pub context_id: unsafe extern "C" fn(CUcontext, *mut u32) -> Status,
    pub stream_id: unsafe extern "C" fn(CUcontext, CUstream, u8, *mut u32) -> Status,
    pub register_callbacks: unsafe extern "C" fn(BufferRequested, BufferCompleted) -> Status,
    pub enable: unsafe extern "C" fn(u32) -> Status,
    pub disable: unsafe extern "C" fn(u32) -> Status,
    pub flush_all: unsafe extern "C" fn(u32) -> Status,
    pub next_record: unsafe extern "C" fn(*mut u8, usize, *mut *mut c_void) -> Status,
    pub dropped_records: unsafe extern "C" fn(CUcontext, u32, *mut usize) -> Status,
    pub push_external_id: unsafe extern "C" fn(u32, u64) -> Status,
    pub pop_external_id: unsafe extern "C" fn(u32, *mut u64) -> Status,
}

/// NVIDIA's tracing library.
pub struct Cupti {
    pub(super) functions: Functions,
    version: u32,
    path: PathBuf,
    /// Stays loaded: the functions belong to it.
    _library: Library,
}

impl std::fmt::Debug for Cupti {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CUPTI {} at {}", self.version(), self.path.display())
    }
}

/// The process-wide library. It has threads of its own and stays loaded.
static LOADED: OnceLock<Cupti> = OnceLock::new();

impl Cupti {
    /// The library, found in the same places as NVRTC and loaded on first use. `KINORA_CUPTI` names another one.
    ///
    /// # Errors
    /// If it is not installed, or its records are not supported.
    pub fn find() -> Result<&'static Cupti, CudaError> {
        if let Some(cupti) = Cupti::loaded() {
            return Ok(cupti);
        }
        let found = Surroundings::of_process(&CUPTI).first(&CUPTI, |candidate| Cupti::load(&candidate.path));
        let found = found.map_err(|source| CudaError::NoCupti { source })?;
        Ok(LOADED.get_or_init(|| found))
    }

    /// The library for a profile. If it is missing, the profile says so.
    pub fn for_profile(profiler: &Profiler) -> Option<&'static Cupti> {
        if !profiler.is_on() {
            return None;
        }
        match Cupti::find() {
            Ok(cupti) => Some(cupti),
            Err(_) => {
                profiler.note(
                    "CUPTI was not found, so the times of single kernels are missing; a layer's time is measured between \
                     two events. `kinora doctor` says where Kinora looked",
                );
                None
            }
        }
    }

    /// The library, if it has been loaded.
    pub(super) fn loaded() -> Option<&'static Cupti> {
        LOADED.get()
    }

    /// Its version in words: that of the CUDA it belongs to.
    pub fn version(&self) -> String {
        version_text(self.version)
    }

    /// # Errors
    /// If the library cannot be loaded, or its record layout is unknown.
    fn load(path: &Path) -> Result<Cupti, LoadError> {
        // SAFETY: loading NVIDIA's library runs only its own initialisation.
        let library = unsafe { Library::new(path) }?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is the one in NVIDIA's header, the same in every supported version.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }?
            };
        }
        let functions = Functions {
            version: function!("cuptiGetVersion"),
            result_string: function!("cuptiGetResultString"),
            timestamp: function!("cuptiGetTimestamp"),
            context_id: function!("cuptiGetContextId"),
            stream_id: function!("cuptiGetStreamIdEx"),
            register_callbacks: function!("cuptiActivityRegisterCallbacks"),
            enable: function!("cuptiActivityEnable"),
            disable: function!("cuptiActivityDisable"),
            flush_all: function!("cuptiActivityFlushAll"),
            next_record: function!("cuptiActivityGetNextRecord"),
            dropped_records: function!("cuptiActivityGetNumDroppedRecords"),
            push_external_id: function!("cuptiActivityPushExternalCorrelationId"),
            pop_external_id: function!("cuptiActivityPopExternalCorrelationId"),
        };
        let mut version = 0;
        // SAFETY: the call writes one number.
        let status = unsafe { (functions.version)(&mut version) };
        if status != SUCCESS {
            return Err(LoadError::NoVersion(format!("status {status}")));
        }
        accepted(version)?;
        Ok(Cupti { functions, version, path: path.to_owned(), _library: library })
    }

    /// The error of a status.
    pub(super) fn check(&self, status: Status, doing: &str) -> Result<(), CudaError> {
        if status == SUCCESS {
            return Ok(());
        }
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the call writes one pointer, to a string of the library's own, or leaves it null.
        let given = unsafe { (self.functions.result_string)(status, &mut text) };
        let words = if given == SUCCESS && !text.is_null() {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        } else {
            "no text".to_owned()
        };
        let status = format!("{words} ({status})");
        Err(CudaError::Library { library: "CUPTI", doing: doing.to_owned(), status })
    }
}

/// Refuses a library whose record layout may differ from the known ones.
fn accepted(version: u32) -> Result<(), LoadError> {
    if KNOWN_VERSIONS.iter().any(|known| known.contains(&version)) {
        return Ok(());
    }
    Err(LoadError::UnknownRecords(version_text(version)))
}

fn version_text(version: u32) -> String {
    match version {
        // Since 13.0: two digits each for CUDA's major and minor version, and for CUPTI's own.
        130_000.. => format!("{}.{} ({version})", version / 10_000, version / 100 % 100),
        _ => format!("of API {version}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NotFound;
    use crate::testing;

    #[test]
    fn a_version_that_is_not_known_is_refused_in_words() {
        for known in [19, 24, 28, 130_000, 130_001] {
            assert!(accepted(known).is_ok());
        }
        for (unknown, words) in [(18, "of API 18"), (29, "of API 29"), (130_100, "13.1 (130100)")] {
            let refused = accepted(unknown).unwrap_err().to_string();
            assert!(refused.contains(words) && refused.contains("12.0 to 13.0"), "{refused}");
        }
        assert_eq!(version_text(130_001), "13.0 (130001)");
    }

    #[test]
    fn its_own_folder_is_searched_too() {
        let surroundings = Surroundings { installs: vec!["/opt/cuda".into()], ..Surroundings::default() };
        let paths: Vec<PathBuf> = surroundings.candidates(&CUPTI).into_iter().map(|c| c.path).collect();
        for path in [
            "libcupti.so.13",
            "libcupti.so.12",
            "/opt/cuda/lib64/libcupti.so.13",
            "/opt/cuda/extras/CUPTI/lib64/libcupti.so.12",
        ] {
            assert!(paths.contains(&PathBuf::from(path)), "{path} is not in {paths:?}");
        }
    }

    #[test]
    fn the_message_says_how_to_install_it() {
        let source = NotFound { tried: vec!["  here: not found".into()], unusable: None };
        let message = CudaError::NoCupti { source }.to_string();
        assert!(
            message.contains("pip install nvidia-cuda-cupti") && message.contains(CUPTI.variable),
            "{message}"
        );
        assert!(message.contains("was not found; ") && !message.contains("here"), "{message}");
    }

    /// Needs no GPU: the library reports its version, and its clock goes forward.
    #[test]
    fn it_is_loaded_if_it_is_installed() {
        let Some(cupti) = testing::cupti() else { return };
        let now = || {
            let mut now = 0;
            // SAFETY: the call writes one number.
            cupti.check(unsafe { (cupti.functions.timestamp)(&mut now) }, "tell the time").unwrap();
            now
        };
        let before = now();
        assert!(before > 0 && now() >= before);
        let error = cupti.check(1, "do a thing").unwrap_err().to_string();
        assert!(error.starts_with("CUPTI could not do a thing: CUPTI_ERROR_INVALID_PARAMETER"), "{error}");
    }
}
