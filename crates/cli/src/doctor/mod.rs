//! `kinora doctor`: what works on this machine, and what to do about what does not.

use anstyle::{AnsiColor, Style};
use clap::Args;
use kinora::{
    device::Device,
    doctor::{Finding, Status, examine},
};
use serde_json::json;

use crate::{failure::Failure, print};

const EXAMPLES: &str = "\
Examples:
  kinora doctor                    what works here, in under a minute
  kinora doctor --device cuda:1    the second GPU
  kinora doctor --json             for a program, or for a report of a problem

Every family of kernels is run on the device and compared with plain loops on the processor, the
model in the box makes a clip, and the device's speed is measured. A machine without a GPU is well: the
processor does the work.

Exit codes: 0 all is well, 1 something does not work, 2 the command line is wrong.";

/// The options of `kinora doctor`.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, after_help = "`kinora doctor --help` says more.")]
pub struct DoctorArgs {
    /// What is to compute: auto (a GPU where one works, or else the processor), cpu, cuda, or cuda:N for GPU number N.
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
        // Each as it comes: some take seconds.
        if !arguments.json && printed.is_ok() {
            printed = print(&line(finding));
        }
    });
    printed?;
    let ill: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.status == Status::Bad)
        .map(|finding| finding.name.as_str())
        .collect();
    if arguments.json {
        let version = env!("CARGO_PKG_VERSION");
        let answer = json!({"version": version, "well": ill.is_empty(), "findings": findings});
        print(&format!("{answer}\n"))?;
    }
    if ill.is_empty() {
        return if arguments.json { Ok(()) } else { print("All is well.\n") };
    }
    Err(Failure::Unwell { findings: ill.join(", ") })
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
    let mut text = format!("{style}{mark}{style:#} {:<13} {}\n", finding.name, finding.found);
    if let Some(advice) = &finding.advice {
        text += &format!("  {:<13} → {advice}\n", "");
    }
    text
}
