//! The first line of a Y4M file.

use kinora_models::image::RgbImage;
use kinora_outside::{printable, shortened};

use super::{super::error::Fault, BETWEEN, FULL, HALF, LEFT, TOP_LEFT};
use crate::video::{FrameRate, ycbcr::Place};

/// What the planes of a frame are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sampling {
    /// Luma alone.
    Mono,
    /// Luma and chroma, and where the chroma's samples lie.
    Colour { across: Place, down: Place },
}

/// What the line says.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) size: [usize; 2],
    /// `None` if it says that it does not know.
    pub(super) rate: Option<FrameRate>,
    pub(super) sampling: Sampling,
    pub(super) full_range: bool,
    pub(super) notes: Vec<String>,
}

impl Header {
    /// Reads the line: the format's name, then words that begin with a letter for what they say.
    pub(super) fn parse(line: &[u8]) -> Result<Self, Fault> {
        let text = std::str::from_utf8(line).map_err(|_| Fault::damaged("its header is not text"))?;
        let mut words = text.split(' ');
        if words.next() != Some("YUV4MPEG2") {
            return Err(Fault::damaged("its header does not begin with YUV4MPEG2"));
        }
        let (mut width, mut height) = (None, None);
        let mut header =
            Header { size: [0; 2], rate: None, sampling: BETWEEN, full_range: false, notes: Vec::new() };
        for word in words.filter(|word| !word.is_empty()) {
            let value = word.get(1..).ok_or_else(|| unclear(word))?;
            match word.as_bytes()[0] {
                b'W' => width = Some(value.parse().map_err(|_| unclear(word))?),
                b'H' => height = Some(value.parse().map_err(|_| unclear(word))?),
                b'F' => header.rate = rate(value).ok_or_else(|| unclear(word))?,
                b'C' => header.sampling = sampling(value)?,
                b'I' if !matches!(value, "p" | "?") => header.notes.push(INTERLACED.into()),
                b'A' if !is_square(value) => header.notes.push(not_square(value)),
                b'X' if value == "COLORRANGE=FULL" => header.full_range = true,
                _ => {}
            }
        }
        let missing = || Fault::damaged("its header says no width or no height");
        header.size = [width.ok_or_else(missing)?, height.ok_or_else(missing)?];
        RgbImage::check_size(header.size[0], header.size[1]).map_err(|_| Fault::Size(header.size))?;
        Ok(header)
    }
}

const INTERLACED: &str = "The video is interlaced; its frames are read as they are. Remove the lines first with ffmpeg -i INPUT -vf yadif \
     OUTPUT.y4m.";

fn not_square(ratio: &str) -> String {
    format!("The video's pixels are {ratio} and not square; its frames are read pixel by pixel.")
}

/// A rate such as `30000:1001`. One that nobody plays counts as unknown; `None` if it is no rate at all.
fn rate(value: &str) -> Option<Option<FrameRate>> {
    let (frames, seconds) = value.split_once(':')?;
    Some(FrameRate::from_fraction(frames.parse().ok()?, seconds.parse().ok()?).ok())
}

fn is_square(ratio: &str) -> bool {
    let Some((across, down)) = ratio.split_once(':') else { return true };
    // 0:0 is unknown.
    across == down || !across.bytes().chain(down.bytes()).all(|byte| byte.is_ascii_digit())
}

fn sampling(name: &str) -> Result<Sampling, Fault> {
    match name {
        "420jpeg" | "420" => Ok(BETWEEN),
        "420mpeg2" => Ok(LEFT),
        "420paldv" => Ok(TOP_LEFT),
        "422" => Ok(HALF),
        "444" => Ok(FULL),
        "mono" => Ok(Sampling::Mono),
        other => Err(Fault::unsupported(format!("Y4M of the kind C{}", shown(other)))
            .with_remedy("ffmpeg -i INPUT -pix_fmt yuv420p OUTPUT.y4m")),
    }
}

fn unclear(word: &str) -> Fault {
    Fault::damaged(format!("its header says `{}`", shown(word)))
}

fn shown(word: &str) -> String {
    printable(&shortened(word, 40)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_what_the_frames_are() {
        let header = Header::parse(b"YUV4MPEG2 W31 H17 F30000:1001 It A16:15 C420paldv XFOO").unwrap();
        assert_eq!((header.size, header.sampling), ([31, 17], TOP_LEFT));
        assert_eq!(header.rate, FrameRate::new(29.97).ok());
        assert!(header.notes.len() == 2 && header.notes[0].contains("interlaced"), "{:?}", header.notes);
        assert!(header.notes[1].contains("16:15"), "{:?}", header.notes);
        let plain = Header::parse(b"YUV4MPEG2 H1  W1 F0:0 Ip A0:0 XCOLORRANGE=FULL").unwrap();
        assert_eq!((plain.rate, plain.sampling, plain.full_range), (None, BETWEEN, true));
        assert!(plain.notes.is_empty());
        assert!(!Header::parse(b"YUV4MPEG2 W1 H1 A1:1 C444").unwrap().full_range);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, words) in [
            (&b"YUV4MPEG2"[..], "no width"),
            (b"YUV4MPEG2 W5", "no height"),
            (b"YUV4MPEG2 W5 H-5", "`H-5`"),
            (b"YUV4MPEG2 W99999999999999999999 H5", "`W9"),
            (b"YUV4MPEG2 W5 H5 F25", "`F25`"),
            (b"YUV4MPEG2 W5 H5 \xFF", "not text"),
            (b"YUV4MPEG3 W5 H5", "YUV4MPEG2"),
            (b"YUV4MPEG2 W5 H5 C420p10", "C420p10"),
            (b"YUV4MPEG2 W5 H5 C444alpha", "C444alpha"),
            (b"YUV4MPEG2 W5 H5 C411", "C411"),
            (b"YUV4MPEG2 W0 H5", "0×5"),
            (b"YUV4MPEG2 W4000000000 H4000000000", "4000000000"),
            (b"YUV4MPEG2 W5 H5 \xC3\xA4", "`ä`"),
        ] {
            let message = Header::parse(line).unwrap_err().named("video", 0).to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}
