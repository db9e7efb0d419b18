//! The progress of a benchmark: rows as they are measured, and a bar.

use std::ops::ControlFlow;

use kinora_bench::{
    results::{row, suite_footer, suite_header},
    run::Event,
};

use crate::{
    display::{Display, Unit},
    failure::Failure,
    interrupt, print,
};

/// Rows on standard output, a bar on standard error.
pub struct Progress {
    display: Display,
    json: bool,
    printed: Result<(), Failure>,
}

impl Progress {
    /// With `json`, no rows are printed.
    pub fn new(display: Display, json: bool) -> Progress {
        Progress { display, json, printed: Ok(()) }
    }

    /// Shows an event. Stops the run after Ctrl-C, or if standard output is closed.
    pub fn tell(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Suite(suite) => self.print(&suite_header(suite)),
            Event::Case { suite, name, done, total } => {
                self.display.advance(suite.name(), Unit::Cases, *done as u64, *total as u64);
                self.display.detail(name);
            }
            Event::Done(case) => self.print(&row(case)),
            Event::SuiteDone(suite) => {
                self.display.abandon_stage();
                self.print(&suite_footer(suite));
            }
            // The footer of the suite has it.
            Event::Note(_) => {}
        }
        if self.printed.is_err() { ControlFlow::Break(()) } else { interrupt::control_flow() }
    }

    fn print(&mut self, text: &str) {
        if !self.json && self.printed.is_ok() {
            self.printed = self.display.suspend(|| print(text));
        }
    }

    /// Whether everything could be printed.
    pub fn end(self) -> Result<(), Failure> {
        self.printed
    }
}
