//! Progress on standard error: bars on a terminal, and elsewhere what belongs in a log, or a line for every stage.

use std::{
    fmt::Write as _,
    io::{IsTerminal, Write as _},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use kinora_outside::printable;

use crate::{interrupt, progress_line::Line, quantities::clock, terminal, ticker::Ticker};

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Nothing.
    Silent,
    /// What belongs in a log: results, notes and warnings, each in one line.
    Log,
    /// A line for every stage that is done.
    Lines,
    /// The same, with a bar for the stage that runs.
    Bars,
}

/// Reports progress on standard error.
pub struct Display {
    mode: Mode,
    verbose: bool,
    stage: Option<Stage>,
}

struct Stage {
    name: String,
    unit: Unit,
    started: Instant,
    done: u64,
    /// The estimated end of the stage.
    end: Arc<Mutex<Option<Instant>>>,
    bar: ProgressBar,
    _ticker: Option<Ticker>,
}

/// What a stage counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Denoising steps.
    Steps,
    /// Frames of the video.
    Frames,
    /// Bytes of a file.
    Bytes,
    /// The one photo.
    Photo,
    /// Parts of the model. They load between the other stages, and do not get a line of their own.
    Parts,
    /// Kernels that are compiled, also between the other stages.
    Compiled,
    /// Kernels that are measured, or compiled for their own sake.
    Kernels,
    /// Cases of a benchmark.
    Cases,
}

impl Display {
    /// On a terminal there are bars; elsewhere there are no stages unless `verbose` asks for them.
    pub fn new(quiet: bool, verbose: bool) -> Self {
        let mode = match (quiet, verbose, std::io::stderr().is_terminal()) {
            (true, _, _) => Mode::Silent,
            (false, false, false) => Mode::Log,
            (false, true, false) => Mode::Lines,
            (false, _, true) => Mode::Bars,
        };
        Display { mode, verbose, stage: None }
    }

    /// Reports how far a stage is. The first report of a stage ends the one before.
    pub fn advance(&mut self, name: &str, unit: Unit, done: u64, total: u64) {
        if !self.shows_stages() {
            return;
        }
        if self.stage.as_ref().is_none_or(|stage| stage.name != name) {
            self.end_stage();
            self.stage = Some(Stage::start(name, unit, total, self.mode == Mode::Bars));
        }
        if let Some(stage) = &mut self.stage {
            stage.advance(done, total);
            if self.mode == Mode::Lines && unit == Unit::Steps && done > 0 {
                print(&format!("{name}: step {done}/{total}, {}\n", stage.times()));
            }
        }
    }

    /// Ends the running stage.
    pub fn end_stage(&mut self) {
        if let Some(stage) = self.stage.take() {
            stage.bar.finish_and_clear();
            if matches!(stage.unit, Unit::Parts | Unit::Compiled) {
                return;
            }
            let (name, time) = (&stage.name, clock(stage.started.elapsed()));
            let green = Style::new().fg_color(Some(AnsiColor::Green.into()));
            match self.mode {
                Mode::Silent | Mode::Log => {}
                Mode::Lines => print(&format!("{name}: {time}\n")),
                Mode::Bars => print(&format!("{green}✓{green:#} {name:<NAME$} {time:>7}\n")),
            }
        }
    }

    /// Ends the running stage without a line, because something failed or it is not worth one.
    pub fn abandon_stage(&mut self) {
        if let Some(stage) = self.stage.take() {
            stage.bar.finish_and_clear();
        }
    }

    /// Prints a line, unless silent.
    pub fn line(&self, text: &str) {
        if self.mode != Mode::Silent {
            self.above_the_bar(&printable(text), 2);
        }
    }

    /// Prints a result, in many words to those who watch and in a line to a log.
    pub fn result(&self, summary: &str, line: &str) {
        self.line(if self.shows_stages() { summary } else { line });
    }

