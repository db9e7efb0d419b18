//! The time of kernels twice: as spans of layers, and by the device's own tracing of what ran.

use std::collections::HashMap;

use serde::Serialize;

use crate::{ActivityKind, LaneKind, Profile, groups::By};

/// The layers that one implementation ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelTime {
    /// The implementation.
    pub kernel: String,
    /// Runs of layers.
    pub runs: u64,
    /// What they took as the profile has it: where a layer is several kernels, with what is between them.
    pub layer_nanoseconds: u64,
    /// How many kernels the device was seen to run for them.
    pub traced_kernels: u64,
    /// What these took, from the first instruction to the last.
    pub traced_nanoseconds: u64,
}

/// The layers of devices by what ran them, those that took the longest first. Nothing where no device was traced.
pub fn kernel_times(profile: &Profile) -> Vec<KernelTime> {
    if profile.activity.is_empty() {
        return Vec::new();
    }
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut times: Vec<KernelTime> = Vec::new();
    for span in &profile.spans {
        let Some(work) = span.work.and_then(|work| profile.works.get(work)) else { continue };
        if profile.lanes.get(span.lane).is_none_or(|lane| lane.kind != LaneKind::Device) {
            continue;
        }
        let (_, kernel) = By::Kernel.key(work);
        let place = *places.entry(kernel).or_insert_with(|| {
            let kernel = kernel.to_owned();
            let (runs, layer_nanoseconds, traced_kernels, traced_nanoseconds) = (0, 0, 0, 0);
            times.push(KernelTime { kernel, runs, layer_nanoseconds, traced_kernels, traced_nanoseconds });
            times.len() - 1
        });
        times[place].runs += 1;
        times[place].layer_nanoseconds += span.nanoseconds();
    }
    for activity in profile.activity.iter().filter(|activity| activity.kind == ActivityKind::Kernel) {
        let work = activity.work.and_then(|work| profile.works.get(work));
        let Some(&place) = work.and_then(|work| places.get(By::Kernel.key(work).1)) else { continue };
        times[place].traced_kernels += 1;
        times[place].traced_nanoseconds += activity.nanoseconds();
    }
    times.sort_by_key(|time| std::cmp::Reverse(time.layer_nanoseconds));
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, Lane, Span, Work};

    #[test]
    fn both_clocks_are_added_up_by_implementation() {
        let work = |kernel: &str| Work { kernel: Some(kernel.into()), ..Work::default() };
        let span = |lane, work, start, end| Span {
            name: String::new(),
            lane,
            parent: None,
            start,
            end,
            work: Some(work),
            copied: None,
        };
        let activity =
            |work, kind, start, end| Activity { name: "entry".into(), kind, work, bytes: None, start, end };
        let lane = |kind| Lane { name: String::new(), kind };
        let profile = Profile {
            lanes: vec![lane(LaneKind::Host), lane(LaneKind::Device)],
            works: vec![work("wgmma"), work("rows"), work("wgmma")],
            spans: vec![span(1, 0, 0, 10), span(1, 1, 10, 14), span(1, 2, 14, 40), span(0, 0, 0, 100)],
            activity: vec![
                activity(Some(0), ActivityKind::Kernel, 1, 9),
                activity(Some(1), ActivityKind::Kernel, 11, 13),
                // Two launches of one layer, and a copy that is no kernel.
                activity(Some(2), ActivityKind::Kernel, 15, 20),
                activity(Some(2), ActivityKind::Kernel, 21, 38),
                activity(Some(2), ActivityKind::Copy, 38, 39),
                activity(None, ActivityKind::Kernel, 39, 40),
            ],
            ..Profile::default()
        };
        let found: Vec<_> = kernel_times(&profile)
            .into_iter()
            .map(|t| (t.kernel, t.runs, t.layer_nanoseconds, t.traced_kernels, t.traced_nanoseconds))
            .collect();
        assert_eq!(found, [("wgmma".to_owned(), 2, 36, 3, 30), ("rows".to_owned(), 1, 4, 1, 2)]);
        assert_eq!(kernel_times(&Profile { activity: Vec::new(), ..profile }), []);
    }
}
