//! Finding the model that was asked for.

use std::{ffi::OsStr, time::Duration};

use kinora::RgbImage;
use kinora_models::{
    folder::ModelFolder,
    hub::{self, Found, Hub, HubError, Progress, SHORT_NAMES},
    weights::Variant,
};

use crate::{
    display::{Display, Unit},
    failure::Failure,
    interrupt,
    quantities::clock,
};

/// Opens a model folder; downloads it first if the name is that of a model on the hub.
pub fn open(name: &OsStr, variant: &Variant, display: &mut Display) -> Result<ModelFolder, Failure> {
    let id = match hub::find(name)? {
        Found::Path(path) => {
            if SHORT_NAMES.iter().any(|short| name == short.name) {
                display.line(&format!(
                    "{} is a path here, so the model of that name is not used",
                    path.display()
                ));
            }
            return Ok(ModelFolder::open(path)?);
        }
        Found::Model(id) => id,
    };
    let mut bar = DownloadBar::new(display);
    let folder = Hub::from_env()?.fetch(&id, variant, &mut bar)?;
    bar.end();
    Ok(ModelFolder::open(folder)?)
}

/// Opens a model folder on this machine: a path, or a model that was downloaded before.
pub fn open_local(name: &OsStr, variant: &Variant) -> Result<ModelFolder, Failure> {
    let id = match hub::find(name)? {
        Found::Path(path) => return Ok(ModelFolder::open(path)?),
        Found::Model(id) => id,
    };
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
pub struct DownloadBar<'a> {
    display: &'a mut Display,
    /// What is being done, and with which file.
    current: (&'static str, String),
}

/// Smaller files arrive before anyone could read their names.
const WORTH_A_BAR: u64 = 1_000_000;

impl<'a> DownloadBar<'a> {
    /// Shows nothing yet.
    pub fn new(display: &'a mut Display) -> Self {
        DownloadBar { display, current: ("", String::new()) }
    }

    /// Ends the last bar.
    pub fn end(self) {
        self.display.end_stage();
    }

    fn advance(&mut self, stage: &'static str, doing: &str, file: &str, [done, total]: [u64; 2]) {
        if total < WORTH_A_BAR {
            return;
        }
        if self.current.0 != stage || self.current.1 != file {
            self.display.end_stage();
            self.display.line(&format!("{doing} {file}"));
            self.current = (stage, file.to_owned());
        }
        self.display.advance(stage, Unit::Bytes, done, total);
    }
}

/// Also if the download fails.
impl Drop for DownloadBar<'_> {
    fn drop(&mut self) {
        interrupt::set_downloading(false);
    }
}

impl Progress for DownloadBar<'_> {
    fn downloaded(&mut self, file: &str, done: u64, total: u64) {
        interrupt::set_downloading(true);
        self.advance("download", "downloading", file, [done, total]);
    }

    fn checked(&mut self, file: &str, done: u64, total: u64) {
        self.advance("check", "checking", file, [done, total]);
    }

    fn waiting(&mut self, file: &str) {
        self.display.line(&format!("another program downloads {file}; waiting for it"));
    }

    fn retrying(&mut self, file: &str, reason: &str, pause: Duration) {
        let when = if pause.is_zero() { "now".to_owned() } else { format!("in {}", clock(pause)) };
        self.display.warn(&format!("{file}: {reason}; trying again {when}"));
    }
}
