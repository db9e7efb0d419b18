//! Tracing a stream. CUPTI is process-wide: it delivers records of everything that runs, in buffers that it requests,
//! at any time and from any thread. Records of traced streams are kept until they are collected.

use std::{
    alloc::{Layout, alloc, dealloc},
    collections::HashMap,
    ffi::c_void,
    ptr,
    sync::{
        LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use cudarc::driver::sys::CUcontext;

use super::{
    library::{Cupti, SUCCESS},
    records::{Entry, Record, kind, read},
};
use crate::{CudaError, driver::Stream};

/// The records to request. A region is attached to the record of a call made in it, so calls must be recorded as well:
/// those of the driver, and those of the runtime that the vendor libraries use.
const KINDS: [u32; 6] = [
    kind::CONCURRENT_KERNEL,
    kind::MEMCPY,
    kind::MEMSET,
    kind::DRIVER,
    kind::RUNTIME,
    kind::EXTERNAL_CORRELATION,
];

/// CUPTI's number for program-defined regions.
const OWN_REGIONS: u32 = 3;

/// Also flushes buffers that hold incomplete records.
const FLUSH_FORCED: u32 = 1;

/// A buffer's layout: some ten thousand records, aligned as the library asks.
const BUFFER: Layout = match Layout::from_size_align(4 << 20, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("4 MiB is a size"),
};

/// A stream that is traced for as long as this lives.
#[derive(Debug)]
pub(crate) struct Trace {
    cupti: &'static Cupti,
    /// Distinguishes the regions of one trace from those of another.
    number: u32,
    /// The context and the stream, by the library's numbers.
    place: (u32, u32),
}

/// What a stream ran, according to the trace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Collected {
    /// Each with the region that it was launched in, if that is known.
    pub records: Vec<(Option<u32>, Record)>,
    /// How many records were lost, of this stream or another.
    pub lost: u64,
}

impl Trace {
    /// Traces a stream from now on.
    ///
    /// # Errors
    /// If the library refuses: the process may lack permission, or another tool may be using it.
    pub fn begin(cupti: &'static Cupti, stream: &Stream) -> Result<Trace, CudaError> {
        static NUMBERS: AtomicU32 = AtomicU32::new(1);
        let place = stream.context().with_handle(|context| {
            let (mut of_context, mut of_stream) = (0, 0);
            // SAFETY: both calls write one number; the context is current and the stream belongs to it.
            let status = unsafe { (cupti.functions.context_id)(context, &mut of_context) };
            cupti.check(status, "number the context")?;
            // SAFETY: as above.
            let status = unsafe { (cupti.functions.stream_id)(context, stream.handle(), 0, &mut of_stream) };
            cupti.check(status, "number the stream")?;
            Ok::<_, CudaError>((of_context, of_stream))
        })??;
        collecting().streams.insert(place, Seen::default());
        let trace = Trace { cupti, number: NUMBERS.fetch_add(1, Ordering::Relaxed), place };
        // Counted before it is known to succeed: dropping the trace, which happens later, ends what was begun.
        let mut traces = traces();
        *traces += 1;
        if *traces == 1 {
            trace.enable()?;
        }
        Ok(trace)
    }

    fn enable(&self) -> Result<(), CudaError> {
        let functions = &self.cupti.functions;
        // SAFETY: the functions live as long as the process.
        let status = unsafe { (functions.register_callbacks)(buffer_requested, buffer_completed) };
        self.cupti.check(status, "take our buffers")?;
        for kind in KINDS {
            // SAFETY: the call takes a number.
            self.cupti.check(unsafe { (functions.enable)(kind) }, "trace the GPU")?;
        }
        Ok(())
    }

    /// Does something within the region of this number: what this thread launches meanwhile belongs to it.
    pub fn region<T>(&self, region: u32, work: impl FnOnce() -> T) -> T {
        let functions = &self.cupti.functions;
        // SAFETY: the call takes numbers. If it is refused, the launches belong to no region, and nothing else changes.
        let pushed = unsafe { (functions.push_external_id)(OWN_REGIONS, joined(self.number, region)) };
        let done = work();
        if pushed == SUCCESS {
            // SAFETY: what was pushed above is on top; its value is not needed.
            let _ = unsafe { (functions.pop_external_id)(OWN_REGIONS, ptr::null_mut()) };
        }
        done
    }

    /// Nanoseconds by the clock of the records.
    ///
    /// # Errors
    /// If the library fails.
    pub fn now(&self) -> Result<u64, CudaError> {
        let mut now = 0;
        // SAFETY: the call writes one number.
        self.cupti.check(unsafe { (self.cupti.functions.timestamp)(&mut now) }, "tell the time")?;
        Ok(now)
    }

    /// What the stream has run since the last call. The caller has waited for the stream.
    ///
    /// # Errors
    /// If the library fails.
    pub fn collect(&self) -> Result<Collected, CudaError> {
        let functions = &self.cupti.functions;
        // Every record of this stream is complete. Incomplete records of other streams are lost: only one program is
        // profiled at a time.
        // SAFETY: the callbacks were registered; they take the lock, which is not held here.
        self.cupti.check(unsafe { (functions.flush_all)(FLUSH_FORCED) }, "hand out its records")?;
        let mut dropped = 0;
        // SAFETY: the call writes one number; without a context it is that of the whole process.
        let status = unsafe { (functions.dropped_records)(ptr::null_mut(), 0, &mut dropped) };
        self.cupti.check(status, "say what it lost")?;
        Ok(collecting().take(self.place, self.number, dropped as u64))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let mut traces = traces();
        *traces -= 1;
        if *traces == 0 {
            for kind in KINDS {
                // SAFETY: the call takes a number. Disabling a kind that was not enabled does no harm.
                let _ = unsafe { (self.cupti.functions.disable)(kind) };
            }
        }
        drop(traces);
        collecting().streams.remove(&self.place);
    }
}

/// How many streams are traced: the first starts the recording, and the last stops it.
fn traces() -> MutexGuard<'static, usize> {
    static TRACES: Mutex<usize> = Mutex::new(0);
    TRACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that the library has delivered and nobody has collected yet.
#[derive(Debug, Default)]
struct Collecting {
    /// The streams that are traced.
    streams: HashMap<(u32, u32), Seen>,
    /// The regions that calls were made in, by the calls' numbers.
    regions: HashMap<u32, u64>,
}

/// What was recorded of a stream.
#[derive(Debug, Default)]
struct Seen {
    records: Vec<Record>,
    /// How many more there were, without times.
    untimed: u64,
}

fn collecting() -> MutexGuard<'static, Collecting> {
    static COLLECTING: LazyLock<Mutex<Collecting>> = LazyLock::new(Mutex::default);
    // It is consistent after every statement that changes it.
    COLLECTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of a region among all traces.
fn joined(trace: u32, region: u32) -> u64 {
    u64::from(trace) << 32 | u64::from(region)
}

impl Collecting {
    fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Ran(record) => {
                if let Some(seen) = self.streams.get_mut(&record.place) {
                    seen.records.push(record);
                }
            }
            Entry::Called { correlation, region } => {
                self.regions.insert(correlation, region);
            }
            Entry::Untimed { place } => {
                if let Some(seen) = self.streams.get_mut(&place) {
                    seen.untimed += 1;
                }
            }
            Entry::Other => {}
        }
    }

    /// Takes the records of a stream, each with its region, in the order in which they began.
    fn take(&mut self, place: (u32, u32), trace: u32, dropped: u64) -> Collected {
        let Seen { mut records, untimed } =
            self.streams.get_mut(&place).map(std::mem::take).unwrap_or_default();
        records.sort_by_key(|record| record.start);
        let is_own = |region: u64| (region >> 32) as u32 == trace;
        let region = |record: &Record| {
            let region = self.regions.get(&record.correlation).copied().filter(|&region| is_own(region))?;
            Some(region as u32)
        };
        let records = records.into_iter().map(|record| (region(&record), record)).collect();
        self.regions.retain(|_, region| !is_own(*region));
        Collected { records, lost: dropped + untimed }
    }
}

