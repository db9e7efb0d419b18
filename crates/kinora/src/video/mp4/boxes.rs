//! The boxes that an MP4 file is made of (ISO/IEC 14496-12).

/// The picture is shown as it is.
pub(super) const IDENTITY: [u32; 9] = [0x0001_0000, 0, 0, 0, 0x0001_0000, 0, 0, 0, 0x4000_0000];

pub(super) fn file_type() -> Vec<u8> {
    plain_box(b"ftyp", b"isom\0\0\x02\0isomiso2avc1mp41")
}

/// The header of the box that holds the frames; a long one has its length in 64 bits.
pub(super) fn data_header(bytes: u64) -> Vec<u8> {
    match u32::try_from(bytes + 8) {
        Ok(length) => [&length.to_be_bytes()[..], b"mdat"].concat(),
        Err(_) => [&1_u32.to_be_bytes()[..], b"mdat", &(bytes + 16).to_be_bytes()].concat(),
    }
}

/// A box of a kind, around its body.
pub(super) fn plain_box(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    // An index is bounded by 4 GiB before it is written, so the length fits wherever the file is kept.
    [&(body.len() as u32 + 8).to_be_bytes()[..], kind, body].concat()
}

/// A box that begins with its version and flags.
pub(super) fn full_box(kind: &[u8; 4], version: u8, flags: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = vec![version, 0, 0, flags];
    fill(&mut body);
    plain_box(kind, &body)
}

/// A box of boxes.
pub(super) fn container(kind: &[u8; 4], children: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    plain_box(kind, &children.into_iter().flatten().collect::<Vec<u8>>())
}

/// Numbers of 32 bits, one after another.
pub(super) fn numbers(body: &mut Vec<u8>, numbers: impl IntoIterator<Item = u32>) {
    body.extend(numbers.into_iter().flat_map(u32::to_be_bytes));
}
