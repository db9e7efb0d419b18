//! The description of a track's samples: the codec, and what its decoder must know first.

use kinora_outside::printable;

use super::{
    super::error::Fault,
    atoms::{Atom, find, number, short},
    sequence::Sequence,
};
use crate::video::ycbcr::{BT601, BT709, BT2020, Colours, Matrix};

/// Bytes of a visual description before its boxes.
const VISUAL: usize = 78;

/// H.264 as a description hands it over (ISO/IEC 14496-15).
#[derive(Debug, Clone)]
pub(super) struct Description {
    /// How many bytes the length of a NAL unit has.
    pub(super) length_bytes: usize,
    /// The parameter sets.
    pub(super) sets: Vec<Vec<u8>>,
    pub(super) sequence: Sequence,
    /// The colours that the container says: the number of the matrix, and whether the range is full.
    colours: Option<(u16, bool)>,
    /// What a pixel's width is to its height, if that is not 1:1.
    pub(super) ratio: Option<(u32, u32)>,
}

impl Description {
    /// Reads a description; refuses other codecs by name.
    pub(super) fn read(entry: Atom<'_>) -> Result<Self, Fault> {
        if !matches!(&entry.kind, b"avc1" | b"avc3") {
            return Err(unsupported(&format!("a video of the kind {}", codec(entry.kind))));
        }
        let boxes = entry.body.get(VISUAL..).unwrap_or_default();
        let configuration =
            find(boxes, b"avcC").ok_or_else(|| Fault::damaged("its H.264 has no description"))?;
        let (length_bytes, sets) = parameter_sets(configuration)
            .ok_or_else(|| Fault::damaged("the description of its H.264 is too short"))?;
        let sequence = match sets.iter().find(|set| set.first().is_some_and(|kind| kind & 0x1F == 7)) {
            Some(set) => Sequence::parse(set)?,
            // The sets are among the frames.
            None => Sequence::of_size(
                short(entry.body, 24).unwrap_or_default().into(),
                short(entry.body, 26).unwrap_or_default().into(),
            ),
        };
        let ratio = find(boxes, b"pasp").and_then(|body| Some((number(body, 0)?, number(body, 4)?)));
        Ok(Self {
            length_bytes,
            sequence,
            colours: find(boxes, b"colr").and_then(colours),
            ratio: ratio.filter(|(across, down)| across != down && *across > 0 && *down > 0),
            sets,
        })
    }

    /// What the numbers of a stream's pictures mean. What neither stream nor container says follows from the size, as in players.
    pub(super) fn colours(&self, sequence: &Sequence) -> Colours {
        let said = |number: u16| match number {
            1 => Some(BT709),
            4..=6 => Some(BT601),
            9 | 10 => Some(BT2020),
            _ => None,
        };
        let of_stream = sequence.matrix.and_then(|number| said(number.into()));
        let of_container = self.colours.and_then(|(number, _)| said(number));
        let [width, height] = sequence.size;
        let by_size: Matrix = if width >= 1280 || height > 576 { BT709 } else { BT601 };
        let full_range = sequence.full_range.or(self.colours.map(|(_, full)| full));
        Colours {
            matrix: of_stream.or(of_container).unwrap_or(by_size),
            full_range: full_range.unwrap_or(false),
        }
    }
}

/// The bytes of a length, and the sets, of an `avcC` box.
fn parameter_sets(configuration: &[u8]) -> Option<(usize, Vec<Vec<u8>>)> {
    let length_bytes = usize::from(configuration.get(4)? & 3) + 1;
    let mut rest = configuration.get(5..)?;
    let mut sets = Vec::new();
    for mask in [0x1F, 0xFF] {
        let (count, after) = rest.split_first()?;
        rest = after;
        for _ in 0..count & mask {
            let length = usize::from(short(rest, 0)?);
            sets.push(rest.get(2..2 + length)?.to_vec());
            rest = &rest[2 + length..];
        }
    }
    Some((length_bytes, sets))
}

/// Matrix and range of a `colr` box.
fn colours(body: &[u8]) -> Option<(u16, bool)> {
    match body.first_chunk()? {
        b"nclx" => Some((short(body, 8)?, body.get(10)? & 0x80 != 0)),
        // QuickTime's has no range.
        b"nclc" => Some((short(body, 8)?, false)),
        _ => None,
    }
}

/// A codec's name as people know it.
fn codec(kind: [u8; 4]) -> String {
    let name = match &kind {
        b"hvc1" | b"hev1" => "HEVC (H.265)",
        b"av01" => "AV1",
        b"vp08" => "VP8",
        b"vp09" => "VP9",
        b"vvc1" | b"vvi1" => "VVC (H.266)",
        b"dvh1" | b"dvhe" => "Dolby Vision",
        b"mp4v" => "MPEG-4 Part 2",
        b"s263" | b"h263" => "H.263",
        b"jpeg" | b"mjpa" | b"mjpb" | b"mjpg" => "Motion JPEG",
        b"apcn" | b"apch" | b"apcs" | b"apco" | b"ap4h" | b"ap4x" => "ProRes",
        b"encv" => "encrypted video",
        other => return printable(&String::from_utf8_lossy(other)).into_owned(),
    };
    name.into()
}

fn unsupported(what: &str) -> Fault {
    Fault::unsupported(what).with_remedy(super::TO_H264)
}
