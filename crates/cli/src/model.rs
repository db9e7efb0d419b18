//! Finding the model that was asked for.

use std::{ffi::OsStr, path::Path};

use kinora::RgbImage;
use kinora_models::{
    folder::ModelFolder,
    hub::{self, Hub, HubError, HubId, Progress},
    weights::Variant,
};

use crate::{
    display::{Display, Unit},
    failure::Failure,
};

/// Opens a model folder; downloads it first if the name is that of a model on the hub.
pub fn open(name: &OsStr, variant: &Variant, display: &mut Display) -> Result<ModelFolder, Failure> {
    let mut bar = DownloadBar { display, file: String::new() };
    let folder = hub::locate(name, variant, &mut bar)?;
    bar.display.end_stage();
    Ok(ModelFolder::open(folder)?)
}

/// Opens a model folder on this machine: a path, or a model that was downloaded before.
pub fn open_local(name: &OsStr, variant: &Variant) -> Result<ModelFolder, Failure> {
    let path = Path::new(name);
    if path.symlink_metadata().is_ok() {
        return Ok(ModelFolder::open(path)?);
    }
    let not_a_model = || HubError::NotAModel(name.to_string_lossy().into_owned());
    let id = name.to_str().and_then(HubId::parse).ok_or_else(not_a_model)?;
    let cache = Hub { offline: true, ..Hub::from_env()? };
    match cache.fetch(&id, variant, &mut ()) {
        Err(HubError::Offline { .. }) => Err(Failure::NotDownloaded { model: id.to_string() }),
        folder => Ok(ModelFolder::open(folder?)?),
    }
}

/// Opens the model that is part of the program.
#[cfg(feature = "model-in-the-box")]
pub fn in_the_box() -> Result<ModelFolder, Failure> {
    Ok(kinora::model_in_the_box::open()?)
}

/// The still that goes with it.
#[cfg(feature = "model-in-the-box")]
pub fn still() -> Result<RgbImage, Failure> {
    Ok(kinora::model_in_the_box::still()?)
}

/// This program was built without one.
#[cfg(not(feature = "model-in-the-box"))]
pub fn in_the_box() -> Result<ModelFolder, Failure> {
    Err(none_in_the_box())
}

/// The still comes with the model, and this program was built without it.
#[cfg(not(feature = "model-in-the-box"))]
pub fn still() -> Result<RgbImage, Failure> {
    Err(none_in_the_box())
}

#[cfg(not(feature = "model-in-the-box"))]
fn none_in_the_box() -> Failure {
    Failure::Usage("this program was built without a model in the box; name one with --model".to_owned())
}

/// A progress bar for every file that takes a while.
struct DownloadBar<'a> {
    display: &'a mut Display,
    file: String,
}

/// Smaller files arrive before anyone could read their names.
const WORTH_A_BAR: u64 = 1_000_000;

impl Progress for DownloadBar<'_> {
    fn downloaded(&mut self, file: &str, done: u64, total: u64) {
        if total < WORTH_A_BAR {
            return;
        }
        if self.file != file {
            self.display.end_stage();
            self.display.line(&format!("downloading {file}"));
            self.file = file.to_owned();
        }
        self.display.advance("download", Unit::Bytes, done, total);
    }
}
