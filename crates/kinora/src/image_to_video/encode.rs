//! Encodes the photo for the denoising network.

use kinora_graph::{DType, Tensor};
use kinora_models::{
    image::{CLIP_SIZE, RgbImage, preprocess},
    weights::Weights,
};

use super::{
    GenerateError, Stage,
    configs::COLOURS,
    plans::Part,
    run::{Run, named},
    working::PHOTO_COPIES,
};

impl Run<'_, '_> {
    /// What the photo shows, `[1, 1, channels]`. It is encoded from the photo's own pixels, not those of the clip's size.
    pub fn encode_image(
        &mut self,
        part: &mut Part,
        weights: &Weights,
        photo: &RgbImage,
    ) -> Result<Tensor, GenerateError> {
        let mut encoder = self.load(part, weights)?;
        self.tell(Stage::EncodeImage, 0, 1, None)?;
        let running = self.stopwatch.begin(Stage::EncodeImage);
        let pixels = self.request.configs.preprocessor.pixels(photo);
        let shape = [1, CLIP_SIZE, CLIP_SIZE, COLOURS];
        let pixels = Tensor::from_f32(self.request.precision.dtype(), shape, &pixels)?;
        let embedding = encoder.run(&named([("pixels", pixels)]))?.take("embedding")?;
        self.release(part);
        self.check_finite(Stage::EncodeImage, &embedding)?;
        let embedding = embedding.cast(DType::F32).reshape([1, 1, embedding.shape().elements()])?;
        self.stopwatch.end(running);
        self.tell(Stage::EncodeImage, 1, 1, None)?;
        Ok(embedding)
    }

    /// The photo in the clip's size, with a little noise, as latents: `[1, height, width, channels]`.
    pub fn encode_latents(
        &mut self,
        part: &mut Part,
        weights: &Weights,
        photo: &RgbImage,
    ) -> Result<Tensor, GenerateError> {
        let name = part.name;
        let mut encoder = self.load(part, weights)?;
        self.tell(Stage::EncodeLatents, 0, 1, None)?;
        let running = self.stopwatch.begin(Stage::EncodeLatents);
        let settings = self.request.settings;
        let shape = [1, settings.height, settings.width, COLOURS];
        self.reserve(name, PHOTO_COPIES * settings.height * settings.width * COLOURS * size_of::<f32>())?;
        let mut pixels = preprocess(photo, settings.width, settings.height)?;
        // Drawn even if its strength is 0, since the latents are drawn after it. diffusers' image is always f32.
        let noise = self.noise.draw(DType::F32, shape);
        let strength = settings.noise_augmentation as f32;
        for (pixel, noise) in pixels.iter_mut().zip(noise) {
            *pixel += strength * noise;
        }
        let image = Tensor::from_f32(self.request.vae_encoder_dtype(), shape, &pixels)?;
        let latents = encoder.run(&named([("image", image)]))?.take("latents")?.cast(DType::F32);
        self.release(part);
        self.check_finite(Stage::EncodeLatents, &latents)?;
        self.stopwatch.end(running);
        self.tell(Stage::EncodeLatents, 1, 1, None)?;
        Ok(latents)
    }
}
