//! What a profiler records of a program: device time from events between its launches, and from CUPTI's records if it
//! is available. The GPU does not have to wait for it.

use std::collections::{HashMap, VecDeque};

use kinora_graph::Phase;
use kinora_profile::{
    ActivityKind, Copied, DeviceActivity, DeviceSpan, Direction, LaneId, OpenSpan, Profiler, WorkId,
    steps::LAUNCHES,
};
use kinora_runtime::work::phase_name;

use crate::{
    CudaError,
    cupti::{CopyDirection, Operation, Record, Trace},
    driver::{Event, Stream},
};

/// How often both clocks are read together to find a pair of readings without an interruption.
const READINGS: usize = 5;

/// Times launches and copies.
#[derive(Debug)]
pub(super) struct Timing {
    profiler: Profiler,
    lane: LaneId,
    /// An event, and when it completed by the profiler's clock.
    base: (Event, u64),
    /// The layers of each phase, in the order in which they run.
    clip: Vec<WorkId>,
    step: Vec<WorkId>,
    /// What the GPU may not have finished yet.
    pending: Vec<Run>,
    /// Events that can be recorded again.
    free: Vec<Event>,
    trace: Option<Trace>,
}

/// What is copied between host and device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copying {
    pub name: &'static str,
    pub direction: Direction,
    pub bytes: usize,
}

#[derive(Debug)]
struct Run {
    what: Timed,
    /// One before the first layer, or the copy, and one after each.
    marks: Vec<Event>,
}

#[derive(Debug)]
enum Timed {
    Phase(Phase),
    Copy(Copying),
}

impl Timing {
    /// Waits for the stream, to relate its clock to the profiler's.
    pub fn new(profiler: &Profiler, lane: LaneId, stream: &Stream) -> Result<Timing, CudaError> {
        let base = Event::new(stream.context())?;
        stream.synchronise()?;
        stream.record(&base)?;
        stream.synchronise()?;
        let base = (base, profiler.now());
        let (clip, step) = (Vec::new(), Vec::new());
        let (pending, free) = (Vec::new(), Vec::new());
        let profiler = profiler.clone();
        Ok(Timing { profiler, lane, base, clip, step, pending, free, trace: None })
    }

    /// Times these layers, and records what a trace of the stream sees.
    pub fn with_layers(self, [clip, step]: [Vec<WorkId>; 2], trace: Option<Trace>) -> Timing {
        Timing { clip, step, trace, ..self }
    }

    /// The profiler.
    pub fn profiler(&self) -> &Profiler {
        &self.profiler
    }

    /// Begins a run of a phase: the host submits launches until the span is dropped.
    pub fn begin(&mut self, stream: &Stream, phase: Phase) -> Result<OpenSpan, CudaError> {
        let launches = self.profiler.span(LAUNCHES);
        self.begin_run(stream, Timed::Phase(phase))?;
        Ok(launches)
    }

    /// Submits the launches of a phase's layer, by its number.
    pub fn layer(
        &mut self,
        stream: &Stream,
        phase: Phase,
        number: usize,
        launch: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        match &self.trace {
            Some(trace) => trace.region(self.region(phase, number), launch)?,
            None => launch()?,
        }
        self.mark(stream)
    }

    /// Submits a copy.
    pub fn copy(
        &mut self,
        stream: &Stream,
        copying: Copying,
        copy: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        if copying.bytes == 0 {
            return copy();
        }
        self.begin_run(stream, Timed::Copy(copying))?;
        copy()?;
        self.mark(stream)
    }

    fn begin_run(&mut self, stream: &Stream, what: Timed) -> Result<(), CudaError> {
        self.pending.push(Run { what, marks: Vec::new() });
        self.mark(stream)
    }

    /// Marks that everything so far belongs to what was submitted last.
    fn mark(&mut self, stream: &Stream) -> Result<(), CudaError> {
        let event = match self.free.pop() {
            Some(event) => event,
            None => Event::new(stream.context())?,
        };
        stream.record(&event)?;
        if let Some(run) = self.pending.last_mut() {
            run.marks.push(event);
        }
        Ok(())
    }

    /// Reports everything to the profiler. The stream has finished it.
    pub fn report(&mut self) -> Result<(), CudaError> {
        // A failing observation does not make a run fail. A trace that still holds records would add them to the next
        // run, so it ends.
        let mut traced = self.report_trace().unwrap_or_else(|error| {
            self.profiler.note(&format!("the GPU's own times of kernels are missing: {error}"));
            self.trace = None;
            Traced::default()
        });
        for run in std::mem::take(&mut self.pending) {
            self.report_run(&run, &mut traced)?;
            self.free.extend(run.marks);
        }
        Ok(())
    }

