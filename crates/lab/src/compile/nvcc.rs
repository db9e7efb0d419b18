//! The compiler of the CUDA toolkit, as a program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{CompileError, Compiled, CudaCompiler, Form, Request, Source};

/// `nvcc`, where the toolkit has it or on the path.
pub(super) struct Nvcc {
    program: PathBuf,
}

impl Nvcc {
    /// The compiler of this machine.
    pub fn find() -> Option<Nvcc> {
        let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let installs = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(named);
        let customary = installs.chain([PathBuf::from("/usr/local/cuda")]).map(|install| install.join("bin"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        // A relative folder of the path is one that anybody may have made.
        let on_path = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
        let name = format!("nvcc{}", std::env::consts::EXE_SUFFIX);
        let program =
            on_path.chain(customary).map(|folder| folder.join(&name)).find(|path| path.is_file())?;
        Some(Nvcc { program })
    }
}

/// The options that a task may give, as far as they have to be followed by something. Others name programs that nvcc starts, or files that
/// it writes, and a task may come from anywhere.
const OPTIONS: [&str; 12] = [
    "-D",
    "-I",
    "-U",
    "--define-macro=",
    "--include-path=",
    "-std=",
    "--std=",
    "-maxrregcount=",
    "--maxrregcount=",
    "-fmad=",
    "--fmad=",
    "--undefine-macro=",
];

/// Those that stand alone.
const FLAGS: [&str; 6] = ["-use_fast_math", "--use_fast_math", "-lineinfo", "-restrict", "--restrict", "-w"];

/// The first option that is not on the list.
fn foreign(options: &[String]) -> Option<&String> {
    let is_known = |option: &&String| {
        let value = OPTIONS.iter().find_map(|known| option.strip_prefix(known));
        value.is_some_and(|value| !value.is_empty()) || FLAGS.contains(&option.as_str())
    };
    options.iter().find(|option| !is_known(option))
}

impl CudaCompiler for Nvcc {
    /// The source goes to a folder of its own, so that what was changed in it (see `host_code`) is what is compiled. Host code and the
    /// host's headers are no trouble to this compiler.
    fn compile(
        &self,
        source: &Source,
        _headers: &[(&str, &str)],
        request: &Request,
    ) -> Result<Compiled, CompileError> {
        if let Some(option) = foreign(&request.options) {
            return Err(CompileError::Compiler(format!(
                "nvcc is not given {option}: a task's options may be -D, -I, -U, -std=, -maxrregcount=, -fmad=, -use_fast_math, -restrict, -lineinfo and -w"
            )));
        }
        let failed = |error: std::io::Error| CompileError::Compiler(format!("nvcc: {error}"));
        let folder = tempfile::tempdir().map_err(failed)?;
        let file = Path::new(&source.name).file_name().map_or("kernel.cu".into(), PathBuf::from);
        let (input, output) = (folder.path().join(file), folder.path().join("code"));
        // The line directive gives findings the name that the user knows.
        let name = source.name.replace('\\', "\\\\").replace('"', "\\\"");
        fs::write(&input, format!("#line 1 \"{name}\"\n{}", source.text)).map_err(failed)?;
        let suffix =
            if request.architecture == 90 { "90a".to_owned() } else { request.architecture.to_string() };
        let (kind, form) = match request.form {
            Form::Ptx => ("compute", "-ptx"),
            Form::Cubin => ("sm", "-cubin"),
        };
        let mut command = Command::new(&self.program);
        command.args([form, "-lineinfo", "-Xptxas=-v"]).arg(format!("-arch={kind}_{suffix}"));
        if let Some(include) = &source.folder {
            command.arg("-I").arg(include);
        }
        command.args(&request.options).arg("-o").arg(&output).arg(&input).stdin(Stdio::null());
        let ran = command.output().map_err(failed)?;
        let log = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).trim_end().to_owned();
        if !ran.status.success() {
            return Err(CompileError::Rejected { name: source.name.clone(), log, missing_header: None });
        }
        Ok(Compiled {
            bytes: fs::read(&output).map_err(failed)?,
            form: request.form,
            names: Vec::new(),
            resources: None,
            compiler: Some("nvcc".to_owned()),
            log,
            notes: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_start_programs_or_write_files_are_refused() {
        let of = |options: &[&str]| {
            let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
            foreign(&options).cloned()
        };
        assert_eq!(of(&["-DTILE=64", "-Iinclude", "-std=c++20", "-use_fast_math", "-maxrregcount=64"]), None);
        for refused in
            ["-ccbin", "-ccbin=.", "-o", "--run", "-Xcompiler", "@file", "other.cu", "-D", "-restrict=x"]
        {
            assert_eq!(of(&["-DTILE=64", refused]).as_deref(), Some(refused));
        }
    }
}
