//! The boxes of an MP4 or QuickTime file.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
};

use super::super::error::{Fault, zeroed};

/// The most bytes of an index: that of a week of video has fewer.
const MAX_INDEX: u64 = 256 << 20;

/// A box inside an index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Atom<'a> {
    pub(super) kind: [u8; 4],
    pub(super) body: &'a [u8],
}

/// The most boxes of a file, beside those inside others: two for each fragment of a second are a week of video.
const MAX_BOXES: usize = 1 << 20;

/// A box of a file, which has not been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: [u8; 4],
    /// Where its header begins, and its body.
    pub(super) start: u64,
    pub(super) body: u64,
    /// Where it ends, which may lie beyond the end of the file.
    pub(super) end: u64,
}

/// The boxes of a file.
pub(super) fn places(file: &mut File) -> Result<Vec<Place>, Fault> {
    let file_length = file.metadata()?.len();
    let (mut places, mut start) = (Vec::new(), 0);
    while start + 8 <= file_length {
        file.seek(SeekFrom::Start(start))?;
        let mut header = [0; 8];
        file.read_exact(&mut header)?;
        let ([a, b, c, d, kind @ ..], mut header_length) = (header, 8);
        let length = match u32::from_be_bytes([a, b, c, d]) {
            // The last box may say no length.
            0 => file_length - start,
            1 => {
                let mut long = [0; 8];
                file.read_exact(&mut long)?;
                header_length = 16;
                u64::from_be_bytes(long)
            }
            length => length.into(),
        };
        if length < header_length {
            return Err(Fault::damaged("a box of it is shorter than its own header"));
        }
        if places.len() == MAX_BOXES {
            return Err(Fault::damaged(format!("more than {MAX_BOXES} boxes")));
        }
        let end = start.saturating_add(length);
        places.push(Place { kind, start, body: start + header_length, end });
        start = end;
    }
    Ok(places)
}

/// The body of the index, `moov`.
pub(super) fn index(file: &mut File, places: &[Place]) -> Result<Vec<u8>, Fault> {
    let found = places.iter().find(|place| place.kind == *b"moov").ok_or_else(|| {
        Fault::damaged("it has no index (moov), because its end is missing or its recording was not finished")
    })?;
    read(file, *found)
}

/// The body of a box that is part of an index.
pub(super) fn read(file: &mut File, place: Place) -> Result<Vec<u8>, Fault> {
    let length = place.end - place.body;
    if place.end > file.metadata()?.len() {
        return Err(Fault::Truncated);
    }
    if length > MAX_INDEX {
        return Err(Fault::damaged(format!("its index has more than {MAX_INDEX} bytes")));
    }
    let mut bytes = zeroed(length as usize)?;
    file.seek(SeekFrom::Start(place.body))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The boxes in a body, up to the first that reaches beyond it.
pub(super) fn atoms(mut bytes: &[u8]) -> impl Iterator<Item = Atom<'_>> {
    std::iter::from_fn(move || {
        let (header, _) = bytes.split_first_chunk::<8>()?;
        let [a, b, c, d, kind @ ..] = *header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let body = bytes.get(8..length)?;
        bytes = &bytes[length..];
        Some(Atom { kind, body })
    })
}

/// The first box of a kind in a body.
pub(super) fn find<'a>(bytes: &'a [u8], kind: &[u8; 4]) -> Option<&'a [u8]> {
    atoms(bytes).find(|atom| atom.kind == *kind).map(|atom| atom.body)
}

/// The box at the end of a path.
pub(super) fn find_in<'a>(bytes: &'a [u8], path: &[&[u8; 4]]) -> Option<&'a [u8]> {
    path.iter().try_fold(bytes, |bytes, kind| find(bytes, kind))
}

/// The same, or an error that names it.
pub(super) fn need<'a>(bytes: &'a [u8], path: &[&[u8; 4]]) -> Result<&'a [u8], Fault> {
    find_in(bytes, path).ok_or_else(|| {
        let names: Vec<_> = path.iter().map(|kind| kind.escape_ascii().to_string()).collect();
        Fault::damaged(format!("its index has no {}", names.join("/")))
    })
}

/// A number of 16 bits.
pub(super) fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A number of 32 bits.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A number of 64 bits.
pub(super) fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The entries of a table: behind version and flags their count, then as many as are there, of `N` bytes each.
pub(super) fn entries<const N: usize>(bytes: &[u8]) -> &[[u8; N]] {
    let count = number(bytes, 4).unwrap_or(0) as usize;
    let found = bytes.get(8..).unwrap_or_default().as_chunks::<N>().0;
    &found[..count.min(found.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_end_where_their_lengths_make_no_sense() {
        let bytes = b"\0\0\0\x0Aabcd\x01\x02\0\0\0\x08efgh\0\0\0\x07bad!";
        let found: Vec<Atom<'_>> = atoms(bytes).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].kind, found[0].body), (*b"abcd", &[1, 2][..]));
        assert_eq!(find(bytes, b"efgh"), Some(&[][..]));
        assert!(find(bytes, b"bad!").is_none());
        assert_eq!(atoms(b"\0\0\0\xFFabcd").count(), 0);
        assert!(
            need(bytes, &[b"abcd", b"none"]).unwrap_err().named("x", 0).to_string().contains("abcd/none")
        );
    }

    #[test]
    fn a_table_has_no_more_entries_than_bytes() {
        assert_eq!(entries::<4>(b"\0\0\0\0\0\0\0\x01\x01\x02\x03\x04\x05\x06\x07\x08"), [[1, 2, 3, 4]]);
        assert_eq!(entries::<4>(b"\0\0\0\0\xFF\xFF\xFF\xFF\x01\x02\x03\x04\x05").len(), 1);
        assert!(entries::<4>(b"\0\0").is_empty());
    }
}
