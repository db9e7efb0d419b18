//! A track: what it is, when it begins, and how its pictures are turned.

use super::{
    super::error::Fault,
    atoms::{Atom, atoms, entries, find, find_in, long, need, number},
    turn::Turn,
};

/// A track of the index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Track<'a> {
    trak: &'a [u8],
    /// Its number, by which pieces of the index call it.
    pub(super) number: u32,
    /// `vide`, `soun` or another.
    pub(super) handler: [u8; 4],
    /// Ticks per second.
    pub(super) timescale: u32,
    /// The table of its samples.
    pub(super) table: &'a [u8],
}

/// What of a track is shown, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Edit {
    /// How long nothing is shown first, in ticks of the movie.
    pub(super) delay: u64,
    /// The first tick of the track that is shown.
    pub(super) start: i64,
    /// How long it is shown, in ticks of the movie; `None` is to the end.
    pub(super) duration: Option<u64>,
    /// Whether the track goes on in another way afterwards.
    pub(super) more: bool,
}

/// The tracks of an index.
pub(super) fn tracks(index: &[u8]) -> impl Iterator<Item = Track<'_>> {
    atoms(index).filter(|atom| atom.kind == *b"trak").filter_map(|atom| Track::read(atom.body).ok())
}

/// Ticks of the movie per second.
pub(super) fn movie_timescale(index: &[u8]) -> u32 {
    let header = find(index, b"mvhd").unwrap_or_default();
    let at = if header.first() == Some(&1) { 20 } else { 12 };
    number(header, at).filter(|scale| *scale > 0).unwrap_or(1000)
}

impl<'a> Track<'a> {
    fn read(trak: &'a [u8]) -> Result<Self, Fault> {
        let handler = need(trak, &[b"mdia", b"hdlr"])?;
        let media = need(trak, &[b"mdia", b"mdhd"])?;
        let at = if media.first() == Some(&1) { 20 } else { 12 };
        let header = need(trak, &[b"tkhd"])?;
        let number_at = if header.first() == Some(&1) { 20 } else { 12 };
        let short = || Fault::damaged("a header of a track is too short");
        Ok(Self {
            trak,
            number: number(header, number_at).ok_or_else(short)?,
            handler: *handler.get(8..).and_then(<[u8]>::first_chunk).ok_or_else(short)?,
            timescale: number(media, at).filter(|scale| *scale > 0).ok_or_else(short)?,
            table: need(trak, &[b"mdia", b"minf", b"stbl"])?,
        })
    }

    /// The descriptions of its samples.
    pub(super) fn descriptions(&self) -> impl Iterator<Item = Atom<'a>> {
        atoms(find(self.table, b"stsd").and_then(|body| body.get(8..)).unwrap_or_default())
    }

    /// How its pictures are turned; an error if in no way that is known.
    pub(super) fn turn(&self) -> Result<Turn, Fault> {
        let header = find(self.trak, b"tkhd").unwrap_or_default();
        let at = if header.first() == Some(&1) { 52 } else { 40 };
        let entry = |place: usize| number(header, at + 4 * place).map(u32::cast_signed);
        match [entry(0), entry(1), entry(3), entry(4)] {
            [Some(a), Some(b), Some(c), Some(d)] => Turn::from_matrix([a, b, c, d]),
            _ => Ok(Turn::NONE),
        }
    }

    /// What of it is shown.
    pub(super) fn edit(&self) -> Edit {
        let Some(list) = find_in(self.trak, &[b"edts", b"elst"]) else { return Edit::default() };
        let edits: Vec<(u64, i64)> = if list.first() == Some(&1) {
            let read = |entry: &[u8; 20]| Some((long(entry, 0)?, long(entry, 8)?.cast_signed()));
            entries::<20>(list).iter().filter_map(read).collect()
        } else {
            let read =
                |entry: &[u8; 12]| Some((number(entry, 0)?.into(), number(entry, 4)?.cast_signed().into()));
            entries::<12>(list).iter().filter_map(read).collect()
        };
        let mut edit = Edit::default();
        for (at, (duration, start)) in edits.iter().enumerate() {
            // A negative start is a pause.
            if *start < 0 {
                edit.delay = edit.delay.saturating_add(*duration);
            } else {
                edit.start = *start;
                edit.duration = Some(*duration).filter(|duration| *duration > 0);
                edit.more = at + 1 < edits.len();
                break;
            }
        }
        edit
    }
}
