//! NVIDIA's run-time compiler.

use kinora_cuda::{
    Architecture, CodeForm, CudaError,
    compiler::{CompileTarget, Compiler, CompilerOptions, ForeignSource, include_folders},
};

use super::{CompileError, Compiled, CudaCompiler, Form, Request, Resources, Source, host_headers};

/// NVRTC, found as the rest of Kinora finds it.
pub(super) struct Nvrtc {
    version: (u32, u32),
}

impl Nvrtc {
    /// The compiler of this machine, or why there is none.
    pub fn find() -> Result<Nvrtc, String> {
        let compiler = compiler(80).map_err(|error| error.to_string())?;
        let version = compiler.version().map_err(|error| error.to_string())?;
        Ok(Nvrtc { version })
    }
}

fn compiler(architecture: u32) -> Result<Compiler, CudaError> {
    let target = CompileTarget { architecture: Architecture(architecture), form: CodeForm::Ptx };
    Compiler::new(target, CompilerOptions::plain())
}

impl CudaCompiler for Nvrtc {
    fn compile(
        &self,
        source: &Source,
        headers: &[(&str, &str)],
        request: &Request,
    ) -> Result<Compiled, CompileError> {
        let mut options: Vec<String> =
            source.folder.iter().map(|folder| format!("-I{}", folder.display())).collect();
        options.extend_from_slice(&request.options);
        // Last, so that a folder that was asked for comes first.
        options.extend(include_folders().iter().map(|folder| format!("-I{}", folder.display())));
        let headers: Vec<(&str, &str)> = host_headers::STUBS.iter().chain(headers).copied().collect();
        let foreign = ForeignSource {
            name: &source.name,
            text: &source.text,
            headers: &headers,
            options: &options,
            kernels: &request.kernels,
        };
        let form = match request.form {
            Form::Ptx => CodeForm::Ptx,
            Form::Cubin => CodeForm::Cubin,
        };
        let made =
            compiler(request.architecture).and_then(|compiler| compiler.compile_foreign(&foreign, form));
        let made = made.map_err(|error| {
            let missing_header = error.missing_header().map(str::to_owned);
            match error {
                CudaError::Compile { log, .. } => {
                    CompileError::Rejected { name: source.name.clone(), log, missing_header }
                }
                error => CompileError::Compiler(error.to_string()),
            }
        })?;
        let resources = made.resources.map(|resources| Resources {
            registers: resources.registers,
            spill_bytes: resources.spill_bytes,
            stack_bytes: resources.stack_bytes,
            shared_bytes: resources.shared_bytes,
        });
        let (major, minor) = self.version;
        Ok(Compiled {
            bytes: made.bytes,
            form: request.form,
            names: request.kernels.iter().cloned().zip(made.names).collect(),
            resources: resources.filter(|resources| resources.registers > 0),
            compiler: Some(format!("NVRTC {major}.{minor}")),
            log: made.log,
            notes: Vec::new(),
        })
    }
}
