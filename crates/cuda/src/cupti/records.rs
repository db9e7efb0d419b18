//! The memory layout of CUPTI's records.
//!
//! From one version to the next a record grows at its end, and its first fields stay. Only those are read, at the
//! offsets in NVIDIA's headers of CUDA 12.0 to 13.0: records are packed to 8 bytes.

use std::ffi::{CStr, c_char};

/// The kinds of records that are requested.
pub(super) mod kind {
    pub const MEMCPY: u32 = 1;
    pub const MEMSET: u32 = 2;
    pub const DRIVER: u32 = 4;
    pub const RUNTIME: u32 = 5;
    /// Kernels, without serialising them.
    pub const CONCURRENT_KERNEL: u32 = 10;
    pub const EXTERNAL_CORRELATION: u32 = 39;
}

/// The offsets of the fields of a kernel's record, and how far they reach.
mod kernel {
    pub const START: usize = 16;
    pub const END: usize = 24;
    pub const CONTEXT: usize = 44;
    pub const STREAM: usize = 48;
    pub const CORRELATION: usize = 92;
    pub const NAME: usize = 104;
    pub const BYTES: usize = 112;
}

/// The offsets of the fields of a copy's or a fill's record, and how far they reach.
mod transfer {
    /// One byte, of copies alone.
    pub const DIRECTION: usize = 4;
    pub const AMOUNT: usize = 8;
    pub const START: usize = 16;
    pub const END: usize = 24;
    pub const CONTEXT: usize = 36;
    pub const STREAM: usize = 40;
    pub const CORRELATION: usize = 44;
    pub const BYTES: usize = 48;
}

/// The offsets of the fields of the record that names the region a call was made in.
mod external {
    pub const ID: usize = 8;
    pub const CORRELATION: usize = 16;
    pub const BYTES: usize = 24;
}

/// Something that a GPU ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub operation: Operation,
    /// The context and the stream that it ran in, by CUPTI's numbers.
    pub place: (u32, u32),
    /// The number of the call that started it.
    pub correlation: u32,
    /// Nanoseconds by CUPTI's clock.
    pub start: u64,
    pub end: u64,
}

/// What a GPU ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Kernel { name: String },
    Copy { direction: CopyDirection, bytes: u64 },
    Fill { bytes: u64 },
}

/// Which way a copy went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyDirection {
    ToDevice,
    FromDevice,
    Within,
    /// Between two GPUs, of arrays, or not known.
    Other,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Something ran.
    Ran(Record),
    /// A call was made in a numbered region.
    Called { correlation: u32, region: u64 },
    /// Something ran in a context and a stream at an unknown time.
    Untimed { place: (u32, u32) },
    /// A record of another kind.
    Other,
}

/// Reads a record. `bytes` starts with it and may continue after it.
///
/// # Safety
/// `bytes` must be a record of CUPTI, so that a kernel's name is null or a NUL-terminated string.
pub(super) unsafe fn read(bytes: &[u8]) -> Entry {
    let fields = Fields(bytes);
    let kind = fields.u32(0);
    let needed = match kind {
        Some(kind::CONCURRENT_KERNEL) => kernel::BYTES,
        Some(kind::MEMCPY | kind::MEMSET) => transfer::BYTES,
        Some(kind::EXTERNAL_CORRELATION) => external::BYTES,
        _ => return Entry::Other,
    };
    if bytes.len() < needed {
        return Entry::Other;
    }
    let entry = match kind {
        Some(kind::CONCURRENT_KERNEL) => {
            let name = fields.u64(kernel::NAME).map_or(std::ptr::null(), |address| {
                std::ptr::with_exposed_provenance::<c_char>(address as usize)
            });
            // SAFETY: the caller promises it.
            let operation = Operation::Kernel { name: unsafe { text(name) } };
            fields.record(
                operation,
                [kernel::START, kernel::END, kernel::CONTEXT, kernel::STREAM, kernel::CORRELATION],
            )
        }
        Some(kind @ (kind::MEMCPY | kind::MEMSET)) => fields.u64(transfer::AMOUNT).and_then(|bytes| {
            let operation = match kind {
                kind::MEMCPY => Operation::Copy { direction: fields.direction(), bytes },
                _ => Operation::Fill { bytes },
            };
            let places =
                [transfer::START, transfer::END, transfer::CONTEXT, transfer::STREAM, transfer::CORRELATION];
            fields.record(operation, places)
        }),
        _ => fields
            .u32(external::CORRELATION)
            .zip(fields.u64(external::ID))
            .map(|(correlation, region)| Entry::Called { correlation, region }),
    };
    entry.unwrap_or(Entry::Other)
}

