//! Large tensors go back to the system when they are freed. Alone in its process, whose memory is looked at.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use kinora_graph::tensor::AlignedBytes;

/// The memory of the process that is no file's, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() << 10
}

fn filled(len: usize) -> AlignedBytes {
    let mut bytes = AlignedBytes::zeroed(len);
    bytes.fill(1);
    bytes
}

#[test]
fn freed_memory_is_not_kept() {
    // From now on an allocator would take such sizes from its own heap, and keep them.
    drop(filled(24 << 20));
    let before = resident();
    let (many, between): (Vec<_>, Vec<_>) = (0..64).map(|_| (filled(1 << 20), vec![1u8; 100])).unzip();
    assert!(resident() > before + (48 << 20));
    drop(many);
    assert!(resident() < before + (8 << 20), "{} after {before} with {}", resident(), between.len());
}

#[test]
fn what_is_not_written_takes_no_memory() {
    let before = resident();
    let bytes = AlignedBytes::try_zeroed(256 << 20).unwrap();
    assert!(resident() < before + (100 << 20), "{} bytes", bytes.len());
}
