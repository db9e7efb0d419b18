//! `kinora profile`: where the time of a clip or of live video goes.

pub mod arguments;
mod frames;

use std::path::Path;

use kinora::files::Inputs;
use kinora_profile::{
    Profile, Profiler,
    bottlenecks::{bottlenecks, stages},
    compare,
    copies::copies,
    groups::{By, groups},
    html,
    kernel_times::kernel_times,
    steps::steps,
    table, trace,
};
use serde_json::json;

use self::arguments::{CompareArgs, ProfileArgs, ProfileCommand, ReportArgs, RunArgs, ShowArgs};
use crate::{
    clip::{self, Order, Still},
    display::{Display, Unit},
    failure::Failure,
    files::{self, NewFile},
    print,
};

/// Does what was asked for.
pub fn run(arguments: &ProfileArgs) -> Result<(), Failure> {
    match &arguments.command {
        ProfileCommand::Run(arguments) => profile_clip(arguments),
        ProfileCommand::Live(arguments) => frames::profile(arguments),
        ProfileCommand::Show(arguments) => show(arguments),
        ProfileCommand::Compare(arguments) => compare_two(arguments),
    }
}

/// Makes a clip and shows its profile. Everything that can be checked is checked before the work begins.
fn profile_clip(arguments: &RunArgs) -> Result<(), Failure> {
    let (request, report) = (&arguments.request, &arguments.report);
    let mut display = Display::new(report.json, false);
    let inputs = Inputs::new(files::inputs_of(&arguments.photo, request));
    let outputs = Outputs::check(arguments.save.as_deref(), report, &inputs)?;
    let precision = clip::precision(request)?;
    clip::checked_settings(request, precision)?;
    let still = Still::open(arguments.photo.as_deref(), request)?;

    let profiler = Profiler::on();
    let order = Order::new(request, precision, profiler.clone(), &mut display)?;
    still.notes().iter().for_each(|note| display.note(note));
    let warnings = still.warnings(&order.settings, &order.configs);
    warnings.iter().chain(&order.ignored).for_each(|warning| display.warn(warning));
    let pipeline = order.open(&mut display)?;
    display.advance("measuring the device", Unit::Parts, 0, 1);
    let machine = pipeline.machine()?;
    let (clip, warning) = order.make(&pipeline, &still, &still.settings(&order.settings), &mut display)?;
    warning.iter().for_each(|warning| profiler.note(warning));

    let settings = &clip.report.settings;
    // Reports are passed around: the folder's name says which model it was, but not where it was stored.
    let model = Path::new(&clip.report.model);
    let title = format!(
        "{}: {} frames of {}×{} in {} steps, {}",
        model.file_name().unwrap_or(model.as_os_str()).display(),
        settings.frames,
        settings.width,
        settings.height,
        settings.steps,
        precision
    );
    profiler.describe(&title, machine);
    let profile = profiler.profile().starting_at_zero();
    outputs.write(&profile)?;
    answer(&profile, report)
}

fn show(arguments: &ShowArgs) -> Result<(), Failure> {
    let report = &arguments.report;
    let outputs = Outputs::check(None, report, &Inputs::new([&arguments.profile]))?;
    let profile = Profile::read(&arguments.profile)?.starting_at_zero();
    outputs.write(&profile)?;
    answer(&profile, report)
}

fn compare_two(arguments: &CompareArgs) -> Result<(), Failure> {
    let inputs = Inputs::new([&arguments.before, &arguments.after]);
    let page =
        arguments.html.as_deref().map(|path| files::check(path, arguments.force, &inputs)).transpose()?;
    let read = |path: &Path| Profile::read(path).map(Profile::starting_at_zero);
    let (before, after) = (read(&arguments.before)?, read(&arguments.after)?);
    if let Some(page) = page {
        page.write(html::comparison(&before, &after).as_bytes())?;
    }
    let comparison = compare::compare(&before, &after);
    if arguments.json {
        return print(&format!("{}\n", json!(comparison)));
    }
    print(&compare::text(&comparison))
}

/// The files to write a profile to.
struct Outputs {
    save: Option<NewFile>,
    html: Option<NewFile>,
    trace: Option<NewFile>,
}

impl Outputs {
    /// Refuses, before any work, files that could not be written afterwards.
    fn check(save: Option<&Path>, report: &ReportArgs, inputs: &Inputs) -> Result<Outputs, Failure> {
        let (html, trace) = (report.html.as_deref(), report.trace.as_deref());
        files::refuse_same([save, html, trace].into_iter().flatten())?;
        let check =
            |path: Option<&Path>| path.map(|path| files::check(path, report.force, inputs)).transpose();
        Ok(Outputs { save: check(save)?, html: check(html)?, trace: check(trace)? })
    }

    fn write(&self, profile: &Profile) -> Result<(), Failure> {
        if let Some(file) = &self.save {
            file.write(profile.to_json().as_bytes())?;
        }
        if let Some(file) = &self.html {
            file.write(html::page(profile).as_bytes())?;
        }
        if let Some(file) = &self.trace {
            file.write(trace::json(profile).to_string().as_bytes())?;
        }
        Ok(())
    }
}

/// Prints the tables, or a JSON object for a program.
fn answer(profile: &Profile, report: &ReportArgs) -> Result<(), Failure> {
    if !report.json {
        return print(&table::text(profile));
    }
    let answer = json!({
        "title": profile.title,
        "machine": profile.machine,
        "nanoseconds": profile.duration(),
        "memory_peak_bytes": profile.memory_peak().map(|(_, bytes)| bytes),
        "planned_peak_bytes": profile.planned_peak_bytes,
        "stages": stages(profile),
        "networks": groups(profile, By::Program),
        "kinds": groups(profile, By::Op),
        "layers": groups(profile, By::Layer),
        "steps": steps(profile),
        "copies": copies(profile),
        "kernel_times": kernel_times(profile),
        "bottlenecks": bottlenecks(profile),
        "notes": profile.notes,
    });
    print(&format!("{answer}\n"))
}
