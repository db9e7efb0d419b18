//! Which clip, or which frames of live video, fit which machine.

use kinora::{
    LiveSettings,
    image_to_video::{
        Configs, Settings,
        hardware::{Fit, fits},
    },
    live::{LiveConfigs, LiveFit, live_fits},
};
use serde::Serialize;

use crate::{
    failure::Failure,
    print,
    quantities::{Bytes, PictureSize},
};

/// Prints a table of machines, in Markdown, or a JSON list.
pub fn run(configs: &Configs, settings: &Settings, json: bool) -> Result<(), Failure> {
    let fits = fits(configs, settings)?;
    if json {
        return print_json(&fits);
    }
    let mut text = format!(
        "| machine | the clip that fits ({} steps) | memory at the peak | estimated time |\n| --- | --- | --- | --- |\n",
        settings.steps
    );
    fits.iter().for_each(|fit| text += &row(fit));
    print(&text)
}

/// The same for live video.
pub fn run_live(configs: &LiveConfigs, settings: &LiveSettings, json: bool) -> Result<(), Failure> {
    let fits = live_fits(configs, settings)?;
    if json {
        return print_json(&fits);
    }
    let steps = if settings.steps == 1 { "1 step".to_owned() } else { format!("{} steps", settings.steps) };
    let mut text = format!(
        "| machine | the frames that fit ({steps}) | memory | estimated frames per second |\n| --- | --- | --- | --- |\n"
    );
    fits.iter().for_each(|fit| text += &live_row(fit));
    print(&text)
}

fn print_json(fits: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string(fits).map_err(|error| Failure::StandardOutput(error.into()))?;
    print(&format!("{json}\n"))
}

fn live_row(LiveFit { machine, frame, .. }: &LiveFit) -> String {
    let Some(frame) = frame else {
        return format!("| {} | none that were tried | | |\n", machine.name);
    };
    let size = PictureSize { width: frame.width, height: frame.height };
    format!(
        "| {} | {size}, {} | {} | {} |\n",
        machine.name,
        frame.precision,
        Bytes(frame.peak_bytes as u64),
        rate(frame.estimated_frames_per_second),
    )
}

/// A rough rate: two digits.
fn rate(frames_per_second: f64) -> String {
    match frames_per_second {
        ..0.01 => "under 0.01".to_owned(),
        ..0.095 => format!("{frames_per_second:.2}"),
        ..9.95 => format!("{frames_per_second:.1}"),
        ..99.5 => format!("{frames_per_second:.0}"),
        _ => format!("{:.0}", (frames_per_second / 10.0).round() * 10.0),
    }
}

fn row(Fit { machine, clip, .. }: &Fit) -> String {
    let Some(clip) = clip else {
        return format!("| {} | none that was tried | | |\n", machine.name);
    };
    let size = PictureSize { width: clip.width, height: clip.height };
    let chunk = match clip.decode_chunk {
        all if all == clip.frames => "decoded together".to_owned(),
        1 => "decoded one by one".to_owned(),
        chunk => format!("decoded {chunk} at a time"),
    };
    format!(
        "| {} | {} frames, {size}, {}, {chunk} | {} | {} |\n",
        machine.name,
        clip.frames,
        clip.precision,
        Bytes(clip.peak_bytes as u64),
        duration(clip.estimated_seconds),
    )
}

/// A rough time: two digits.
fn duration(seconds: f64) -> String {
    match seconds {
        ..0.1 => "under 0.1 s".to_owned(),
        ..10.0 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rough_but_never_nothing() {
        for (seconds, text) in
            [(0.004, "under 0.1 s"), (5.2, "5.2 s"), (79.0, "79 s"), (2760.0, "46 min"), (9000.0, "2.5 h")]
        {
            assert_eq!(duration(seconds), text);
        }
        for (frames, text) in [
            (0.004, "under 0.01"),
            (0.052, "0.05"),
            (0.77, "0.8"),
            (7.64, "7.6"),
            (41.4, "41"),
            (248.1, "250"),
        ] {
            assert_eq!(rate(frames), text);
        }
    }
}
