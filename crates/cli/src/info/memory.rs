//! The memory that clips of several sizes and lengths need.

use std::{panic::resume_unwind, thread};

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

/// Plans clips of the requested size, of the model's own size and of smaller ones. `decode_chunk` is the requested one;
/// without one, all frames are decoded together, and an extra column shows what smaller chunks would save.
pub fn memory_table(
    configs: &Configs,
    asked: &Settings,
    decode_chunk: Option<usize>,
    precision: Precision,
) -> Result<MemoryTable, GenerateError> {
    // The sizes shown beside the requested clip may be larger than a clip can be; those are left out.
    let fits = |settings: &Settings| settings.check(configs, precision).is_ok();
    let mut columns = lengths(configs, asked, decode_chunk);
    columns.retain(|&Length { frames, .. }| fits(&asked.clone().frames(frames)));
    let mut sizes = sizes(configs, asked);
    sizes.retain(|&PictureSize { width, height }| fits(&asked.clone().width(width).height(height)));
    let plan = |PictureSize { width, height }, Length { frames, decode_chunk }| {
        let settings = asked.clone().width(width).height(height).frames(frames).decode_chunk(decode_chunk);
        Ok(estimate_configs(configs, &settings, precision)?.peak_bytes())
    };
    // A plan of the full size takes a tenth of a second.
    let rows: Vec<Result<Vec<usize>, GenerateError>> =
        in_threads(&sizes, |&size| columns.iter().map(|&length| plan(size, length)).collect());
    // So are those that are too small for products in 8 bits.
    let large = |(_, row): &(PictureSize, Result<_, _>)| !matches!(row, Err(GenerateError::Quantisation(_)));
    let rows =
        sizes.into_iter().zip(rows).filter(large).map(|(PictureSize { width, height }, peak_bytes)| {
            Ok(MemoryRow { width, height, peak_bytes: peak_bytes? })
        });
    Ok(MemoryTable { rows: rows.collect::<Result<_, GenerateError>>()?, columns })
}

/// Does something with every item, each in a thread of its own as far as the system allows. If one panics, so does this.
fn in_threads<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let start = |item| thread::Builder::new().spawn_scoped(scope, move || work(item)).map_err(|_| item);
        let threads: Vec<_> = items.iter().map(start).collect();
        let result = |thread: Result<thread::ScopedJoinHandle<'_, R>, &T>| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(item) => work(item),
        };
        threads.into_iter().map(result).collect()
    })
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
    let ([height, width], unit) = (configs.default_size, configs.side_unit());
    let part = |quarters: usize| {
        let side = |side: usize| (side * quarters / 4).next_multiple_of(unit);
        PictureSize { width: side(width), height: side(height) }
    };
    let mut sizes = vec![part(2), part(3), part(4), PictureSize { width: asked.width, height: asked.height }];
    sizes.sort_by_key(|size| (size.width * size.height, size.width));
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_their_items() {
        assert_eq!(in_threads(&[3, 1, 2], |n| n * 10), [30, 10, 20]);
    }

    #[test]
    #[should_panic(expected = "the second")]
    fn a_panic_is_not_lost() {
        in_threads(&[1, 2, 3], |&n| assert!(n != 2, "the second"));
    }

    #[test]
    fn sizes_that_no_clip_can_have_are_left_out() {
        let mut configs = Configs::svd();
        configs.default_size = [64, 8192 + 64];
        let asked = Settings::for_configs(&configs).frames(1).width(64).height(64);
        let table = memory_table(&configs, &asked, None, Precision::F16).unwrap();
        assert!(table.columns.iter().all(|column| column.frames <= 14));
        let sizes: Vec<(usize, usize)> = table.rows.iter().map(|row| (row.width, row.height)).collect();
        assert_eq!(sizes.first(), Some(&(64, 64)));
        assert!(sizes.iter().all(|&(width, _)| width <= 8192), "{sizes:?}");
        configs.unet.num_frames = 2000;
        let refused = memory_table(&configs, &asked, None, Precision::F16).map(drop);
        assert!(refused.is_err_and(|error| error.to_string().contains("num_frames")));
    }
}
