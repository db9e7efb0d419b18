//! What the program says, and how it ends, when something went wrong.

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use anstyle::{AnsiColor, Style};
use kinora::{image_to_video::GenerateError, photo::PhotoError, video::VideoError};
use kinora_models::{folder::FolderError, hub::HubError, synthetic::SyntheticError};
use serde_json::json;

/// The command line is wrong.
pub const EXIT_USAGE: u8 = 2;
/// Someone pressed Ctrl-C: 128 and the number of the signal, as shells count it.
pub const EXIT_INTERRUPTED: u8 = 130;
/// Everything else.
const EXIT_FAILED: u8 = 1;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The options contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The photo.
    #[error(transparent)]
    Photo(#[from] PhotoError),
    /// The video's file.
    #[error(transparent)]
    Video(#[from] VideoError),
    /// The model could not be found or downloaded.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A model of the hub is to be looked at, but was never downloaded.
    #[error("{model} is not on this machine, and `kinora info` downloads nothing")]
    NotDownloaded {
        /// Its name.
        model: String,
    },
    /// The model's folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The demonstration model.
    #[error(transparent)]
    Synthetic(#[from] SyntheticError),
    /// The work itself.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Ctrl-C.
    #[error("interrupted; nothing was written")]
    Interrupted,
    /// The system does not let the program hear of Ctrl-C.
    #[error("cannot listen for Ctrl-C")]
    Signals(#[source] ctrlc::Error),
    /// Standard output does not take the answer.
    #[error("cannot write to standard output")]
    StandardOutput(#[source] io::Error),
}

impl Failure {
    /// What to do, where the message cannot know it: the libraries do not know the options of this program.
    fn help(&self) -> Option<&'static str> {
        match self {
            Failure::Video(VideoError::Exists { .. }) => Some("add --force to replace it"),
            Failure::Hub(HubError::Unreachable { .. } | HubError::Offline { .. }) => Some(
                "give --model the path of a model's folder, or try everything without a download: \
                 kinora demo-model FOLDER",
            ),
            Failure::NotDownloaded { .. } => Some(
                "`kinora generate --model` downloads it; `kinora info --config svd-xt` needs no model at all",
            ),
            Failure::Generate(GenerateError::OverBudget { .. }) => Some(
                "raise --memory, or lower --size, --frames or --decode-chunk; --precision f16 halves the weights",
            ),
            Failure::Generate(GenerateError::Run { .. }) => Some(
                "the model's files may be damaged or belong to another model; `kinora info FOLDER` shows what is in them",
            ),
            _ => None,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Failure::Usage(_) => "usage",
            Failure::Photo(_) => "photo",
            Failure::Video(_) => "output",
            Failure::Hub(_) | Failure::NotDownloaded { .. } | Failure::Folder(_) | Failure::Synthetic(_) => {
                "model"
            }
            Failure::Generate(GenerateError::Setting { .. }) => "usage",
            Failure::Generate(GenerateError::OverBudget { .. }) => "memory",
            Failure::Generate(_) => "generate",
            Failure::Interrupted => "interrupted",
            Failure::Signals(_) | Failure::StandardOutput(_) => "system",
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Failure::Usage(_) | Failure::Generate(GenerateError::Setting { .. }) => EXIT_USAGE,
            Failure::Interrupted => EXIT_INTERRUPTED,
            _ => EXIT_FAILED,
        }
    }

    /// Tells people on standard error and, where it was asked for, programs on standard output.
    pub fn report(&self, json: bool) -> ExitCode {
        let message = self.to_string();
        let causes = causes(self, &message);
        if !self.reader_is_gone() {
            print(&message, &causes, self.help());
            if json {
                print_json(self.kind(), self.exit_code(), &message, &causes, self.help());
            }
        }
        ExitCode::from(self.exit_code())
    }

    /// Whether the program that read our output has ended, as `head` does: no one is left to be told.
    fn reader_is_gone(&self) -> bool {
        matches!(self, Failure::StandardOutput(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Says why the command line could not be understood, or prints the help that it asks for.
pub fn report_usage(error: &clap::Error, json: bool) -> ExitCode {
    // No one is left to be told where even this cannot be written.
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::SUCCESS;
    }
    if json {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        print_json("usage", EXIT_USAGE, message, &[], None);
    }
    ExitCode::from(EXIT_USAGE)
}

/// The errors behind an error, as far as they say something new: many messages quote their cause.
fn causes(failure: &Failure, message: &str) -> Vec<String> {
    let mut said = message.to_owned();
    let mut causes = Vec::new();
    let mut cause = failure.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            said.push_str(&text);
            causes.push(text);
        }
        cause = error.source();
    }
    causes
}

fn print(message: &str, causes: &[String], help: Option<&str>) {
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let cyan = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
    let mut text = format!("{red}error{red:#}: {message}\n");
    for cause in causes {
        text.push_str(&format!("  because: {cause}\n"));
    }
    if let Some(help) = help {
        text.push_str(&format!("{cyan}help{cyan:#}: {help}\n"));
    }
    // No one is left to be told where standard error is gone.
    let _ = anstream::stderr().write_all(text.as_bytes());
}

fn print_json(kind: &str, exit_code: u8, message: &str, causes: &[String], help: Option<&str>) {
    let error =
        json!({ "kind": kind, "message": message, "causes": causes, "help": help, "exit_code": exit_code });
    let _ = writeln!(io::stdout(), "{}", json!({ "error": error }));
}
