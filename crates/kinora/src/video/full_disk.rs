//! Every encoder on a disk that fills up while it writes.

use std::io::{self, Write};

use super::{
    FrameRate, RgbImage, VideoError, error::EncodeError, gif::Delays, gif::GifEncoder, mp4::Mp4Encoder,
    y4m::Y4mEncoder,
};

/// Takes some bytes, then has no room.
struct FullDisk {
    room: usize,
}

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_full(error: EncodeError) -> bool {
    let error = error.at("clip".as_ref());
    matches!(error, VideoError::DiskFull { .. }) && error.to_string().contains("free some space")
}

#[test]
fn a_full_disk_is_an_error_wherever_it_happens() {
    let frame =
        RgbImage::new(32, 32, (0..32 * 32 * 3).map(|value| (value * 7 % 251) as u8).collect()).unwrap();
    let rate = FrameRate::new(7.0).unwrap();
    for room in [0, 1, 5, 40, 200, 600] {
        let mut mp4 = Mp4Encoder::new(FullDisk { room }, "folder".as_ref(), rate, 80);
        assert!(mp4.write_frame(&frame).and_then(|()| mp4.finish().map(drop)).is_err_and(is_full), "{room}");
        let mut gif = GifEncoder::new(FullDisk { room }, Delays::new(rate).unwrap());
        assert!(gif.write_frame(&frame).and_then(|()| gif.finish().map(drop)).is_err_and(is_full), "{room}");
        let mut y4m = Y4mEncoder::new(FullDisk { room }, rate);
        assert!(y4m.write_frame(&frame).and_then(|()| y4m.finish().map(drop)).is_err_and(is_full), "{room}");
    }
}
