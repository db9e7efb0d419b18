//! The boxes of an MP4 file (ISO/IEC 14496-12 and -15) with one video track.

use super::h264::ParameterSets;
use crate::video::{FrameRate, error::EncodeError};

/// What the index of the file says about the frames.
pub(super) struct Movie {
    size: (u16, u16),
    /// Ticks per second, and ticks per frame.
    timescale: u32,
    frame_ticks: u32,
    parameter_sets: ParameterSets,
    lengths: Vec<u32>,
    /// Numbers, from 1, of the frames that a player can start from.
    sync: Vec<u32>,
}

impl Movie {
    pub(super) fn new(size: (u16, u16), rate: FrameRate, parameter_sets: ParameterSets) -> Self {
        // Some players round times to ticks for display: at least a thousand a second keep that out of sight.
        let factor = 1000_u32.div_ceil(rate.numerator());
        Self {
            size,
            timescale: rate.numerator() * factor,
            frame_ticks: rate.denominator() * factor,
            parameter_sets,
            lengths: Vec::new(),
            sync: Vec::new(),
        }
    }

    /// Adds a frame of `length` bytes.
    pub(super) fn push(&mut self, length: u32, is_sync: bool) {
        self.lengths.push(length);
        if is_sync {
            self.sync.push(self.lengths.len() as u32);
        }
    }

    /// Everything before the frames, which are `bytes` long and follow at once.
    pub(super) fn head(&self, bytes: u64) -> Result<Vec<u8>, EncodeError> {
        if u32::try_from(self.lengths.len()).is_err() {
            return Err(EncodeError::Codec("an MP4 file holds at most 2³² frames".into()));
        }
        let mut head = file_type();
        // The index holds the place of the frames, which depends on the length of the index, not on its content.
        let index = self.index(0).len();
        let data_header = data_header(bytes);
        let start = head.len() + index + data_header.len();
        let start =
            u32::try_from(start).map_err(|_| EncodeError::Codec("an index of more than 4 GiB".into()))?;
        head.extend(self.index(start));
        head.extend(data_header);
        Ok(head)
    }

    fn ticks(&self) -> u64 {
        self.lengths.len() as u64 * u64::from(self.frame_ticks)
    }

    fn index(&self, start: u32) -> Vec<u8> {
        container(b"moov", [self.movie_header(), self.track(start)])
    }

    fn movie_header(&self) -> Vec<u8> {
        full_box(b"mvhd", 1, 0, |body| {
            // Creation and change: not recorded, so that the same frames make the same file.
            body.extend([0; 16]);
            body.extend(self.timescale.to_be_bytes());
            body.extend(self.ticks().to_be_bytes());
            body.extend(0x0001_0000_u32.to_be_bytes()); // normal speed
            body.extend(0x0100_u16.to_be_bytes()); // full volume
            body.extend([0; 10]);
            body.extend(IDENTITY.iter().flat_map(|entry| entry.to_be_bytes()));
            body.extend([0; 24]);
            body.extend(2_u32.to_be_bytes()); // the next free track number
        })
    }

    fn track(&self, start: u32) -> Vec<u8> {
        let header = full_box(b"tkhd", 1, 0x3, |body| {
            body.extend([0; 16]);
            body.extend(1_u32.to_be_bytes()); // track number
            body.extend([0; 4]);
            body.extend(self.ticks().to_be_bytes());
            body.extend([0; 16]); // layer, group and volume of a picture
            body.extend(IDENTITY.iter().flat_map(|entry| entry.to_be_bytes()));
            body.extend((u32::from(self.size.0) << 16).to_be_bytes());
            body.extend((u32::from(self.size.1) << 16).to_be_bytes());
        });
        let media_header = full_box(b"mdhd", 1, 0, |body| {
            body.extend([0; 16]);
            body.extend(self.timescale.to_be_bytes());
            body.extend(self.ticks().to_be_bytes());
            body.extend([0x55, 0xC4, 0, 0]); // no language
        });
        let handler = full_box(b"hdlr", 0, 0, |body| {
            body.extend([0; 4]);
            body.extend(b"vide");
            body.extend([0; 12]);
            body.extend(b"Video\0");
        });
        container(b"trak", [header, container(b"mdia", [media_header, handler, self.media(start)])])
    }

