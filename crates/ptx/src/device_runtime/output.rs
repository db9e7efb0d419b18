//! The text that a launch prints.

use std::{fmt, sync::Arc};

/// What a launch printed with `printf`, block by block.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DeviceOutput {
    /// The text: that of the first block, then that of the second, and so on; each in the order in which its threads printed.
    pub text: String,
    /// Calls whose text was dropped, because the launch had printed as much as [`DeviceLimits::printf_bytes`] allows. A device
    /// overwrites the oldest text instead, in an order that is not defined.
    ///
    /// [`DeviceLimits::printf_bytes`]: crate::DeviceLimits::printf_bytes
    pub dropped_calls: u64,
    /// The bytes of that text.
    pub dropped_bytes: u64,
}

/// A function that gets text as it is printed.
#[derive(Clone)]
pub(crate) struct OutputSink(pub Arc<dyn Fn(&str) + Send + Sync>);

impl fmt::Debug for OutputSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutputSink")
    }
}

/// What some blocks printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Printed {
    /// The block and the text of each call.
    calls: Vec<(u64, String)>,
    bytes: usize,
    dropped_calls: u64,
    dropped_bytes: u64,
}

impl Printed {
    /// Keeps the text of a call, unless there are `limit` bytes of earlier ones.
    pub fn add(&mut self, block: u64, text: String, limit: usize) {
        if self.bytes.saturating_add(text.len()) > limit {
            self.drop_text(&text);
        } else {
            self.bytes += text.len();
            self.calls.push((block, text));
        }
    }

    fn drop_text(&mut self, text: &str) {
        // Later texts are dropped too, so that what is kept is the beginning.
        self.bytes = usize::MAX;
        self.dropped_calls += 1;
        self.dropped_bytes += text.len() as u64;
    }

    /// Adds what other blocks printed.
    pub fn merge(&mut self, other: Printed) {
        self.calls.extend(other.calls);
        self.dropped_calls += other.dropped_calls;
        self.dropped_bytes += other.dropped_bytes;
    }

    /// The text by block. Every part kept at least as much as the whole may have, so the result depends on no order of blocks.
    pub fn finish(mut self, limit: usize) -> DeviceOutput {
        self.calls.sort_by_key(|&(block, _)| block);
        let mut kept = Printed::default();
        for (block, text) in self.calls {
            kept.add(block, text, limit);
        }
        DeviceOutput {
            text: kept.calls.into_iter().map(|(_, text)| text).collect(),
            dropped_calls: self.dropped_calls + kept.dropped_calls,
            dropped_bytes: self.dropped_bytes + kept.dropped_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_does_not_depend_on_who_ran_a_block() {
        let text = |block: u64| format!("block {block} prints\n");
        let finished = |parts: &[&[u64]]| {
            let mut all = Printed::default();
            for part in parts {
                let mut printed = Printed::default();
                part.iter().for_each(|&block| printed.add(block, text(block), 40));
                all.merge(printed);
            }
            all.finish(40)
        };
        let one = finished(&[&[0, 1, 2, 3, 4]]);
        assert_eq!(one.text, "block 0 prints\nblock 1 prints\n");
        assert_eq!((one.dropped_calls, one.dropped_bytes), (3, 45));
        assert_eq!(finished(&[&[1, 3], &[0, 2, 4]]), one);
        assert_eq!(finished(&[&[4], &[3], &[2], &[1], &[0]]), one);
    }
}
