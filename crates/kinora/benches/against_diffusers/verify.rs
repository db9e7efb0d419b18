//! Whether both made the same clip.

use kinora::image_to_video::Clip;

/// Latents may be off by this at most.
const LATENT_BAR: f32 = 1e-3;
/// Of so many bytes of the frames one may be off, by one.
const BYTES_PER_DIFFERENCE: usize = 1000;

/// A clip as numbers, channels last.
#[derive(PartialEq)]
pub struct Made {
    /// What the frames were decoded from.
    pub latents: Vec<f32>,
    /// All frames, one after the other.
    pub frames: Vec<u8>,
}

/// How far two clips are apart.
#[derive(Clone, Copy)]
pub struct Distance {
    /// The largest difference of latents.
    pub latents: f32,
    /// The share of bytes that differ.
    pub bytes: f64,
}

impl Made {
    /// Of a clip of ours.
    pub fn of(clip: &Clip) -> Self {
        Made {
            latents: clip.latents.to_f32(),
            frames: clip.frames.iter().flat_map(|frame| frame.bytes()).copied().collect(),
        }
    }

    /// How far the two are apart, where that is near enough.
    pub fn compare(&self, other: &Made) -> Result<Distance, String> {
        let counts = |made: &Made| [made.latents.len(), made.frames.len()];
        if counts(self) != counts(other) {
            return Err(format!(
                "we made {:?} latents and bytes, the peer {:?}",
                counts(self),
                counts(other)
            ));
        }
        let difference =
            |(a, b): (&f32, &f32)| if (a - b).is_finite() { (a - b).abs() } else { f32::INFINITY };
        let latents = self.latents.iter().zip(&other.latents).map(difference).fold(0.0, f32::max);
        let differences = || self.frames.iter().zip(&other.frames).map(|(a, b)| a.abs_diff(*b));
        let unequal = differences().filter(|&d| d > 0).count();
        let worst = differences().max().unwrap_or(0);
        let bytes = unequal as f64 / self.frames.len().max(1) as f64;
        if latents > LATENT_BAR || worst > 1 || unequal * BYTES_PER_DIFFERENCE > self.frames.len() {
            return Err(format!(
                "latents differ by up to {latents:.1e}, and {:.3} % of the frames' bytes by up to {worst}",
                bytes * 100.0
            ));
        }
        Ok(Distance { latents, bytes })
    }
}
