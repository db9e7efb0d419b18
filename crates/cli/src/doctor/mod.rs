//! `kinora doctor`: what works on this machine, and what to do about what does not.

use anstyle::{AnsiColor, Style};
use clap::Args;
use kinora::{
    device::Device,
    doctor::{Finding, Status, examine},
};
use kinora_outside::printable;
use serde_json::json;

use crate::{failure::Failure, print, print_styled};

const EXAMPLES: &str = "\
Examples:
  kinora doctor                    what works here, in under a minute
  kinora doctor --device cuda:1    the second GPU
  kinora doctor --json             for a program, or for a bug report

The doctor runs every family of kernels on the device and compares the results with plain loops
on the CPU, makes a clip with the model in the box, and measures the device's speed. A machine
without a GPU is fine: the CPU does the work.

Exit codes: 0 everything works, 1 something does not, 2 the command line is wrong.";

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
    let mut printed = Ok(());
    let findings = examine(arguments.device, &mut |finding| {
        // Printed as it comes: some checks take seconds.
        if !arguments.json && printed.is_ok() {
            printed = print_styled(&line(finding));
        }
    });
    printed?;
    let failed: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.status == Status::Bad)
        .map(|finding| finding.name.as_str())
        .collect();
    if arguments.json {
        let version = env!("CARGO_PKG_VERSION");
        let answer = json!({"version": version, "well": failed.is_empty(), "findings": findings});
        print(&format!("{answer}\n"))?;
    }
    if failed.is_empty() {
        return if arguments.json { Ok(()) } else { print("Everything works.\n") };
    }
    Err(Failure::ChecksFailed { findings: failed.join(", ") })
}

/// A finding, and what to do about it.
fn line(finding: &Finding) -> String {
    let (mark, colour) = match finding.status {
        Status::Good => ("✓", AnsiColor::Green),
        Status::Note => ("!", AnsiColor::Yellow),
        Status::Bad => ("✗", AnsiColor::Red),
        Status::NotRun => ("–", AnsiColor::BrightBlack),
    };
    let style = Style::new().fg_color(Some(colour.into()));
    let mut text = format!("{style}{mark}{style:#} {:<13} {}\n", finding.name, printable(&finding.found));
    if let Some(advice) = &finding.advice {
        text += &format!("  {:<13} → {}\n", "", printable(advice));
    }
    text
}
