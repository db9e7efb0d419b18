//! The samples of a track: where they lie, and when they are shown.

use super::{
    super::error::Fault,
    atoms::{entries, find, long, need, number},
};

/// The most samples of a track: three days of video at 60 frames a second.
pub(super) const MAX_SAMPLES: usize = 16_000_000;

/// A compressed frame, or a piece of sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) offset: u64,
    pub(super) length: u32,
    /// How long it is shown, in ticks, before the next sample is due.
    pub(super) ticks: u32,
    /// When it is shown, in ticks.
    pub(super) shown: i64,
    /// Which description it has, from 0.
    pub(super) description: u32,
}

/// The samples that a table (`stbl`) describes, of a file of `file_length` bytes.
pub(super) fn samples(table: &[u8], file_length: u64) -> Result<Vec<Sample>, Fault> {
    let lengths = Lengths::read(table)?;
    // No sample is empty in a sound file, so there are no more than bytes; and no table is longer than its index.
    let count = lengths.count().min(usize::try_from(file_length).unwrap_or(usize::MAX));
    if count > MAX_SAMPLES {
        return Err(Fault::damaged(format!("more than {MAX_SAMPLES} samples in a track")));
    }
    let mut samples = Vec::new();
    samples.try_reserve_exact(count).map_err(|_| Fault::Memory(count * size_of::<Sample>()))?;
    place(table, &lengths, count, &mut samples)?;
    time(table, &mut samples)?;
    Ok(samples)
}

/// `stsz`: one length for all, or one for each.
struct Lengths<'a> {
    all: u32,
    count: u32,
    each: &'a [[u8; 4]],
}

impl<'a> Lengths<'a> {
    fn read(table: &'a [u8]) -> Result<Self, Fault> {
        let sizes = need(table, &[b"stsz"])?;
        let (Some(all), Some(count)) = (number(sizes, 4), number(sizes, 8)) else {
            return Err(Fault::damaged("its table of lengths is too short"));
        };
        Ok(Self { all, count, each: sizes.get(12..).unwrap_or_default().as_chunks().0 })
    }

    fn count(&self) -> usize {
        let count = self.count as usize;
        if self.all > 0 { count } else { count.min(self.each.len()) }
    }

    fn of(&self, sample: usize) -> u32 {
        if self.all > 0 {
            self.all
        } else {
            self.each.get(sample).map_or(0, |bytes| u32::from_be_bytes(*bytes))
        }
    }
}

/// `stsc` says how many samples a chunk has, `stco` or `co64` where it begins.
fn place(table: &[u8], lengths: &Lengths<'_>, count: usize, samples: &mut Vec<Sample>) -> Result<(), Fault> {
    let runs = entries::<12>(need(table, &[b"stsc"])?);
    let short = find(table, b"stco").map(entries::<4>);
    let wide = find(table, b"co64").map(entries::<8>).unwrap_or_default();
    let chunks = short.map_or(wide.len(), <[_]>::len);
    let offset = |chunk: usize| match short {
        Some(offsets) => number(&offsets[chunk], 0).map(u64::from),
        None => long(&wide[chunk], 0),
    };
    let mut run = 0;
    for chunk in 0..chunks {
        // A run holds until the first chunk of the next one; chunks count from 1.
        while runs
            .get(run + 1)
            .is_some_and(|next| number(next, 0).is_some_and(|first| first as usize <= chunk + 1))
        {
            run += 1;
        }
        let entry = runs.get(run).ok_or_else(|| Fault::damaged("its table of chunks is empty"))?;
        let (Some(_), Some(held), Some(description)) = (number(entry, 0), number(entry, 4), number(entry, 8))
        else {
            return Err(Fault::damaged("its table of chunks is too short"));
        };
        let mut at = offset(chunk).unwrap_or(u64::MAX);
        for _ in 0..held {
            if samples.len() == count {
                return Ok(());
            }
            let length = lengths.of(samples.len());
            let description = description.saturating_sub(1);
            samples.push(Sample { offset: at, length, ticks: 0, shown: 0, description });
            at = at.saturating_add(length.into());
        }
    }
    Ok(())
}

