//! What a profiler is told of a program: device time by events between its launches. The GPU is not stopped for it.

use kinora_cpu::profile::phase_name;
use kinora_graph::Phase;
use kinora_profile::{DeviceSpan, LaneId, Profiler, WorkId};

use crate::{
    CudaError,
    driver::{Event, Stream},
};

/// Takes the times of launches.
#[derive(Debug)]
pub(super) struct Timing {
    profiler: Profiler,
    lane: LaneId,
    /// An event, and when it came to pass by the profiler's clock.
    base: (Event, u64),
    /// The layers of each phase, in the order in which they run.
    clip: Vec<WorkId>,
    step: Vec<WorkId>,
    /// Runs of a phase that the GPU may not have done yet.
    pending: Vec<Run>,
    /// Events that can be recorded again.
    free: Vec<Event>,
}

#[derive(Debug)]
struct Run {
    phase: Phase,
    /// One before the first layer and one after each.
    marks: Vec<Event>,
}

impl Timing {
    /// Waits for the stream, to know how its clock stands to the profiler's.
    pub fn new(
        profiler: &Profiler,
        lane: LaneId,
        stream: &Stream,
        [clip, step]: [Vec<WorkId>; 2],
    ) -> Result<Timing, CudaError> {
        let base = Event::new(stream.context())?;
        stream.synchronise()?;
        stream.record(&base)?;
        stream.synchronise()?;
        let at = profiler.now();
        let profiler = profiler.clone();
        Ok(Timing { profiler, lane, base: (base, at), clip, step, pending: Vec::new(), free: Vec::new() })
    }

    /// Begins a run of a phase.
    pub fn begin(&mut self, stream: &Stream, phase: Phase) -> Result<(), CudaError> {
        self.pending.push(Run { phase, marks: Vec::new() });
        self.mark(stream)
    }

    /// Notes that everything until now belongs to the layer that was given last.
    pub fn mark(&mut self, stream: &Stream) -> Result<(), CudaError> {
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

    /// Tells the profiler of all runs. The stream has done them.
    pub fn report(&mut self) -> Result<(), CudaError> {
        for run in std::mem::take(&mut self.pending) {
            self.report_run(&run)?;
            self.free.extend(run.marks);
        }
        Ok(())
    }

    /// Forgets the runs of which one has failed.
    pub fn forget(&mut self) {
        self.pending.clear();
    }

    fn report_run(&self, run: &Run) -> Result<(), CudaError> {
        let Some((first, rest)) = run.marks.split_first() else { return Ok(()) };
        let nanoseconds = |milliseconds: f32| (f64::from(milliseconds).max(0.0) * 1e6) as u64;
        let start = self.base.1 + nanoseconds(first.milliseconds_since(&self.base.0)?);
        // Against the first mark: a float does not hold a nanosecond of a long run.
        let ends = rest.iter().map(|mark| Ok(start + nanoseconds(mark.milliseconds_since(first)?)));
        let ends = ends.collect::<Result<Vec<u64>, CudaError>>()?;
        let works = match run.phase {
            Phase::Clip => &self.clip,
            _ => &self.step,
        };
        let starts = std::iter::once(start).chain(ends.iter().copied());
        let layers = works.iter().zip(starts.zip(&ends)).map(|(&work, (start, &end))| DeviceSpan {
            name: "".into(),
            work: Some(work),
            start,
            end,
        });
        let end = ends.last().copied().unwrap_or(start);
        let outer = DeviceSpan { name: phase_name(run.phase).into(), work: None, start, end };
        self.profiler.device_spans(self.lane, outer, layers);
        Ok(())
    }
}
