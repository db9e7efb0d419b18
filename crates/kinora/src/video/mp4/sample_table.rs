//! Where the samples of a track lie, and for how long each is shown.

use super::boxes::{full_box, numbers};

/// The samples of a track.
#[derive(Default)]
pub(super) struct SampleTable {
    lengths: Vec<u32>,
    /// Samples that follow each other without a gap.
    chunks: Vec<Chunk>,
    /// Where the last sample ends.
    end: u64,
}

struct Chunk {
    offset: u64,
    samples: u32,
}

impl SampleTable {
    /// Adds a sample of `length` bytes, `offset` bytes behind the first of all tracks.
    pub(super) fn push(&mut self, offset: u64, length: u32) {
        match self.chunks.last_mut() {
            Some(chunk) if self.end == offset => chunk.samples += 1,
            _ => self.chunks.push(Chunk { offset, samples: 1 }),
        }
        self.lengths.push(length);
        self.end = offset + u64::from(length);
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.lengths.len()
    }

    /// The boxes that say where they lie, if the first of all tracks is at `start`. `long` offsets have 64 bits.
    pub(super) fn places(&self, start: u64, long: bool) -> [Vec<u8>; 3] {
        let sizes = full_box(b"stsz", 0, 0, |body| {
            numbers(body, [0, self.lengths.len() as u32]);
            numbers(body, self.lengths.iter().copied());
        });
        let runs = runs(self.chunks.iter().map(|chunk| chunk.samples));
        let chunks = full_box(b"stsc", 0, 0, |body| {
            numbers(body, [runs.len() as u32]);
            let mut first = 1;
            for (count, samples) in &runs {
                numbers(body, [first, *samples, 1]);
                first += count;
            }
        });
        let kind = if long { b"co64" } else { b"stco" };
        let offsets = full_box(kind, 0, 0, |body| {
            numbers(body, [self.chunks.len() as u32]);
            for chunk in &self.chunks {
                let offset = (start + chunk.offset).to_be_bytes();
                body.extend(if long { &offset[..] } else { &offset[4..] });
            }
        });
        [chunks, sizes, offsets]
    }
}

/// The box that says for how many ticks each sample is shown.
pub(super) fn durations(ticks: impl Iterator<Item = u32>) -> Vec<u8> {
    let runs = runs(ticks);
    full_box(b"stts", 0, 0, |body| {
        numbers(body, [runs.len() as u32]);
        numbers(body, runs.into_iter().flat_map(|(count, ticks)| [count, ticks]));
    })
}

/// Equal neighbours: how many, and what they are.
fn runs(values: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for value in values {
        match runs.last_mut() {
            Some((count, last)) if *last == value => *count += 1,
            _ => runs.push((1, value)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_without_a_gap_are_one_chunk() {
        let mut table = SampleTable::default();
        for (offset, length) in [(0, 5), (5, 7), (100, 1), (101, 2), (200, 3)] {
            table.push(offset, length);
        }
        let [chunks, sizes, offsets] = table.places(1000, false);
        // From the first chunk on two samples each, from the third on one.
        assert_eq!(chunks[16..], [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(sizes[16..20], [0, 0, 0, 5]);
        assert_eq!(offsets[12..], [0, 0, 0, 3, 0, 0, 3, 232, 0, 0, 4, 76, 0, 0, 4, 176]);
        let long = &table.places(1 << 32, true)[2];
        assert_eq!((&long[4..8], &long[16..24]), (&b"co64"[..], &[0, 0, 0, 1, 0, 0, 0, 0][..]));
    }

    #[test]
    fn equal_durations_are_written_once() {
        assert_eq!(
            durations([3, 3, 4].into_iter())[12..],
            [0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 4]
        );
    }
}