/// `stts` says how long each sample lasts, `ctts` how much later than in that order it is shown.
fn time(table: &[u8], samples: &mut [Sample]) -> Result<(), Fault> {
    let durations = entries::<8>(need(table, &[b"stts"])?);
    let shifts = find(table, b"ctts").map(entries::<8>).unwrap_or_default();
    let mut durations = durations.iter().flat_map(repeated);
    // The second version is signed; writers of the first use it so as well.
    let mut shifts = shifts.iter().flat_map(repeated);
    let mut decoded: i64 = 0;
    let mut last = 0;
    for sample in samples {
        // What is missing lasts as long as the one before.
        sample.ticks = durations.next().unwrap_or(last);
        last = sample.ticks;
        sample.shown = decoded + i64::from(shifts.next().unwrap_or(0).cast_signed());
        // 2²⁴ samples of 2³² ticks fit.
        decoded += i64::from(sample.ticks);
    }
    Ok(())
}

/// A count and a value.
fn repeated(entry: &[u8; 8]) -> impl Iterator<Item = u32> {
    let [a, b, c, d, value @ ..] = *entry;
    std::iter::repeat_n(u32::from_be_bytes(value), u32::from_be_bytes([a, b, c, d]) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atom(kind: &[u8; 4], numbers: &[u32]) -> Vec<u8> {
        let mut bytes = (12 + 4 * numbers.len() as u32).to_be_bytes().to_vec();
        bytes.extend(kind);
        bytes.extend([0; 4]);
        bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        bytes
    }

    fn table(shift: u32) -> Vec<u8> {
        [
            atom(b"stsz", &[0, 5, 10, 20, 30, 40, 50]),
            atom(b"stsc", &[2, 1, 2, 1, 3, 1, 2]),
            atom(b"stco", &[3, 1000, 2000, 3000]),
            atom(b"stts", &[2, 3, 7, 2, 9]),
            atom(b"ctts", &[2, 1, shift, 4, 1]),
        ]
        .concat()
    }

    #[test]
    fn samples_lie_in_their_chunks_and_have_their_times() {
        let found = samples(&table(5), 1 << 20).unwrap();
        let all = |value: fn(&Sample) -> i64| found.iter().map(value).collect::<Vec<i64>>();
        assert_eq!(all(|sample| sample.offset as i64), [1000, 1010, 2000, 2030, 3000]);
        assert_eq!(all(|sample| sample.length.into()), [10, 20, 30, 40, 50]);
        assert_eq!(all(|sample| sample.ticks.into()), [7, 7, 7, 9, 9]);
        assert_eq!(all(|sample| sample.shown), [5, 8, 15, 22, 31]);
        assert_eq!(all(|sample| sample.description.into()), [0, 0, 0, 0, 1]);
        assert_eq!(samples(&table(u32::MAX), 1 << 20).unwrap()[0].shown, -1, "signed");
    }

    #[test]
    fn counts_that_the_file_cannot_hold_take_no_memory() {
        let endless = [
            atom(b"stsz", &[1, u32::MAX]),
            atom(b"stsc", &[1, 1, u32::MAX, 1]),
            atom(b"stco", &[1, 0]),
            atom(b"stts", &[1, u32::MAX, 1]),
        ]
        .concat();
        assert_eq!(samples(&endless, 100).unwrap().len(), 100);
        assert!(samples(&endless, u64::MAX).is_err());
        for missing in [b"stsz", b"stsc", b"stts"] {
            let mut bytes = table(0);
            let at = bytes.windows(4).position(|window| window == missing).unwrap();
            bytes[at] = b'x';
            let message = samples(&bytes, 1000).unwrap_err().named("x", 0).to_string();
            assert!(message.contains(str::from_utf8(missing).unwrap()), "{message}");
        }
        let mut without_chunks = table(0);
        let at = without_chunks.windows(4).position(|window| window == b"stco").unwrap();
        without_chunks[at] = b'x';
        assert!(samples(&without_chunks, 1000).unwrap().is_empty());
    }
}
