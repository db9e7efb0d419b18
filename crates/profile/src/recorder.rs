//! Recording a run.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
    time::Instant,
};

use crate::{
    Activity, ActivityKind, Copied, FORMAT, Lane, LaneKind, Machine, MemorySample, Profile, Span, Work,
};

/// Records a run, or nothing. Clones record the same run, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Profiler(Option<Arc<Recorder>>);

/// A layer that was registered with a profiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkId(usize);

/// A queue of a device that was registered with a profiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneId(usize);

/// A span of a device's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpan {
    /// What it was.
    pub name: Cow<'static, str>,
    /// The layer, if it was one.
    pub work: Option<WorkId>,
    /// What was copied, if it was a copy.
    pub copied: Option<Copied>,
    /// When it began, in nanoseconds since the profiler was made.
    pub start: u64,
    /// When it ended.
    pub end: u64,
}

/// Something that a device's own trace saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceActivity {
    /// The kernel's name, or what was copied where.
    pub name: String,
    /// What it was.
    pub kind: ActivityKind,
    /// The layer that it was launched for, if known.
    pub work: Option<WorkId>,
    /// The bytes that a copy or a fill wrote.
    pub bytes: Option<u64>,
    /// When it began, in nanoseconds since the profiler was made.
    pub start: u64,
    /// When it ended.
    pub end: u64,
}

#[derive(Debug)]
struct Recorder {
    start: Instant,
    /// A panic within a span happens between two calls, so the state is consistent.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    title: String,
    machine: Machine,
    planned_peak_bytes: Option<u64>,
    lanes: Vec<Lane>,
    threads: HashMap<ThreadId, usize>,
    /// The spans of each lane that have not ended, the outermost first.
    open: Vec<Vec<usize>>,
    spans: Vec<Recorded>,
    works: Vec<Work>,
    memory: Vec<MemorySample>,
    activity: Vec<Activity>,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Recorded {
    name: Cow<'static, str>,
    lane: usize,
    parent: Option<usize>,
    start: u64,
    end: Option<u64>,
    work: Option<usize>,
    copied: Option<Copied>,
}

impl Profiler {
    /// A profiler that records from now on.
    pub fn on() -> Profiler {
        Profiler(Some(Arc::new(Recorder { start: Instant::now(), state: Mutex::default() })))
    }

    /// A profiler that records nothing.
    pub const fn off() -> Profiler {
        Profiler(None)
    }

    /// Whether it records.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Nanoseconds since recording began.
    pub fn now(&self) -> u64 {
        self.0.as_ref().map_or(0, |recorder| recorder.now())
    }

    /// Begins a span of this thread, within the innermost one that has not ended. It ends when it is dropped, together
    /// with any spans begun within it that have not ended.
    pub fn span(&self, name: impl Into<Cow<'static, str>>) -> OpenSpan {
        self.begin(|| name.into(), None)
    }

    /// Begins a span in which a layer runs.
    pub fn layer(&self, work: WorkId) -> OpenSpan {
        self.begin(|| Cow::Borrowed(""), Some(work.0))
    }

    fn begin(&self, name: impl FnOnce() -> Cow<'static, str>, work: Option<usize>) -> OpenSpan {
        let Some(recorder) = &self.0 else { return OpenSpan(None) };
        let name = name();
        let mut state = recorder.state();
        let lane = state.lane_of_thread();
        let parent = state.open[lane].last().copied();
        let number = state.spans.len();
        // The clock is read last: the profiler's own time counts for the parent.
        let start = recorder.now();
        state.spans.push(Recorded { name, lane, parent, start, end: None, work, copied: None });
        state.open[lane].push(number);
        drop(state);
        OpenSpan(Some((recorder.clone(), number)))
    }

    /// Registers a layer. `None` if nothing is recorded.
    pub fn work(&self, work: impl FnOnce() -> Work) -> Option<WorkId> {
        let mut state = self.0.as_ref()?.state();
        state.works.push(work());
        Some(WorkId(state.works.len() - 1))
    }

    /// The queue of a device by its name. `None` if nothing is recorded.
    pub fn device_lane(&self, name: &str) -> Option<LaneId> {
        let mut state = self.0.as_ref()?.state();
        let known = |lane: &Lane| lane.kind == LaneKind::Device && lane.name == name;
        let known = state.lanes.iter().position(known);
        Some(LaneId(known.unwrap_or_else(|| state.add_lane(name.to_owned(), LaneKind::Device))))
    }

