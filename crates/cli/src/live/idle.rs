//! Options that have no effect, and why: one sentence each.

use kinora::{
    LiveSettings,
    live::{Guidance, LiveConfigs},
    photo::{Colour, Fit},
    video::{FrameRate, VideoFormat, input::VideoInfo},
};

use super::{
    arguments::{DrawArgs, ImageArgs, LiveArgs},
    drawing, is_stored,
};

/// Formats of videos whose frames are never transparent.
const OPAQUE: [&str; 3] = ["MP4", "Y4M", "raw RGB"];

/// What the settings of a video are at some frame, from the first to the last.
#[derive(Clone, Debug, Default)]
pub struct Ever {
    /// Whether a frame is drawn at all.
    drawn: bool,
    /// Whether there is guidance.
    guided: bool,
    /// Whether the negative prompt counts.
    negative: bool,
    /// Whether it differs from the prompt then, and the scale is not 1.
    pushed: bool,
    /// Whether there is more than one step.
    stepped: bool,
    /// Whether a prompt changes.
    reworded: bool,
    last: Option<[String; 2]>,
}

impl Ever {
    /// Those of a picture.
    pub fn of(settings: &LiveSettings) -> Ever {
        let mut ever = Ever::default();
        ever.see(settings);
        ever
    }

    /// These are the settings from some frame on.
    pub fn see(&mut self, settings: &LiveSettings) {
        let steps = settings.timesteps.as_ref().map_or(settings.steps, Vec::len);
        let negative = matches!(settings.guidance, Guidance::Full | Guidance::Initialize);
        let guided = settings.guidance != Guidance::None;
        let differs = !negative || settings.prompt != settings.negative_prompt;
        self.drawn |= settings.timesteps.is_some() || settings.strength > 0.0;
        self.guided |= guided;
        self.negative |= negative;
        self.pushed |= guided && differs && settings.guidance_scale != 1.0;
        self.stepped |= steps > 1;
        let prompts = [settings.prompt.clone(), settings.negative_prompt.clone()];
        self.reworded |= self.last.as_ref().is_some_and(|last| *last != prompts);
        self.last = Some(prompts);
    }
}

/// The options of a picture that have no effect.
pub fn of_picture(draw: &DrawArgs, configs: &LiveConfigs, ever: &Ever) -> Vec<String> {
    if !ever.drawn {
        return vec![
            "--strength 0 leaves every frame as it is: no other option of the picture has an effect"
                .to_owned(),
        ];
    }
    let mut idle = Vec::new();
    let mut add = |given: bool, text: &str| {
        if given {
            idle.push(text.to_owned());
        }
    };
    add(
        !draw.negative_prompt.is_empty() && !ever.negative,
        "--negative-prompt has no effect: it counts only under --guidance full or initialize",
    );
    // Models that were distilled with guidance read the scale themselves.
    let reads_scale = configs.unet.time_cond_proj_dim.is_some();
    add(
        draw.guidance_scale.is_some() && !ever.guided && !reads_scale,
        "--guidance-scale has no effect without --guidance full, initialize or self",
    );
    if draw.guidance != Guidance::None && !ever.pushed {
        let why = match draw.guidance_scale {
            Some(1.0) => "a --guidance-scale of 1 pushes nowhere",
            _ => "the prompt and the negative prompt are the same",
        };
        add(true, &format!("--guidance {} has no effect: {why}", draw.guidance));
    }
    add(
        draw.guidance == Guidance::Initialize && ever.pushed && !ever.stepped,
        "--guidance initialize is the same as full with 1 step; it differs from 2 steps up",
    );
    add(
        draw.control_scale != 1.0 && draw.controlnet.is_none(),
        "--control-scale has no effect without --controlnet",
    );
    idle
}

/// The options of a video that have no effect.
pub fn of_video(
    arguments: &LiveArgs,
    info: &VideoInfo,
    format: Option<VideoFormat>,
    ever: &Ever,
) -> Vec<String> {
    let mut idle = Vec::new();
    let mut add = |given: bool, text: &str| {
        if given {
            idle.push(text.to_owned());
        }
    };
    let draw = &arguments.draw;
    add(
        arguments.row.stream_batch && ever.drawn && !ever.stepped,
        "--stream-batch has no effect with 1 step: frames are advanced together from 2 steps up",
    );
    add(
        arguments.glide > 0 && !ever.reworded,
        "--glide has no effect: no line of --changes changes the prompt",
    );
    add(
        arguments.realtime && is_stored(&arguments.input),
        "--realtime is for cameras: a file is read faster than it is drawn, so most of its frames are dropped; without it every frame \
         is drawn",
    );
    add(
        draw.background != Colour::BLACK && draw.fit != Fit::Pad && OPAQUE.contains(&info.format),
        "--background has no effect: nothing of this video is transparent, and only --fit pad adds bars",
    );
    add(
        arguments.quality.is_some() && format != Some(VideoFormat::Mp4),
        "--quality has no effect: it counts only for .mp4",
    );
    add(
        arguments.input_size.is_some() && info.format != "raw RGB",
        "--input-size has no effect: the input is not raw RGB, and says its own size",
    );
    let asked = arguments.input_fps.and_then(|rate| FrameRate::new(rate).ok());
    add(
        asked.is_some() && info.timing.frame_rate() != asked,
        "--input-fps has no effect: the input says its own frame rate",
    );
    idle
}

/// The options of `kinora image` that have no effect. `opaque` says that nothing shows the background.
pub fn of_image(arguments: &ImageArgs, opaque: bool) -> Vec<String> {
    let (from, draw) = (arguments.from.is_some(), &arguments.draw);
    let background = draw.background != Colour::BLACK;
    let idle = [
        (!from && draw.fit != Fit::Crop).then_some("--fit has no effect without --from"),
        (!from && background).then_some("--background has no effect without --from"),
        (from && background && opaque && draw.fit != Fit::Pad).then_some(
            "--background has no effect: nothing of the picture is transparent, and only --fit pad adds bars",
        ),
    ];
    idle.into_iter().flatten().map(str::to_owned).collect()
}

/// LoRAs whose strength is 0, unless changes turn it.
pub fn loras(draw: &DrawArgs, turned: impl Fn(&str) -> bool) -> Vec<String> {
    let idle = drawing::loras(draw).filter(|(path, strength)| {
        *strength == 0.0 && !drawing::lora_name(path).is_some_and(|name| turned(&name))
    });
    idle.map(|(path, _)| format!("{} has no effect: its strength is 0", path.display())).collect()
}
