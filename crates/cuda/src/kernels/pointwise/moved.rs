//! A blend with the frame before, by how much each pixel has changed.

use kinora_graph::DType;

use super::{NAMES, THREADS};
use crate::{
    CudaError,
    kernels::{Call, Implementation, Kernel, Launch, Places, Source, names::type_name},
    launch::{
        arguments,
        limits::{grid, long},
    },
};

const SOURCE: Source = Source { path: "pointwise/moved.cu", text: include_str!("moved.cu") };

/// A blend of two frames, less of the earlier one if a pixel has changed.
#[derive(Debug)]
pub(super) struct BlendUnlessMoved {
    current: DType,
    previous: DType,
    pixels: usize,
    channels: usize,
    threshold: f32,
    /// One thread a pixel.
    plain: bool,
}

impl BlendUnlessMoved {
    pub(super) fn new(call: &Call<'_>, threshold: f32, plain: bool) -> BlendUnlessMoved {
        let (current, previous) = (call.inputs[0], call.inputs[1]);
        BlendUnlessMoved {
            current: current.dtype,
            previous: previous.dtype,
            pixels: current.shape.rows(),
            channels: current.shape.channels(),
            threshold,
            plain,
        }
    }
}

// SAFETY: the arguments are those of `blend_unless_moved`; both images and the result have these pixels and channels.
unsafe impl Implementation for BlendUnlessMoved {
    fn name(&self) -> String {
        NAMES[usize::from(!self.plain)].to_owned()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        // A pixel of three or four channels takes one thread, one of many channels a warp.
        let lanes = if self.plain { 1 } else { self.channels.div_ceil(4).next_power_of_two().min(32) };
        let kernel = Kernel::new(SOURCE, "blend_unless_moved")
            .with("CURRENT", type_name(self.current))
            .with("PREVIOUS", type_name(self.previous))
            .with("LANES", lanes);
        let arguments = arguments![
            places.outputs[0],
            places.inputs[0],
            places.inputs[1],
            places.inputs[2],
            self.threshold,
            long(self.pixels),
            long(self.channels),
        ];
        let blocks = grid(self.pixels.div_ceil(THREADS / lanes))?;
        Ok(vec![Launch::new(kernel, blocks, THREADS as u32, arguments)])
    }
}
