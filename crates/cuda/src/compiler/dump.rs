//! Writing what the compiler saw and made, to be looked at.

use std::{fs, path::Path};

use super::{Code, CompileTarget, Compiler};
use crate::{CodeForm, CudaError, launch::Kernel};

/// Writes a kernel's specialised source, its PTX and its machine code, which `cuobjdump -sass` takes apart.
pub(super) fn dump(
    compiler: &Compiler,
    folder: &Path,
    kernel: &Kernel,
    code: &Code,
) -> Result<(), CudaError> {
    let failed =
        |error: std::io::Error| CudaError::File { path: folder.to_owned(), reason: error.to_string() };
    fs::create_dir_all(folder).map_err(failed)?;
    let key = compiler.key(kernel).to_string();
    let source = kernel.source.path.trim_end_matches(".cu").replace(['/', '\\'], "-");
    let name = format!("{source}-{}-{}-{}", kernel.entry, compiler.target(), &key[..12]);
    let write = |extension: &str, bytes: &[u8]| {
        fs::write(folder.join(format!("{name}.{extension}")), bytes).map_err(failed)
    };
    let figures = code.resources.map_or(String::new(), |resources| format!("// {resources:?}\n"));
    let text = format!(
        "{figures}// specialisation.cuh\n{}\n// {}\n{}",
        kernel.specialisation(),
        kernel.source.path,
        kernel.text()
    );
    write("cu", text.as_bytes())?;
    match compiler.target().form {
        CodeForm::Ptx => write("ptx", &code.bytes),
        CodeForm::Cubin => {
            write("cubin", &code.bytes)?;
            let target = CompileTarget { form: CodeForm::Ptx, ..compiler.target() };
            write("ptx", &compiler.compile_for(kernel, target)?.bytes)
        }
    }
}
