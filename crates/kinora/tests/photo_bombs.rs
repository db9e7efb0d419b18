//! Small files that would become large in memory. Alone in their process, whose memory is looked at.
#![allow(clippy::unwrap_used, missing_docs)]

use kinora::{
    RgbImage,
    photo::{self, PhotoError},
};

/// A PNG of 8-bit gray pixels, all 0, with further chunks before the pixels.
fn png(width: u32, height: u32, chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 0, 0, 0, 0]].concat();
    let lines = (width as usize + 1) * height as usize;
    let pixels = (b"IDAT", zeros(lines));
    let all =
        [(b"IHDR", header)].into_iter().chain(chunks.iter().cloned()).chain([pixels, (b"IEND", vec![])]);
    for (name, data) in all {
        bytes.extend((data.len() as u32).to_be_bytes());
        let named = [&name[..], &data].concat();
        bytes.extend(&named);
        bytes.extend(crc32(&named).to_be_bytes());
    }
    bytes
}

/// A zlib stream of zeros: a literal, then matches of 258 bytes one byte back, 13 bits each.
fn zeros(count: usize) -> Vec<u8> {
    let mut bits = Bits { bytes: vec![0x78, 0x01], count: 0 };
    bits.push(1, 1); // the last block
    bits.push(1, 2); // fixed codes
    bits.push_code(0x30, 8); // a zero
    let mut left = count - 1;
    while left >= 258 {
        bits.push_code(0xC5, 8); // length 258
        bits.push_code(0, 5); // distance 1
        left -= 258;
    }
    for _ in 0..left {
        bits.push_code(0x30, 8);
    }
    bits.push_code(0, 7); // the end
    // Adler-32 of zeros.
    let sum = ((count % 65521) as u32) << 16 | 1;
    [bits.bytes, sum.to_be_bytes().to_vec()].concat()
}

/// Bits, the lowest of a byte first.
struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    fn push(&mut self, value: u32, length: u32) {
        for i in 0..length {
            if self.count.is_multiple_of(8) {
                self.bytes.push(0);
            }
            *self.bytes.last_mut().unwrap() |= ((value >> i & 1) as u8) << (self.count % 8);
            self.count += 1;
        }
    }

    /// Codes have their highest bit first.
    fn push_code(&mut self, code: u32, length: u32) {
        self.push(code.reverse_bits() >> (32 - length), length);
    }
}

/// The checksum of PNG chunks.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xEDB8_8320 & (sum & 1).wrapping_neg()))
    })
}

/// The most memory that the process has had, in bytes.
#[cfg(target_os = "linux")]
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<usize>().unwrap() * 1024
}

/// Half a gigabyte of pixels in a small file, and a picture of the same kind that fits.
#[test]
fn a_photo_that_does_not_fit_is_refused_before_it_is_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("photo.png");
    std::fs::write(&path, png(13_000, 13_000, &[])).unwrap();
    let refused = photo::open_within(&path, 20_000_000).unwrap_err();
    let PhotoError::Memory { need, limit: 20_000_000, .. } = refused else { panic!("{refused}") };
    // Gray as decoded, and three channels as kept.
    assert!(need >= 4 * 13_000 * 13_000, "{need}");
    assert!(refused.to_string().contains("but only 20.0 MB may be used"), "{refused}");
    std::fs::write(&path, png(30, 20, &[])).unwrap();
    assert_eq!(photo::open_within(&path, 20_000).unwrap().width(), 30);
    // Not even the file fits.
    let refused = photo::open_within(&path, 10).unwrap_err();
    assert!(matches!(refused, PhotoError::Memory { need: 11, limit: 10, .. }), "{refused}");
    #[cfg(target_os = "linux")]
    assert!(peak() < 400_000_000, "{} bytes", peak());
}

#[test]
fn small_files_stay_small() {
    assert_eq!(photo::decode(&png(3, 2, &[])).unwrap().bytes(), [0; 18]);
    // Resized in one direction, its rows would take a thousand times its memory.
    for (width, height) in [(1, 200_000), (200_000, 1)] {
        let error = photo::decode(&png(width, height, &[])).unwrap_err();
        assert!(matches!(error, PhotoError::TooLarge { .. }), "{error}");
        assert!(error.to_string().contains("sides of at most 65535"), "{error}");
        assert!(RgbImage::new(width as usize, height as usize, vec![0; 600_000]).is_err());
    }
    // A profile of a gigabyte. It is not needed for the pixels, and left alone.
    let profile = [b"profile\0\0".to_vec(), zeros(1 << 30)].concat();
    let bomb = png(3, 2, &[(b"iCCP", profile)]);
    assert_eq!(photo::decode(&bomb).unwrap().bytes(), [0; 18]);
    #[cfg(target_os = "linux")]
    assert!(peak() < 400_000_000, "{} bytes", peak());
}
