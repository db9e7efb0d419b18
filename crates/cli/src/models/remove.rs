//! `kinora models rm`: out of the cache.

use std::io::{self, BufRead, IsTerminal, Write};

use kinora_models::hub::Hub;
use serde_json::json;

use super::{arguments::RemoveArgs, id};
use crate::{failure::Failure, print, quantities::Bytes};

/// Removes a model, after a question.
pub fn run(arguments: &RemoveArgs) -> Result<(), Failure> {
    let id = id(&arguments.model)?;
    let hub = Hub::from_env()?;
    let model = hub.cached_model(&id)?;
    if !arguments.yes {
        let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal() && !arguments.json;
        if !can_ask {
            let text =
                format!("`kinora models rm` asks before it removes {id}; add --yes, as nobody can answer");
            return Err(Failure::Usage(text));
        }
        if !confirmed(&format!("Remove {id} ({} in {})?", Bytes(model.bytes), model.folder.display()))? {
            return print("Nothing was removed.\n");
        }
    }
    let removal = hub.remove(&id)?;
    if arguments.json {
        let answer = json!({ "model": id.repo(), "commits": removal.commits, "bytes": removal.bytes });
        return print(&format!("{answer}\n"));
    }
    print(&format!("{id} is removed: {} freed\n", Bytes(removal.bytes)))
}

/// Asks on the terminal; everything but a yes is a no.
fn confirmed(question: &str) -> Result<bool, Failure> {
    let mut answer = String::new();
    let mut terminal = io::stderr();
    let asked = write!(terminal, "{question} [y/N] ").and_then(|()| terminal.flush());
    asked.and_then(|()| io::stdin().lock().read_line(&mut answer)).map_err(Failure::StandardOutput)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
