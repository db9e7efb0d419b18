//! Photos against Pillow: the files and pixels that `golden/make_photos.py` made, and files that cannot be read.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{fs, path::PathBuf};

use image::{ExtendedColorType, ImageEncoder, codecs::png::PngEncoder};
use kinora::photo::{self, Colour, Photo, PhotoError};
use safetensors::SafeTensors;

fn golden() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/photos"))
}

fn names() -> Vec<String> {
    let bytes = fs::read(golden().join("pixels.safetensors")).unwrap();
    SafeTensors::deserialize(&bytes).unwrap().names().into_iter().map(String::from).collect()
}

/// How far a byte may lie from Pillow's at most, and on average. JPEG and lossy WebP leave the decoder room in its
/// arithmetic, most of all where chroma is enlarged across an edge; CMYK is a product of two bytes that may be rounded
/// either way.
fn bars(name: &str) -> (u8, f64) {
    match name {
        "420.jpg" | "progressive.jpg" => (6, 1.0),
        "422.jpg" => (4, 1.0),
        name if name.ends_with(".jpg") => (2, 0.5),
        "lossy.webp" => (1, 0.5),
        "cmyk.tif" => (1, 1.0),
        _ => (0, 0.0),
    }
}

#[test]
fn pixels_are_those_of_pillow() {
    let bytes = fs::read(golden().join("pixels.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let mut wrong = Vec::new();
    for (name, tensor) in expected.iter() {
        let photo = photo::open(golden().join(name)).unwrap();
        assert_eq!([photo.height(), photo.width(), 3], *tensor.shape(), "{name}");
        let off: Vec<u8> =
            photo.bytes().iter().zip(tensor.data()).map(|(ours, theirs)| ours.abs_diff(*theirs)).collect();
        let most = *off.iter().max().unwrap();
        let mean = off.iter().map(|off| f64::from(*off)).sum::<f64>() / off.len() as f64;
        println!("{name}: off by {most}, {mean:.3} on average");
        let (most_allowed, mean_allowed) = bars(name);
        if most > most_allowed || mean > mean_allowed {
            wrong.push(format!("{name}: off by {most} ({most_allowed}), on average {mean} ({mean_allowed})"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_fixture_is_compared() {
    let files = fs::read_dir(golden())
        .unwrap()
        .filter(|entry| !entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".safetensors"));
    assert_eq!(files.count(), names().len());
    assert!(names().len() >= 50);
}

const GREEN: Colour = Colour([20, 200, 60]);

/// The alpha of `golden/make_photos.py`, and the mixture of both colours in f64.
#[test]
fn a_transparent_photo_lies_on_its_background() {
    for name in ["rgba.png", "rgba_16_bit.png", "gray_alpha.png", "lossless_alpha.webp", "rgba.tif"] {
        let photo = Photo::open(golden().join(name)).unwrap();
        assert!(photo.is_transparent(), "{name}");
        let colours = photo::open(golden().join(name)).unwrap();
        assert_eq!(photo.clone().without_alpha(), colours, "{name}");
        let laid = photo.on(GREEN);
        for (at, (pixel, colour)) in laid.pixels().iter().zip(colours.pixels()).enumerate() {
            let alpha = ((at % 24 + at / 24) * 6 % 256) as f64 / 255.0;
            let mix = |channel: usize| {
                (f64::from(colour[channel]) * alpha + f64::from(GREEN.0[channel]) * (1.0 - alpha)).round()
                    as u8
            };
            assert_eq!(*pixel, [mix(0), mix(1), mix(2)], "{name}: pixel {at}");
        }
    }
}

/// A palette and a GIF name one colour that is not to be seen.
#[test]
fn a_transparent_colour_is_replaced_by_the_background() {
    for name in ["palette_transparent.png", "rgb_transparent.png", "transparent.gif"] {
        let photo = Photo::open(golden().join(name)).unwrap();
        assert!(photo.is_transparent(), "{name}");
        let (colours, laid) = (photo.clone().without_alpha(), photo.on(GREEN));
        let changed: Vec<_> =
            colours.pixels().iter().zip(laid.pixels()).filter(|(before, after)| before != after).collect();
        assert!(!changed.is_empty(), "{name}");
        assert!(
            changed.iter().all(|(before, after)| *before == changed[0].0 && **after == GREEN.0),
            "{name}"
        );
        assert!(!laid.pixels().contains(changed[0].0), "{name}");
    }
}

#[test]
fn an_opaque_photo_has_no_background() {
    for name in ["rgb.png", "444.jpg", "palette.gif", "window.gif", "gray_16_bit.png", "rgb.bmp"] {
        let photo = Photo::open(golden().join(name)).unwrap();
        assert!(!photo.is_transparent(), "{name}");
        assert_eq!(photo.on(GREEN), photo::open(golden().join(name)).unwrap(), "{name}");
    }
}

/// The transparency is turned together with the colours.
#[test]
fn a_transparent_photo_is_turned_as_its_camera_was() {
    // A TIFF header, and one entry: tag 0x0112, of one short, 3: upside down.
    let exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0\0\0";
    let mut file = Vec::new();
    let mut encoder = PngEncoder::new(&mut file);
    encoder.set_exif_metadata(exif.to_vec()).unwrap();
    let pixels = [1, 2, 3, 0, 4, 5, 6, 255, 7, 8, 9, 255];
    encoder.write_image(&pixels, 3, 1, ExtendedColorType::Rgba8).unwrap();
    let photo = Photo::decode(&file).unwrap();
    assert_eq!((photo.width(), photo.height(), photo.is_transparent()), (3, 1, true));
    assert_eq!(photo.on(GREEN).pixels(), [[7, 8, 9], [4, 5, 6], GREEN.0]);
}

#[test]
fn the_name_does_not_matter_but_the_content_does() {
    let folder = tempfile::tempdir().unwrap();
    let misnamed = folder.path().join("photo.jpg");
    fs::copy(golden().join("rgb.png"), &misnamed).unwrap();
    assert_eq!(photo::open(misnamed).unwrap(), photo::open(golden().join("rgb.png")).unwrap());
}

/// A file that is cut anywhere is an error or, where only what follows the pixels is missing, the whole image.
#[test]
fn truncated_files_never_give_a_wrong_image() {
    for name in names() {
        let bytes = fs::read(golden().join(&name)).unwrap();
        let whole = photo::decode(&bytes).unwrap();
        for length in 0..bytes.len() {
            match photo::decode(&bytes[..length]) {
                Ok(photo) => assert!(photo == whole, "{name} cut to {length} of {} bytes", bytes.len()),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        // Half an animation still has its first frame.
        if name != "animated.gif" {
            let half = photo::decode(&bytes[..bytes.len() / 2]).unwrap_err();
            assert!(matches!(half, PhotoError::Damaged { .. }), "{name}: {half}");
        }
    }
}

/// Damage is an error or other pixels, never a panic.
#[test]
fn damaged_files_do_not_panic() {
    for name in names() {
        let bytes = fs::read(golden().join(&name)).unwrap();
        for at in 0..bytes.len() {
            for value in [0xFF, bytes[at] ^ 0x55] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                let _ = photo::decode(&damaged);
            }
        }
    }
}

#[test]
fn what_is_not_a_photo_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("empty.png"), b"").unwrap();
    fs::write(path("text.png"), "this is no image").unwrap();
    fs::write(path("cut.jpg"), &fs::read(golden().join("444.jpg")).unwrap()[..700]).unwrap();
    fs::write(path("photo.heic"), b"\0\0\0\x18ftypheic\0\0\0\0mif1heic").unwrap();
    for (file, words) in [
        (path("absent.png"), ["there is no photo", "check the path"]),
        (folder.path().to_owned(), ["is a folder", "one image file"]),
        (path("empty.png"), ["is empty", "complete copy"]),
        (path("text.png"), ["not an image", "convert it to PNG or JPEG"]),
        (path("photo.heic"), ["not an image", "convert it to PNG or JPEG"]),
        (path("cut.jpg"), ["truncated JPEG", "complete copy"]),
    ] {
        let message = photo::open(&file).unwrap_err().to_string();
        assert!(message.contains(&*file.to_string_lossy()), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn an_unreadable_file_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.png");
    fs::copy(golden().join("rgb.png"), &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // The administrator may read it all the same.
    if fs::File::open(&path).is_err() {
        let message = photo::open(&path).unwrap_err().to_string();
        assert!(message.contains("cannot read") && message.contains("secret.png"), "{message}");
    }
}

/// The headers of images of 20,000×20,000 pixels, with nothing after them: refused for their size, not for the rest.
#[test]
fn decompression_bombs_are_refused_before_they_are_decoded() {
    let mut png = fs::read(golden().join("rgb.png")).unwrap();
    png[16..24].copy_from_slice(&[0, 0, 0x4E, 0x20, 0, 0, 0x4E, 0x20]);
    let checksum = crc32(&png[12..29]);
    png[29..33].copy_from_slice(&checksum.to_be_bytes());

    let mut jpeg = fs::read(golden().join("444.jpg")).unwrap();
    let start_of_frame = jpeg.windows(2).position(|bytes| bytes == [0xFF, 0xC0]).unwrap();
    jpeg[start_of_frame + 5..][..4].copy_from_slice(&[0x4E, 0x20, 0x4E, 0x20]);

    let mut bmp = fs::read(golden().join("rgb.bmp")).unwrap();
    bmp[18..26].copy_from_slice(&[0x20, 0x4E, 0, 0, 0x20, 0x4E, 0, 0]);

    let mut gif = fs::read(golden().join("palette.gif")).unwrap();
    gif[6..10].copy_from_slice(&[0x20, 0x4E, 0x20, 0x4E]);

    for bytes in [png, jpeg, bmp, gif] {
        let message = photo::decode(&bytes).unwrap_err().to_string();
        for word in ["20000×20000", "at most 178956970", "make it smaller"] {
            assert!(message.contains(word), "{message}");
        }
    }
}

/// The checksum of PNG chunks.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xEDB8_8320 & (sum & 1).wrapping_neg()))
    })
}
