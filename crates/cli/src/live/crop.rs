//! Frames that lose much because the model's picture has another shape.

use kinora::{
    LiveSettings,
    image_to_video::Precision,
    live::{LiveConfigs, MAX_SIDE},
    photo::Fit,
};

/// The share of a frame whose loss is warned of.
const MUCH: f64 = 0.05;
/// A size that is suggested has at most this many times the pixels: it should take about the same time and memory.
const MORE_PIXELS: f64 = 1.1;
/// The most warnings of a video: a folder may hold pictures of any number of sizes.
const MOST_WARNINGS: usize = 3;

/// Says once for each shape of frame how much of it is not drawn.
#[derive(Default)]
pub struct Crops {
    /// The sizes of frames and pictures that were looked at.
    seen: Vec<[[usize; 2]; 2]>,
    warnings: usize,
}

impl Crops {
    /// A warning if much of a frame of this width and height is cut off, and no other frame of this size was looked at before.
    pub fn look(
        &mut self,
        frame: [usize; 2],
        settings: &LiveSettings,
        (configs, precision): (&LiveConfigs, Precision),
    ) -> Option<String> {
        let sizes = [frame, [settings.width, settings.height]];
        if settings.fit != Fit::Crop || self.warnings == MOST_WARNINGS || self.seen.contains(&sizes) {
            return None;
        }
        let lost = lost(frame, sizes[1]);
        if lost < MUCH {
            return None;
        }
        self.seen.push(sizes);
        self.warnings += 1;
        let works = |[width, height]: [usize; 2]| {
            settings.clone().width(width).height(height).check(configs, precision).is_ok()
        };
        let better = better(frame, sizes[1], configs.side_unit(), works);
        let better =
            better.map(|[width, height]| format!("--size {width}x{height} keeps almost all of it, and "));
        Some(format!(
            "{:.0} % of each frame of {}×{} is not drawn, because the model's picture, {}×{}, has another shape; {}--fit pad keeps \
             all of it",
            100.0 * lost,
            frame[0],
            frame[1],
            settings.width,
            settings.height,
            better.unwrap_or_default(),
        ))
    }
}

/// The share of a frame that is cut off in a picture of another shape.
fn lost(frame: [usize; 2], picture: [usize; 2]) -> f64 {
    let [frame, picture] = [frame, picture].map(|[width, height]| width as f64 / height.max(1) as f64);
    1.0 - (frame / picture).min(picture / frame)
}

/// The size with the frame's shape that is nearest to the picture's in pixels; `None` if there is none that loses little.
fn better(
    frame: [usize; 2],
    picture: [usize; 2],
    unit: usize,
    works: impl Fn([usize; 2]) -> bool,
) -> Option<[usize; 2]> {
    let pixels = |[width, height]: [usize; 2]| width as f64 * height as f64;
    let (now, unit) = (pixels(picture), unit.max(1));
    let shape = frame[0] as f64 / frame[1].max(1) as f64;
    // For each width, the two heights around the frame's shape.
    let sizes = (1..=MAX_SIDE / unit).map(|units| units * unit).flat_map(|width| {
        let height = (width as f64 / shape / unit as f64) as usize;
        [height, height.saturating_add(1)].map(|units| [width, units.saturating_mul(unit)])
    });
    let fits = |size: &[usize; 2]| {
        let fewer = pixels(*size) <= MORE_PIXELS * now && pixels(*size) >= now / 2.0;
        *size != picture && fewer && lost(frame, *size) < MUCH && works(*size)
    };
    let apart = |size: [usize; 2]| (pixels(size) / now).ln().abs();
    sizes.filter(fits).min_by(|a, b| apart(*a).total_cmp(&apart(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_suggested_differs_and_works() {
        let within = |side: usize| side.is_multiple_of(64) && (64..=4096).contains(&side);
        let works = |[width, height]: [usize; 2]| within(width) && within(height);
        // By hand: 704 to 384 is 1.83, and 1920 to 1080 is 1.78, 3 % less; 640×384 would lose 6 %.
        assert_eq!(better([1920, 1080], [512, 512], 64, works), Some([704, 384]));
        assert_eq!(better([1080, 1920], [512, 512], 64, works), Some([384, 704]));
        // The next size of that shape has twice the pixels.
        assert_eq!(better([80, 48], [64, 64], 64, works), None);
        // 8192 wide would be beyond what a frame may have.
        assert_eq!(better([100_000, 100], [4096, 4096], 64, works), None);
        assert_eq!(better([1, usize::MAX], [512, 512], 64, works), None);
    }

    #[test]
    fn a_warning_comes_once_for_each_size() {
        let configs = LiveConfigs::preset("sd-turbo").unwrap();
        let settings = LiveSettings::for_configs(&configs);
        let mut crops = Crops::default();
        let mut look =
            |frame, settings: &LiveSettings| crops.look(frame, settings, (&configs, Precision::F16));
        assert_eq!(look([500, 512], &settings), None, "it loses little");
        let said = look([1920, 1080], &settings).unwrap();
        assert!(
            said.starts_with("44 % of each frame of 1920×1080") && said.contains("--size 704x384"),
            "{said}"
        );
        assert_eq!(look([1920, 1080], &settings), None);
        assert!(look([1080, 1920], &settings).is_some());
        assert_eq!(look([99, 10], &settings.clone().fit(Fit::Pad)), None);
        let wide = look([9000, 10], &settings).unwrap();
        assert!(!wide.contains("--size") && wide.ends_with("--fit pad keeps all of it"), "{wide}");
        assert_eq!(look([10, 9000], &settings), None, "enough was said");
    }
}
