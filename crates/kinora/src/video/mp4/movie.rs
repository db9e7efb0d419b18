//! The index of an MP4 file (ISO/IEC 14496-12 and -15): a video track, and perhaps one of sound.

use std::time::Duration;

use super::{
    audio::AudioCopy,
    boxes::{IDENTITY, container, data_header, file_type, full_box, numbers, plain_box},
    h264::ParameterSets,
    sample_table::{SampleTable, durations},
};
use crate::video::{FrameRate, error::EncodeError};

/// Ticks per second if the frames keep no constant rate: what MPEG's own streams count in.
const VARIABLE_TIMESCALE: u32 = 90_000;
/// How far a frame may be from its place at a constant rate: times come in whole nanoseconds.
const ON_TIME: Duration = Duration::from_micros(1);

/// What the index of the file says about the frames.
pub(super) struct Movie {
    size: (u16, u16),
    rate: FrameRate,
    parameter_sets: ParameterSets,
    table: SampleTable,
    /// When each frame is shown.
    times: Vec<Duration>,
    /// Numbers, from 1, of the frames that a player can start from.
    sync: Vec<u32>,
    /// Whether all frames keep the rate.
    constant: bool,
}

/// What is the same for all boxes of a finished file.
struct Layout {
    timescale: u32,
    /// Ticks of the whole video.
    ticks: u64,
    /// Where the samples begin, and whether that takes 64 bits.
    start: u64,
    long: bool,
}

impl Movie {
    pub(super) fn new(size: (u16, u16), rate: FrameRate, parameter_sets: ParameterSets) -> Self {
        Self {
            size,
            rate,
            parameter_sets,
            table: SampleTable::default(),
            times: Vec::new(),
            sync: Vec::new(),
            constant: true,
        }
    }

    /// Adds a frame of `length` bytes that is shown at `time`, later than the frame before it.
    pub(super) fn push(&mut self, offset: u64, length: u32, is_sync: bool, time: Duration) {
        let expected = self.rate.time_of(self.times.len() as u64);
        self.constant &= time.abs_diff(expected) <= ON_TIME;
        self.times.push(time);
        self.table.push(offset, length);
        if is_sync {
            self.sync.push(self.table.count() as u32);
        }
    }

    /// Everything before the samples, which are `bytes` long and follow at once. The last frame is shown until `end`.
    pub(super) fn head(
        &self,
        bytes: u64,
        end: Duration,
        audio: Option<&AudioCopy>,
    ) -> Result<Vec<u8>, EncodeError> {
        let samples = audio.map_or(0, |audio| audio.table().count()).max(self.table.count());
        if u32::try_from(samples).is_err() {
            return Err(EncodeError::Codec("an MP4 file holds at most 2³² frames".into()));
        }
        let (timescale, frame_ticks) = self.timescale();
        let ticks = if self.constant {
            self.times.len() as u64 * u64::from(frame_ticks)
        } else {
            in_ticks(end, timescale)
        };
        let mut head = file_type();
        let data_header = data_header(bytes);
        // The index holds the place of the samples, which depends on the length of the index, not on its content.
        let mut layout = Layout { timescale, ticks, start: 0, long: false };
        for long in [false, true] {
            layout.long = long;
            layout.start = (head.len() + self.index(&layout, audio).len() + data_header.len()) as u64;
            if u32::try_from(layout.start + bytes).is_ok() {
                break;
            }
        }
        let index = self.index(&layout, audio);
        u32::try_from(index.len()).map_err(|_| EncodeError::Codec("an index of more than 4 GiB".into()))?;
        head.extend(index);
        head.extend(data_header);
        Ok(head)
    }

    /// Ticks per second, and ticks per frame at a constant rate.
    fn timescale(&self) -> (u32, u32) {
        if !self.constant {
            return (VARIABLE_TIMESCALE, 0);
        }
        // Some players round times to ticks for display: at least a thousand a second keep that out of sight.
        let factor = 1000_u32.div_ceil(self.rate.numerator());
        (self.rate.numerator() * factor, self.rate.denominator().saturating_mul(factor))
    }

    fn index(&self, layout: &Layout, audio: Option<&AudioCopy>) -> Vec<u8> {
        let tracks = [self.movie_header(layout, audio), self.track(layout)];
        let sound = audio.map(|audio| audio.track(layout.timescale, layout.start, layout.long));
        container(b"moov", tracks.into_iter().chain(sound))
    }

    fn movie_header(&self, layout: &Layout, audio: Option<&AudioCopy>) -> Vec<u8> {
        let sound = audio.map_or(0, |audio| audio.ticks(layout.timescale));
        full_box(b"mvhd", 1, 0, |body| {
            // Creation and change: not recorded, so that the same frames make the same file.
            body.extend([0; 16]);
            body.extend(layout.timescale.to_be_bytes());
            body.extend(layout.ticks.max(sound).to_be_bytes());
            body.extend(0x0001_0000_u32.to_be_bytes()); // normal speed
            body.extend(0x0100_u16.to_be_bytes()); // full volume
            body.extend([0; 10]);
            numbers(body, IDENTITY);
            body.extend([0; 24]);
            body.extend(if audio.is_some() { 3_u32 } else { 2 }.to_be_bytes()); // the next free track number
        })
    }

