//! What a file is, by its first bytes.

/// How many first bytes are looked at.
pub(super) const HEAD: usize = 16;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Y4m,
    Gif,
    Mp4,
    Picture,
    /// A format that is known and not read.
    Other(&'static str),
    Unknown,
}

/// The boxes that an MP4 or QuickTime file begins with.
const MP4_BOXES: [&[u8; 4]; 7] = [b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"];

impl Kind {
    /// By the first [`HEAD`] bytes, or fewer if there are no more.
    pub(super) fn of(head: &[u8]) -> Self {
        match head {
            [b'Y', b'U', b'V', b'4', b'M', b'P', b'E', b'G', b'2', ..] => Self::Y4m,
            [b'G', b'I', b'F', b'8', ..] => Self::Gif,
            [_, _, _, _, kind @ ..] if MP4_BOXES.iter().any(|known| kind.starts_with(*known)) => Self::Mp4,
            [0x1A, 0x45, 0xDF, 0xA3, ..] => Self::Other("a Matroska or WebM file"),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'A', b'V', b'I', b' ', ..] => Self::Other("an AVI file"),
            [b'O', b'g', b'g', b'S', ..] => Self::Other("an Ogg file"),
            [b'F', b'L', b'V', 1, ..] => Self::Other("a Flash video"),
            [0x30, 0x26, 0xB2, 0x75, ..] => Self::Other("a Windows Media file"),
            [0, 0, 1, 0xBA | 0xB3, ..] => Self::Other("an MPEG-1 or MPEG-2 video"),
            [0, 0, 0, 1, ..] => Self::Other("a bare H.264 or H.265 stream"),
            [b'D', b'K', b'I', b'F', ..] => Self::Other("an IVF file"),
            _ if crate::photo::is_image(head) => Self::Picture,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_first_bytes() {
        for (head, kind) in [
            (&b"YUV4MPEG2 W1 H1\n"[..], Kind::Y4m),
            (b"GIF89a", Kind::Gif),
            (b"\0\0\0\x20ftypisom", Kind::Mp4),
            (b"\0\0\0\x08wide\0\0\0\0mdat", Kind::Mp4),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", Kind::Picture),
            (b"\xFF\xD8\xFF\xE0\0\x10JFIF\0", Kind::Picture),
            (b"RIFF\x24\0\0\0WEBPVP8 ", Kind::Picture),
            (b"RIFF\x24\0\0\0AVI LIST", Kind::Other("an AVI file")),
            (b"\x1A\x45\xDF\xA3\x93\x42", Kind::Other("a Matroska or WebM file")),
            (b"plain text", Kind::Unknown),
            (b"", Kind::Unknown),
        ] {
            assert_eq!(Kind::of(head), kind, "{}", head.escape_ascii());
        }
    }
}
