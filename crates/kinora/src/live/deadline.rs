//! Settings that keep a deadline, chosen by what frames take on this machine.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use kinora_models::image::RgbImage;

use super::{Live, LiveSettings};
use crate::image_to_video::{GenerateError, nearest_side};

/// Frames that are drawn before the time is taken, and those whose median it is.
const WARM_UP: usize = 2;
const TAKEN: usize = 5;
/// The share of the period that a frame may take: the rest is for what happens around it.
const SHARE: f64 = 0.9;
/// Shares of the sides that are tried, in eighths.
const EIGHTHS: [usize; 5] = [7, 6, 5, 4, 3];

/// Settings for a deadline.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Kept {
    /// The settings.
    pub settings: LiveSettings,
    /// What a frame took with them.
    pub frame: Duration,
    /// Whether that keeps the deadline.
    pub keeps: bool,
    /// What was chosen and why, in a sentence for people.
    pub reason: String,
}

impl Live {
    /// The settings nearest to these that draw a frame within a period, by what frames take now: steps one after the other if
    /// they fit, otherwise a stream batch, otherwise fewer steps, otherwise smaller frames. If nothing fits, the smallest.
    ///
    /// Frames of this width and height come in; they are fitted to the settings' own.
    ///
    /// # Errors
    /// As [`Live::begin`].
    pub fn within(
        &self,
        settings: &LiveSettings,
        input: [usize; 2],
        period: Duration,
    ) -> Result<Kept, GenerateError> {
        // What does not fit the memory is not the last word: something smaller may.
        let asked = match self.frame_time(settings, input) {
            Err(error) if error.lacks_memory() => Err(error),
            time => Ok(time?),
        };
        let shown = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let fits = |time: Duration| time.as_secs_f64() <= SHARE * period.as_secs_f64();
        let kept = |settings: LiveSettings, frame: Duration, what: &str| {
            let reason = match what {
                "" => format!("a frame takes {} of {}", shown(frame), shown(period)),
                _ => {
                    let would = match &asked {
                        Ok(time) => format!("would take {} of {}", shown(*time), shown(period)),
                        Err(_) => "would not fit the memory".to_owned(),
                    };
                    format!("a frame {would}, so {what}: {}", shown(frame))
                }
            };
            Kept { settings, frame, keeps: fits(frame), reason }
        };
        if let Ok(time) = asked
            && fits(time)
        {
            return Ok(kept(settings.clone(), time, ""));
        }
        let mut last = asked.as_ref().ok().map(|time| (settings.clone(), *time, String::new()));
        for (other, what) in self.smaller(settings) {
            let time = match self.frame_time(&other, input) {
                Err(error) if error.lacks_memory() => continue,
                time => time?,
            };
            if fits(time) {
                return Ok(kept(other, time, &what));
            }
            last = Some((other, time, what));
        }
        let Some((settings, frame, what)) = last else {
            return Err(asked.err().unwrap_or(GenerateError::NoResult { part: "deadline", name: "frame" }));
        };
        let nothing = match what.as_str() {
            "" => "there is nothing less to draw; the deadline is not kept".to_owned(),
            what => format!("{what}, the least that was tried; the deadline is not kept"),
        };
        Ok(kept(settings, frame, &nothing))
    }

    /// What is tried, in this order, and what it is in words.
    fn smaller(&self, settings: &LiveSettings) -> Vec<(LiveSettings, String)> {
        let steps = settings.timesteps.as_ref().map_or(settings.steps, Vec::len);
        let mut tried = Vec::new();
        if steps > 1 && !settings.is_batched() && self.configs().control.is_none() {
            let what = format!("frames are drawn as a stream batch, each ready {} later", frames(steps - 1));
            tried.push((settings.clone().stream_batch(true), what));
        }
        let of_steps = |steps: usize| settings.clone().timesteps(None).steps(steps);
        for fewer in (1..steps).rev() {
            let what = if fewer == 1 { "it has 1 step".to_owned() } else { format!("it has {fewer} steps") };
            tried.push((of_steps(fewer), what));
        }
        let unit = self.configs().side_unit();
        for eighths in EIGHTHS {
            let side = |side: usize| nearest_side(side * eighths / 8, unit);
            let (width, height) = (side(settings.width), side(settings.height));
            let other = of_steps(1).width(width).height(height);
            let before = tried.last().map_or(settings, |(settings, _)| settings);
            if [width, height] != [before.width, before.height] && width <= settings.width {
                tried.push((other, format!("it has 1 step and {width}×{height} pixels")));
            }
        }
        tried
    }

    /// What a frame takes: the median of some.
    fn frame_time(
        &self,
        settings: &LiveSettings,
        input @ [width, height]: [usize; 2],
    ) -> Result<Duration, GenerateError> {
        let mut stream = self.begin_for(settings.clone(), input, |_| ControlFlow::Continue(()))?;
        let grey = RgbImage::new(width, height, vec![128; width * height * 3])?;
        let mut times = Vec::with_capacity(TAKEN);
        for number in 0..WARM_UP + TAKEN {
            let start = Instant::now();
            stream.frame(&grey)?;
            if number >= WARM_UP {
                times.push(start.elapsed());
            }
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }
}

fn frames(count: usize) -> String {
    if count == 1 { "1 frame".to_owned() } else { format!("{count} frames") }
}