    fn track(&self, layout: &Layout) -> Vec<u8> {
        let header = full_box(b"tkhd", 1, 0x3, |body| {
            body.extend([0; 16]);
            body.extend(1_u32.to_be_bytes()); // track number
            body.extend([0; 4]);
            body.extend(layout.ticks.to_be_bytes());
            body.extend([0; 16]); // layer, group and volume of a picture
            numbers(body, IDENTITY);
            body.extend((u32::from(self.size.0) << 16).to_be_bytes());
            body.extend((u32::from(self.size.1) << 16).to_be_bytes());
        });
        let video_header = full_box(b"vmhd", 0, 1, |body| body.extend([0; 8]));
        let media = media(
            Media { timescale: layout.timescale, ticks: layout.ticks, handler: b"vide", name: b"Video\0" },
            video_header,
            self.sample_table(layout),
        );
        container(b"trak", [header, media])
    }

    fn sample_table(&self, layout: &Layout) -> Vec<Vec<u8>> {
        let description = full_box(b"stsd", 0, 0, |body| {
            body.extend(1_u32.to_be_bytes());
            body.extend(self.sample_entry());
        });
        let sync = full_box(b"stss", 0, 0, |body| {
            body.extend((self.sync.len() as u32).to_be_bytes());
            numbers(body, self.sync.iter().copied());
        });
        let mut boxes = vec![description, self.durations(layout), sync];
        boxes.extend(self.table.places(layout.start, layout.long));
        boxes
    }

    fn durations(&self, layout: &Layout) -> Vec<u8> {
        if self.constant {
            let (_, frame_ticks) = self.timescale();
            return durations(self.times.iter().map(|_| frame_ticks));
        }
        let starts = self.times.iter().map(|time| in_ticks(*time, layout.timescale));
        let ends = starts.clone().skip(1).chain([layout.ticks]);
        durations(
            starts.zip(ends).map(|(start, end)| u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX)),
        )
    }

    fn sample_entry(&self) -> Vec<u8> {
        let mut body = vec![0; 6];
        body.extend(1_u16.to_be_bytes()); // the first data reference
        body.extend([0; 16]);
        body.extend(self.size.0.to_be_bytes());
        body.extend(self.size.1.to_be_bytes());
        body.extend([0, 0x48, 0, 0, 0, 0x48, 0, 0]); // 72 dots per inch, as every writer says
        body.extend([0; 4]);
        body.extend(1_u16.to_be_bytes()); // one frame in a sample
        body.extend([0; 32]); // no compressor name
        body.extend([0, 24, 0xFF, 0xFF]); // colour without alpha, no palette
        body.extend(self.parameter_sets.decoder_configuration());
        // BT.709 primaries, transfer and matrix, limited range: the same as in the stream.
        body.extend(plain_box(b"colr", b"nclx\0\x01\0\x01\0\x01\0"));
        body.extend(plain_box(b"pasp", &[0, 0, 0, 1, 0, 0, 0, 1]));
        plain_box(b"avc1", &body)
    }
}

/// What the media of a track is.
pub(super) struct Media {
    pub(super) timescale: u32,
    pub(super) ticks: u64,
    pub(super) handler: &'static [u8; 4],
    pub(super) name: &'static [u8],
}

/// The box around the samples' description.
pub(super) fn media(media: Media, kind_header: Vec<u8>, sample_table: Vec<Vec<u8>>) -> Vec<u8> {
    let media_header = full_box(b"mdhd", 1, 0, |body| {
        body.extend([0; 16]);
        body.extend(media.timescale.to_be_bytes());
        body.extend(media.ticks.to_be_bytes());
        body.extend([0x55, 0xC4, 0, 0]); // no language
    });
    let handler = full_box(b"hdlr", 0, 0, |body| {
        body.extend([0; 4]);
        body.extend(media.handler);
        body.extend([0; 12]);
        body.extend(media.name);
    });
    let same_file = full_box(b"url ", 0, 1, |_| {});
    let references = full_box(b"dref", 0, 0, |body| {
        body.extend(1_u32.to_be_bytes());
        body.extend(same_file);
    });
    let table = container(b"stbl", sample_table);
    let information = container(b"minf", [kind_header, container(b"dinf", [references]), table]);
    container(b"mdia", [media_header, handler, information])
}

/// A time in ticks, rounded to the nearest.
pub(super) fn in_ticks(time: Duration, timescale: u32) -> u64 {
    let ticks = (time.as_nanos() * u128::from(timescale) + 500_000_000) / 1_000_000_000;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}
