//! NVIDIA's run-time compiler, as far as the tests need it.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::PathBuf,
    sync::OnceLock,
};

use libloading::Library;

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Read = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;

/// The library.
pub struct Nvrtc {
    library: Library,
    _builtins: Option<Library>,
}

/// The folders that it may lie in: named by `KINORA_NVRTC`, or in the project's own Python environment.
fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(named) = std::env::var_os("KINORA_NVRTC").map(PathBuf::from) {
        folders.push(if named.is_dir() {
            named
        } else {
            named.parent().map(PathBuf::from).unwrap_or_default()
        });
    }
    let project = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    for environment in project.ancestors().map(|folder| folder.join(".python/lib")) {
        let versions = std::fs::read_dir(environment).into_iter().flatten().flatten();
        folders.extend(versions.map(|version| version.path().join("site-packages/nvidia/cu13/lib")));
    }
    folders
}

impl Nvrtc {
    pub fn find() -> Result<&'static Nvrtc, String> {
        static FOUND: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
        FOUND.get_or_init(Nvrtc::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Nvrtc, String> {
        for folder in folders() {
            let path = folder.join("libnvrtc.so.13");
            if path.is_file() {
                let builtins =
                    std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
                let named = |path: &PathBuf| path.to_string_lossy().contains("libnvrtc-builtins.so");
                // SAFETY: NVIDIA's library has no initialisers that anything here depends on.
                let builtins =
                    builtins.into_iter().find(named).and_then(|path| unsafe { Library::new(path) }.ok());
                // SAFETY: as above.
                let library = unsafe { Library::new(&path) }.map_err(|error| error.to_string())?;
                return Ok(Nvrtc { library, _builtins: builtins });
            }
        }
        // SAFETY: as above.
        let library = unsafe { Library::new("libnvrtc.so.13") }.map_err(|error| {
            format!("NVRTC 13 is neither in .python, in KINORA_NVRTC nor installed: {error}")
        })?;
        Ok(Nvrtc { library, _builtins: None })
    }

    /// Compiles to PTX with the project's options. Panics with the compiler's message where it refuses.
    pub fn compile(&self, name: &str, source: &str, specialisation: &str, architecture: &str) -> String {
        let text = |text: &str| CString::new(text).unwrap();
        let mut headers: Vec<(CString, CString)> = vec![(text("specialisation.cuh"), text(specialisation))];
        for entry in std::fs::read_dir(super::kernels().join("common")).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            headers.push((text(&name), text(&std::fs::read_to_string(entry.path()).unwrap())));
        }
        let names: Vec<*const c_char> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
        let texts: Vec<*const c_char> = headers.iter().map(|(_, text)| text.as_ptr()).collect();
        let options = [
            text(&format!("--gpu-architecture=compute_{architecture}")),
            text("-std=c++17"),
            text("-default-device"),
            text("-lineinfo"),
        ];
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let (name, source) = (text(name), text(source));
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: the functions are NVRTC's, with its signatures; all strings end in a zero and outlive the calls.
        unsafe {
            let create = self.library.get::<Create>(b"nvrtcCreateProgram").unwrap();
            let created = create(
                &mut program,
                source.as_ptr(),
                name.as_ptr(),
                names.len() as c_int,
                texts.as_ptr(),
                names.as_ptr(),
            );
            assert_eq!(created, 0, "nvrtcCreateProgram");
            let compile = self.library.get::<Compile>(b"nvrtcCompileProgram").unwrap();
            if compile(program, options.len() as c_int, options.as_ptr()) != 0 {
                panic!("{}", self.read(program, b"nvrtcGetProgramLogSize", b"nvrtcGetProgramLog"));
            }
            let ptx = self.read(program, b"nvrtcGetPTXSize", b"nvrtcGetPTX");
            let destroy = self.library.get::<Destroy>(b"nvrtcDestroyProgram").unwrap();
            destroy(&mut program);
            ptx
        }
    }

    /// A text that the compiler made.
    unsafe fn read(&self, program: Program, size: &[u8], read: &[u8]) -> String {
        let mut bytes = 0;
        // SAFETY: as above; the text is as long as the compiler says, its zero included.
        unsafe {
            self.library.get::<Size>(size).unwrap()(program, &mut bytes);
            let mut text = vec![0u8; bytes + 1];
            self.library.get::<Read>(read).unwrap()(program, text.as_mut_ptr().cast());
            CStr::from_bytes_until_nul(&text).unwrap().to_string_lossy().into_owned()
        }
    }
}
