//! The sequence parameter set of H.264 (ISO/IEC 14496-10, 7.3.2.1): what every picture of a stream is.

use super::super::error::Fault;

/// The most macroblocks, of 16×16 pixels, that the decoder takes: a picture of 4096×2304.
const MAX_MACROBLOCKS: u64 = 36_864;

/// What a stream's pictures are, as far as it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
    /// Width and height that are shown.
    pub(super) size: [usize; 2],
    pub(super) full_range: Option<bool>,
    /// The number of the colour matrix (ISO/IEC 23091-2); 2 is unknown.
    pub(super) matrix: Option<u8>,
    /// Where chroma lies; 0 is on the left.
    pub(super) chroma_place: u32,
}

/// Profiles whose sets say how chroma is stored.
const HIGH_PROFILES: [u32; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

impl Sequence {
    /// Pictures of which only the size is known.
    pub(super) fn of_size(width: usize, height: usize) -> Self {
        Sequence { size: [width, height], full_range: None, matrix: None, chroma_place: 0 }
    }

    /// Reads a NAL unit of the kind 7. Refuses, by name, what the decoder does not take.
    pub(super) fn parse(unit: &[u8]) -> Result<Self, Fault> {
        let payload = without_emulation(unit.get(1..).unwrap_or_default());
        let mut bits = Bits { bytes: &payload, at: 0 };
        read(&mut bits).ok_or_else(|| Fault::damaged("its H.264 parameter set is too short"))?
    }
}

/// `None` if the bits end too early, an inner error if they say what is refused.
fn read(bits: &mut Bits<'_>) -> Option<Result<Sequence, Fault>> {
    let profile = bits.take(8)?;
    bits.take(16)?;
    bits.golomb()?;
    if HIGH_PROFILES.contains(&profile)
        && let Err(fault) = high_profile(bits)?
    {
        return Some(Err(fault));
    }
    bits.golomb()?;
    order_of_pictures(bits)?;
    bits.golomb()?;
    bits.take(1)?;
    let across = u64::from(bits.golomb()?) + 1;
    let down = u64::from(bits.golomb()?) + 1;
    if bits.take(1)? == 0 {
        return Some(Err(unsupported("interlaced H.264 video")));
    }
    if across.saturating_mul(down) > MAX_MACROBLOCKS {
        let what =
            format!("H.264 video of {}×{} pixels, more than the decoder takes", across * 16, down * 16);
        return Some(Err(Fault::unsupported(what)
            .with_remedy("ffmpeg -i INPUT -vf scale=1920:-2 -pix_fmt yuv420p -c:a copy OUTPUT.mp4")));
    }
    bits.take(1)?;
    let mut cut = [0; 4];
    if bits.take(1)? == 1 {
        for side in &mut cut {
            *side = u64::from(bits.golomb()?) * 2;
        }
    }
    let shown = |side: u64, cut: u64| side.saturating_mul(16).checked_sub(cut).filter(|side| *side > 0);
    let (Some(width), Some(height)) =
        (shown(across, cut[0].saturating_add(cut[1])), shown(down, cut[2].saturating_add(cut[3])))
    else {
        return Some(Err(Fault::damaged("its H.264 pictures have no pixels")));
    };
    let mut sequence = Sequence::of_size(usize::try_from(width).ok()?, usize::try_from(height).ok()?);
    if bits.take(1)? == 1 {
        // What is missing of it is unknown.
        let _ = usability(bits, &mut sequence);
    }
    Some(Ok(sequence))
}

/// How chroma and depth are stored.
fn high_profile(bits: &mut Bits<'_>) -> Option<Result<(), Fault>> {
    let chroma = bits.golomb()?;
    if chroma != 1 {
        let kind = ["gray", "4:2:0", "4:2:2", "4:4:4"].get(chroma as usize).unwrap_or(&"unknown");
        return Some(Err(unsupported(&format!("H.264 video of the kind {kind}"))));
    }
    let (luma_depth, chroma_depth) = (bits.golomb()?, bits.golomb()?);
    if (luma_depth, chroma_depth) != (0, 0) {
        let depth = u64::from(luma_depth.max(chroma_depth)) + 8;
        return Some(Err(unsupported(&format!("H.264 video of {depth} bits"))));
    }
    bits.take(1)?;
    if bits.take(1)? == 1 {
        for list in 0..8 {
            if bits.take(1)? == 1 {
                scaling_list(bits, if list < 6 { 16 } else { 64 })?;
            }
        }
    }
    Some(Ok(()))
}

fn scaling_list(bits: &mut Bits<'_>, length: usize) -> Option<()> {
    let (mut last, mut next) = (8, 8);
    for _ in 0..length {
        if next != 0 {
            next = (last + bits.signed_golomb()?).rem_euclid(256);
        }
        last = if next == 0 { last } else { next };
    }
    Some(())
}

/// How the order of pictures is stored, which the file's own times replace.
fn order_of_pictures(bits: &mut Bits<'_>) -> Option<()> {
    match bits.golomb()? {
        0 => drop(bits.golomb()?),
        1 => {
            bits.take(1)?;
            bits.golomb()?;
            bits.golomb()?;
            for _ in 0..bits.golomb()?.min(255) {
                bits.golomb()?;
            }
        }
        _ => {}
    }
    Some(())
}

/// Colours and the place of chroma.
fn usability(bits: &mut Bits<'_>, sequence: &mut Sequence) -> Option<()> {
    const EXPLICIT_RATIO: u32 = 255;
    if bits.take(1)? == 1 && bits.take(8)? == EXPLICIT_RATIO {
        bits.take(32)?;
    }
    if bits.take(1)? == 1 {
        bits.take(1)?;
    }
    if bits.take(1)? == 1 {
        bits.take(3)?;
        sequence.full_range = Some(bits.take(1)? == 1);
        if bits.take(1)? == 1 {
            bits.take(16)?;
            sequence.matrix = u8::try_from(bits.take(8)?).ok();
        }
    }
    if bits.take(1)? == 1 {
        sequence.chroma_place = bits.golomb()?;
    }
    Some(())
}

fn unsupported(what: &str) -> Fault {
    Fault::unsupported(what).with_remedy(super::TO_H264)
}

/// The payload of a NAL unit: a 3 after two zeros only keeps them from being a start code.
fn without_emulation(unit: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(unit.len());
    let mut zeros = 0;
    for byte in unit {
        if zeros == 2 && *byte == 3 {
            zeros = 0;
        } else {
            zeros = if *byte == 0 { (zeros + 1).min(2) } else { 0 };
            payload.push(*byte);
        }
    }
    payload
}

/// Bits, the highest of a byte first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    /// At most 32 bits.
    fn take(&mut self, count: usize) -> Option<u32> {
        let mut value = 0;
        for _ in 0..count {
            let byte = *self.bytes.get(self.at / 8)?;
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(value)
    }

    /// An exponential Golomb code.
    fn golomb(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while self.take(1)? == 0 {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        Some((1_u32 << zeros) - 1 + self.take(zeros)?)
    }

    /// The same with a sign: 1, −1, 2, −2 …
    fn signed_golomb(&mut self) -> Option<i64> {
        let code = i64::from(self.golomb()?);
        Some(if code % 2 == 0 { -(code / 2) } else { code / 2 + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_standard() {
        // 1, 010, 011, 00100, 00101, and the signed 00111.
        let mut bits = Bits { bytes: &[0b1010_0110, 0b0100_0010, 0b1001_1100], at: 0 };
        assert_eq!([(); 5].map(|()| bits.golomb()), [Some(0), Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(bits.signed_golomb(), Some(-3));
        assert_eq!(Bits { bytes: &[0; 9], at: 0 }.golomb(), None);
        assert_eq!(Bits { bytes: &[], at: 0 }.take(1), None);
        assert_eq!(without_emulation(&[0, 0, 3, 3, 0, 0, 3, 0, 0, 3, 1, 3]), [0, 0, 3, 0, 0, 0, 0, 1, 3]);
    }

    /// Whatever the bits are, something is said about them.
    #[test]
    fn every_beginning_of_a_set_is_read() {
        let set =
            [0x67, 100, 0, 31, 0xAC, 0xD9, 0x41, 0x41, 0xFB, 1, 0x10, 0, 0, 3, 0, 0x10, 0, 0, 3, 3, 0xC0];
        for length in 0..set.len() {
            let _ = Sequence::parse(&set[..length]);
        }
        for at in 0..set.len() * 8 {
            let mut changed = set;
            changed[at / 8] ^= 1 << (at % 8);
            let _ = Sequence::parse(&changed);
        }
    }
}
