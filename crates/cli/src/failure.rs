//! What the program says when something went wrong, and its exit codes.

use std::{
    borrow::Cow,
    error::Error,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anstyle::{AnsiColor, Style};
use kinora::{
    device::OpenDeviceError,
    image_to_video::{GenerateError, Precision, Suggestion},
    memory::{LimitSource, MemoryLimit},
    photo::PhotoError,
    quantisation::QuantisationError,
    runtime::RunError,
    video::{VideoError, input::InputError},
};
use kinora_bench::{BenchError, results::ResultsError};
use kinora_models::{
    folder::FolderError, hub::HubError, schedulers::SchedulerError, synthetic::SyntheticError,
};
use kinora_outside::{printable, shortened};
use kinora_profile::ProfileError;
use serde_json::{Value, json};

use crate::{out_of_memory, print_styled, terminal};

/// The command line is wrong.
pub const EXIT_USAGE: u8 = 2;
/// Someone pressed Ctrl-C: 128 plus the signal's number, as shells count it.
pub const EXIT_INTERRUPTED: u8 = 130;
/// Everything else; for `kinora sim`, a bug in the kernel.
const EXIT_FAILED: u8 = 1;
/// `kinora sim` or `kinora lab` could not run the kernel.
#[cfg(feature = "simulator")]
const EXIT_NOT_RUN: u8 = 3;

/// The most characters of a message. A model's file may hold a name of any length, and a compiler may say a lot.
const LONGEST_MESSAGE: usize = 20_000;

/// What to do about a GPU that does not work.
const ON_THE_CPU: &str = "use --device cpu to run on the CPU";

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
    Video(VideoError),
    /// A video that is read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The model could not be found or downloaded.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// `kinora info` was asked about a model of the hub that was never downloaded.
    #[error("{model} is not on this machine, and `kinora info` downloads nothing")]
    NotDownloaded {
        /// Its name.
        model: String,
    },
    /// `kinora models verify` found files that are not as they were downloaded, and has reported them.
    #[error("{model}: {files} {} damaged or missing", if *files == 1 { "file is" } else { "files are" })]
    Damaged {
        /// The model's name or folder.
        model: String,
        /// How many.
        files: usize,
        /// The name under which it can be downloaded again.
        mend: Option<String>,
    },
    /// The model's folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A saved profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// An output file exists already.
    #[error("{} exists already", .0.display())]
    FileExists(PathBuf),
    /// A file that cannot be written.
    #[error("cannot write {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The demonstration model.
    #[error(transparent)]
    Synthetic(#[from] SyntheticError),
    /// `kinora info` found that a model's weights lack something, and has reported it.
    #[error("no clip can be made with this model: its weights have {count} problem{}", if *count == 1 { "" } else { "s" })]
    Lacking {
        /// How many problems.
        count: usize,
    },
    /// The work itself.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The device that was asked for cannot be used.
    #[error(transparent)]
    Device(#[from] OpenDeviceError),
    /// A GPU's kernels could not be compiled or written.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Kernels(#[from] kinora_cuda::CudaError),
    /// The clip needs more memory than it may take.
    #[error("{error}; the limit is {}", limit.source)]
    Memory {
        /// What it needs, and what would fit.
        error: Box<GenerateError>,
        /// What it may take.
        limit: MemoryLimit,
    },
    /// A file that cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The simulator does not run a kernel.
    #[cfg(feature = "simulator")]
    #[error("{0}")]
    Simulation(String),
    /// The simulator found bugs in a kernel and has reported them.
    #[cfg(feature = "simulator")]
    #[error("the simulator found {count} problem{} in the kernel", if *count == 1 { "" } else { "s" })]
    Found {
        /// How many.
        count: usize,
    },
    /// The lab found that a kernel is wrong, and has reported it.
    #[cfg(feature = "simulator")]
    #[error("the kernel is wrong: {count} problem{}", if *count == 1 { "" } else { "s" })]
    LabFound {
        /// How many things are wrong.
        count: usize,
    },
    /// The lab could not run a task.
    #[cfg(feature = "simulator")]
    #[error("{0}")]
    LabNotRun(String),
    /// A file that a new task would have exists already.
    #[cfg(feature = "simulator")]
    #[error("{} exists already", .0.display())]
    LabExists(PathBuf),
    /// `kinora sim` could not run the kernel, so it says nothing about it.
    #[cfg(feature = "simulator")]
    #[error(transparent)]
    NotRun(Box<Failure>),
    /// `kinora doctor` found something that does not work, and has reported it.
    #[error("these checks failed: {findings}")]
    ChecksFailed {
        /// The names of the failed checks.
        findings: String,
    },
    /// A file of a benchmark's results.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// A benchmark that could not be finished.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The Python that was to run a benchmark's peers.
    #[error("the peers cannot run")]
    Peer(#[source] BenchError),
    /// Cases of a benchmark that failed, or whose results differ from a peer's.
    #[error("{0}")]
    Benchmark(String),
    /// Cases that became slower.
    #[error("slower than before: {0}")]
    Slower(String),
    /// Ctrl-C.
    #[error("interrupted; nothing was written")]
    Interrupted,
    /// Ctrl-C in work that says more of it than that.
    #[error("{0}")]
    InterruptedWith(&'static str),
    /// Ctrl-C in a download.
    #[error("interrupted; what has arrived is kept, and the same command continues from there")]
    InterruptedDownload,
    /// Some of several clips could not be made, and were reported.
    #[error("{made} of {asked} clips were made; these photos failed: {failed}")]
    SomeClips {
        /// How many were made.
        made: usize,
        /// How many were asked for.
        asked: usize,
        /// The photos of the others.
        failed: String,
    },
    /// Ctrl-C between several clips. The finished ones are kept.
    #[error("interrupted; {made} of {asked} clips were made")]
    InterruptedClips {
        /// How many were finished.
        made: usize,
        /// How many were asked for.
        asked: usize,
    },
    /// A failure that leaves an answer behind: with `--json`, both are printed as one object.
    #[error("{failure}")]
    After {
        /// The answer, an object.
        answer: Value,
        /// What failed.
        failure: Box<Failure>,
    },
    /// Ctrl-C in a benchmark. The finished cases are kept.
    #[error("{}", interrupted_bench(*cases, files))]
    InterruptedBench {
        /// How many were finished.
        cases: usize,
        /// The files that were written.
        files: Vec<PathBuf>,
    },
    /// The system refuses a handler for Ctrl-C.
    #[error("cannot listen for Ctrl-C")]
    Signals(#[source] io::Error),
    /// The output could not be written.
    #[error("cannot write to standard output")]
    StandardOutput(#[source] io::Error),
}

/// Whether a file may be replaced is this program's option, so it is not said in the library's words.
impl From<VideoError> for Failure {
    fn from(error: VideoError) -> Failure {
        match error {
            VideoError::Exists { path } => Failure::FileExists(path),
            error => Failure::Video(error),
        }
    }
}

impl Failure {
    /// What to do about it, in terms of this program's options, which the libraries do not know.
    fn help(&self) -> Option<String> {
        let text = match self {
            #[cfg(feature = "simulator")]
            Failure::LabExists(_) => "choose another name; nothing was written",
            #[cfg(feature = "simulator")]
            Failure::NotRun(failure) => return failure.help(),
            Failure::FileExists(_) => "choose another name, or add --force to replace it",
            Failure::Video(VideoError::FrameRate { .. }) => {
                "--play-fps sets the frame rate of the file, which is otherwise that of --motion-fps"
            }
            Failure::Video(VideoError::GifFrameRate { .. } | VideoError::GifTooSlow { .. }) => {
                "--play-fps sets the frame rate of the file alone"
            }
            Failure::Hub(HubError::Unreachable { .. } | HubError::Offline { .. }) => {
                "`kinora models list` shows what was downloaded before; --model also takes the path of a model's \
                 folder"
            }
            Failure::Bench(BenchError::NoMatch { .. }) => {
                "a pattern is plain text that a case's name contains, not a regular expression; separate several with commas, \
                 or repeat --only; `kinora bench --list` prints all names"
            }
            Failure::InterruptedBench { cases: 1.., files } if files.is_empty() => {
                "--save FILE keeps the finished cases"
            }
            Failure::Peer(_) => {
                "`pip install torch numpy` installs what they need; --no-peers runs without them"
            }
            Failure::NotDownloaded { model } => {
                return Some(format!(
                    "`kinora models pull {model}` downloads it; `kinora info --config svd-xt` works without a model"
                ));
            }
            Failure::Damaged { mend: Some(model), .. } => {
                return Some(format!("`kinora models pull {model}` downloads them again"));
            }
            Failure::Damaged { mend: None, .. } => "download the folder again",
            Failure::Hub(HubError::NotCached { .. }) => {
                "`kinora models list` shows what is there; `kinora models pull` downloads a model"
            }
            Failure::Photo(PhotoError::Memory { .. }) => "--memory-limit sets what may be used",
            Failure::Memory { error, limit } => return Some(memory_help(error, limit)),
            #[cfg(feature = "cuda")]
            Failure::Kernels(error) => return error.missing_header().map(header_help),
            Failure::Generate(GenerateError::OutOfMemory { .. }) => out_of_memory::advice(),
            Failure::Generate(GenerateError::OverLimit(over)) => {
                return Some(or_raise(out_of_memory::advice(), &over.limit));
            }
            Failure::Generate(GenerateError::NotFinite { precision, .. }) => match precision {
                Precision::F16 | Precision::Fp8 => "try --precision bf16 or f32",
                Precision::BF16 => "try --precision f32",
                Precision::F32 => "`kinora info FOLDER` shows what is in the model's files",
            },
            Failure::Generate(GenerateError::Quantisation(QuantisationError::Device { .. })) => {
                "try --precision f16"
            }
            Failure::Device(_)
            | Failure::Bench(BenchError::Device(_))
            | Failure::Generate(GenerateError::Device(_)) => ON_THE_CPU,
            Failure::Generate(GenerateError::Run { source, .. })
                if matches!(**source, RunError::Device(_)) =>
            {
                ON_THE_CPU
            }
            Failure::Generate(GenerateError::Run { .. } | GenerateError::Weights { .. }) => {
                "the model's files may be damaged or belong to another model; `kinora info FOLDER` shows what is in them"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }

    fn kind(&self) -> &'static str {
        match self {
            _ if self.is_usage() => "usage",
            _ if self.lacks_memory() => "memory",
            Failure::Usage(_) => "usage",
            Failure::Photo(PhotoError::Memory { .. }) => "memory",
            Failure::Photo(_) => "photo",
            Failure::Input(_) => "input",
            Failure::Video(_) | Failure::FileExists(_) | Failure::File { .. } => "output",
            Failure::Profile(_) => "profile",
            Failure::ChecksFailed { .. } => "unwell",
            Failure::Unreadable { .. } => "input",
            #[cfg(feature = "simulator")]
            Failure::Simulation(_) | Failure::Found { .. } => "simulation",
            #[cfg(feature = "simulator")]
            Failure::LabFound { .. } | Failure::LabNotRun(_) => "lab",
            #[cfg(feature = "simulator")]
            Failure::LabExists(_) => "output",
            #[cfg(feature = "simulator")]
            Failure::NotRun(failure) => failure.kind(),
            Failure::Bench(BenchError::Device(_)) => "device",
            Failure::Device(_)
            | Failure::Generate(
                GenerateError::Device(_) | GenerateError::Quantisation(QuantisationError::Device { .. }),
            ) => "device",
            Failure::Results(_)
            | Failure::Bench(_)
            | Failure::Peer(_)
            | Failure::Benchmark(_)
            | Failure::Slower(_) => "bench",
            Failure::Hub(_)
            | Failure::NotDownloaded { .. }
            | Failure::Damaged { .. }
            | Failure::Folder(_)
            | Failure::Synthetic(_)
            | Failure::Lacking { .. }
            | Failure::Generate(GenerateError::Config { .. } | GenerateError::Quantisation(_)) => "model",
            Failure::Memory { .. }
            | Failure::Generate(
                GenerateError::OutOfMemory { .. }
                | GenerateError::OverBudget { .. }
                | GenerateError::OverLimit(_),
            ) => "memory",
            #[cfg(feature = "cuda")]
            Failure::Kernels(_) => "kernels",
            Failure::Generate(_) | Failure::SomeClips { .. } => "generate",
            Failure::Interrupted
            | Failure::InterruptedWith(_)
            | Failure::InterruptedDownload
            | Failure::InterruptedBench { .. }
            | Failure::InterruptedClips { .. } => "interrupted",
            Failure::After { failure, .. } => failure.kind(),
            Failure::Signals(_) | Failure::StandardOutput(_) => "system",
        }
    }

    /// Whether the system had no memory for something, such as to read a file.
    fn lacks_memory(&self) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(error) = cause {
            let system = error.downcast_ref::<io::Error>();
            if system.is_some_and(|error| error.kind() == io::ErrorKind::OutOfMemory) {
                return true;
            }
            cause = error.source();
        }
        false
    }

    /// Whether the command line has a value that no machine and no file could make valid.
    fn is_usage(&self) -> bool {
        match self {
            Failure::Usage(_) | Failure::Bench(BenchError::NoMatch { .. }) => true,
            Failure::Video(error) => matches!(
                error,
                VideoError::UnknownFormat { .. }
                    | VideoError::IsInput { .. }
                    | VideoError::FrameRate { .. }
                    | VideoError::GifFrameRate { .. }
                    | VideoError::GifTooSlow { .. }
            ),
            Failure::Generate(error) => matches!(
                error,
                GenerateError::Setting { .. }
                    | GenerateError::Scheduler(SchedulerError::Steps { .. } | SchedulerError::Order { .. })
            ),
            _ => false,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            _ if self.is_usage() => EXIT_USAGE,
            Failure::Interrupted
            | Failure::InterruptedWith(_)
            | Failure::InterruptedDownload
            | Failure::InterruptedBench { .. }
            | Failure::InterruptedClips { .. } => EXIT_INTERRUPTED,
            #[cfg(feature = "simulator")]
            Failure::LabNotRun(_) => EXIT_NOT_RUN,
            Failure::After { failure, .. } => failure.exit_code(),
            #[cfg(feature = "simulator")]
            Failure::NotRun(_) => EXIT_NOT_RUN,
            _ => EXIT_FAILED,
        }
    }

    /// The same failure, which kept `kinora sim` or `kinora lab` from running the kernel, unless the command line is wrong, it ran and
    /// has bugs, or nobody waits for it any more.
    #[cfg(feature = "simulator")]
    #[must_use]
    pub fn not_run(self) -> Failure {
        match self {
            Failure::Found { .. }
            | Failure::LabFound { .. }
            | Failure::LabNotRun(_)
            | Failure::After { .. }
            | Failure::StandardOutput(_) => self,
            failure if [EXIT_USAGE, EXIT_INTERRUPTED].contains(&failure.exit_code()) => failure,
            failure => Failure::NotRun(Box::new(failure)),
        }
    }

    /// This failure, after an answer that is worth printing nevertheless.
    pub fn after(self, answer: Value) -> Failure {
        Failure::After { answer, failure: Box::new(self) }
    }

    /// Whether other clips can be made nevertheless.
    pub fn is_of_one_clip(&self) -> bool {
        match self {
            Failure::Photo(_) | Failure::FileExists(_) => true,
            Failure::Video(error) => {
                matches!(error, VideoError::IsFolder { .. } | VideoError::Unwritable { .. })
            }
            Failure::Generate(error) => matches!(error, GenerateError::NotFinite { .. }),
            _ => false,
        }
    }

    /// Reports the failure to people on standard error and, with `--json`, to programs on standard output.
    pub fn report(&self, json: bool) -> ExitCode {
        let (failure, answer) = match self {
            Failure::After { failure, answer } => (&**failure, answer.clone()),
            failure => (failure, json!({})),
        };
        if failure.reader_is_gone() {
            // It has all that it wanted.
            return ExitCode::SUCCESS;
        }
        let error = failure.tell();
        if json {
            print_json(answer, error);
        }
        ExitCode::from(failure.exit_code())
    }

    /// Tells people on standard error; gives the same for programs.
    pub fn tell(&self) -> Value {
        let message = shortened(&self.to_string(), LONGEST_MESSAGE).into_owned();
        let (causes, help) = (causes(self, &message), self.help());
        print(&message, &causes, help.as_deref());
        json_error(self.kind(), self.exit_code(), &message, &causes, help.as_deref())
    }

    /// Whether the program that read our output has ended, as `head` does: nobody is left to tell.
    pub fn reader_is_gone(&self) -> bool {
        match self {
            Failure::StandardOutput(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Failure::Video(error) => error.reader_is_gone(),
            _ => false,
        }
    }
}

/// What an interrupted benchmark kept, and where.
fn interrupted_bench(cases: usize, files: &[PathBuf]) -> String {
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    match (cases, files.join(" and ").as_str()) {
        (0, "") => "interrupted before the first case was finished; nothing was written".to_owned(),
        (1, "") => "interrupted; 1 case was finished but not saved".to_owned(),
        (_, "") => format!("interrupted; {cases} cases were finished but not saved"),
        (1, files) => format!("interrupted; 1 finished case is saved in {files}"),
        (_, files) => format!("interrupted; {cases} finished cases are saved in {files}"),
    }
}

/// The options with which the clip would fit, and what to do about the limit.
fn memory_help(error: &GenerateError, limit: &MemoryLimit) -> String {
    let fits = match error {
        GenerateError::OverBudget { suggestion: Some(suggestion), .. } => {
            let Suggestion { frames, size, precision, decode_chunk, cache, .. } = **suggestion;
            let options = [
                frames.map(|frames| format!("--frames {frames}")),
                size.map(|[width, height]| format!("--size {width}x{height}")),
                precision.map(|precision| format!("--precision {precision}")),
                decode_chunk.map(|chunk| format!("--decode-chunk {chunk}")),
                cache.map(|cache| format!("--cache {cache}")),
            ];
            format!("{} would fit", options.into_iter().flatten().collect::<Vec<_>>().join(" "))
        }
        _ => out_of_memory::advice().to_owned(),
    };
    or_raise(&fits, limit)
}

/// What would fit, or what to do about the limit.
fn or_raise(fits: &str, limit: &MemoryLimit) -> String {
    match limit.source {
        LimitSource::Asked => format!("{fits}; or raise --memory-limit"),
        LimitSource::Process => format!("{fits}; or raise `ulimit -v` or `-d`"),
        LimitSource::Machine | LimitSource::ControlGroup | LimitSource::Gpu => {
            format!("{fits}; --memory-limit sets a limit other than what is free now")
        }
    }
}

/// Where to get a header that the compiler did not find.
#[cfg(feature = "cuda")]
fn header_help(header: &str) -> String {
    format!(
        "NVRTC searches only the folders it is given: pass the one that holds {header} as \
         --compile=-IFOLDER. `pip install nvidia-cuda-runtime` installs CUDA's own headers, and nvidia-cuda-crt those in crt/, into \
         nvidia/cu13/include of the environment's site-packages; the CUDA toolkit has them in /usr/local/cuda/include"
    )
}

/// Says why the command line could not be understood, or prints the help it asks for.
pub fn report_usage(error: &clap::Error, json: bool) -> ExitCode {
    if !error.use_stderr() {
        let printed = print_styled(&error.render().ansi().to_string());
        return printed.map_or_else(|failure| failure.report(false), |()| ExitCode::SUCCESS);
    }
    let plain = error.render().to_string();
    // If even this cannot be written, nobody is left to tell.
    let _ = match printable(&plain) {
        Cow::Borrowed(_) => error.print(),
        // An argument that the message quotes may be a file's name, and this one would drive the terminal.
        Cow::Owned(shown) => io::stderr().write_all(shown.as_bytes()),
    };
    if json {
        let message = plain.lines().next().unwrap_or_default().trim_start_matches("error: ");
        print_json(json!({}), json_error("usage", EXIT_USAGE, message, &[], None));
    }
    ExitCode::from(EXIT_USAGE)
}

/// The chain of causes, without those that add nothing: many messages quote their cause.
fn causes(failure: &Failure, message: &str) -> Vec<String> {
    let mut text_so_far = message.to_owned();
    let mut causes = Vec::new();
    let mut cause = failure.source();
    while let Some(error) = cause {
        let text = error.to_string();
        let text = shortened(&text, LONGEST_MESSAGE);
        if !text_so_far.contains(&*text) {
            text_so_far.push_str(&text);
            causes.push(text.into_owned());
        }
        cause = error.source();
    }
    causes
}

fn print(message: &str, causes: &[String], help: Option<&str>) {
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let cyan = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
    let mut text = format!("{red}error{red:#}: {}\n", printable(message));
    // A cause of many lines, such as all the places that were looked at, is for programs.
    for cause in causes.iter().filter(|cause| !cause.contains('\n')) {
        text.push_str(&format!("  because: {}\n", printable(cause)));
    }
    if let Some(help) = help {
        text.push_str(&format!("{cyan}help{cyan:#}: {}\n", printable(help)));
    }
    let text = terminal::wrapped(&text, terminal::error_width(), 2);
    // If standard error is gone, nobody is left to tell.
    let _ = anstream::stderr().write_all(text.as_bytes());
}

fn json_error(kind: &str, exit_code: u8, message: &str, causes: &[String], help: Option<&str>) -> Value {
    json!({ "kind": kind, "message": message, "causes": causes, "help": help, "exit_code": exit_code })
}

/// Prints an answer, with the error in it.
fn print_json(mut answer: Value, error: Value) {
    answer["error"] = error;
    let _ = writeln!(io::stdout(), "{}", printable(&answer.to_string()));
}

#[cfg(test)]
mod tests {
    use kinora::image_to_video::OverBudget;

    use super::*;

    #[test]
    fn running_out_of_memory_suggests_asking_for_less() {
        let source = Box::new(RunError::OutOfMemory { bytes: 5 });
        let error = GenerateError::OutOfMemory { part: "UNet", source };
        let failure = Failure::from(error);
        let help = failure.help().unwrap();
        assert!(help.contains("--decode-chunk") && !help.contains("damaged"), "{help}");
        assert_eq!((failure.kind(), failure.exit_code()), ("memory", EXIT_FAILED));
    }

    #[test]
    fn a_file_that_does_not_fit_is_a_lack_of_memory() {
        let failed = |kind: io::ErrorKind| Failure::File { path: "a.json".into(), source: kind.into() };
        assert_eq!(failed(io::ErrorKind::OutOfMemory).kind(), "memory");
        assert_eq!(failed(io::ErrorKind::NotFound).kind(), "output");
    }

    #[test]
    fn what_would_fit_is_suggested_as_options() {
        let over = OverBudget { part: "UNet", need: 2, budget: 1, weights: 1, activations: 1, working: 0 };
        let suggestion = Suggestion {
            frames: Some(7),
            size: Some([512, 320]),
            precision: Some(Precision::F16),
            decode_chunk: Some(1),
            cache: Some(1),
            peak_bytes: 1,
        };
        let help = |suggestion: Option<Box<Suggestion>>, source| {
            let error = GenerateError::OverBudget { over: Box::new(over), suggestion };
            Failure::Memory { error: Box::new(error), limit: MemoryLimit { bytes: 1, source } }
                .help()
                .unwrap()
        };
        assert_eq!(
            help(Some(Box::new(suggestion)), LimitSource::Asked),
            "--frames 7 --size 512x320 --precision f16 --decode-chunk 1 --cache 1 would fit; or raise --memory-limit"
        );
        assert!(help(None, LimitSource::Machine).contains("--memory-limit sets a limit other"));
    }
}
