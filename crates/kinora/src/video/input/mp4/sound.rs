//! The sound of a file, as it is copied to another.

use std::{path::Path, sync::Arc};

use super::{
    atoms::{self, Atom, find_in, short},
    fragments::Fragments,
    order::duration,
    table::{self, Sample},
    track::{self, Track},
};
use crate::video::audio::{AudioTrack, Sound, SoundSample};

/// Bytes of a description of sound before its boxes, and those that QuickTime's first version adds.
const PLAIN: usize = 28;
const QUICKTIME: usize = 16;

/// When the pictures begin: in ticks of the movie, which has so many a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beginning {
    pub(super) ticks: u64,
    pub(super) timescale: u32,
}

/// The sound of a file.
pub(super) struct Found {
    /// The first, if it can be copied.
    pub(super) track: Option<AudioTrack>,
    pub(super) notes: Vec<String>,
}

/// Looks for sound. What is wrong with it is a note, since the pictures can be read without.
pub(super) fn find(
    index: &[u8],
    path: &Path,
    file_length: u64,
    pictures: Beginning,
    fragments: &mut Fragments,
) -> Option<Found> {
    let mut tracks = track::tracks(index).filter(|track| track.handler == *b"soun");
    let track = tracks.next()?;
    let mut samples = table::samples(track.table, file_length).unwrap_or_default();
    samples.extend(fragments.take(&track));
    // What is cut off is not copied.
    let inside = |sample: &Sample| sample.offset.saturating_add(sample.length.into()) <= file_length;
    samples.truncate(samples.iter().take_while(|sample| inside(sample)).count());
    let found = read(&track, path, &samples, pictures).filter(|_| !samples.is_empty());
    let mut notes = Vec::new();
    if found.is_none() {
        notes.push("The video's sound is damaged, or of a kind that cannot be copied to an MP4 file.".into());
    }
    if tracks.next().is_some() {
        notes.push("There is more than one sound in the file; only the first can be copied.".into());
    }
    Some(Found { track: found, notes })
}

/// A track of sound with these samples; `None` if an MP4 file cannot hold it.
fn read(track: &Track<'_>, path: &Path, samples: &[Sample], pictures: Beginning) -> Option<AudioTrack> {
    let (codec, entry) = track.descriptions().next().and_then(description)?;
    let edit = track.edit();
    // Where the pictures begin in the sound, if not after a pause.
    let late = pictures.ticks.saturating_sub(edit.delay);
    let pause = edit.delay.saturating_sub(pictures.ticks);
    let into_sound = u128::from(late) * u128::from(track.timescale) / u128::from(pictures.timescale.max(1));
    let skip = edit.start.unsigned_abs().saturating_add(u64::try_from(into_sound).unwrap_or(u64::MAX));
    let samples = samples.iter().map(|sample| SoundSample {
        offset: sample.offset,
        length: sample.length,
        ticks: sample.ticks,
    });
    Some(AudioTrack(Arc::new(Sound {
        path: path.into(),
        codec,
        entry,
        timescale: track.timescale,
        samples: samples.collect(),
        skip,
        delay: duration(pause, pictures.timescale),
    })))
}

/// The kind of sound, and its description as an MP4 file holds it.
fn description(entry: Atom<'_>) -> Option<(&'static str, Vec<u8>)> {
    let codec = match &entry.kind {
        b"mp4a" => "AAC",
        b"ac-3" => "AC-3",
        b"ec-3" => "E-AC-3",
        b"Opus" => "Opus",
        b"fLaC" => "FLAC",
        b"alac" => "ALAC",
        b".mp3" => "MP3",
        _ => return None,
    };
    let version = short(entry.body, 8)?;
    if version == 0 {
        return Some((codec, boxed(entry.kind, entry.body)));
    }
    // QuickTime puts the box that describes AAC into another one, behind fields of its own.
    let boxes = entry.body.get(PLAIN + QUICKTIME..)?;
    let inner = find_in(boxes, &[b"wave", b"esds"]).or_else(|| atoms::find(boxes, b"esds"))?;
    let mut body = entry.body.get(..PLAIN)?.to_vec();
    body[8..16].fill(0);
    body.extend(boxed(*b"esds", inner));
    (version == 1 && codec == "AAC").then(|| (codec, boxed(entry.kind, &body)))
}

fn boxed(kind: [u8; 4], body: &[u8]) -> Vec<u8> {
    // It was a part of an index, which is shorter than 2³².
    [&(body.len() as u32 + 8).to_be_bytes()[..], &kind, body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quicktimes_description_becomes_that_of_an_mp4_file() {
        let esds = boxed(*b"esds", &[0, 0, 0, 0, 3, 1, 7]);
        let wave = boxed(*b"wave", &[boxed(*b"frma", b"mp4a"), esds.clone()].concat());
        let mut body = vec![
            0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 16, 0xFF, 0xFE, 0, 0, 0xAC, 0x44, 0, 0,
        ];
        let mut plain = body.clone();
        body.extend([9; QUICKTIME]);
        body.extend(wave);
        let (codec, entry) = description(Atom { kind: *b"mp4a", body: &body }).unwrap();
        plain[8..16].fill(0);
        plain.extend(esds);
        assert_eq!((codec, entry), ("AAC", boxed(*b"mp4a", &plain)));
        // What is already so stays as it is; what no MP4 file holds is left out.
        let same = description(Atom { kind: *b"mp4a", body: &plain }).unwrap().1;
        assert_eq!(same, boxed(*b"mp4a", &plain));
        assert!(description(Atom { kind: *b"sowt", body: &plain }).is_none());
        assert!(description(Atom { kind: *b"mp4a", body: &body[..40] }).is_none());
    }
}
