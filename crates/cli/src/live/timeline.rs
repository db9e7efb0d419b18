//! The file of changes, read and tried before the work begins.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

use kinora::{
    Live, LiveSettings,
    image_to_video::GenerateError,
    live::{Change, Changes, MAX_CHANGES},
};
use kinora_outside::read_text;

use super::{arguments::LiveArgs, drawing, idle::Ever};
use crate::failure::Failure;

/// The path and the text of the file of changes. Both are empty if none was given.
pub fn text(arguments: &LiveArgs) -> Result<(&Path, String), Failure> {
    let Some(path) = &arguments.changes else { return Ok((Path::new(""), String::new())) };
    let text =
        read_text(path, MAX_CHANGES).map_err(|source| Failure::Unreadable { path: path.clone(), source })?;
    Ok((path, text))
}

/// The changes, and what the settings ever are. What no frame can be drawn with is refused now, not when half of the video is drawn.
pub fn read(
    (path, text): (&Path, &str),
    live: &Live,
    settings: &LiveSettings,
) -> Result<(Changes, Ever), Failure> {
    let changes = Changes::read(text, settings)
        .map_err(|error| Failure::Usage(at(path, error.line, error.line, &error.problem)))?;
    let (mut now, mut seen, mut ever) = (settings.clone(), HashSet::new(), Ever::default());
    if changes.of(0).is_empty() {
        ever.see(settings);
    }
    for frame in changes.frames() {
        now = changes.at(frame, &now).unwrap_or(now);
        ever.see(&now);
        // Those of a frame take effect together.
        let wrong = |error| named(path, changes.of(frame), error);
        now.check(live.configs(), live.precision()).map_err(wrong)?;
        // What prompts and seeds are cannot be wrong otherwise, and there may be many.
        let others = now.clone().prompt("").negative_prompt("").seed(0).glide(0).lora(BTreeMap::new());
        if seen.insert(Changes::line(0, &others)) {
            live.check(&others).map_err(wrong)?;
        }
    }
    Ok((changes, ever))
}

/// A failure that names the lines of the changes that are refused.
fn named(path: &Path, changes: &[Change], error: GenerateError) -> Failure {
    match (changes.first(), changes.last()) {
        (Some(first), Some(last)) => Failure::Usage(at(path, first.line(), last.line(), &error.to_string())),
        _ => drawing::failure(error),
    }
}

fn at(path: &Path, first: usize, last: usize, problem: &str) -> String {
    let path = path.display();
    if first == last {
        format!("{path}:{first}: {problem}")
    } else {
        format!("{path}:{first}-{last}: {problem}")
    }
}

/// Changes that never take effect, because the video ends before.
pub struct Unused {
    pub count: usize,
    /// Why, in sentences for people.
    pub warnings: Vec<String>,
}

/// The changes that a video of so many frames leaves unused: those of later frames, and `late` ones that were not ready in time.
pub fn unused(changes: &Changes, frames: u64, late: usize) -> Unused {
    let beyond = changes.since(frames);
    let some = |count: usize| if count == 1 { "1 change".to_owned() } else { format!("{count} changes") };
    let after = beyond.first().map(|first| {
        format!(
            "{} never took effect: the last frame is number {}, and the next change is for frame {}",
            some(beyond.len()),
            frames.saturating_sub(1),
            first.frame()
        )
    });
    let was = if late == 1 { "it was" } else { "they were" };
    let not_ready =
        (late > 0).then(|| format!("{} never took effect: the video ended before {was} ready", some(late)));
    Unused { count: beyond.len() + late, warnings: after.into_iter().chain(not_ready).collect() }
}