    /// Adds what a device did in one of its queues, by its own clock: an outer span and the spans within it, in order.
    /// Spans, the outer one included, that overlap because of clock errors are trimmed.
    pub fn device_spans(&self, lane: LaneId, outer: DeviceSpan, inner: impl IntoIterator<Item = DeviceSpan>) {
        let Some(recorder) = &self.0 else { return };
        let mut state = recorder.state();
        let parent = state.spans.len();
        let before = state.spans.iter().rev().find(|span| span.lane == lane.0 && span.parent.is_none());
        let start = outer.start.max(before.and_then(|span| span.end).unwrap_or(0));
        let end = outer.end.max(start);
        let add = |state: &mut State, span: DeviceSpan, parent, start, end| {
            let DeviceSpan { name, work, copied, .. } = span;
            let work = work.map(|work| work.0);
            state.spans.push(Recorded { name, lane: lane.0, parent, start, end: Some(end), work, copied });
        };
        add(&mut state, outer, None, start, end);
        let mut before = start;
        for span in inner {
            let from = span.start.clamp(before, end);
            let to = span.end.clamp(from, end);
            add(&mut state, span, Some(parent), from, to);
            before = to;
        }
    }

    /// Adds what a device's own trace saw.
    pub fn device_activity(&self, seen: impl IntoIterator<Item = DeviceActivity>) {
        let Some(recorder) = &self.0 else { return };
        let activity = |seen: DeviceActivity| {
            let DeviceActivity { name, kind, work, bytes, start, end } = seen;
            Activity { name, kind, work: work.map(|work| work.0), bytes, start, end: end.max(start) }
        };
        recorder.state().activity.extend(seen.into_iter().map(activity));
    }

    /// Adds a note for the reader on how this was recorded. The same note is kept once.
    pub fn note(&self, note: &str) {
        let Some(recorder) = &self.0 else { return };
        let mut state = recorder.state();
        if !state.notes.iter().any(|known| known == note) {
            state.notes.push(note.to_owned());
        }
    }

    /// Records that an owner holds this many bytes from now on; 0 when it has freed them.
    pub fn holds(&self, owner: &str, bytes: usize) {
        let Some(recorder) = &self.0 else { return };
        let mut state = recorder.state();
        // No two samples at the same moment: their order would be lost.
        let at = recorder.now().max(state.memory.last().map_or(0, |last| last.at + 1));
        state.memory.push(MemorySample { at, owner: owner.to_owned(), bytes: bytes as u64 });
    }

    /// Records what ran, and on what.
    pub fn describe(&self, title: &str, machine: Machine) {
        let Some(recorder) = &self.0 else { return };
        let mut state = recorder.state();
        (state.title, state.machine) = (title.to_owned(), machine);
    }

    /// Records the peak memory that a plan predicted. The largest is kept.
    pub fn planned_peak(&self, bytes: usize) {
        let Some(recorder) = &self.0 else { return };
        let mut state = recorder.state();
        state.planned_peak_bytes = state.planned_peak_bytes.max(Some(bytes as u64));
    }

    /// What was recorded so far. Spans that have not ended end now.
    pub fn profile(&self) -> Profile {
        let Some(recorder) = &self.0 else { return Profile { format: FORMAT, ..Profile::default() } };
        let state = recorder.state();
        let now = recorder.now();
        let span = |recorded: &Recorded| Span {
            name: match recorded.work {
                Some(work) if recorded.name.is_empty() => state.works[work].layer.clone(),
                _ => recorded.name.to_string(),
            },
            lane: recorded.lane,
            parent: recorded.parent,
            start: recorded.start,
            end: recorded.end.unwrap_or(now),
            work: recorded.work,
            copied: recorded.copied,
        };
        // Streams report one after the other.
        let mut activity = state.activity.clone();
        activity.sort_by_key(|activity| activity.start);
        Profile {
            format: FORMAT,
            title: state.title.clone(),
            machine: state.machine.clone(),
            lanes: state.lanes.clone(),
            spans: state.spans.iter().map(span).collect(),
            works: state.works.clone(),
            memory: state.memory.clone(),
            planned_peak_bytes: state.planned_peak_bytes,
            activity,
            notes: state.notes.clone(),
        }
    }
}

impl Recorder {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add_lane(&mut self, name: String, kind: LaneKind) -> usize {
        self.lanes.push(Lane { name, kind });
        self.open.push(Vec::new());
        self.lanes.len() - 1
    }

