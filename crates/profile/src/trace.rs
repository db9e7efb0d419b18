//! The event format of Chrome's and Perfetto's trace viewers.

use serde_json::{Value, json};

use crate::{LaneKind, Profile};

/// Threads and devices are shown as separate processes.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// The name of the row that shows a device's trace.
pub(crate) const ACTIVITY_LANE: &str = "kernels and copies";

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
    // The device's trace is a row below its lanes.
    let seen = profile.lanes.len();
    if !profile.activity.is_empty() {
        events.push(json!({
            "ph": "M", "name": "thread_name", "pid": DEVICE, "tid": seen, "args": {"name": ACTIVITY_LANE},
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
        if let Some(copied) = span.copied {
            event["cat"] = json!("copy");
            event["args"] = json!({"direction": copied.direction.name(), "bytes": copied.bytes});
        }
        events.push(event);
    }
    for activity in &profile.activity {
        let work = activity.work.and_then(|work| profile.works.get(work));
        events.push(json!({
            "ph": "X", "name": activity.name, "cat": activity.kind, "pid": DEVICE, "tid": seen,
            "ts": microseconds(activity.start), "dur": microseconds(activity.nanoseconds()),
            "args": {
                "network": work.map(|work| &work.program), "layer": work.map(|work| &work.layer),
                "bytes": activity.bytes,
            },
        }));
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
    use crate::{ActivityKind, Copied, DeviceActivity, DeviceSpan, Direction, Profiler, Work};

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

    #[test]
    fn what_the_device_was_seen_to_do_is_a_row_of_its_own() {
        let profiler = Profiler::on();
        let work = profiler.work(|| Work { layer: "conv1".into(), ..Work::default() });
        let Some(lane) = profiler.device_lane("GPU") else { panic!("it is on") };
        let copied = Some(Copied { direction: Direction::ToDevice, bytes: 64 });
        let copy = DeviceSpan { name: "weights".into(), work: None, copied, start: 1000, end: 2000 };
        profiler.device_spans(lane, copy, []);
        profiler.device_activity([DeviceActivity {
            name: "conv_wgmma".into(),
            kind: ActivityKind::Kernel,
            work,
            bytes: None,
            start: 3000,
            end: 4500,
        }]);
        let trace = json(&profiler.profile());
        let events = trace["traceEvents"].as_array().cloned().unwrap_or_default();
        let named =
            |name: &str| events.iter().find(|event| event["name"] == name).cloned().unwrap_or_default();
        let args = json!({"direction": "to the device", "bytes": 64});
        assert_eq!((&named("weights")["args"], &named("weights")["tid"]), (&args, &json!(0)));
        let kernel = named("conv_wgmma");
        assert_eq!(
            (&kernel["cat"], &kernel["tid"], &kernel["pid"]),
            (&json!("kernel"), &json!(1), &json!(DEVICE))
        );
        assert_eq!((&kernel["ts"], &kernel["dur"]), (&json!(3.0), &json!(1.5)));
        assert_eq!(kernel["args"]["layer"], "conv1");
        let rows: Vec<_> = events.iter().filter(|event| event["name"] == "thread_name").collect();
        assert_eq!((rows.len(), &rows[1]["args"]["name"]), (2, &json!(ACTIVITY_LANE)));
    }
}
