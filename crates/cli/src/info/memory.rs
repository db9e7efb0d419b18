//! The memory that clips of several sizes and lengths need.

use std::thread;

use kinora::image_to_video::{Configs, GenerateError, Precision, Settings, estimate_configs};
use serde::Serialize;

use crate::quantities::PictureSize;

/// The memory that clips need, by size and length.
#[derive(Serialize)]
pub struct MemoryTable {
    pub columns: Vec<Length>,
    pub rows: Vec<MemoryRow>,
}

/// How long a clip is, and how it is decoded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Length {
    pub frames: usize,
    /// Frames that are decoded together.
    pub decode_chunk: usize,
}

/// The memory that clips of one size need.
#[derive(Serialize)]
pub struct MemoryRow {
    pub width: usize,
    pub height: usize,
    /// For each column, the most bytes that are in use at a time.
    pub peak_bytes: Vec<usize>,
}

/// Plans clips of the size that was asked for, of the model's own and of smaller ones. `decode_chunk` is what was asked
/// for; otherwise all frames are decoded together, and a column shows what is saved if they are not.
pub fn memory_table(
    configs: &Configs,
    asked: &Settings,
    decode_chunk: Option<usize>,
    precision: Precision,
) -> Result<MemoryTable, GenerateError> {
    let columns = lengths(configs, asked, decode_chunk);
    let sizes = sizes(configs, asked);
    let plan = |PictureSize { width, height }, Length { frames, decode_chunk }| {
        let settings = Settings { width, height, frames, decode_chunk, ..asked.clone() };
        Ok(estimate_configs(configs, &settings, precision)?.peak_bytes())
    };
    // A plan of the full size takes a tenth of a second; every row is made by a thread of its own.
    let rows: Vec<Result<Vec<usize>, GenerateError>> = thread::scope(|scope| {
        let row = |&size: &PictureSize| {
            let (plan, columns) = (&plan, &columns);
            scope.spawn(move || columns.iter().map(|&length| plan(size, length)).collect())
        };
        let threads: Vec<_> = sizes.iter().map(row).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let rows = sizes.into_iter().zip(rows).map(|(PictureSize { width, height }, peak_bytes)| {
        Ok(MemoryRow { width, height, peak_bytes: peak_bytes? })
    });
    Ok(MemoryTable { rows: rows.collect::<Result<_, GenerateError>>()?, columns })
}

/// The model's own number of frames and the one asked for; for long clips, also that of the shorter published model.
fn lengths(configs: &Configs, asked: &Settings, decode_chunk: Option<usize>) -> Vec<Length> {
    const SHORT: usize = 14;
    let own = configs.unet.num_frames;
    let mut frames = vec![own, asked.frames];
    frames.extend((own > SHORT).then_some(SHORT));
    frames.sort();
    frames.dedup();
    let length = |frames| Length { frames, decode_chunk: decode_chunk.unwrap_or(frames).min(frames) };
    let mut lengths: Vec<Length> = frames.iter().copied().map(length).collect();
    if let (None, Some(&frames @ 3..)) = (decode_chunk, frames.last()) {
        lengths.push(Length { frames, decode_chunk: 2 });
    }
    lengths
}

/// The size asked for, the model's own, and a half and three quarters of it.
fn sizes(configs: &Configs, asked: &Settings) -> Vec<PictureSize> {
    let [height, width] = configs.default_size;
    let part = |quarters: usize| {
        let side = |side: usize| (side * quarters / 4).next_multiple_of(64);
        PictureSize { width: side(width), height: side(height) }
    };
    let mut sizes = vec![part(2), part(3), part(4), PictureSize { width: asked.width, height: asked.height }];
    sizes.sort_by_key(|size| (size.width * size.height, size.width));
    sizes.dedup();
    sizes
}
