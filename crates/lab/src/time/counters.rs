//! A GPU's own counters, by Nsight Compute, where it is installed and allowed.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    process::ended,
    report::{CountedKernel, CountedOutcome},
};

/// What is counted: what the simulator counts too, by the names that Nsight Compute has for it.
const METRICS: [&str; 14] = [
    "gpu__time_duration.sum",
    "dram__bytes.sum",
    "lts__t_bytes.sum",
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "launch__registers_per_thread",
];

/// The most launches that are looked into: each runs several times.
const MOST_LAUNCHES: &str = "64";

/// How long it may take: it starts the program again, and runs each launch several times.
const LIMIT: Duration = Duration::from_secs(120);

/// The most bytes of its answer.
const MAX_ANSWER: u64 = 16 << 20;

/// Counts what the launches do on a GPU. `again` is the command that launches them once.
///
/// # Errors
/// Why nothing could be counted.
pub(super) fn count(again: &[OsString], gpu: usize) -> Result<CountedOutcome, String> {
    let profiler = profiler().ok_or("Nsight Compute (ncu) is not installed")?;
    let system = |error: std::io::Error| format!("{}: {error}", profiler.display());
    let folder = tempfile::tempdir().map_err(system)?;
    let (output, errors) = (folder.path().join("output.csv"), folder.path().join("errors.txt"));
    let mut command = Command::new(&profiler);
    // The clocks are left as they were when the kernel was timed.
    command.args(["--csv", "--print-units", "base", "--clock-control", "none"]);
    command.args(["--launch-count", MOST_LAUNCHES, "--metrics"]);
    command.arg(METRICS.join(",")).args(again).arg("--gpu").arg(gpu.to_string()).stdin(Stdio::null());
    command.stdout(File::create(&output).map_err(system)?).stderr(File::create(&errors).map_err(system)?);
    if ended(&mut command, folder.path(), LIMIT).map_err(system)?.is_none() {
        return Err(format!("Nsight Compute took more than {} seconds", LIMIT.as_secs()));
    }
    let text = |path: &Path| kinora_outside::read_text(path, MAX_ANSWER).unwrap_or_default();
    let kernels = kernels(&text(&output));
    if kernels.is_empty() {
        return Err(refusal(&text(&output), &text(&errors)));
    }
    Ok(CountedOutcome { by: "Nsight Compute".to_owned(), kernels })
}

/// Nsight Compute: on the path, or where CUDA installs it.
fn profiler() -> Option<PathBuf> {
    let name = format!("ncu{}", std::env::consts::EXE_SUFFIX);
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Anybody may have made a folder that the path names relative to the current one.
    let mut folders: Vec<PathBuf> =
        std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    folders.push(Path::new("/usr/local/cuda/bin").to_owned());
    let installs = std::fs::read_dir("/opt/nvidia/nsight-compute").into_iter().flatten().flatten();
    let mut installs: Vec<PathBuf> = installs.map(|entry| entry.path()).collect();
    installs.sort();
    folders.extend(installs.into_iter().rev());
    folders.into_iter().map(|folder| folder.join(OsStr::new(&name))).find(|path| path.is_file())
}

/// Why it counted nothing: what it says of it.
fn refusal(output: &str, errors: &str) -> String {
    let said = || output.lines().chain(errors.lines()).filter(|line| line.contains("==ERROR=="));
    if said().any(|line| line.contains("ERR_NVGPUCTRPERM")) {
        return "the driver lets only administrators read the GPU's (ERR_NVGPUCTRPERM)".to_owned();
    }
    match said().next() {
        Some(line) => format!("Nsight Compute says: {}", line.replace("==ERROR==", "").trim()),
        None => "Nsight Compute gave none".to_owned(),
    }
}

/// The kernels of a report in CSV: a line for each metric of each launch.
fn kernels(text: &str) -> Vec<CountedKernel> {
    let mut lines = text.lines().map(fields).skip_while(|fields| fields.first().is_none_or(|id| id != "ID"));
    let Some(header) = lines.next() else { return Vec::new() };
    let column = |name: &str| header.iter().position(|column| column == name);
    let (Some(kernel), Some(metric), Some(value)) =
        (column("Kernel Name"), column("Metric Name"), column("Metric Value"))
    else {
        return Vec::new();
    };
    let mut found: Vec<(String, CountedKernel)> = Vec::new();
    for fields in lines {
        let (Some(id), Some(kernel), Some(metric), Some(value)) =
            (fields.first(), fields.get(kernel), fields.get(metric), fields.get(value))
        else {
            continue;
        };
        let Ok(value) = value.replace(',', "").parse::<f64>() else { continue };
        if found.last().is_none_or(|(known, _)| known != id) {
            let kernel = CountedKernel { kernel: kernel.clone(), metrics: BTreeMap::new() };
            found.push((id.clone(), kernel));
        }
        if let Some((_, counted)) = found.last_mut() {
            counted.metrics.insert(metric.clone(), value);
        }
    }
    found.into_iter().map(|(_, kernel)| kernel).collect()
}

/// The fields of a line in CSV: in quotes, with doubled ones within.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            letter => field.push(letter),
        }
    }
    fields.push(field);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "==PROF== Connected to process 1\n\
        \"ID\",\"Process ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\
        \"0\",\"1\",\"sums(const float *, int)\",\"dram__bytes.sum\",\"byte\",\"67,108,864\"\n\
        \"0\",\"1\",\"sums(const float *, int)\",\"gpu__time_duration.sum\",\"nsecond\",\"27300\"\n\
        \"1\",\"1\",\"total\",\"dram__bytes.sum\",\"byte\",\"n/a\"\n\
        \"2\",\"1\",\"total\",\"dram__bytes.sum\",\"byte\",\"4096\"\n";

    #[test]
    fn a_report_has_each_launch() {
        let found = kernels(REPORT);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].kernel, "sums(const float *, int)");
        assert_eq!(found[0].metrics["dram__bytes.sum"], 67_108_864.0);
        assert_eq!(found[0].metrics["gpu__time_duration.sum"], 27300.0);
        assert_eq!(found[1].metrics["dram__bytes.sum"], 4096.0);
        assert!(kernels("nothing").is_empty());
        assert!(kernels("\"ID\",\"x\"\n\"0\"").is_empty());
    }

    #[test]
    fn a_refusal_is_told_in_words() {
        let text = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access";
        assert!(refusal(text, "").contains("administrators"));
        assert_eq!(refusal("", "==ERROR== Failed to connect"), "Nsight Compute says: Failed to connect");
        assert_eq!(refusal("", ""), "Nsight Compute gave none");
    }
}