    /// Prints what the next stages belong to, if stages are printed.
    pub fn heading(&self, text: &str) {
        if self.shows_stages() {
            self.above_the_bar(&printable(text), 0);
        }
    }

    /// Prints a line if verbose.
    pub fn detail(&self, text: &str) {
        if self.verbose && self.mode != Mode::Silent {
            self.above_the_bar(&format!("  {}", printable(text)), 4);
        }
    }

    /// Prints a warning, unless silent.
    pub fn warn(&self, text: &str) {
        self.labelled("warning", AnsiColor::Yellow, text);
    }

    /// Prints something worth knowing, unless silent.
    pub fn note(&self, text: &str) {
        self.labelled("note", AnsiColor::Cyan, text);
    }

    fn labelled(&self, label: &str, colour: AnsiColor, text: &str) {
        let style = Style::new().bold().fg_color(Some(colour.into()));
        if self.mode != Mode::Silent {
            let text = printable(text);
            self.above_the_bar(&format!("{style}{label}{style:#}: {text}"), label.len() + 2);
        }
    }

    fn shows_stages(&self) -> bool {
        matches!(self.mode, Mode::Lines | Mode::Bars)
    }

    /// Prints a text, wrapped for the terminal. What follows a break is indented.
    fn above_the_bar(&self, text: &str, indent: usize) {
        let text = terminal::wrapped(text, terminal::error_width(), indent);
        self.suspend(|| print(&format!("{text}\n")));
    }

    /// Does something that prints, on standard output too, with the bar hidden.
    pub fn suspend<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.stage {
            Some(stage) => stage.bar.suspend(work),
            None => work(),
        }
    }
}

/// Removes the bar, so that an error message does not follow it on the same line.
impl Drop for Display {
    fn drop(&mut self) {
        self.abandon_stage();
    }
}

/// The width of the names of the stages.
pub const NAME: usize = 20;

impl Stage {
    fn start(name: &str, unit: Unit, total: u64, visible: bool) -> Self {
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        let end = Arc::new(Mutex::new(None));
        bar.set_style(style(name.to_owned(), unit, end.clone()));
        let ticker = visible.then(|| Ticker::start(&bar));
        Stage { name: name.to_owned(), unit, started: Instant::now(), done: 0, end, bar, _ticker: ticker }
    }

    fn advance(&mut self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        if done > self.done {
            self.done = done;
            let now = Instant::now();
            let left = now.duration_since(self.started).as_secs_f64() / done as f64
                * total.saturating_sub(done) as f64;
            let end = Duration::try_from_secs_f64(left).ok().and_then(|left| now.checked_add(left));
            *self.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
        }
    }

    fn times(&self) -> String {
        times(self.started.elapsed(), &self.end)
    }
}

fn style(name: String, unit: Unit, end: Arc<Mutex<Option<Instant>>>) -> ProgressStyle {
    ProgressStyle::with_template("{spinner:.cyan} {line}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("line", move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            let width = terminal::error_width().unwrap_or(terminal::USUAL_WIDTH);
            let line = Line {
                name: &name,
                unit,
                done: state.pos(),
                total: state.len().unwrap_or(0),
                times: times(state.elapsed(), &end),
                stopping: interrupt::requested(),
            };
            // The spinner and its blank take two, and a terminal may wrap after its last column.
            let _ = text.write_str(&line.text(width.saturating_sub(3)));
        })
}

/// The elapsed time, and an estimate of what is left.
fn times(passed: Duration, end: &Mutex<Option<Instant>>) -> String {
    let mut text = clock(passed);
    let end = *end.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(left) = end.and_then(|end| end.checked_duration_since(Instant::now())) {
        let _ = write!(text, ", about {} left", clock(left));
    }
    text
}

fn print(text: &str) {
    // If standard error is gone, there is nobody to tell.
    let _ = anstream::stderr().write_all(text.as_bytes());
}
