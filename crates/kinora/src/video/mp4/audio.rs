//! Sound that is copied from another file, as it is.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    time::Duration,
};

use super::{
    boxes::{IDENTITY, container, full_box, numbers},
    movie::{Media, in_ticks, media},
    sample_table::{SampleTable, durations},
};
use crate::video::audio::{AudioTrack, Sound};

/// A track of sound, up to what has been copied of it.
pub(super) struct AudioCopy {
    track: AudioTrack,
    file: File,
    table: SampleTable,
    /// Ticks of what was copied.
    ticks: u64,
}

impl AudioCopy {
    pub(super) fn open(track: AudioTrack) -> io::Result<Self> {
        let file = kinora_outside::open(&track.0.path)?;
        Ok(Self { track, file, table: SampleTable::default(), ticks: 0 })
    }

    /// The samples that were copied.
    pub(super) fn table(&self) -> &SampleTable {
        &self.table
    }

    /// Copies what begins before a time of the video to `sink`, whose next byte is at `position`.
    pub(super) fn copy_until(
        &mut self,
        time: Duration,
        sink: &mut impl Write,
        position: &mut u64,
    ) -> io::Result<()> {
        let Sound { timescale, samples, skip, delay, .. } = &*self.track.0;
        let end = skip.saturating_add(in_ticks(time.saturating_sub(*delay), *timescale));
        for sample in &samples[self.table.count()..] {
            if self.ticks >= end || time <= *delay {
                break;
            }
            self.file.seek(SeekFrom::Start(sample.offset))?;
            let copied = io::copy(&mut (&self.file).take(sample.length.into()), sink)?;
            if copied != u64::from(sample.length) {
                return Err(io::Error::other("the file with the sound has become shorter"));
            }
            self.table.push(*position, sample.length);
            self.ticks += u64::from(sample.ticks);
            *position += copied;
        }
        Ok(())
    }

    /// How long it is heard, with the silence before it, in ticks of the whole file.
    pub(super) fn ticks(&self, movie_timescale: u32) -> u64 {
        self.heard(movie_timescale) + in_ticks(self.track.0.delay, movie_timescale)
    }

    fn heard(&self, movie_timescale: u32) -> u64 {
        let Sound { timescale, skip, .. } = &*self.track.0;
        let ticks = u128::from(self.ticks.saturating_sub(*skip)) * u128::from(movie_timescale);
        u64::try_from(ticks / u128::from((*timescale).max(1))).unwrap_or(u64::MAX)
    }

    /// The box of the track. Its samples begin at `start`, and `long` offsets have 64 bits.
    pub(super) fn track(&self, movie_timescale: u32, start: u64, long: bool) -> Vec<u8> {
        let Sound { timescale, samples, entry, .. } = &*self.track.0;
        let header = full_box(b"tkhd", 1, 0x3, |body| {
            body.extend([0; 16]);
            body.extend(2_u32.to_be_bytes()); // track number
            body.extend([0; 4]);
            body.extend(self.ticks(movie_timescale).to_be_bytes());
            body.extend([0; 12]); // layer and group
            body.extend([1, 0, 0, 0]); // full volume
            numbers(body, IDENTITY);
            body.extend([0; 8]); // no size
        });
        let sound_header = full_box(b"smhd", 0, 0, |body| body.extend([0; 4]));
        let description = full_box(b"stsd", 0, 0, |body| {
            body.extend(1_u32.to_be_bytes());
            body.extend(entry);
        });
        let copied = &samples[..self.table.count()];
        let mut table = vec![description, durations(copied.iter().map(|sample| sample.ticks))];
        table.extend(self.table.places(start, long));
        let what = Media { timescale: *timescale, ticks: self.ticks, handler: b"soun", name: b"Sound\0" };
        let media = media(what, sound_header, table);
        container(b"trak", [header, self.edits(movie_timescale), media])
    }

    /// The box that says what is heard when: the silence before it, and what is left out at its beginning.
    fn edits(&self, movie_timescale: u32) -> Vec<u8> {
        let Sound { skip, delay, .. } = &*self.track.0;
        let silence = in_ticks(*delay, movie_timescale);
        let list = full_box(b"elst", 1, 0, |body| {
            numbers(body, [1 + u32::from(silence > 0)]);
            if silence > 0 {
                body.extend(silence.to_be_bytes());
                body.extend((-1_i64).to_be_bytes());
                body.extend([0, 1, 0, 0]);
            }
            body.extend(self.heard(movie_timescale).to_be_bytes());
            body.extend(skip.to_be_bytes());
            body.extend([0, 1, 0, 0]);
        });
        container(b"edts", [list])
    }
}
