//! Changes while a stream runs: which settings change at which frame, as lines of JSON.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::LiveSettings;

/// The most bytes of a file of changes.
pub const MAX_CHANGES: u64 = 64 << 20;
const FRAME: &str = "frame";
/// The setting whose parts change one by one.
const LORA: &str = "lora";

/// Changes in the order of their frames.
///
/// Each is a line with a JSON object: the number of the frame, counted from 0, and the settings that change, under the names
/// of [`LiveSettings`]. Of `lora`, an object with strengths by name, those that are named change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes(Vec<Change>);

/// A line of [`Changes`].
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The line, counted from 1.
    line: usize,
    frame: u64,
    settings: Map<String, Value>,
}

impl Change {
    /// The line that it was read from, counted from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The first frame that it changes, counted from 0.
    pub fn frame(&self) -> u64 {
        self.frame
    }

    /// The settings with what it changes. Nothing, if they are of a model with other LoRAs than those it was read for.
    #[must_use]
    pub fn apply(&self, settings: &LiveSettings) -> LiveSettings {
        // It was tried when it was read.
        changed(settings, &self.settings).unwrap_or_else(|_| settings.clone())
    }
}

/// Why changes could not be read.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ChangesError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

impl Changes {
    /// Reads lines of changes. Each is tried on the settings before it.
    ///
    /// # Errors
    /// If a line is not such an object, names a setting that does not exist or a value that it cannot have, or comes after one
    /// of a later frame.
    pub fn read(text: &str, settings: &LiveSettings) -> Result<Changes, ChangesError> {
        let mut changes: Vec<Change> = Vec::new();
        let mut settings = settings.clone();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |problem: String| ChangesError { line: at + 1, problem };
            let object = serde_json::from_str::<Value>(line).map_err(|error| wrong(not_json(&error)))?;
            let Value::Object(mut change) = object else {
                return Err(wrong("it must be a JSON object".to_owned()));
            };
            let frame = change.remove(FRAME).and_then(|frame| frame.as_u64());
            let frame = frame.ok_or_else(|| wrong("`frame` must be a whole number, 0 or more".to_owned()))?;
            if changes.last().is_some_and(|before| before.frame > frame) {
                return Err(wrong(format!("frame {frame} comes after a later one")));
            }
            settings = changed(&settings, &change).map_err(wrong)?;
            changes.push(Change { line: at + 1, frame, settings: change });
        }
        Ok(Changes(changes))
    }

    /// The changes of a frame.
    pub fn of(&self, frame: u64) -> &[Change] {
        let from = self.0.partition_point(|change| change.frame < frame);
        let to = self.0.partition_point(|change| change.frame <= frame);
        &self.0[from..to]
    }

    /// The settings from this frame on. `None` if none change there.
    pub fn at(&self, frame: u64, settings: &LiveSettings) -> Option<LiveSettings> {
        let (first, others) = self.of(frame).split_first()?;
        Some(others.iter().fold(first.apply(settings), |settings, change| change.apply(&settings)))
    }

    /// The changes of this frame and all later ones: those that never take effect if the video ends before it.
    pub fn since(&self, frame: u64) -> &[Change] {
        &self.0[self.0.partition_point(|change| change.frame < frame)..]
    }

    /// The LoRAs that lines of changes name, before any of them is tried, each with the first line that does, counted from 1.
    pub fn loras(text: &str) -> BTreeMap<String, usize> {
        let mut named = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let change = serde_json::from_str::<Map<String, Value>>(line).ok();
            if let Some(Value::Object(strengths)) = change.and_then(|mut change| change.remove(LORA)) {
                for (name, _) in strengths {
                    named.entry(name).or_insert(at + 1);
                }
            }
        }
        named
    }

    /// The frames with changes, each once.
    pub fn frames(&self) -> Vec<u64> {
        let mut frames: Vec<u64> = self.0.iter().map(|change| change.frame).collect();
        frames.dedup();
        frames
    }

    /// A line of a log: all settings from a frame on.
    pub fn line(frame: u64, settings: &LiveSettings) -> String {
        let mut object = Map::new();
        object.insert(FRAME.to_owned(), frame.into());
        if let Ok(Value::Object(fields)) = serde_json::to_value(settings) {
            object.extend(fields);
        }
        format!("{}\n", Value::Object(object))
    }
}

/// What is wrong with a line that is no JSON. Each is read by itself: of the place, only the column says something.
fn not_json(error: &serde_json::Error) -> String {
    let (text, place) = (error.to_string(), format!(" at line {} column {}", error.line(), error.column()));
    match text.strip_suffix(&place) {
        Some(problem) => format!("{problem} at column {}", error.column()),
        None => text,
    }
}

