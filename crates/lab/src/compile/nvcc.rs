//! The compiler of the CUDA toolkit, as a program.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use super::{CompileError, Compiled, CudaCompiler, Form, Request, Source};
use crate::process::ended;

/// How long it may take. Headers of large template libraries take a minute or two.
const LIMIT: Duration = Duration::from_secs(300);

/// The most that is read of what it says.
const MAX_LOG: u64 = 4 << 20;

/// `nvcc`, where the toolkit has it or on the path.
pub(super) struct Nvcc {
    program: PathBuf,
    limit: Duration,
}

impl Nvcc {
    /// The compiler of this machine.
    pub fn find() -> Option<Nvcc> {
        let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let installs = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(named);
        let customary = installs.chain([PathBuf::from("/usr/local/cuda")]).map(|install| install.join("bin"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Anybody may have made a folder that the path names relative to the current one.
        let on_path = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
        let name = format!("nvcc{}", std::env::consts::EXE_SUFFIX);
        let program =
            on_path.chain(customary).map(|folder| folder.join(&name)).find(|path| path.is_file())?;
        Some(Nvcc { program, limit: LIMIT })
    }
}

/// The options with a value that a task may give. Others name programs that nvcc starts, or files that it writes, and a task may come from
/// anywhere.
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

/// The options without a value that it may give.
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
        let said = folder.path().join("said.txt");
        let log = File::create(&said).map_err(failed)?;
        command.stdout(log.try_clone().map_err(failed)?).stderr(log);
        // The files that it would leave if it were ended.
        for variable in ["TMPDIR", "TMP", "TEMP"] {
            command.env(variable, folder.path());
        }
        let Some(status) = ended(&mut command, folder.path(), self.limit).map_err(failed)? else {
            return Err(CompileError::Compiler(format!(
                "nvcc took more than {} seconds and was stopped",
                self.limit.as_secs()
            )));
        };
        let mut log = Vec::new();
        File::open(&said).and_then(|said| said.take(MAX_LOG).read_to_end(&mut log)).map_err(failed)?;
        let log = String::from_utf8_lossy(&log).trim_end().to_owned();
        if !status.success() {
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
#[allow(clippy::unwrap_used)]
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

    /// A compiler that is a script of the shell. Another process writes it: one that is still open cannot be run.
    #[cfg(unix)]
    fn script(folder: &Path, text: &str, seconds: u64) -> Nvcc {
        let (source, program) = (folder.join("script"), folder.join("nvcc"));
        fs::write(&source, format!("#!/bin/sh\n{text}\n")).unwrap();
        let install = Command::new("install").args(["-m", "700"]).args([&source, &program]).status();
        assert!(install.unwrap().success());
        Nvcc { program, limit: Duration::from_secs(seconds) }
    }

    /// A compiler that does not end is ended with what it has started, and leaves nothing.
    #[test]
    #[cfg(unix)]
    fn a_compiler_that_does_not_end_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let text = format!("sleep 100000 & echo $! \"$TMPDIR\" > '{}'; wait", told.display());
        let source = Source { name: "k.cu".to_owned(), text: String::new(), folder: None };
        let compiled = |text: &str, seconds| {
            let nvcc = script(folder.path(), text, seconds);
            nvcc.compile(&source, &[], &Request::ptx((9, 0))).err().unwrap().to_string()
        };
        // On a busy machine the script may not come so far in a second.
        for seconds in [1, 10, 100] {
            let error = compiled(&text, seconds);
            let words = format!("nvcc took more than {seconds} seconds and was stopped");
            assert!(error.contains(&words), "{error}");
            if told.exists() {
                break;
            }
        }
        let told = fs::read_to_string(told).unwrap();
        let (child, temporary) = told.trim().split_once(' ').unwrap();
        assert!(!Path::new(temporary).exists());
        let state = Command::new("ps").args(["-o", "stat=", "-p", child]).output().unwrap().stdout;
        let state = String::from_utf8_lossy(&state);
        // Whoever inherits it may not have waited for it.
        assert!(state.is_empty() || state.starts_with('Z'), "{state}");
        // What a compiler says is told.
        let error = compiled("echo 'k.cu(1): error: no' >&2; exit 2", 100);
        assert!(error.contains("k.cu(1): error: no"), "{error}");
    }
}
