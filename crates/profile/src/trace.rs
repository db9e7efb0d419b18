//! The event format of Chrome's and Perfetto's trace viewers.

use serde_json::{Value, json};

use crate::{LaneKind, Profile};

/// Threads and devices are shown as processes of their own.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// The profile as a trace: load it at <https://ui.perfetto.dev> or `chrome://tracing`.
pub fn json(profile: &Profile) -> Value {
    let process = |lane: usize| match profile.lanes[lane].kind {
        LaneKind::Host => HOST,
        LaneKind::Device => DEVICE,
    };
    let named = |process: u32, name: &str| json!({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}});
    let mut events = vec![named(HOST, "host"), named(DEVICE, &profile.machine.device)];
    for (number, lane) in profile.lanes.iter().enumerate() {
        events.push(json!({
            "ph": "M", "name": "thread_name", "pid": process(number), "tid": number, "args": {"name": lane.name},
        }));
    }
    // The format counts in microseconds.
    let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    for span in &profile.spans {
        let mut event = json!({
            "ph": "X", "name": span.name, "pid": process(span.lane), "tid": span.lane,
            "ts": microseconds(span.start), "dur": microseconds(span.nanoseconds()),
        });
        if let Some(work) = span.work.and_then(|work| profile.works.get(work)) {
            event["cat"] = json!(work.op);
            event["args"] = json!({
                "network": work.program, "kernel": work.kernel, "flops": work.flops, "bytes": work.bytes,
            });
        }
        events.push(event);
    }
    for sample in &profile.memory {
        events.push(json!({
            "ph": "C", "name": format!("memory of {}", sample.owner), "pid": HOST, "tid": 0,
            "ts": microseconds(sample.at), "args": {"bytes": sample.bytes},
        }));
    }
    json!({"displayTimeUnit": "ms", "otherData": {"title": profile.title}, "traceEvents": events})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Profiler, Work};

    #[test]
    fn a_trace_has_an_event_for_everything() {
        let profiler = Profiler::on();
        let work = profiler.work(|| Work { layer: "conv1".into(), op: "conv".into(), ..Work::default() });
        {
            let _step = profiler.span("step");
            drop(work.map(|work| profiler.layer(work)));
            profiler.holds("arena", 7);
        }
        let trace = json(&profiler.profile());
        let events = trace["traceEvents"].as_array().cloned().unwrap_or_default();
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
        assert_eq!((of("M").len(), of("X").len(), of("C").len()), (3, 2, 1));
        let (step, layer) = (of("X")[0], of("X")[1]);
        assert_eq!((&layer["name"], &layer["cat"]), (&json!("conv1"), &json!("conv")));
        let end = |event: &Value| Some(event["ts"].as_f64()? + event["dur"].as_f64()?);
        assert!(step["ts"].as_f64() <= layer["ts"].as_f64() && end(layer) <= end(step));
    }
}
