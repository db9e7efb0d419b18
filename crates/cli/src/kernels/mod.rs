//! `kinora kernels`: GPU kernels, compiled ahead of time.

pub mod arguments;

use std::sync::{Mutex, PoisonError};

use kinora::image_to_video::{Configs, Settings, clip_kernels};
use kinora_cuda::{
    CodeForm,
    compiler::{Bundle, CompileTarget, CompilerOptions},
};
use kinora_models::weights::Variant;
use serde_json::json;

use self::arguments::{BuildArgs, KernelsArgs, KernelsCommand};
use crate::{
    display::{Display, Unit},
    failure::Failure,
    model, print,
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
    let mut built = Vec::new();
    for &architecture in &arguments.arch {
        let kernels = clip_kernels(&configs, &settings, precision, architecture)?;
        let target = CompileTarget { architecture, form: CodeForm::Cubin };
        let name = architecture.to_string();
        let bundle = Bundle::build(&arguments.output, &[target], &kernels, &options, &|progress| {
            let mut display = display.lock().unwrap_or_else(PoisonError::into_inner);
            display.advance(&name, Unit::Kernels, progress.done as u64, progress.total as u64);
        })?;
        display.lock().unwrap_or_else(PoisonError::into_inner).end_stage();
        built.push((architecture, kernels.len(), bundle));
    }
    let folder = arguments.output.display();
    let bytes = built.last().map_or(0, |(_, _, bundle)| bundle.bytes());
    if arguments.json {
        let architectures: Vec<_> = built
            .iter()
            .map(|(architecture, kernels, _)| {
                json!({"architecture": architecture.to_string(), "kernels": kernels})
            })
            .collect();
        let folder = arguments.output.to_string_lossy();
        let answer = json!({"folder": folder, "bytes": bytes, "architectures": architectures});
        return print(&format!("{answer}\n"));
    }
    for (architecture, kernels, _) in &built {
        print(&format!("{architecture}: {kernels} kernels\n"))?;
    }
    print(&format!(
        "{folder}: {} in all\nUse it with: KINORA_KERNEL_BUNDLE={folder} kinora generate …\n",
        Bytes(bytes)
    ))
}