/// # Safety
/// `name` is null or a NUL-terminated string.
unsafe fn text(name: *const c_char) -> String {
    if name.is_null() {
        return "unnamed kernel".to_owned();
    }
    // SAFETY: the caller promises it.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// Reads numbers at offsets of a record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }

    fn direction(&self) -> CopyDirection {
        match self.0.get(transfer::DIRECTION) {
            Some(1) => CopyDirection::ToDevice,
            Some(2) => CopyDirection::FromDevice,
            Some(8) => CopyDirection::Within,
            _ => CopyDirection::Other,
        }
    }

    fn record(
        &self,
        operation: Operation,
        [start, end, context, stream, correlation]: [usize; 5],
    ) -> Option<Entry> {
        let (start, end) = (self.u64(start)?, self.u64(end)?);
        let place = (self.u32(context)?, self.u32(stream)?);
        // CUPTI leaves both zero if it could not take the times.
        if start == 0 || end < start {
            return Some(Entry::Untimed { place });
        }
        let correlation = self.u32(correlation)?;
        Some(Entry::Ran(Record { operation, place, correlation, start, end }))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    /// A record of that many bytes with numbers at places, and noise where nothing is read.
    fn made(bytes: usize, kind: u32, u32s: &[(usize, u32)], u64s: &[(usize, u64)]) -> Vec<u8> {
        let mut record: Vec<u8> = (0..bytes).map(|at| (at * 37 + 11) as u8).collect();
        record[..4].copy_from_slice(&kind.to_ne_bytes());
        for (at, number) in u32s {
            record[*at..at + 4].copy_from_slice(&number.to_ne_bytes());
        }
        for (at, number) in u64s {
            record[*at..at + 8].copy_from_slice(&number.to_ne_bytes());
        }
        record
    }

    /// As `CUpti_ActivityKernel9` and `CUpti_ActivityKernel10` lie by `offsetof`, with their sizes.
    fn kernel(bytes: usize, name: u64, start: u64, end: u64) -> Vec<u8> {
        // deviceId, contextId, streamId, correlationId.
        let u32s = [(40, 0), (44, 3), (48, 7), (92, 4711)];
        made(bytes, 10, &u32s, &[(16, start), (24, end), (104, name)])
    }

    #[test]
    fn a_kernel_is_read_whatever_the_version() {
        let name = CString::new("conv_wgmma").unwrap();
        let address = name.as_ptr().expose_provenance() as u64;
        for bytes in [208, 216] {
            // SAFETY: the name is a string.
            let entry = unsafe { read(&kernel(bytes, address, 1000, 2500)) };
            let operation = Operation::Kernel { name: "conv_wgmma".into() };
            let expected = Record { operation, place: (3, 7), correlation: 4711, start: 1000, end: 2500 };
            assert_eq!(entry, Entry::Ran(expected));
        }
        // SAFETY: there is no name.
        let Entry::Ran(record) = (unsafe { read(&kernel(208, 0, 1, 2)) }) else { panic!("it ran") };
        assert_eq!(record.operation, Operation::Kernel { name: "unnamed kernel".into() });
    }

    #[test]
    fn copies_and_fills_are_read() {
        // bytes, start, end; deviceId, contextId, streamId, correlationId: alike in CUpti_ActivityMemcpy5, 6 and
        // CUpti_ActivityMemset3, 4.
        let u64s = [(8, 1 << 33), (16, 50), (24, 90)];
        let u32s = [(32, 0), (36, 3), (40, 7), (44, 12)];
        let bytes = 1 << 33;
        for (kind, direction, operation) in [
            (1, 1, Operation::Copy { direction: CopyDirection::ToDevice, bytes }),
            (1, 2, Operation::Copy { direction: CopyDirection::FromDevice, bytes }),
            (1, 8, Operation::Copy { direction: CopyDirection::Within, bytes }),
            (1, 10, Operation::Copy { direction: CopyDirection::Other, bytes }),
            (2, 0, Operation::Fill { bytes }),
        ] {
            let mut record = made(88, kind, &u32s, &u64s);
            record[4] = direction;
            let expected = Record { operation, place: (3, 7), correlation: 12, start: 50, end: 90 };
            // SAFETY: no kernel, so no name.
            assert_eq!(unsafe { read(&record) }, Entry::Ran(expected));
        }
    }

    #[test]
    fn a_region_is_read() {
        let record = made(24, 39, &[(4, 3), (16, 4711)], &[(8, 0x5_0000_0002)]);
        // SAFETY: no kernel, so no name.
        let entry = unsafe { read(&record) };
        assert_eq!(entry, Entry::Called { correlation: 4711, region: 0x5_0000_0002 });
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        // SAFETY: none of these has a name that is looked at.
        unsafe {
            // A call of the driver, nothing, and a kind that is not known.
            for record in [made(40, 4, &[], &[]), Vec::new(), made(64, 77, &[], &[])] {
                assert_eq!(read(&record), Entry::Other);
            }
            // One that is cut off, wherever it is.
            for bytes in 0..kernel::BYTES {
                assert_eq!(read(&kernel(208, 0, 1, 2)[..bytes]), Entry::Other, "{bytes}");
            }
            // Times that were not taken.
            assert_eq!(read(&kernel(208, 0, 0, 0)), Entry::Untimed { place: (3, 7) });
            assert_eq!(read(&kernel(208, 0, 5, 4)), Entry::Untimed { place: (3, 7) });
        }
    }
}