fn changed(settings: &LiveSettings, change: &Map<String, Value>) -> Result<LiveSettings, String> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(settings) else {
        return Err("the settings cannot be written as JSON".to_owned());
    };
    let mut change = change.clone();
    if let Some(Value::Object(named)) = change.get_mut(LORA) {
        let known = settings.lora.keys();
        if let Some(unknown) = named.keys().find(|name| !settings.lora.contains_key(*name)) {
            let known = known.map(String::as_str).collect::<Vec<_>>().join(", ");
            let others = if known.is_empty() {
                "no LoRA can be turned".to_owned()
            } else {
                format!("there are {known}")
            };
            return Err(format!("no LoRA is called {unknown:?}; {others}"));
        }
        for (name, strength) in &settings.lora {
            named.entry(name.clone()).or_insert_with(|| (*strength).into());
        }
    }
    fields.extend(change);
    let new: LiveSettings =
        serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())?;
    // These are no part of the JSON.
    Ok(new.fit(settings.fit).background(settings.background))
}

#[cfg(test)]
mod tests {
    use kinora_models::image::{Colour, Fit};

    use super::*;
    use crate::live::Guidance;

    fn settings() -> LiveSettings {
        LiveSettings {
            prompt: String::new(),
            negative_prompt: String::new(),
            width: 64,
            height: 64,
            strength: 0.5,
            steps: 1,
            timesteps: None,
            guidance: Guidance::None,
            guidance_scale: 1.0,
            stream_batch: false,
            control_scale: 1.0,
            seed: 0,
            blend: 0.0,
            memory_frames: 0,
            glide: 0,
            lora: BTreeMap::new(),
            fit: Fit::Pad,
            background: Colour::WHITE,
        }
    }

    #[test]
    fn a_log_gives_the_settings_again() {
        let first = settings().prompt("a\n\"b\" \u{1f3a8}").timesteps(vec![5, 3]).seed(u64::MAX);
        let second = first.clone().guidance(Guidance::Full).strength(0.123_456_789_012_345_68);
        let log = Changes::line(0, &first) + &Changes::line(7, &second);
        let read = Changes::read(&log, &settings()).unwrap();
        assert_eq!(read.at(0, &settings()), Some(first.clone()));
        assert_eq!(read.at(7, &first), Some(second));
        assert_eq!(read.at(6, &first), None);
    }

    #[test]
    fn a_line_changes_what_it_names() {
        let text = "{\"frame\": 3, \"prompt\": \"night\"}\n\n{\"frame\": 3, \"steps\": 2}\n";
        let read = Changes::read(text, &settings()).unwrap();
        let lines = |changes: &[Change]| changes.iter().map(Change::line).collect::<Vec<_>>();
        assert_eq!((lines(read.of(3)), lines(read.of(4))), (vec![1, 3], vec![]));
        // A video of three frames has none of number 3.
        assert_eq!((lines(read.since(3)), lines(read.since(4))), (vec![1, 3], vec![]));
        assert_eq!(read.at(3, &settings()), Some(settings().prompt("night").steps(2)));
    }

    #[test]
    fn a_line_changes_the_strengths_that_it_names() {
        let both = settings().lora_strength("ink", 1.0).lora_strength("style", 0.5);
        let text =
            "{\"frame\": 3, \"lora\": {\"style\": -0.25}}\nno\n{\"lora\": {\"ink\": 0}}\n{\"lora\": 3}";
        assert_eq!(Changes::loras(text), [("ink".to_owned(), 3), ("style".to_owned(), 1)].into());
        let read = Changes::read(text.lines().next().unwrap(), &both).unwrap();
        let changed = both.clone().lora_strength("style", -0.25);
        assert_eq!(read.at(3, &both), Some(changed.clone()));
        let log = Changes::read(&Changes::line(0, &changed), &both).unwrap();
        assert_eq!(log.at(0, &both), Some(changed));
        for (text, said) in [
            ("{\"frame\": 3, \"lora\": {\"chalk\": 1}}", "no LoRA is called \"chalk\"; there are ink, style"),
            ("{\"frame\": 3, \"lora\": {\"ink\": \"much\"}}", "much"),
            ("{\"frame\": 3, \"lora\": 1}", "1"),
        ] {
            let error = Changes::read(text, &both).unwrap_err();
            assert!(error.problem.contains(said), "{error}");
        }
        let error = Changes::read("{\"frame\": 3, \"lora\": {\"x\": 1}}", &settings()).unwrap_err();
        assert!(error.problem.ends_with("no LoRA can be turned"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let wrong = [
            ("{\"frame\": 1}\nno", 2, "expected ident at column 2"),
            ("[1]", 1, "object"),
            ("{\"prompt\": \"x\"}", 1, "`frame`"),
            ("{\"frame\": -1}", 1, "`frame`"),
            ("{\"frame\": 5}\n{\"frame\": 4}", 2, "later"),
            ("{\"frame\": 5, \"promt\": \"x\"}", 1, "promt"),
            ("{\"frame\": 5, \"steps\": \"two\"}", 1, "two"),
        ];
        for (text, line, said) in wrong {
            let error = Changes::read(text, &settings()).unwrap_err();
            assert!(error.line == line && error.problem.contains(said), "{error}");
        }
    }
}
