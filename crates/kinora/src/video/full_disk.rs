//! Every encoder on a disk that fills up while it writes.

use std::{
    io::{self, Write},
    time::Duration,
};

use super::{
    FrameRate, RgbImage, VideoError, error::EncodeError, gif::GifEncoder, mp4::Mp4Encoder, raw::RawEncoder,
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
        let (start, end) = (Duration::ZERO, rate.time_of(1));
        let mut mp4 = Mp4Encoder::new(FullDisk { room }, "folder".as_ref(), rate, 80);
        let written = mp4.write_frame(&frame, start).and_then(|()| mp4.finish(end).map(drop));
        assert!(written.is_err_and(is_full), "{room}");
        let mut gif = GifEncoder::new(FullDisk { room });
        let written = gif.write_frame(&frame, start).and_then(|()| gif.finish(end).map(drop));
        assert!(written.is_err_and(is_full), "{room}");
        let mut raw = RawEncoder::new(FullDisk { room });
        assert!(raw.write_frame(&frame).and_then(|()| raw.finish().map(drop)).is_err_and(is_full), "{room}");
        let mut y4m = Y4mEncoder::new(FullDisk { room }, rate);
        assert!(y4m.write_frame(&frame).and_then(|()| y4m.finish().map(drop)).is_err_and(is_full), "{room}");
    }
}
