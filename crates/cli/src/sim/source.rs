//! The kernel's file. CUDA C++ becomes PTX, if the program was built with CUDA.

use std::path::Path;

/// Whether a file is PTX. It says so by its extension, or in its first directive, which no CUDA C++ has.
pub fn is_ptx(path: &Path, text: &str) -> bool {
    let extension = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("ptx"));
    extension || text.lines().any(|line| line.trim_start().starts_with(".version"))
}

#[cfg(feature = "cuda")]
pub use compiled::{ptx, registers};

#[cfg(not(feature = "cuda"))]
pub use refused::{ptx, registers};

#[cfg(feature = "cuda")]
mod compiled {
    use kinora_cuda::{
        Architecture, CodeForm,
        compiler::{CompileTarget, Compiler, CompilerOptions},
    };

    use super::super::{arguments::SimArgs, chip};
    use crate::failure::Failure;

    /// The PTX of a source.
    pub fn ptx(arguments: &SimArgs, name: &str, text: &str) -> Result<String, Failure> {
        Ok(compiler(arguments)?.compile_text(name, text, &arguments.compile)?)
    }

    /// The registers of a thread, if the assembler says how many there are.
    pub fn registers(arguments: &SimArgs, name: &str, text: &str) -> Result<Option<u32>, Failure> {
        let resources = compiler(arguments)?.resources_of_text(name, text, &arguments.compile)?;
        Ok(resources.map(|resources| resources.registers).filter(|&registers| registers > 0))
    }

    /// A CUDA C++ compiler for the chip.
    fn compiler(arguments: &SimArgs) -> Result<Compiler, Failure> {
        let (major, minor) = chip(arguments).capability;
        let target = CompileTarget { architecture: Architecture(10 * major + minor), form: CodeForm::Ptx };
        Ok(Compiler::new(target, CompilerOptions::from_environment())?)
    }
}

#[cfg(not(feature = "cuda"))]
mod refused {
    use super::super::arguments::SimArgs;
    use crate::failure::Failure;

    pub fn ptx(_: &SimArgs, name: &str, _: &str) -> Result<String, Failure> {
        Err(Failure::Usage(format!(
            "{name} is not PTX, and this build cannot compile CUDA C++: give a .ptx file, or build Kinora with the feature `cuda`"
        )))
    }

    pub fn registers(_: &SimArgs, _: &str, _: &str) -> Result<Option<u32>, Failure> {
        Ok(None)
    }
}
