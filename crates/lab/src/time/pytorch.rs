//! PyTorch beside the kernel: a reference that is written for it runs on the same GPU, and is timed in the same way.

use serde_json::json;

use super::gpu::{RUNS, WARM_UP, median, range};
use crate::{
    execute::FLUSH_BYTES,
    reference::time_on_gpu,
    report::{Outcome, PeerOutcome},
    run::Options,
    task::{Reference, Task},
};

/// Times a reference on the GPU that the kernel was timed on, given by its number and its name, with the kernel's seconds. What cannot be
/// timed is a note.
pub(super) fn time(
    task: &Task,
    options: &Options,
    (number, device, kernel): (usize, &str, f64),
    inputs: &[Vec<Vec<u8>>],
    outcome: &mut Outcome,
) {
    let Reference::Python { file, function, .. } = &task.reference else { return };
    let job = json!({
        "device": "cuda",
        "gpu": number,
        "compile": options.torch_compile,
        "flush": FLUSH_BYTES,
        "warm_up": WARM_UP,
        "runs": RUNS,
    });
    let timed = task.scope(&task.time).map_err(|error| error.to_string());
    let timed = timed.and_then(|scope| time_on_gpu(task, &scope, (file, function), inputs, &job));
    let timed = match timed {
        Ok(timed) => timed,
        Err(why) => {
            outcome.notes.push(format!("the kernel was not timed beside PyTorch: {why}"));
            return;
        }
    };
    for way in timed.ways {
        let name = match way.name.as_str() {
            "eager" => format!("PyTorch {}", timed.version),
            other => other.to_owned(),
        };
        if let Some(why) = way.error {
            outcome.notes.push(format!("the kernel was not timed beside {name}: {why}"));
            continue;
        }
        let times: Vec<f64> = way.milliseconds.iter().map(|milliseconds| milliseconds / 1e3).collect();
        let seconds = median(&times);
        outcome.peers.push(PeerOutcome {
            name,
            device: device.to_owned(),
            seconds,
            range: range(&times),
            samples: times.len(),
            speedup: seconds / kernel.max(f64::MIN_POSITIVE),
        });
    }
}
