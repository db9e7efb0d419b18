//! Frames to the samples of an H.264 track.

use std::time::Duration;

use super::{
    boxes::plain_box,
    openh264::{OpenH264, Settings},
};
use crate::video::{
    FrameRate, RgbImage,
    error::EncodeError,
    ycbcr::{self, even_size},
};

/// Seconds between frames that a player can start from.
const SECONDS_TO_SYNC: f64 = 2.0;

/// What the profile and the encoder can hold.
const BOUNDS: &str = "16×16 to 3840×2160 pixels, or upright";

/// NAL unit types.
const INSTANT_REFRESH: u8 = 5;
const SEQUENCE_SET: u8 = 7;
const PICTURE_SET: u8 = 8;

/// What a decoder must know before the first frame.
#[derive(Debug, Clone)]
pub(super) struct ParameterSets {
    pub(super) sequence: Vec<u8>,
    pub(super) picture: Vec<u8>,
}

impl ParameterSets {
    /// The box that hands them to a decoder.
    pub(super) fn decoder_configuration(&self) -> Vec<u8> {
        let ParameterSets { sequence, picture } = self;
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

/// One compressed frame.
pub(super) struct Sample {
    /// Its NAL units, each after its length in four bytes.
    pub(super) data: Vec<u8>,
    /// Whether a player can start here.
    pub(super) is_sync: bool,
    /// The coded size, which is even.
    pub(super) size: (u16, u16),
    /// Present with the frames that a player can start from.
    pub(super) parameter_sets: Option<ParameterSets>,
}

/// Compresses frames at a constant quality.
pub(super) struct H264Encoder {
    rate: FrameRate,
    quality: u8,
    /// Made for the size of the first frame.
    encoder: Option<OpenH264>,
}

impl H264Encoder {
    pub(super) fn new(rate: FrameRate, quality: u8) -> Self {
        Self { rate, quality, encoder: None }
    }

    pub(super) fn encode(&mut self, frame: &RgbImage, time: Duration) -> Result<Sample, EncodeError> {
        let (width, height) = even_size(frame);
        let (longer, shorter) = (width.max(height), width.min(height));
        if !(16..=2160).contains(&shorter) || longer > 3840 {
            let (width, height) = (frame.width(), frame.height());
            return Err(EncodeError::UnsupportedSize { format: "MP4", width, height, bounds: BOUNDS });
        }
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            None => {
                let rate = self.rate.as_f64();
                self.encoder.insert(OpenH264::new(Settings {
                    width,
                    height,
                    rate: rate as f32,
                    quantiser: quantiser(self.quality),
                    sync_interval: (rate * SECONDS_TO_SYNC).ceil() as u32,
                })?)
            }
        };
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let stream = encoder.encode(&mut ycbcr::BT709.half(frame), milliseconds)?;
        // Both fit: 3840 is the largest.
        sample(&stream, (width as u16, height as u16))
    }
}

/// H.264's quantiser for a quality: 51 at 1, 20 at 80, 12 at 100. Finer ones only store the rounding of the colours.
fn quantiser(quality: u8) -> u8 {
    let quality = u16::from(quality.clamp(1, 100));
    (51 - (quality - 1) * 39 / 99) as u8
}

/// Takes a stream with start codes (`0 0 1` or `0 0 0 1` before every unit) apart.
fn sample(stream: &[u8], size: (u16, u16)) -> Result<Sample, EncodeError> {
    let mut sample = Sample { data: Vec::new(), is_sync: false, size, parameter_sets: None };
    let (mut sequence, mut picture) = (None, None);
    for unit in units(stream) {
        match unit[0] & 0x1F {
            SEQUENCE_SET => sequence = Some(unit.to_vec()),
            PICTURE_SET => picture = Some(unit.to_vec()),
            kind => {
                sample.is_sync |= kind == INSTANT_REFRESH;
                // A unit is part of a frame, whose length has been bounded by the encoder's output.
                sample.data.extend((unit.len() as u32).to_be_bytes());
                sample.data.extend_from_slice(unit);
            }
        }
    }
    if sample.data.is_empty() {
        return Err(EncodeError::Codec("it produced nothing for the frame".into()));
    }
    if let (Some(sequence), Some(picture)) = (sequence, picture) {
        sample.parameter_sets = Some(ParameterSets { sequence, picture });
    }
    Ok(sample)
}

/// The NAL units between start codes, without empty ones.
fn units(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts: Vec<usize> =
        stream.windows(3).enumerate().filter(|(_, window)| *window == [0, 0, 1]).map(|(at, _)| at).collect();
    let ends = starts.clone().into_iter().skip(1).chain([stream.len()]);
    let units = starts.into_iter().zip(ends).map(|(start, end)| &stream[start + 3..end]);
    // A fourth zero belongs to the next start code; a unit never ends in zero.
    units.map(without_end_zeros).filter(|unit| !unit.is_empty())
}

fn without_end_zeros(bytes: &[u8]) -> &[u8] {
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_lie_between_start_codes_of_either_length() {
        let stream = [0, 0, 0, 1, 0x67, 1, 2, 0, 0, 1, 0x68, 3, 0, 0, 0, 1, 0x65, 0, 0, 3, 1];
        let found: Vec<&[u8]> = units(&stream).collect();
        assert_eq!(found, [&[0x67, 1, 2][..], &[0x68, 3], &[0x65, 0, 0, 3, 1]]);
        assert_eq!(units(&[]).count(), 0);
    }

    #[test]
    fn quality_spans_what_the_encoder_takes() {
        assert_eq!([1, 80, 100].map(quantiser), [51, 20, 12]);
    }
}
