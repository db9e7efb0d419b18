//! Samples that are not in the file's index but in pieces of it, each before the samples that it describes: what recorders and browsers write.

use std::{collections::HashMap, fs::File};

use super::{
    super::error::Fault,
    atoms::{self, Place, atoms, find, long, number},
    table::{MAX_SAMPLES, Sample},
    track::Track,
};

/// The samples of all pieces.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    /// By the number of their track.
    tracks: HashMap<u32, Pieces>,
    /// Whether the last piece is cut off.
    pub(super) cut: bool,
}

/// The samples of a track, so far.
#[derive(Debug, Default)]
struct Pieces {
    defaults: Defaults,
    samples: Vec<Sample>,
    /// When the next sample is decoded, in ticks.
    decoded: i64,
}

/// What a sample is unless it says otherwise.
#[derive(Debug, Clone, Copy, Default)]
struct Defaults {
    description: u32,
    ticks: u32,
    length: u32,
}

/// Flags of a piece (`tfhd`) and of a run of samples (`trun`).
mod flags {
    pub(super) const BASE: u32 = 0x1;
    pub(super) const DESCRIPTION: u32 = 0x2;
    pub(super) const TICKS: u32 = 0x8;
    pub(super) const LENGTH: u32 = 0x10;
    pub(super) const RUN_OFFSET: u32 = 0x1;
    pub(super) const RUN_FIRST_FLAGS: u32 = 0x4;
    pub(super) const SAMPLE_TICKS: u32 = 0x100;
    pub(super) const SAMPLE_LENGTH: u32 = 0x200;
    pub(super) const SAMPLE_FLAGS: u32 = 0x400;
    pub(super) const SAMPLE_SHIFT: u32 = 0x800;
}

impl Fragments {
    /// Looks for pieces in a file. Those that are whole count; what is wrong in the others is an error.
    pub(super) fn read(file: &mut File, places: &[Place], index: &[u8]) -> Result<Self, Fault> {
        let mut fragments = Self::default();
        for defaults in atoms(find(index, b"mvex").unwrap_or_default()).filter(|atom| atom.kind == *b"trex") {
            let read = |at: usize| number(defaults.body, at);
            if let (Some(track), Some(description), Some(ticks), Some(length)) =
                (read(4), read(8), read(12), read(16))
            {
                let defaults = Defaults { description, ticks, length };
                fragments.tracks.insert(track, Pieces { defaults, ..Pieces::default() });
            }
        }
        let file_length = file.metadata()?.len();
        for place in places.iter().filter(|place| place.kind == *b"moof") {
            if place.end > file_length {
                fragments.cut = true;
                break;
            }
            let body = atoms::read(file, *place)?;
            for piece in atoms(&body).filter(|atom| atom.kind == *b"traf") {
                fragments.piece(piece.body, place.start, file_length)?;
            }
        }
        Ok(fragments)
    }

    /// Takes the samples of a track.
    pub(super) fn take(&mut self, track: &Track<'_>) -> Vec<Sample> {
        self.tracks.remove(&track.number).map(|pieces| pieces.samples).unwrap_or_default()
    }

    fn piece(&mut self, piece: &[u8], start: u64, file_length: u64) -> Result<(), Fault> {
        let short = || Fault::damaged("a piece of its index is too short");
        let header = find(piece, b"tfhd").ok_or_else(short)?;
        let (set, track) = (number(header, 0).ok_or_else(short)?, number(header, 4).ok_or_else(short)?);
        let Some(pieces) = self.tracks.get_mut(&track) else { return Ok(()) };
        let mut fields = Fields { bytes: header, at: 8 };
        let mut base = start;
        if set & flags::BASE != 0 {
            base = fields.wide().ok_or_else(short)?;
        }
        let mut defaults = pieces.defaults;
        for (flag, value) in [
            (flags::DESCRIPTION, &mut defaults.description),
            (flags::TICKS, &mut defaults.ticks),
            (flags::LENGTH, &mut defaults.length),
        ] {
            if set & flag != 0 {
                *value = fields.next().ok_or_else(short)?;
            }
        }
        if let Some(time) = find(piece, b"tfdt") {
            let wide = time.first() == Some(&1);
            let ticks = if wide { long(time, 4) } else { number(time, 4).map(u64::from) };
            pieces.decoded = i64::try_from(ticks.ok_or_else(short)?).unwrap_or(i64::MAX);
        }
        // A run without a place of its own follows the one before.
        let mut offset = base;
        for run in atoms(piece).filter(|atom| atom.kind == *b"trun") {
            pieces.run(run.body, defaults, base, &mut offset, file_length).ok_or_else(short)?;
        }
        if pieces.samples.len() > MAX_SAMPLES {
            return Err(Fault::damaged(format!("more than {MAX_SAMPLES} samples in a track")));
        }
        Ok(())
    }
}

impl Pieces {
    /// Adds a run of samples; `None` if it is too short.
    fn run(
        &mut self,
        run: &[u8],
        defaults: Defaults,
        base: u64,
        offset: &mut u64,
        file_length: u64,
    ) -> Option<()> {
        let (set, count) = (number(run, 0)?, number(run, 4)?);
        let mut fields = Fields { bytes: run, at: 8 };
        if set & flags::RUN_OFFSET != 0 {
            let shift = fields.next()?.cast_signed();
            *offset = base.checked_add_signed(shift.into())?;
        }
        if set & flags::RUN_FIRST_FLAGS != 0 {
            fields.next()?;
        }
        for _ in 0..count {
            // No sample is empty in a sound file, so there are no more than bytes.
            if self.samples.len() as u64 >= file_length || self.samples.len() > MAX_SAMPLES {
                break;
            }
            let mut field = |flag: u32, default: u32| {
                if set & flag != 0 { fields.next() } else { Some(default) }
            };
            let ticks = field(flags::SAMPLE_TICKS, defaults.ticks)?;
            let length = field(flags::SAMPLE_LENGTH, defaults.length)?;
            field(flags::SAMPLE_FLAGS, 0)?;
            let shift = field(flags::SAMPLE_SHIFT, 0)?.cast_signed();
            self.samples.push(Sample {
                offset: *offset,
                length,
                ticks,
                shown: self.decoded.saturating_add(shift.into()),
                description: defaults.description.saturating_sub(1),
            });
            *offset = offset.saturating_add(length.into());
            self.decoded = self.decoded.saturating_add(ticks.into());
        }
        Some(())
    }
}

/// Numbers of a box, one after another.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn next(&mut self) -> Option<u32> {
        let value = number(self.bytes, self.at)?;
        self.at += 4;
        Some(value)
    }

    fn wide(&mut self) -> Option<u64> {
        let value = long(self.bytes, self.at)?;
        self.at += 8;
        Some(value)
    }
}