    /// Discards the pending runs, one of which has failed.
    pub fn forget(&mut self) {
        self.pending.clear();
        // What is left of them would be mistaken for the next run's.
        if self.trace.as_ref().is_some_and(|trace| trace.collect().is_err()) {
            self.trace = None;
        }
    }

    fn report_run(&self, run: &Run, traced: &mut Traced) -> Result<(), CudaError> {
        let Some((first, rest)) = run.marks.split_first() else { return Ok(()) };
        let nanoseconds = |milliseconds: f32| (f64::from(milliseconds).max(0.0) * 1e6) as u64;
        let start = self.base.1 + nanoseconds(first.milliseconds_since(&self.base.0)?);
        // Relative to the first mark: a float cannot resolve a nanosecond of a long run.
        let ends = rest.iter().map(|mark| Ok(start + nanoseconds(mark.milliseconds_since(first)?)));
        let ends = ends.collect::<Result<Vec<u64>, CudaError>>()?;
        let end = ends.last().copied().unwrap_or(start);
        let (name, copied, works) = match run.what {
            Timed::Phase(Phase::Clip) => (phase_name(Phase::Clip), None, &self.clip[..]),
            Timed::Phase(phase) => (phase_name(phase), None, &self.step[..]),
            Timed::Copy(Copying { name, direction, bytes }) => {
                (name, Some(Copied { direction, bytes: bytes as u64 }), &[][..])
            }
        };
        let starts = std::iter::once(start).chain(ends.iter().copied());
        let layers =
            works.iter().zip(starts.zip(&ends)).enumerate().map(|(number, (&work, (start, &end)))| {
                let took = match run.what {
                    Timed::Phase(phase) => traced.next(self.region(phase, number)),
                    Timed::Copy(_) => None,
                };
                // Counted back from the end: the time without kernels is mostly the wait for the first of them.
                let start = took.map_or(start, |took| start.max(end.saturating_sub(took)));
                DeviceSpan { name: "".into(), work: Some(work), copied: None, start, end }
            });
        let outer = DeviceSpan { name: name.into(), work: None, copied, start, end };
        self.profiler.device_spans(self.lane, outer, layers);
        Ok(())
    }

    /// The number by which a trace knows a layer: first those of the clip phase, then those of the step.
    fn region(&self, phase: Phase, number: usize) -> u32 {
        let before = if phase == Phase::Clip { 0 } else { self.clip.len() };
        u32::try_from(before + number).unwrap_or(u32::MAX)
    }

    /// Reports to the profiler what the trace has seen, and returns how long the layers took according to it.
    fn report_trace(&self) -> Result<Traced, CudaError> {
        let Some(trace) = &self.trace else { return Ok(Traced::default()) };
        let mut collected = trace.collect()?;
        let clocks = Clocks::read(&self.profiler, trace)?;
        collected.records.sort_by_key(|(_, record)| record.start);
        let runs = |phase: Phase| {
            let runs = self.pending.iter();
            runs.filter(
                |run| matches!(run.what, Timed::Phase(of) if (of == Phase::Clip) == (phase == Phase::Clip)),
            )
            .count()
        };
        let (clip_runs, step_runs, clip_layers) = (runs(Phase::Clip), runs(Phase::Step), self.clip.len());
        let traced = Traced::new(&collected.records, |region| {
            if (region as usize) < clip_layers { clip_runs } else { step_runs }
        });
        let works: Vec<WorkId> = self.clip.iter().chain(&self.step).copied().collect();
        let activity = collected.records.into_iter().map(|(region, record)| {
            let work = region.and_then(|region| works.get(region as usize).copied());
            activity(record, work, clocks)
        });
        self.profiler.device_activity(activity);
        if collected.lost > 0 {
            self.profiler.note("CUPTI lost records: some kernels and copies are missing from the trace");
            return Ok(Traced::default());
        }
        Ok(traced)
    }
}

/// How long each run of each layer took according to a trace: from the start of its first kernel to the end of its
/// last.
#[derive(Debug, Default)]
struct Traced(HashMap<u32, VecDeque<u64>>);

impl Traced {
    /// Of records in the order of time; `runs` says how often the layer of a region ran. It launches the same kernels
    /// each time: if the records do not divide evenly, some belong to another run, and nothing is known.
    fn new(records: &[(Option<u32>, Record)], runs: impl Fn(u32) -> usize) -> Traced {
        let mut spans: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
        for (region, record) in records {
            if let Some(region) = region {
                spans.entry(*region).or_default().push((record.start, record.end));
            }
        }
        let even = spans.into_iter().filter_map(|(region, spans)| {
            let runs = runs(region);
            let each =
                spans.len().checked_div(runs).filter(|each| each * runs == spans.len() && *each > 0)?;
            let took = |run: &[(u64, u64)]| {
                let end = run.iter().map(|span| span.1).max().unwrap_or(0);
                run.first().map_or(0, |first| end.saturating_sub(first.0))
            };
            Some((region, spans.chunks(each).map(took).collect()))
        });
        Traced(even.collect())
    }

