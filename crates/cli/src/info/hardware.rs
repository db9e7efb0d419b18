//! Which clip fits which machine.

use kinora::image_to_video::{
    Configs, Settings,
    hardware::{Fit, fits},
};

use crate::{
    failure::Failure,
    print,
    quantities::{Bytes, PictureSize},
};

/// Prints a table of machines, in Markdown, or a JSON list.
pub fn run(configs: &Configs, settings: &Settings, json: bool) -> Result<(), Failure> {
    let fits = fits(configs, settings)?;
    if json {
        let json = serde_json::to_string(&fits).map_err(|error| Failure::StandardOutput(error.into()))?;
        return print(&format!("{json}\n"));
    }
    let mut text = format!(
        "| machine | the clip that fits ({} steps) | memory at the peak | estimated time |\n| --- | --- | --- | --- |\n",
        settings.steps
    );
    fits.iter().for_each(|fit| text += &row(fit));
    print(&text)
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
    }
}