    fn media(&self, start: u32) -> Vec<u8> {
        let video_header = full_box(b"vmhd", 0, 1, |body| body.extend([0; 8]));
        let same_file = full_box(b"url ", 0, 1, |_| {});
        let references = full_box(b"dref", 0, 0, |body| {
            body.extend(1_u32.to_be_bytes());
            body.extend(same_file);
        });
        let table = container(b"stbl", self.sample_table(start));
        container(b"minf", [video_header, container(b"dinf", [references]), table])
    }

    fn sample_table(&self, start: u32) -> Vec<Vec<u8>> {
        let count = self.lengths.len() as u32;
        let description = full_box(b"stsd", 0, 0, |body| {
            body.extend(1_u32.to_be_bytes());
            body.extend(self.sample_entry());
        });
        let times = full_box(b"stts", 0, 0, |body| {
            body.extend([1, count, self.frame_ticks].into_iter().flat_map(u32::to_be_bytes));
        });
        let sync = full_box(b"stss", 0, 0, |body| {
            body.extend((self.sync.len() as u32).to_be_bytes());
            body.extend(self.sync.iter().flat_map(|number| number.to_be_bytes()));
        });
        // With one track, all frames are one chunk.
        let chunks = full_box(b"stsc", 0, 0, |body| {
            body.extend([1, 1, count, 1].into_iter().flat_map(u32::to_be_bytes));
        });
        let sizes = full_box(b"stsz", 0, 0, |body| {
            body.extend([0, count].into_iter().flat_map(u32::to_be_bytes));
            body.extend(self.lengths.iter().flat_map(|length| length.to_be_bytes()));
        });
        let offsets = full_box(b"stco", 0, 0, |body| {
            body.extend([1, start].into_iter().flat_map(u32::to_be_bytes));
        });
        vec![description, times, sync, chunks, sizes, offsets]
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
        body.extend(self.decoder_configuration());
        // BT.709 primaries, transfer and matrix, limited range: the same as in the stream.
        body.extend(plain_box(b"colr", b"nclx\0\x01\0\x01\0\x01\0"));
        body.extend(plain_box(b"pasp", &[0, 0, 0, 1, 0, 0, 0, 1]));
        plain_box(b"avc1", &body)
    }

    fn decoder_configuration(&self) -> Vec<u8> {
        let ParameterSets { sequence, picture } = &self.parameter_sets;
        let mut body = vec![1];
        // Profile, compatibility and level stand at the start of the sequence parameter set.
        body.extend((1..4).map(|at| sequence.get(at).copied().unwrap_or_default()));
        body.push(0xFF); // lengths of four bytes
        body.push(0xE1); // one sequence parameter set
        body.extend((sequence.len() as u16).to_be_bytes());
        body.extend(sequence);
        body.push(1);
        body.extend((picture.len() as u16).to_be_bytes());
        body.extend(picture);
        plain_box(b"avcC", &body)
    }
}

/// The picture is shown as it is.
const IDENTITY: [u32; 9] = [0x0001_0000, 0, 0, 0, 0x0001_0000, 0, 0, 0, 0x4000_0000];

fn file_type() -> Vec<u8> {
    plain_box(b"ftyp", b"isom\0\0\x02\0isomiso2avc1mp41")
}

/// The header of the box that holds the frames; a long one has its length in 64 bits.
fn data_header(bytes: u64) -> Vec<u8> {
    match u32::try_from(bytes + 8) {
        Ok(length) => [&length.to_be_bytes()[..], b"mdat"].concat(),
        Err(_) => [&1_u32.to_be_bytes()[..], b"mdat", &(bytes + 16).to_be_bytes()].concat(),
    }
}

fn plain_box(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    // An index is bounded by 4 GiB before it is written, so the length fits wherever the file is kept.
    [&(body.len() as u32 + 8).to_be_bytes()[..], kind, body].concat()
}

fn full_box(kind: &[u8; 4], version: u8, flags: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = vec![version, 0, 0, flags];
    fill(&mut body);
    plain_box(kind, &body)
}

fn container(kind: &[u8; 4], children: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    plain_box(kind, &children.into_iter().flatten().collect::<Vec<u8>>())
}
