//! `kinora doctor`: what works on this machine, and what to do about what does not.

use std::collections::HashMap;

use anstyle::{AnsiColor, Style};
use clap::Args;
use kinora::{
    device::Device,
    doctor::{Finding, Status, examine},
};
use kinora_outside::printable;
use serde_json::json;

use crate::{answer, failure::Failure, print, print_styled, terminal};

const EXAMPLES: &str = "\
Examples:
  kinora doctor                    what works here, in under a minute
  kinora doctor --device cuda:1    the second GPU
  kinora doctor --json             for a program, or for a bug report

The doctor runs every family of kernels on the device and compares the results
with plain loops on the CPU, makes a clip with the model in the box, and
measures the device's speed. A machine without a GPU is fine: the CPU does the
work.

Exit codes: 0 everything works, 1 something does not, 2 the command line is
wrong.";

/// The options of `kinora doctor`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "See `kinora doctor --help` for more.")]
pub struct DoctorArgs {
    /// The device to check: auto (a GPU if one works, otherwise the CPU), cpu, cuda, or cuda:N for GPU number N.
    #[arg(long, default_value_t = Device::Auto, value_name = "DEVICE")]
    pub device: Device,

    /// Print one JSON object on standard output at the end.
    #[arg(long)]
    pub json: bool,
}

/// Examines the machine.
pub fn run(arguments: &DoctorArgs) -> Result<(), Failure> {
    let mut lines = Lines::default();
    let mut printed = Ok(());
    let findings = examine(arguments.device, &mut |finding| {
        // Printed as it comes: some checks take seconds.
        if !arguments.json && printed.is_ok() {
            printed = print_styled(&lines.next(finding));
        }
    });
    printed?;
    if !arguments.json {
        print_styled(&lines.end())?;
    }
    let failed: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.status == Status::Bad)
        .map(|finding| finding.name.as_str())
        .collect();
    let well = failed.is_empty();
    if well && !arguments.json {
        print("Everything works.\n")?;
    }
    let version = env!("CARGO_PKG_VERSION");
    let failure = (!well).then(|| Failure::ChecksFailed { findings: failed.join(", ") });
    answer(arguments.json, json!({"version": version, "well": well, "findings": findings}), failure)
}

/// The width of the names of checks.
const NAME: usize = 13;

/// Findings as lines. Checks that did not run for the same reason share one, or the later refers to the earlier.
#[derive(Default)]
struct Lines {
    waiting: Option<(String, Finding)>,
    /// Why checks did not run, with the names of the first.
    said: HashMap<String, String>,
}

impl Lines {
    /// What can be printed now that this finding was made.
    fn next(&mut self, finding: &Finding) -> String {
        match &mut self.waiting {
            Some((names, waiting)) if finding.status == Status::NotRun && waiting.found == finding.found => {
                *names += &format!(", {}", finding.name);
                return String::new();
            }
            _ => {}
        }
        let mut text = self.end();
        if finding.status == Status::NotRun {
            self.waiting = Some((finding.name.clone(), finding.clone()));
        } else {
            text += &line(&finding.name, finding);
        }
        text
    }

    /// What is left.
    fn end(&mut self) -> String {
        let Some((names, mut finding)) = self.waiting.take() else { return String::new() };
        if let Some(first) = self.said.get(&finding.found) {
            finding.found = format!("see {first}");
        } else {
            self.said.insert(finding.found.clone(), names.clone());
        }
        line(&names, &finding)
    }
}

/// A finding, and what to do about it.
fn line(name: &str, finding: &Finding) -> String {
    let (mark, colour) = match finding.status {
        Status::Good => ("✓", AnsiColor::Green),
        Status::Note => ("!", AnsiColor::Yellow),
        Status::Bad => ("✗", AnsiColor::Red),
        Status::NotRun => ("–", AnsiColor::BrightBlack),
    };
    let style = Style::new().fg_color(Some(colour.into()));
    // A compiler's message may have several lines.
    let found = printable(finding.found.trim_end());
    let mut text = format!("{style}{mark}{style:#} {name:<NAME$} {found}\n");
    if let Some(advice) = &finding.advice {
        text += &format!("  {:<NAME$} → {}\n", "", printable(advice));
    }
    terminal::wrapped(&text, terminal::output_width(), NAME + 3)
}
