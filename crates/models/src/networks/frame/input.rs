//! Frames of another size than the network's, fitted in the graph.

use kinora_graph::{DType, Graph, GraphBuilder, Phase, Tensor, TensorType, ValueId};

use super::SETTINGS;
use crate::{
    image::{
        Colour, Fit, Placed, RgbImage, Span,
        lanczos::{Tables, down_first},
    },
    networks::NetworkError,
};

/// The axes of a picture, down and across.
const DOWN: usize = 1;
const ACROSS: usize = 2;

/// Frames that come in with another size than the network's, and how they are fitted to it: to the same bytes as
/// [`Fit::apply`] and [`RgbImage::resize_lanczos`] give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameInput {
    /// Pixels from left to right.
    pub width: usize,
    /// Pixels from top to bottom.
    pub height: usize,
    /// What becomes of a frame of another shape.
    pub fit: Fit,
    /// What bars are filled with.
    pub background: Colour,
}

impl FrameInput {
    /// The graph that fits a frame to a width and a height, by itself: `frame` becomes `fitted`.
    ///
    /// # Errors
    /// If no image has such a size.
    pub fn graph(&self, [width, height]: [usize; 2]) -> Result<Graph, NetworkError> {
        let colours = self.background.0.len();
        self.check(colours)?;
        FrameInput { width, height, ..*self }.check(colours)?;
        let mut g = GraphBuilder::new("fit");
        let frame = g.input("frame", self.ty(colours), Phase::Step)?;
        let fitted = self.fitted(&mut g, frame, [width, height])?;
        g.output("fitted", fitted)?;
        Ok(g.finish())
    }

    pub(super) fn check(&self, colours: usize) -> Result<(), NetworkError> {
        let FrameInput { width, height, background, .. } = self;
        let size = RgbImage::check_size(*width, *height);
        SETTINGS.require(size.is_ok(), "the input", format!("{width}×{height}"), || {
            size.as_ref().err().map_or_else(String::new, ToString::to_string)
        })?;
        let fitted = background.0.len();
        SETTINGS.require(colours == fitted, "in_channels", colours, || {
            format!("frames that are fitted have {fitted} colours")
        })
    }

    /// The shape of a frame.
    pub(super) fn ty(&self, colours: usize) -> TensorType {
        TensorType::new(DType::U8, [1, self.height, self.width, colours])
    }

    /// A frame in the size of `width`×`height`.
    pub(super) fn fitted(
        &self,
        g: &mut GraphBuilder,
        frame: ValueId,
        [width, height]: [usize; 2],
    ) -> Result<ValueId, NetworkError> {
        let Placed { mut seen, filled } = self.fit.placed([self.width, self.height], width, height);
        let size = |spans: [Span; 2]| spans.map(|span| span.len);
        let down_first = down_first(size(seen), size(filled));
        let mut x = frame;
        // Rows that are cut off need not be resized.
        let across_first = !down_first && seen[0].len != filled[0].len;
        if across_first && seen[1].len < self.height {
            x = g.slice("fit.seen", x, DOWN, seen[1].start, seen[1].len)?;
            seen[1].start = 0;
        }
        let across = (ACROSS, seen[0], filled[0].len);
        let down = (DOWN, seen[1], filled[1].len);
        let passes = if down_first { [down, across] } else { [across, down] };
        for (axis, seen, to) in passes {
            x = resized(g, x, axis, seen, to)?;
        }
        x = self.between_bars(g, x, ACROSS, filled[0], width)?;
        self.between_bars(g, x, DOWN, filled[1], height)
    }

    /// With bars before and behind it on an axis, which then has this extent.
    fn between_bars(
        &self,
        g: &mut GraphBuilder,
        x: ValueId,
        axis: usize,
        filled: Span,
        extent: usize,
    ) -> Result<ValueId, NetworkError> {
        let name = if axis == DOWN { "fit.down" } else { "fit.across" };
        let bar = |g: &mut GraphBuilder, side: &str, len: usize| -> Result<Option<ValueId>, NetworkError> {
            if len == 0 {
                return Ok(None);
            }
            let mut shape = g.shape(x).to_vec();
            shape[axis] = len;
            let pixels = shape[DOWN] * shape[ACROSS];
            let bar = Tensor::from_slice(shape, &self.background.0.repeat(pixels))?;
            Ok(Some(g.constant(&format!("{name}.{side}"), bar)?))
        };
        let before = bar(g, "before", filled.start)?;
        let behind = bar(g, "behind", extent - filled.start - filled.len)?;
        match [before, Some(x), behind].into_iter().flatten().collect::<Vec<_>>().as_slice() {
            &[x] => Ok(x),
            parts => Ok(g.concat(&format!("{name}.bars"), parts, axis)?),
        }
    }
}