    fn lane_of_thread(&mut self) -> usize {
        let thread = thread::current();
        if let Some(&lane) = self.threads.get(&thread.id()) {
            return lane;
        }
        let name = match thread.name() {
            Some(name) => name.to_owned(),
            None => format!("thread {}", self.threads.len()),
        };
        let lane = self.add_lane(name, LaneKind::Host);
        self.threads.insert(thread.id(), lane);
        lane
    }

    /// Ends a span and all spans begun within it. A span that already ended with the one around it stays as it is.
    fn end(&mut self, number: usize, now: u64) {
        let lane = self.spans[number].lane;
        let Some(depth) = self.open[lane].iter().position(|&open| open == number) else { return };
        for ended in self.open[lane].drain(depth..) {
            self.spans[ended].end = Some(now);
        }
    }
}

/// A span that has begun, and ends when it is dropped: at the end of a block, on the way out of an error or a panic, or in
/// another thread.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped"]
pub struct OpenSpan(Option<(Arc<Recorder>, usize)>);

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let Some((recorder, number)) = &self.0 {
            let mut state = recorder.state();
            // Read under the lock: what another thread began meanwhile then began earlier.
            let now = recorder.now();
            state.end(*number, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use proptest::prelude::*;

    use super::*;
    use crate::totals::{Total, totals};

    #[test]
    fn one_that_is_off_records_nothing() {
        let profiler = Profiler::off();
        let _span = profiler.span("a span");
        assert_eq!(profiler.work(|| unreachable!("no layer is made")), None);
        assert_eq!(profiler.device_lane("gpu"), None);
        profiler.holds("arena", 1);
        profiler.note("a note");
        assert_eq!(profiler.profile(), Profile { format: FORMAT, ..Profile::default() });
    }

    #[test]
    fn a_panic_ends_the_spans_around_it() {
        let profiler = Profiler::on();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _outer = profiler.span("outer");
            let _inner = profiler.span("inner");
            panic!("inside a span");
        }));
        assert!(panicked.is_err());
        drop(profiler.span("after"));
        let profile = profiler.profile();
        let names: Vec<_> = profile.spans.iter().map(|span| (span.name.as_str(), span.parent)).collect();
        assert_eq!(names, [("outer", None), ("inner", Some(0)), ("after", None)]);
        assert_eq!(profile.check(), Ok(()));
    }

    #[test]
    fn a_panic_while_recording_leaves_what_was_recorded() {
        let profiler = Profiler::on();
        drop(profiler.span("before"));
        let clone = profiler.clone();
        // The layer is made under the lock.
        let poisoned = thread::spawn(move || clone.work(|| panic!("under the lock"))).join();
        assert!(poisoned.is_err());
        drop(profiler.span("after"));
        assert_eq!(profiler.profile().spans.len(), 2);
    }

    #[test]
    fn threads_have_lanes_of_their_own_and_a_span_may_end_in_another() {
        let profiler = Profiler::on();
        let outer = profiler.span("outer");
        let moved = profiler.span("moved");
        let clone = profiler.clone();
        thread::spawn(move || {
            let _there = clone.span("there");
            drop(moved);
        })
        .join()
        .unwrap_or_else(|_| panic!("the thread failed"));
        // Ended above, so this one is not part of it.
        drop(profiler.span("next"));
        drop(outer);
        let profile = profiler.profile();
        assert_eq!(profile.check(), Ok(()));
        let found = |name: &str| profile.spans.iter().find(|span| span.name == name).cloned();
        assert_eq!(found("there").map(|span| (span.lane, span.parent)), Some((1, None)));
        assert_eq!(found("next").map(|span| (span.lane, span.parent)), Some((0, Some(0))));
    }

    #[test]
    fn a_devices_clock_may_err_a_little() {
        let profiler = Profiler::on();
        let lane = profiler.device_lane("gpu").unwrap_or_else(|| panic!("it is on"));
        let span = |start, end| DeviceSpan { name: "layer".into(), work: None, copied: None, start, end };
        assert_eq!(profiler.device_lane("gpu"), Some(lane));
        profiler.device_spans(lane, span(10, 20), [span(9, 14), span(13, 16), span(16, 25), span(30, 31)]);
        let profile = profiler.profile();
        assert_eq!(profile.check(), Ok(()));
        let times =
            |profile: &Profile| profile.spans.iter().map(|span| (span.start, span.end)).collect::<Vec<_>>();
        assert_eq!(times(&profile), [(10, 20), (10, 14), (14, 16), (16, 20), (20, 20)]);
        profiler.device_spans(lane, span(18, 30), [span(18, 22)]);
        assert_eq!(times(&profiler.profile())[5..], [(20, 30), (20, 22)]);
        assert_eq!(profiler.profile().check(), Ok(()));
    }

    #[test]
    fn what_was_traced_is_in_the_order_of_time_and_notes_are_said_once() {
        let profiler = Profiler::on();
        let work = profiler.work(|| Work { layer: "conv".into(), ..Work::default() });
        let kernel = |work, start, end| DeviceActivity {
            name: "k".into(),
            kind: ActivityKind::Kernel,
            work,
            bytes: None,
            start,
            end,
        };
        profiler.device_activity([kernel(work, 20, 30), kernel(None, 30, 29)]);
        profiler.device_activity([kernel(None, 5, 7)]);
        (0..2).for_each(|_| profiler.note("the same"));
        let profile = profiler.profile();
        assert_eq!(profile.check(), Ok(()));
        let found: Vec<_> = profile.activity.iter().map(|a| (a.work, a.start, a.end)).collect();
        assert_eq!(found, [(None, 5, 7), (Some(0), 20, 30), (None, 30, 30)]);
        assert_eq!(profile.notes, ["the same"]);
    }

    /// What a thread may do with spans.
    #[derive(Clone, Copy, Debug)]
    enum Act {
        Begin,
        /// Drops the span with this number among those held, counted around.
        Drop(usize),
        Panic,
        GiveAway(usize),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            4 => Just(Act::Begin),
            3 => any::<usize>().prop_map(Act::Drop),
            1 => Just(Act::Panic),
            1 => any::<usize>().prop_map(Act::GiveAway),
        ];
        proptest::collection::vec(act, 0..60)
    }

    fn assert_sums(total: &Total) {
        let children: u64 = total.children.iter().map(|child| child.nanoseconds).sum();
        assert_eq!(total.nanoseconds, total.own_nanoseconds + children, "{total:?}");
        total.children.iter().for_each(assert_sums);
    }

    proptest! {
        /// Whatever is dropped when and where, spans lie within their parents, and times add up.
        #[test]
        fn spans_nest_and_times_add_up(scripts in proptest::collection::vec(acts(), 1..4)) {
            let profiler = Profiler::on();
            let given = Mutex::new(Vec::new());
            thread::scope(|scope| {
                for script in &scripts {
                    let (profiler, given) = (&profiler, &given);
                    scope.spawn(move || {
                        let mut held = Vec::new();
                        for act in script {
                            match *act {
                                Act::Begin => held.push(profiler.span("span")),
                                Act::Drop(which) if !held.is_empty() => {
                                    drop(held.remove(which % held.len()));
                                }
                                Act::GiveAway(which) if !held.is_empty() => {
                                    let span = held.remove(which % held.len());
                                    given.lock().unwrap_or_else(PoisonError::into_inner).push(span);
                                }
                                Act::Panic => {
                                    let _ = catch_unwind(AssertUnwindSafe(|| {
                                        let _span = profiler.span("panic");
                                        // Without the message that a panic prints.
                                        std::panic::resume_unwind(Box::new(()));
                                    }));
                                }
                                Act::Drop(_) | Act::GiveAway(_) => {}
                            }
                        }
                    });
                }
            });
            // Before and after those that were given away have ended, in another thread while this one begins some.
            for _ in 0..2 {
                let profile = profiler.profile();
                prop_assert_eq!(profile.check(), Ok(()));
                for lane in totals(&profile) {
                    lane.totals.iter().for_each(assert_sums);
                }
                let given = &given;
                thread::scope(|scope| {
                    scope.spawn(move || given.lock().unwrap_or_else(PoisonError::into_inner).clear());
                    (0..20).for_each(|_| drop(profiler.span("beside")));
                });
            }
        }
    }
}
