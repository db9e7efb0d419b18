//! `kinora models verify`: the files of a model against their hashes.

use std::fmt::Write as _;

use kinora_models::hub::{self, CheckedFile, FileState, Found, Hub};
use serde_json::{Value, json};

use super::arguments::VerifyArgs;
use crate::{answer, display::Display, failure::Failure, model::DownloadBar, print, quantities::Bytes};

/// Checks a model.
pub fn run(arguments: &VerifyArgs) -> Result<(), Failure> {
    let mut display = Display::new(arguments.quiet, false);
    let mut bar = DownloadBar::new(&mut display);
    let (model, files, mend): (String, Vec<CheckedFile>, Option<String>) = match hub::find(&arguments.model)?
    {
        Found::Path(path) => (path.display().to_string(), hub::verify_folder(&path, &mut bar)?, None),
        Found::Model(id) => {
            let revisions = Hub::from_env()?.verify(&id, &mut bar)?;
            let files = revisions.into_iter().flat_map(|(_, files)| files).collect();
            (id.to_string(), files, Some(id.to_string()))
        }
    };
    bar.end();
    drop(display);
    let bad = files.iter().filter(|file| file.state.is_bad()).count();
    if !arguments.json {
        print(&as_text(&model, &files))?;
    }
    let listed: Vec<Value> = files.iter().map(as_json).collect();
    let found = json!({ "model": model, "damaged": bad, "files": listed });
    answer(arguments.json, found, (bad > 0).then_some(Failure::Damaged { model, files: bad, mend }))
}

fn as_text(model: &str, files: &[CheckedFile]) -> String {
    let mut text = String::new();
    for file in files {
        // The name may come from a folder that anyone has written.
        let name = file.name.escape_debug();
        let _ = match file.state {
            FileState::Damaged { expected, got } => {
                writeln!(
                    text,
                    "damaged  {name}\n         its hash is {got}\n         but should be {expected}"
                )
            }
            FileState::Missing => writeln!(text, "missing  {name}"),
            FileState::Unknown => writeln!(text, "unknown  {name}: nothing says what its hash should be"),
            FileState::Good(_) => Ok(()),
        };
    }
    let good = files.iter().filter(|file| matches!(file.state, FileState::Good(_)));
    let (count, bytes) = good.fold((0, 0), |(count, bytes), file| (count + 1, bytes + file.bytes));
    let _ = writeln!(
        text,
        "{model}: {count} of {} files are as the hub has them ({})",
        files.len(),
        Bytes(bytes)
    );
    text
}

fn as_json(file: &CheckedFile) -> Value {
    let (state, expected, got) = match file.state {
        FileState::Good(digest) => ("good", Some(digest), Some(digest)),
        FileState::Damaged { expected, got } => ("damaged", Some(expected), Some(got)),
        FileState::Missing => ("missing", None, None),
        FileState::Unknown => ("unknown", None, None),
    };
    let digest = |digest: Option<hub::Digest>| digest.map(|digest| digest.to_string());
    json!({
        "name": file.name, "path": file.path, "bytes": file.bytes, "state": state,
        "expected": digest(expected), "got": digest(got),
    })
}
