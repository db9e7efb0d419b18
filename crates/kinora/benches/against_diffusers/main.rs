//! The whole pipeline against diffusers: same machine, same run, same models, photo and noise.
//!
//! `cargo xtask bench` installs diffusers into the project's own environment and runs this; `cargo bench` runs it with what
//! is there. Both read the same model folder, made of random weights. Each case's clip is compared with diffusers' before
//! either is timed, and once more afterwards. The two take turns, a clip or more each, so that what else the machine does
//! meets both alike. The ratio of each turn is taken, and of these the median, with the interval in which it lies: fewer
//! than six turns are not enough for one of 95 %. Best times are compared too. The first clip is timed apart, with the loading of the model; for the others both have their
//! networks in memory, and diffusers its weights in the layout that is the faster one. Results are written as JSON beside
//! a table for people.
//!
//! Options after `--`: words of which case names must contain one, `--seconds N` a turn at least, `--turns N`, `--json
//! FILE`.

mod cases;
mod peer;
mod report;
mod verify;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use kinora::{
    RgbImage,
    image_to_video::{Clip, ImageToVideo, LoadOptions},
    photo,
};
use kinora_bench::{CommandLine, Compared, Filter, exit_code};
use kinora_models::{folder::ModelFolder, synthetic::uniform};

use cases::Case;
use peer::{ClipTime, DiffusersPeer};
use report::{Measurement, Report};
use verify::Made;

/// A photo that is neither of a clip's sizes nor of the image encoder's.
const PHOTO_SIZE: [usize; 2] = [320, 240];

/// The stages of a clip, by their names in our reports.
const STAGES: [&str; 4] = ["encode_image", "encode_latents", "denoise", "decode"];

/// What the command line asked for.
struct Arguments {
    filter: Filter,
    seconds: f64,
    turns: usize,
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit_code(bench())
}

fn bench() -> Result<(), String> {
    let arguments = arguments()?;
    let threads = rayon::current_num_threads();
    let mut peer = DiffusersPeer::start(threads)?;
    let photo = peer.folder().join("photo.png");
    write_photo(&photo)?;
    let mut report = Report::new(threads, peer.versions());
    for case in cases::all() {
        if !arguments.filter.chooses(case.name) {
            continue;
        }
        report.add(measure(&case, &photo, &mut peer, &arguments).map_err(|e| format!("{}: {e}", case.name))?);
    }
    report.finish(arguments.json.as_deref())
}

fn measure(
    case: &Case,
    photo: &Path,
    peer: &mut DiffusersPeer,
    arguments: &Arguments,
) -> Result<Measurement, String> {
    let folder = peer.folder().join(case.name);
    case.model.write(&folder).map_err(|e| e.to_string())?;

    let theirs_first = peer.load(&folder, photo, &case.settings)? + peer.clip()?.seconds;
    let photo = photo::open(photo).map_err(|e| e.to_string())?;
    let start = Instant::now();
    let model = ModelFolder::open(&folder).map_err(|e| e.to_string())?;
    // diffusers keeps its networks in memory, and so do we.
    let options = LoadOptions::default().keep_loaded(true);
    let pipeline = ImageToVideo::new(model, options).map_err(|e| e.to_string())?;
    let first = generate(&pipeline, &photo, case)?;
    let ours_first = start.elapsed().as_secs_f64();
    let load = clip_time(&first, ours_first).stages.get("load").copied().unwrap_or(f64::NAN);
    let ours = Made::of(&first);
    ours.compare(&peer.results()?).map_err(|problem| format!("{problem}; not timed"))?;
    let layout = peer.choose_layout()?;

    let (mut own, mut other) = (Samples::default(), Samples::default());
    let mut last = first;
    for turn in 0..arguments.turns {
        // Whoever comes second in a turn finds the processor as the other left it.
        for ours in [turn % 2 == 0, turn % 2 == 1] {
            if ours {
                own.turn(arguments.seconds, || {
                    let start = Instant::now();
                    last = generate(&pipeline, &photo, case)?;
                    Ok(clip_time(&last, start.elapsed().as_secs_f64()))
                })?;
            } else {
                other.turn(arguments.seconds, || peer.clip())?;
            }
        }
    }
    if Made::of(&last) != ours {
        return Err("another clip after the timing than before it".to_owned());
    }
    let distance = ours.compare(&peer.results()?)?;

    let stages = STAGES.map(|stage| (stage, Compared::of(&own.of(stage), &other.of(stage))));
    Ok(Measurement {
        name: case.name,
        settings: case.settings.clone(),
        parameters: last.report.plan.parameters(),
        gflop: last.report.plan.flops() as f64 / 1e9,
        clips: own.turns.iter().map(Vec::len).sum(),
        clip: Compared::of(&own.clips(), &other.clips()),
        stages,
        load,
        first: [ours_first, theirs_first],
        layout,
        distance,
    })
}

/// The clips of one side, turn by turn.
#[derive(Default)]
struct Samples {
    turns: Vec<Vec<ClipTime>>,
}

impl Samples {
    /// Makes clips for at least so many seconds, and at least one.
    fn turn(
        &mut self,
        seconds: f64,
        mut clip: impl FnMut() -> Result<ClipTime, String>,
    ) -> Result<(), String> {
        let start = Instant::now();
        let mut clips = vec![clip()?];
        while start.elapsed().as_secs_f64() < seconds {
            clips.push(clip()?);
        }
        self.turns.push(clips);
        Ok(())
    }

    /// The seconds of the clips.
    fn clips(&self) -> Vec<Vec<f64>> {
        self.turns.iter().map(|turn| turn.iter().map(|clip| clip.seconds).collect()).collect()
    }

    /// The seconds of one of their stages.
    fn of(&self, stage: &str) -> Vec<Vec<f64>> {
        let seconds = |clip: &ClipTime| clip.stages.get(stage).copied().unwrap_or(f64::NAN);
        self.turns.iter().map(|turn| turn.iter().map(seconds).collect()).collect()
    }
}

fn generate(pipeline: &ImageToVideo, photo: &RgbImage, case: &Case) -> Result<Clip, String> {
    let clip = pipeline.generate(photo, &case.settings);
    clip.map_err(|e| e.to_string())
}

/// The times of a clip of ours, under the stages' names in its report.
fn clip_time(clip: &Clip, seconds: f64) -> ClipTime {
    let name = |stage| serde_json::to_value(stage).ok()?.as_str().map(str::to_owned);
    let stages = clip.report.stages.iter().filter_map(|time| Some((name(time.stage)?, time.seconds)));
    ClipTime { seconds, stages: stages.collect() }
}

/// A photo of noise.
fn write_photo(path: &Path) -> Result<(), String> {
    let [width, height] = PHOTO_SIZE;
    let bytes = uniform("photo").take(width * height * 3).map(|u| ((u + 1.0) * 128.0) as u8).collect();
    let image = image::RgbImage::from_raw(width as u32, height as u32, bytes).ok_or("no photo")?;
    image.save(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn arguments() -> Result<Arguments, String> {
    let mut line = CommandLine::of_process();
    let seconds = line.option_or("--seconds", 1.0)?;
    let turns = line.option_or("--turns", 6)?;
    if !(0.0..60.0).contains(&seconds) || turns == 0 {
        return Err("--seconds must lie between 0 and 60, --turns be at least 1".into());
    }
    Ok(Arguments { seconds, turns, json: line.option("--json")?, filter: line.rest()? })
}
