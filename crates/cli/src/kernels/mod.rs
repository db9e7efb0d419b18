//! `kinora kernels`: GPU kernels, compiled ahead of time.

pub mod arguments;
mod work;

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

use kinora::files::WholeFile;
use kinora_cuda::{
    CodeForm,
    compiler::{Bundle, BundledKernels, CompileTarget, CompilerOptions},
};
use serde_json::json;

use self::{
    arguments::{BuildArgs, KernelsArgs, KernelsCommand},
    work::Work,
};
use crate::{
    display::{Display, Unit},
    failure::Failure,
    interrupt, print,
    quantities::Bytes,
};

/// Does what was asked for.
pub fn run(arguments: &KernelsArgs) -> Result<(), Failure> {
    let KernelsCommand::Build(arguments) = &arguments.command;
    build(arguments)
}

/// Compiles the kernels of a clip or of live video into a folder.
fn build(arguments: &BuildArgs) -> Result<(), Failure> {
    let work = Work::new(arguments)?;
    let display = Mutex::new(Display::new(false, false));
    let options = CompilerOptions::from_environment();
    try_place(&arguments.output)?;
    let (mut built, mut compiled) = (Vec::new(), Vec::new());
    for &architecture in &arguments.arch {
        let kernels = work.kernels(arguments.precision(), architecture)?;
        let target = CompileTarget { architecture, form: CodeForm::Cubin };
        let name = architecture.to_string();
        compiled.push(BundledKernels::compile(target, &kernels, &options, &|progress| {
            let mut display = display.lock().unwrap_or_else(PoisonError::into_inner);
            display.advance(&name, Unit::Kernels, progress.done as u64, progress.total as u64);
        })?);
        display.lock().unwrap_or_else(PoisonError::into_inner).end_stage();
        built.push((architecture, kernels.len()));
    }
    // Written only now: a compiler that is missing, or Ctrl-C, leaves no folder behind.
    let bytes = interrupt::to_completion(|| Bundle::add(&arguments.output, &compiled))?.bytes();
    let folder = arguments.output.display();
    if arguments.json {
        let architectures: Vec<_> = built
            .iter()
            .map(|(architecture, kernels)| {
                json!({"architecture": architecture.to_string(), "kernels": kernels})
            })
            .collect();
        let folder = arguments.output.to_string_lossy();
        let answer = json!({"folder": folder, "bytes": bytes, "architectures": architectures});
        return print(&format!("{answer}\n"));
    }
    for (architecture, kernels) in &built {
        print(&format!("{architecture}: {kernels} kernels\n"))?;
    }
    print(&format!(
        "{folder}: {} in all\nUse it with: KINORA_KERNEL_BUNDLE={folder} {} …\n",
        Bytes(bytes),
        work.command()
    ))
}

/// Refuses, before anything is compiled, a folder that cannot be written. If it does not exist yet, the nearest one that does is
/// tried.
fn try_place(folder: &Path) -> Result<(), Failure> {
    let nearest = folder.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
    interrupt::uninterrupted(|| {
        let failed = |source| Failure::File { path: folder.to_owned(), source };
        WholeFile::create(nearest.join("index.json"), false).map(drop).map_err(failed)
    })
}
