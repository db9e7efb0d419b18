//! `kinora lab tune`: the parameters that a kernel declares, searched.

use std::path::Path;

use kinora::files::Inputs;
use kinora_lab::{
    Stage, Task,
    tune::{TuneError, Tuning, tune},
};
use kinora_outside::read_text;

use super::{arguments::TuneArgs, of_task, options};
use crate::{
    answer,
    display::{Display, Unit},
    failure::Failure,
    files, interrupt, print,
};

/// The most bytes of an earlier search.
const MAX_SEARCH: u64 = 64 << 20;

/// Searches, and keeps what is found after each step.
pub fn run(arguments: &TuneArgs) -> Result<(), Failure> {
    let task = Task::open(&arguments.task).map_err(of_task)?;
    let options = options(&arguments.method)?;
    let path = arguments.save.clone().unwrap_or_else(|| task.folder.join("tune.json"));
    let earlier = earlier(&path)?;
    let kept = files::check(&path, true, &Inputs::new(task.files()))?;
    interrupt::set_words("interrupted; what was found is kept, and the same command continues from there");
    let mut display = Display::new(arguments.method.json, false);
    let mut failed = None;
    let tuned = tune(
        &task,
        &options,
        arguments.check,
        earlier,
        &mut |stage: &Stage| {
            display.advance(stage.what, Unit::Parts, stage.done as u64, stage.total.max(1) as u64);
        },
        &mut |tuning: &Tuning| {
            let text = serde_json::to_string_pretty(tuning).unwrap_or_default();
            failed = failed.take().or_else(|| kept.write(text.as_bytes()).err());
        },
    );
    display.abandon_stage();
    if let Some(failure) = failed {
        return Err(failure);
    }
    let tuning = tuned.map_err(|error| match error {
        TuneError::Task(error) => of_task(error),
        error => Failure::LabNotRun(error.to_string()),
    })?;
    if !arguments.method.json {
        print(&tuning.text())?;
    }
    let wrong = tuning.variants.iter().filter(|variant| variant.right != Some(true)).count();
    let failure = tuning.best().is_none().then_some(Failure::LabFound { count: wrong });
    let mut answered = serde_json::to_value(&tuning).unwrap_or_default();
    answered["best"] = serde_json::to_value(tuning.best()).unwrap_or_default();
    answer(arguments.method.json, answered, failure)
}

/// What an earlier search found.
fn earlier(path: &Path) -> Result<Option<Tuning>, Failure> {
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    let text = read_text(path, MAX_SEARCH)
        .map_err(|source| Failure::Unreadable { path: path.to_owned(), source })?;
    let other = |_| {
        let name = path.display();
        Failure::Usage(format!("{name} is no search of kinora lab tune; name another file with --save"))
    };
    serde_json::from_str(&text).map(Some).map_err(other)
}
