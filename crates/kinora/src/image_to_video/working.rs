//! What a clip holds in the machine's memory beside its networks.

use kinora_models::image::CLIP_SIZE;

use super::{GenerateError, configs::COLOURS, plans::Request};

/// What a thread keeps from op to op: blocks of the operands and sums of products and attention, in bytes.
const THREAD_BYTES: usize = 3 << 20;

/// Copies of the photo in the clip's size, as f32, while it is prepared: the pixels, their noise in two orders, and the
/// tensor in two types.
pub(super) const PHOTO_COPIES: usize = 5;

/// Copies of a clip's latents while it is denoised: inputs and results of a step, the first noise, the history.
pub(super) const LATENT_COPIES: usize = 8;

impl Request<'_> {
    /// What the clip holds beside its networks at its peak, in bytes: the photo, latents and noise, the finished frames, and
    /// what the threads keep. 0 if the device has memory of its own, whose peak is not affected.
    pub fn working_bytes(&self) -> Result<usize, GenerateError> {
        let own = self.backend.free_memory().map_err(|source| GenerateError::run("device", source))?;
        if own.is_some() {
            return Ok(0);
        }
        let product = |factors: &[usize]| factors.iter().copied().fold(1, usize::saturating_mul);
        let settings = self.settings;
        let pixels = product(&[settings.width, settings.height]);
        // A small photo counts as one of the clip's size, so that an estimate holds for it.
        let [photo_width, photo_height] = self.photo;
        let (photo_width, photo_height) =
            (photo_width.max(settings.width), photo_height.max(settings.height));
        let photo = product(&[photo_width, photo_height, COLOURS]);
        // Resized in one direction first.
        let narrow = product(&[photo_height, CLIP_SIZE.max(settings.width), COLOURS, size_of::<f32>()]);
        // A photo of another shape is copied to be cropped or padded.
        let size = [photo_width, photo_height];
        let fitted = settings.fit.copied_pixels(size, settings.width, settings.height);
        let fitted = fitted.saturating_mul(COLOURS);
        let prepared = product(&[pixels, COLOURS, size_of::<f32>(), PHOTO_COPIES]);
        let prepared = prepared.saturating_add(narrow).saturating_add(fitted);

        let [height, width] = self.latent_size();
        let channels = self.configs.unet.out_channels;
        let latents = product(&[settings.frames, height, width, channels, size_of::<f32>()]);
        let fresh = if self.schedule()?.needs_noise { settings.steps } else { 0 };
        let denoising = latents.saturating_mul(LATENT_COPIES.saturating_add(fresh));

        let frame = pixels.saturating_mul(COLOURS);
        let chunk = settings.decode_chunk.min(settings.frames);
        let decoding = frame.saturating_mul(settings.frames.saturating_add(chunk)).saturating_add(latents);

        let threads = product(&[rayon::current_num_threads(), THREAD_BYTES]);
        Ok(prepared.max(denoising).max(decoding).saturating_add(photo).saturating_add(threads))
    }
}
