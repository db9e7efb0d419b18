//! Several photos in one call. The model is loaded once, and one bad photo does not stop the others.

use kinora::{
    image_to_video::{ImageToVideo, Precision, random_seed},
    profile::Profiler,
    video::VideoOptions,
};
use serde_json::{Value, json};

use super::{Maker, arguments::GenerateArgs, jobs::Job, try_place, video_options};
use crate::{
    answer,
    clip::{Order, Still},
    display::Display,
    failure::Failure,
    interrupt,
};

/// A model that was loaded when its first clip was made.
type Opened<'a> = Option<(Maker<'a>, ImageToVideo)>;

/// Makes a video of every photo, in order.
pub fn run(
    arguments: &GenerateArgs,
    jobs: &[Job],
    precision: Precision,
    probe: &VideoOptions,
    display: &mut Display,
) -> Result<(), Failure> {
    // All places are tried before the first clip is made.
    let places: Vec<Option<Failure>> = jobs.iter().map(|job| try_place(&job.output, probe).err()).collect();
    let (mut opened, mut clips, mut failed, mut stopped) = (None, Vec::new(), Vec::new(), None);
    for (number, (job, place)) in jobs.iter().zip(places).enumerate() {
        display.heading(&format!("{} ({} of {})", job.name(), number + 1, jobs.len()));
        let made = match place {
            Some(failure) => Err(failure),
            None => one(arguments, job, precision, &mut opened, display),
        };
        match made {
            Ok(clip) => clips.push(clip),
            Err(failure) if failure.is_of_one_clip() => {
                display.abandon_stage();
                clips.push(json!({ "photo": { "file": job.name() }, "error": failure.tell() }));
                failed.push(job.name());
            }
            Err(failure) => {
                stopped = Some(failure);
                break;
            }
        }
        interrupt::set_clips(&clips, clips.len() - failed.len(), jobs.len());
    }
    let made = clips.len() - failed.len();
    let failure = match stopped {
        Some(Failure::Interrupted) => Some(Failure::InterruptedClips { made, asked: jobs.len() }),
        None if !failed.is_empty() => {
            Some(Failure::SomeClips { made, asked: jobs.len(), failed: failed.join(", ") })
        }
        stopped => stopped,
    };
    answer(arguments.json, json!({ "clips": clips }), failure)
}

/// Makes one of the videos; gives its report. Each clip has a seed of its own, unless one was asked for.
fn one<'a>(
    arguments: &'a GenerateArgs,
    job: &Job,
    precision: Precision,
    opened: &mut Opened<'a>,
    display: &mut Display,
) -> Result<Value, Failure> {
    let still = Still::open(job.photo.as_deref(), &arguments.request)?;
    let (maker, pipeline) = match opened.take() {
        Some(opened) => opened,
        None => {
            let order = Order::new(&arguments.request, precision, Profiler::off(), display)?.keep_loaded();
            let maker = Maker { arguments, video: video_options(arguments, &order.settings)?, order };
            maker.try_a_frame(job)?;
            let pipeline = maker.order.open(display)?;
            (maker, pipeline)
        }
    };
    let (maker, pipeline) = opened.insert((maker, pipeline));
    let mut notices = maker.notices(job, &still, display);
    let seed = arguments.request.seed.unwrap_or_else(random_seed);
    let settings = maker.order.settings.clone().seed(seed);
    let made = maker.make(pipeline, job, &still, &settings, display)?;
    notices.warnings.extend_from_slice(&made.warnings);
    Ok(made.json(job, &still, &notices, maker))
}
