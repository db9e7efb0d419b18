//! H.264 in an MP4 or QuickTime file.
//!
//! OpenH264 decodes. It gives every bit that the standard asks for, but for bidirectional pictures: there a few blocks may be off, mostly by
//! less than ten of 255 (temporal and spatial direct prediction and implicit weights, beside ffmpeg's decoder).

mod atoms;
mod description;
mod fragments;
mod openh264;
mod order;
mod sequence;
mod show;
mod sound;
mod table;
mod track;
mod turn;

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::Path,
    sync::Arc,
};

use kinora_models::image::RgbImage;

use super::{
    Decode, Frame, Opened, VideoInfo,
    error::{Fault, zeroed},
};
use description::Description;
use fragments::Fragments;
use openh264::OpenH264;
use order::Schedule;
use sequence::Sequence;
use show::Show;
use sound::Beginning;
use table::Sample;
use track::Track;

/// Converts what ffmpeg reads to what is read here.
const TO_H264: &str = "ffmpeg -i INPUT -c:v libx264 -pix_fmt yuv420p -c:a copy OUTPUT.mp4";

/// The most bytes of a compressed frame: the largest picture without any compression, and room.
const MAX_SAMPLE: u32 = 64 << 20;

/// NAL unit types.
const SLICE: u8 = 1;
const INSTANT_REFRESH: u8 = 5;
const SEQUENCE_SET: u8 = 7;

pub(super) struct Mp4 {
    file: File,
    file_length: u64,
    samples: Vec<Sample>,
    /// Whether there were more samples than the file tells of.
    cut: bool,
    descriptions: Vec<Arc<Description>>,
    /// Which of them the decoder was given.
    described: Option<u32>,
    /// The parameter set in use.
    sequence_unit: Vec<u8>,
    /// Whether there was a picture that a decoder can start from.
    started: bool,
    decoder: OpenH264,
    /// The sample that is decoded next.
    next: usize,
    /// Why there is no other sample, once there is none.
    ending: Option<Result<(), Fault>>,
    show: Show,
}

/// Opens a file: reads its index, and nothing of its pictures.
pub(super) fn open(mut file: File, path: &Path) -> Opened<Mp4> {
    let file_length = file.metadata()?.len();
    let places = atoms::places(&mut file)?;
    let index = atoms::index(&mut file, &places)?;
    let mut fragments = Fragments::read(&mut file, &places, &index)?;
    let videos: Vec<Track<'_>> = track::tracks(&index).filter(|track| track.handler == *b"vide").collect();
    let (track, descriptions) = video(&videos)?;
    let mut samples = table::samples(track.table, file_length)?;
    samples.extend(fragments.take(&track));
    let movie_timescale = track::movie_timescale(&index);
    let edit = track.edit();
    let schedule = Schedule::new(&samples, track.timescale, edit, movie_timescale);
    let turn = track.turn()?;
    let first = &descriptions[0];
    let [width, height] = first.sequence.size;
    RgbImage::check_size(width, height).map_err(|_| Fault::Size([width, height]))?;

    let mut info = VideoInfo::new("MP4", turn.size(first.sequence.size), schedule.timing());
    info.frames = Some(schedule.frames() as u64);
    if let Some((across, down)) = first.ratio {
        info.notes.push(format!(
            "The video's pixels are {across}:{down} and not square; its frames are read pixel by pixel."
        ));
    }
    if edit.more {
        info.notes.push("The video is a list of cuts; only the first of them is read.".into());
    }
    if videos.len() > 1 {
        info.notes.push("There is more than one video in the file; the others are left out.".into());
    }
    let late = schedule.start().saturating_sub(edit.start).max(0).unsigned_abs();
    let late = u128::from(late) * u128::from(movie_timescale) / u128::from(track.timescale);
    let ticks = edit.delay.saturating_add(u64::try_from(late).unwrap_or(u64::MAX));
    let beginning = Beginning { ticks, timescale: movie_timescale };
    if let Some(found) = sound::find(&index, path, file_length, beginning, &mut fragments) {
        (info.has_audio, info.audio) = (true, found.track);
        info.notes.extend(found.notes);
    }

    let show = Show::new(schedule, turn, first);
    let decoder = OpenH264::new()?;
    let mp4 = Mp4 {
        file,
        file_length,
        samples,
        cut: fragments.cut,
        descriptions,
        described: None,
        sequence_unit: Vec::new(),
        started: false,
        decoder,
        next: 0,
        ending: None,
        show,
    };
    Ok((info, mp4))
}

