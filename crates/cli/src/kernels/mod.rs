//! `kinora kernels`: GPU kernels, compiled ahead of time.

pub mod arguments;

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

use kinora::{
    files::WholeFile,
    image_to_video::{Configs, Settings, clip_kernels},
};
use kinora_cuda::{
    CodeForm,
    compiler::{Bundle, BundledKernels, CompileTarget, CompilerOptions},
};
use kinora_models::weights::Variant;
use serde_json::json;

use self::arguments::{BuildArgs, KernelsArgs, KernelsCommand};
use crate::{
    display::{Display, Unit},
    failure::Failure,
    interrupt, model, print,
    quantities::Bytes,
};

/// The default model.
const DEFAULT_CONFIG: &str = "svd-xt";

/// Does what was asked for.
pub fn run(arguments: &KernelsArgs) -> Result<(), Failure> {
    let KernelsCommand::Build(arguments) = &arguments.command;
    build(arguments)
}

/// Compiles the kernels of a clip into a folder.
fn build(arguments: &BuildArgs) -> Result<(), Failure> {
    let precision = arguments.precision();
    let configs = match (&arguments.model, &arguments.config) {
        (Some(model), _) => Configs::read(&model::open_local(model, &Variant::For(precision.dtype()))?)?,
        (None, config) => {
            let name = config.as_deref().unwrap_or(DEFAULT_CONFIG);
            let unknown = || Failure::Usage(format!("there is no configuration {name}"));
            Configs::preset(name).ok_or_else(unknown)?
        }
    };
    let mut settings = Settings::for_configs(&configs);
    arguments.clip.apply(&mut settings);
    settings.scheduler = arguments.scheduler;

    let display = Mutex::new(Display::new(false, false));
    let options = CompilerOptions::from_environment();
    try_place(&arguments.output)?;
    let (mut built, mut compiled) = (Vec::new(), Vec::new());
    for &architecture in &arguments.arch {
        let kernels = clip_kernels(&configs, &settings, precision, architecture)?;
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
        "{folder}: {} in all\nUse it with: KINORA_KERNEL_BUNDLE={folder} kinora generate …\n",
        Bytes(bytes)
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