/// Gives the library a buffer, or none if there is no memory.
///
/// # Safety
/// Only the library calls it, with three places to write to.
unsafe extern "C" fn buffer_requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    // SAFETY: the layout has a size; the places are the library's own.
    unsafe {
        *buffer = alloc(BUFFER);
        *size = if (*buffer).is_null() { 0 } else { BUFFER.size() };
        *most_records = 0;
    }
}

/// Takes a buffer back and reads its records.
///
/// # Safety
/// Only the library calls it, with a buffer of ours whose first `valid` bytes hold records.
unsafe extern "C" fn buffer_completed(
    _context: CUcontext,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    if buffer.is_null() {
        return;
    }
    if let Some(cupti) = Cupti::loaded() {
        let mut collecting = collecting();
        let mut record: *mut c_void = ptr::null_mut();
        // SAFETY: the library walks through the buffer that it filled.
        while unsafe { (cupti.functions.next_record)(buffer, valid, &mut record) } == SUCCESS {
            let Some(left) = record.addr().checked_sub(buffer.addr()).and_then(|at| valid.checked_sub(at))
            else {
                break;
            };
            // SAFETY: that many bytes of the buffer are left from there on.
            let bytes = unsafe { std::slice::from_raw_parts(record.cast::<u8>(), left) };
            // SAFETY: a record begins there, and its strings live as long as the modules of their kernels.
            collecting.add(unsafe { read(bytes) });
        }
    }
    // SAFETY: allocated above with this layout; the library no longer uses it.
    unsafe { dealloc(buffer, BUFFER) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cupti::Operation, testing};

    fn record(stream: u32, correlation: u32, start: u64) -> Record {
        let operation = Operation::Kernel { name: format!("kernel {correlation}") };
        Record { operation, place: (1, stream), correlation, start, end: start + 5 }
    }

    #[test]
    fn a_stream_gets_its_own_records_with_their_regions() {
        let mut collecting = Collecting::default();
        collecting.streams.insert((1, 7), Seen::default());
        collecting.streams.insert((1, 8), Seen::default());
        // A region may be reported before its kernel or after it, and kernels in any order.
        for entry in [
            Entry::Called { correlation: 10, region: joined(2, 4) },
            Entry::Ran(record(7, 11, 200)),
            Entry::Ran(record(7, 10, 100)),
            Entry::Called { correlation: 11, region: joined(2, 5) },
            // Launched in no region, in another trace's region, in another stream, and in one that is not traced.
            Entry::Ran(record(7, 12, 300)),
            Entry::Called { correlation: 13, region: joined(3, 5) },
            Entry::Ran(record(7, 13, 400)),
            Entry::Ran(record(8, 14, 10)),
            Entry::Ran(record(9, 15, 20)),
            Entry::Untimed { place: (1, 7) },
            Entry::Untimed { place: (1, 9) },
            Entry::Other,
        ] {
            collecting.add(entry);
        }
        let collected = collecting.take((1, 7), 2, 4);
        let found: Vec<_> = collected.records.iter().map(|(region, r)| (*region, r.correlation)).collect();
        assert_eq!(found, [(Some(4), 10), (Some(5), 11), (None, 12), (None, 13)]);
        assert_eq!(collected.lost, 5);
        // They are returned once, and the other trace keeps its own.
        assert_eq!(collecting.take((1, 7), 2, 0), Collected::default());
        assert_eq!(collecting.regions.len(), 1);
        assert_eq!(collecting.take((1, 8), 3, 0).records.len(), 1);
        assert!(collecting.regions.is_empty());
    }

    /// Synthetic records in a buffer of ours, walked through by the library itself; needs no GPU.
    #[test]
    fn a_buffer_is_read_and_freed() {
        let Some(cupti) = testing::cupti() else { return };
        // A place that no stream has.
        let place = (u32::MAX, u32::MAX);
        collecting().streams.insert(place, Seen::default());
        let (mut buffer, mut size, mut most) = (ptr::null_mut(), 0, 1);
        // SAFETY: as the library calls it.
        unsafe { buffer_requested(&mut buffer, &mut size, &mut most) };
        assert!(!buffer.is_null() && size == BUFFER.size() && most == 0);
        let mut fill = [0u8; 88];
        fill[..4].copy_from_slice(&kind::MEMSET.to_ne_bytes());
        for (at, number) in [(8, 640u64), (16, 30), (24, 70)] {
            fill[at..at + 8].copy_from_slice(&number.to_ne_bytes());
        }
        for (at, number) in [(36, place.0), (40, place.1), (44, 9)] {
            fill[at..at + 4].copy_from_slice(&number.to_ne_bytes());
        }
        // SAFETY: the buffer is large enough for two records, and is given back once.
        unsafe {
            ptr::copy_nonoverlapping(fill.as_ptr(), buffer, fill.len());
            ptr::copy_nonoverlapping(fill.as_ptr(), buffer.add(fill.len()), fill.len());
            buffer_completed(ptr::null_mut(), 0, buffer, size, 2 * fill.len());
        }
        let collected = collecting().take(place, 0, 0);
        collecting().streams.remove(&place);
        let expected =
            Record { operation: Operation::Fill { bytes: 640 }, place, correlation: 9, start: 30, end: 70 };
        assert!(collected.records.iter().all(|(_, record)| *record == expected), "{collected:?}");
        // The records are as long as those of 13.0; a library whose own are not may stop at once.
        if cupti.version().starts_with("13.0 ") {
            assert_eq!(collected.records.len(), 2, "{cupti:?} walks through both");
        } else {
            testing::say_not_run(&format!("to its end, since {cupti:?} is not of CUDA 13.0"));
        }
    }
}