/// The first track that can be decoded, or what is wrong with the first.
fn video<'a>(tracks: &[Track<'a>]) -> Result<(Track<'a>, Vec<Arc<Description>>), Fault> {
    let mut wrong = None;
    for track in tracks {
        let descriptions = track.descriptions().map(|entry| Description::read(entry).map(Arc::new));
        match descriptions.collect::<Result<Vec<_>, Fault>>() {
            Ok(descriptions) if !descriptions.is_empty() => return Ok((*track, descriptions)),
            Ok(_) => wrong = wrong.or(Some(Fault::damaged("its video has no description"))),
            Err(fault) => wrong = wrong.or(Some(fault)),
        }
    }
    Err(wrong.unwrap_or_else(|| Fault::damaged("there is no video in it")))
}

impl Decode for Mp4 {
    fn decode(&mut self) -> Result<Option<Frame>, Fault> {
        loop {
            if let Some(frame) = self.show.next(self.ending.is_some()) {
                return Ok(Some(frame));
            }
            if let Some(ending) = self.ending.take() {
                self.ending = Some(Ok(()));
                return ending.map(|()| None);
            }
            if let Err(fault) = self.decode_sample() {
                self.end(Err(fault))?;
            }
        }
    }
}

impl Mp4 {
    /// The pictures that the decoder still has are shown before the end is said.
    fn end(&mut self, ending: Result<(), Fault>) -> Result<(), Fault> {
        self.ending = Some(ending);
        self.decoder.flush(&mut |picture| self.show.take(picture))
    }

    fn decode_sample(&mut self) -> Result<(), Fault> {
        let Some(sample) = self.samples.get(self.next).copied() else {
            return self.end(if self.cut { Err(Fault::Truncated) } else { Ok(()) });
        };
        let number = self.next as u64;
        self.next += 1;
        if sample.offset.saturating_add(sample.length.into()) > self.file_length {
            return Err(Fault::Truncated);
        }
        if sample.length > MAX_SAMPLE {
            return Err(Fault::damaged(format!("a compressed frame of more than {MAX_SAMPLE} bytes")));
        }
        self.file.seek(SeekFrom::Start(sample.offset))?;
        let mut bytes = zeroed(sample.length as usize)?;
        self.file.read_exact(&mut bytes)?;
        let units = self.units(&bytes, sample.description)?;
        if units.is_empty() {
            return Ok(());
        }
        self.decoder.decode(&units, number, &mut |picture| self.show.take(picture))
    }

    /// The NAL units of a sample behind start codes, and before them the parameter sets if they have changed.
    fn units(&mut self, mut bytes: &[u8], description: u32) -> Result<Vec<u8>, Fault> {
        let number = description;
        let description = self.descriptions.get(number as usize);
        let description =
            Arc::clone(description.ok_or_else(|| Fault::damaged("a frame has no description"))?);
        let mut stream = Vec::with_capacity(bytes.len() + 64);
        if self.described != Some(number) {
            self.described = Some(number);
            for set in &description.sets {
                self.notice(set, &description)?;
                append(&mut stream, set);
            }
        }
        while !bytes.is_empty() {
            let cut = || Fault::damaged("a compressed frame ends within a unit");
            let (length, after) = bytes.split_at_checked(description.length_bytes).ok_or_else(cut)?;
            let length = length.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
            let (unit, after) = after.split_at_checked(length).ok_or_else(cut)?;
            bytes = after;
            if !unit.is_empty() {
                self.notice(unit, &description)?;
                append(&mut stream, unit);
            }
        }
        Ok(stream)
    }

    /// Looks at a unit before the decoder does. A parameter set may change what the pictures are, and is checked before anything is allocated for it.
    fn notice(&mut self, unit: &[u8], description: &Description) -> Result<(), Fault> {
        match unit.first().map(|kind| kind & 0x1F) {
            Some(SEQUENCE_SET) if unit != self.sequence_unit => self.change(unit, description),
            Some(SLICE) if !self.started => {
                let what = "H.264 video that begins in the middle, without a picture to start from (IDR)";
                Err(Fault::unsupported(what).with_remedy(TO_H264))
            }
            Some(INSTANT_REFRESH) => {
                self.started = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn change(&mut self, unit: &[u8], description: &Description) -> Result<(), Fault> {
        let sequence = Sequence::parse(unit)?;
        // The decoder forgets pictures that wait when the size changes.
        self.decoder.flush(&mut |picture| self.show.take(picture))?;
        self.sequence_unit = unit.to_vec();
        self.show.change(description, &sequence);
        Ok(())
    }
}

fn append(stream: &mut Vec<u8>, unit: &[u8]) {
    stream.extend([0, 0, 0, 1]);
    stream.extend_from_slice(unit);
}