/// The part of an axis that is seen, in another size. What is cut off is not read: the neighbours begin behind it.
fn resized(
    g: &mut GraphBuilder,
    x: ValueId,
    axis: usize,
    seen: Span,
    to: usize,
) -> Result<ValueId, NetworkError> {
    let name = if axis == DOWN { "fit.down" } else { "fit.across" };
    if seen.len == to {
        let whole = g.shape(x)[axis] == to;
        return if whole { Ok(x) } else { Ok(g.slice(name, x, axis, seen.start, seen.len)?) };
    }
    let Tables { first, weights, taps } = Tables::new(seen.len, to);
    let first: Vec<i32> = first.into_iter().map(|first| first + seen.start as i32).collect();
    let first = g.constant(&format!("{name}.first"), Tensor::from_slice([to], &first)?)?;
    let weights = g.constant(&format!("{name}.weights"), Tensor::from_slice([to, taps], &weights)?)?;
    Ok(g.resample(name, [x, first, weights], axis)?)
}

#[cfg(test)]
mod tests {
    use kinora_cpu::reference::evaluate;
    use kinora_runtime::Tensors;

    use super::*;

    /// Soft and hard edges, at which the filter overshoots.
    fn photo(width: usize, height: usize) -> RgbImage {
        let byte = |i: usize| {
            let (x, y, c) = (i / 3 % width, i / 3 / width, i % 3);
            if (x / 5 + y / 3 + c) % 2 == 0 {
                (x * 7 + y * 11 + c * 50) as u8
            } else {
                ((x + y) % 2 * 255) as u8
            }
        };
        RgbImage::new(width, height, (0..width * height * 3).map(byte).collect()).unwrap()
    }

    /// The bytes that the graph makes of a photo, and those that are made without a graph.
    fn both(photo: &RgbImage, fit: Fit, [width, height]: [usize; 2]) -> [Vec<u8>; 2] {
        let background = Colour([3, 200, 40]);
        let input = FrameInput { width: photo.width(), height: photo.height(), fit, background };
        let graph = input.graph([width, height]).unwrap();
        let frame = Tensor::from_bytes(input.ty(3), photo.bytes()).unwrap();
        let mut results =
            evaluate(&graph, &Tensors::new(), &Tensors::from([("frame".to_owned(), frame)])).unwrap();
        let fitted = results.remove("fitted").unwrap();
        assert_eq!(fitted.shape()[..], [1, height, width, 3]);
        let shaped = fit.apply(photo, width, height, background).unwrap();
        let expected = shaped.resize_lanczos(width, height).unwrap();
        [fitted.bytes().to_vec(), expected.into_bytes()]
    }

    #[test]
    fn a_frame_is_fitted_to_the_same_bytes_with_and_without_a_graph() {
        let sizes = [[1, 1], [1, 70], [70, 1], [31, 17], [17, 31], [64, 40], [40, 40], [64, 80], [97, 61]];
        for [width, height] in sizes {
            let photo = photo(width, height);
            for picture in [[64, 40], [24, 16], [16, 40], [8, 8]] {
                for fit in Fit::ALL {
                    let [got, expected] = both(&photo, fit, picture);
                    assert!(got == expected, "{width}×{height} to {picture:?} by {fit}");
                }
            }
        }
    }

    #[test]
    fn a_size_that_no_frame_has_is_refused() {
        let input = FrameInput { width: 0, height: 4, fit: Fit::Crop, background: Colour::BLACK };
        assert!(input.check(3).unwrap_err().to_string().contains("the input is 0×4"));
        let huge = FrameInput { width: usize::MAX, ..input };
        assert!(huge.check(3).is_err());
        assert!(FrameInput { width: 4, ..input }.graph([8, 0]).is_err());
        let error = FrameInput { width: 4, ..input }.check(4).unwrap_err().to_string();
        assert!(error.contains("in_channels is 4"), "{error}");
    }
}
