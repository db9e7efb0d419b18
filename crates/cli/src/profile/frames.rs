//! Where the time of live video goes.

use std::path::Path;

use kinora::{
    files::Inputs,
    live::name_parts,
    video::input::{self, InputError, InputOptions},
};
use kinora_profile::Profiler;

use super::{Outputs, answer, arguments::LiveRunArgs};
use crate::{
    display::{Display, Unit},
    failure::Failure,
    interrupt,
    live::{
        arguments::DEFAULT_MODEL,
        drawing::{self, Models},
        idle::{self, Ever},
    },
    out_of_memory,
};

/// Draws frames and shows their profile. Everything that can be checked is checked before the work begins.
pub fn profile(arguments: &LiveRunArgs) -> Result<(), Failure> {
    let (draw, report) = (&arguments.draw, &arguments.report);
    out_of_memory::set_advice(drawing::less_memory(draw, &arguments.place, Some(&arguments.row)));
    let mut display = Display::new(report.json, false);
    let mut source = input::open(&arguments.input, &InputOptions::new().background(draw.background))?;
    let inputs = Inputs::new(source.info().files.iter().cloned().chain(drawing::inputs(draw)));
    let outputs = Outputs::check(arguments.save.as_deref(), report, &inputs)?;

    let profiler = Profiler::on();
    let models = Models { profiler: profiler.clone(), ..Models::new(draw, &arguments.place) };
    let live = drawing::open(models, &mut display)?;
    let settings = arguments.row.apply(drawing::settings(&live, draw)?);
    let idle = idle::of_picture(draw, live.configs(), &Ever::of(&settings));
    idle.iter().chain(&idle::loras(draw, |_| false)).for_each(|warning| display.warn(warning));
    profiler.planned_peak(live.estimate(&settings).map_err(drawing::failure)?.peak_bytes());
    display.advance("measuring the device", Unit::Parts, 0, 1);
    let machine = live.machine()?;

    let whole = profiler.span("live");
    let loading = profiler.span("load");
    let stream = live.begin_with(settings.clone(), |progress| {
        drawing::show(&mut display, progress);
        interrupt::control_flow()
    });
    let mut stream = stream.map_err(drawing::failure)?;
    drop(loading);
    let mut drawn = 0;
    while drawn < arguments.frames {
        if interrupt::requested() {
            return Err(Failure::Interrupted);
        }
        display.advance("drawing frames", Unit::Frames, drawn as u64, arguments.frames as u64);
        let reading = profiler.span("read");
        let Some(frame) = source.next_frame()? else { break };
        drop(reading);
        let _frame = profiler.span("frame");
        stream.frame(&frame.image).map_err(drawing::failure)?;
        drawn += 1;
    }
    drop(whole);
    display.end_stage();
    if drawn == 0 {
        let name = arguments.input.display().to_string();
        return Err(Failure::Input(InputError::NoFrames { name }));
    }

    // Reports are passed around: the folder's name says which model it was, but not where it was stored.
    let model = draw.model.as_deref().map_or(Path::new(DEFAULT_MODEL), Path::new);
    let steps = settings.timesteps.as_ref().map_or(settings.steps, Vec::len);
    let count =
        |count: usize, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    let title = format!(
        "{}: {} of {}×{} in {}, {}",
        model.file_name().unwrap_or(model.as_os_str()).display(),
        count(drawn, "frame"),
        settings.width,
        settings.height,
        count(steps, "step"),
        live.precision()
    );
    profiler.describe(&title, machine);
    let mut profile = profiler.profile().starting_at_zero();
    name_parts(&mut profile);
    outputs.write(&profile)?;
    answer(&profile, report)
}