    /// The time of a region's next run.
    fn next(&mut self, region: u32) -> Option<u64> {
        self.0.get_mut(&region)?.pop_front()
    }
}

/// A moment by both clocks: the profiler's and CUPTI's, which may be adjusted while it runs.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    profiler: u64,
    trace: u64,
}

impl Clocks {
    fn read(profiler: &Profiler, trace: &Trace) -> Result<Clocks, CudaError> {
        let mut best: Option<(u64, Clocks)> = None;
        for _ in 0..READINGS {
            let (before, now, after) = (profiler.now(), trace.now()?, profiler.now());
            let between = after.saturating_sub(before);
            if best.is_none_or(|(least, _)| between < least) {
                best = Some((between, Clocks { profiler: before + between / 2, trace: now }));
            }
        }
        Ok(best.map_or(Clocks { profiler: 0, trace: 0 }, |(_, clocks)| clocks))
    }

    /// A moment of a trace by the profiler's clock.
    fn moment(self, traced: u64) -> u64 {
        let ago = i128::from(self.trace) - i128::from(traced);
        u64::try_from(i128::from(self.profiler) - ago).unwrap_or(0)
    }
}

fn activity(record: Record, work: Option<WorkId>, clocks: Clocks) -> DeviceActivity {
    let (name, kind, bytes) = match record.operation {
        Operation::Kernel { name } => (name, ActivityKind::Kernel, None),
        Operation::Copy { direction, bytes } => {
            let name = match direction {
                CopyDirection::ToDevice => Direction::ToDevice.name(),
                CopyDirection::FromDevice => Direction::FromDevice.name(),
                CopyDirection::Within => "within the device",
                CopyDirection::Other => "another copy",
            };
            (name.to_owned(), ActivityKind::Copy, Some(bytes))
        }
        Operation::Fill { bytes } => ("fill".to_owned(), ActivityKind::Fill, Some(bytes)),
    };
    let (start, end) = (clocks.moment(record.start), clocks.moment(record.end));
    DeviceActivity { name, kind, work, bytes, start, end }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(start: u64, end: u64) -> Record {
        Record {
            operation: Operation::Kernel { name: "k".into() },
            place: (1, 7),
            correlation: 1,
            start,
            end,
        }
    }

    #[test]
    fn a_layer_takes_as_long_as_its_kernels_and_what_is_between_them() {
        // A layer of two kernels that ran twice, one of one kernel that ran once, and something that is no layer's.
        let records = [
            (Some(3), kernel(100, 140)),
            (Some(3), kernel(150, 170)),
            (None, kernel(170, 400)),
            (Some(0), kernel(400, 405)),
            (Some(3), kernel(1000, 1030)),
            (Some(3), kernel(1031, 1090)),
        ];
        let mut traced = Traced::new(&records, |region| if region == 3 { 2 } else { 1 });
        assert_eq!(
            [3, 3, 3, 0, 0, 9].map(|region| traced.next(region)),
            [Some(70), Some(90), None, Some(5), None, None]
        );
        // Four kernels are not those of three runs; and a layer that did not run took nothing.
        assert_eq!(Traced::new(&records, |_| 3).next(3), None);
        assert_eq!(Traced::new(&records, |_| 0).next(3), None);
    }

    #[test]
    fn a_record_is_moved_to_the_profilers_clock() {
        let clocks = Clocks { profiler: 5_000, trace: 1_800_000_000_000_000_000 };
        let at = |operation| Record {
            operation,
            place: (1, 7),
            correlation: 1,
            start: 1_799_999_999_999_996_000,
            end: 1_800_000_000_000_000_500,
        };
        let kernel = activity(at(Operation::Kernel { name: "conv".into() }), None, clocks);
        assert_eq!((kernel.name.as_str(), kernel.kind, kernel.bytes), ("conv", ActivityKind::Kernel, None));
        assert_eq!((kernel.start, kernel.end), (1_000, 5_500));
        let copy = Operation::Copy { direction: CopyDirection::ToDevice, bytes: 64 };
        let copy = activity(at(copy), None, clocks);
        assert_eq!((copy.name.as_str(), copy.bytes), ("to the device", Some(64)));
        // What ran before recording began lies at its beginning.
        assert_eq!(clocks.moment(1), 0);
    }
}
