//! `kinora image`: a prompt becomes a picture.

use kinora::{
    RgbImage,
    files::Inputs,
    live::Guidance,
    photo::{self, Photo},
};
use serde_json::json;

use super::{
    arguments::ImageArgs,
    crop::Crops,
    drawing::{self, Models},
    idle::{self, Ever},
};
use crate::{
    clip, display::Display, failure::Failure, files, interrupt, out_of_memory, print, standard_output,
};

/// Draws the picture.
pub fn run(arguments: &ImageArgs) -> Result<(), Failure> {
    out_of_memory::set_advice(drawing::less_memory(&arguments.draw, &arguments.place, None));
    if arguments.json {
        standard_output::check()?;
    }
    if arguments.output.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("png")) {
        let problem = format!("{} is not a .png; a picture is written as one", arguments.output.display());
        return Err(Failure::Usage(problem));
    }
    if arguments.from.is_none() {
        let draw = &arguments.draw;
        let only = [
            (draw.timesteps.is_some(), "--timesteps"),
            (draw.strength.is_some(), "--strength"),
            (draw.controlnet.is_some(), "--controlnet"),
            (matches!(draw.guidance, Guidance::SelfNegative | Guidance::Initialize), "this --guidance"),
        ];
        if let Some((_, option)) = only.iter().find(|(given, _)| *given) {
            let problem = format!("{option} needs a picture to begin with; give one with --from");
            return Err(Failure::Usage(problem));
        }
    }
    let mut display = Display::new(arguments.quiet || arguments.json, arguments.verbose);
    let inputs: Vec<_> = arguments.from.iter().cloned().chain(drawing::inputs(&arguments.draw)).collect();
    let inputs = Inputs::new(&inputs);
    let file = files::check(&arguments.output, arguments.force, &inputs)?;
    // What is transparent shows the background.
    let from = arguments.from.as_deref().map(Photo::open).transpose()?;
    let opaque = from.as_ref().is_none_or(|photo| !photo.is_transparent());
    let from = from.map(|photo| photo.on(arguments.draw.background));
    let live = drawing::open(Models::new(&arguments.draw, &arguments.place), &mut display)?;
    let settings = drawing::settings(&live, &arguments.draw)?;
    let mut warnings = idle::of_picture(&arguments.draw, live.configs(), &Ever::of(&settings));
    warnings.extend(idle::of_image(arguments, opaque));
    warnings.extend(idle::loras(&arguments.draw, |_| false));
    warnings.extend(clip::ignored_options(&arguments.place.machine, "draws")?);
    if let Some(from) = &from {
        warnings.extend(Crops::default().look(from.size(), &settings, (live.configs(), live.precision())));
    }
    warnings.iter().for_each(|warning| display.warn(warning));
    let observe = |progress: &kinora::image_to_video::Progress<'_>| {
        drawing::show(&mut display, progress);
        interrupt::control_flow()
    };
    let picture: RgbImage = match &from {
        None => live.draw_with(&settings, observe).map_err(drawing::failure)?,
        Some(from) => {
            let mut stream = live.begin_with(settings.clone(), observe).map_err(drawing::failure)?;
            stream.frame(from).map_err(drawing::failure)?
        }
    };
    display.end_stage();
    let bytes = photo::to_png(&picture);
    file.write(&bytes.map_err(|source| Failure::File { path: arguments.output.clone(), source })?)?;
    let name = arguments.output.display();
    let line = format!("wrote {name} ({}×{}, seed {})", picture.width(), picture.height(), settings.seed);
    display.result(&line, &line);
    if arguments.json {
        let report = json!({ "files": [&arguments.output], "settings": settings, "warnings": warnings });
        return print(&format!("{report}\n"));
    }
    Ok(())
}
