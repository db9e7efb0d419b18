//! Latents become frames.

use kinora_graph::Tensor;
use kinora_models::{image::RgbImage, weights::Weights};

use super::{
    GenerateError, Stage,
    plans::Part,
    run::{Run, named},
};

impl Run<'_, '_> {
    /// Decodes the latents chunk by chunk. `decoders` has the decoder of a full chunk and that of a shorter last one,
    /// each with its number of frames.
    pub fn decode(
        &mut self,
        decoders: &mut [(usize, Part)],
        weights: &Weights,
        latents: &Tensor,
    ) -> Result<Vec<RgbImage>, GenerateError> {
        let settings = self.request.settings;
        let values = latents.as_slice::<f32>()?;
        let frame_values = values.len() / settings.frames;
        let mut rest = values;
        let mut frames = Vec::with_capacity(settings.frames);
        for (chunk, part) in decoders {
            let chunk = *chunk;
            let (name, runs) = (part.name, part.runs);
            let mut decoder = self.load(part, weights)?;
            self.tell(Stage::Decode, frames.len(), settings.frames, None)?;
            for _ in 0..runs {
                let running = self.stopwatch.begin(Stage::Decode);
                let (now, later) = rest.split_at(chunk * frame_values);
                rest = later;
                let mut shape = latents.shape().to_vec();
                shape[0] = chunk;
                let now = Tensor::from_f32(self.request.precision.dtype(), shape, now)?;
                // What f32 holds may be too large for the decoder's precision.
                self.check_finite(Stage::Decode, &now)?;
                let pixels = decoder.run(&named([("latents", now)]))?.take("frames")?;
                self.reserve(name, pixels.bytes().len())?;
                for bytes in pixels.bytes().chunks_exact(pixels.bytes().len() / chunk) {
                    frames.push(RgbImage::new(settings.width, settings.height, bytes.to_vec())?);
                }
                self.stopwatch.end(running);
                self.tell(Stage::Decode, frames.len(), settings.frames, None)?;
            }
            self.release(part);
        }
        Ok(frames)
    }
}
