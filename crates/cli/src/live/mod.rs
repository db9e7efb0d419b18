//! `kinora live`: every frame of a video is redrawn.

pub mod arguments;
mod crop;
pub mod drawing;
pub mod idle;
pub mod image;
mod pending;
mod report;
mod source;
mod timeline;

use std::{
    collections::VecDeque,
    fs,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use kinora::{
    Live, LiveSettings, RgbImage,
    files::Inputs,
    image_to_video::GenerateError,
    live::{Changes, MAX_STEPS, SimilarFrames, Stream},
    video::{
        FrameRate, VideoFile, VideoFormat, VideoOptions,
        fit::Placement,
        input::{self, Frame, FrameSource, InputError, InputOptions, VideoInfo},
    },
};

use self::{
    arguments::LiveArgs,
    crop::Crops,
    drawing::Models,
    pending::Pending,
    report::Report,
    source::{Next, Source},
};
use crate::{
    clip,
    display::{Display, Unit},
    failure::Failure,
    files::{self, NewFile},
    interrupt::{self, Phase},
    out_of_memory, print, standard_output,
};

/// The rate of a video that does not say its own.
const USUAL_RATE: f64 = 25.0;

/// Draws the video. Everything that can be wrong is looked at before the work begins: the options, the input, the place for the
/// video, then the model.
pub fn run(arguments: &LiveArgs) -> Result<(), Failure> {
    out_of_memory::set_advice(drawing::less_memory(&arguments.draw, &arguments.place, Some(&arguments.row)));
    let output = output(arguments);
    let to_standard_output = output.as_os_str() == "-";
    if arguments.json && to_standard_output {
        let problem = "--json and `-o -` both want standard output; write the video to a file";
        return Err(Failure::Usage(problem.to_owned()));
    }
    if arguments.json || to_standard_output {
        standard_output::check()?;
    }
    let in_json = arguments.json && !arguments.verbose && !io::stderr().is_terminal();
    let mut display = Display::new(arguments.quiet || in_json, arguments.verbose);
    let similar = similar(arguments)?;
    let source = open_source(arguments)?;
    let info = source.info().clone();
    let protected: Vec<PathBuf> =
        info.files.iter().cloned().chain(drawing::inputs(&arguments.draw)).collect();
    let protected: Vec<PathBuf> = protected.into_iter().chain(arguments.changes.clone()).collect();
    files::refuse_same(arguments.record.iter().map(PathBuf::as_path).chain([output.as_path()]))?;
    let record = match &arguments.record {
        Some(path) => Some(files::check(path, arguments.force, &Inputs::new(&protected))?),
        None => None,
    };
    let mut report = Report::new(&info, arguments.realtime);
    let video = video_options(arguments, &output, &*source, protected, &mut report)?;
    interrupt::uninterrupted(|| VideoFile::create(&output, &video).map(drop).map_err(Failure::from))?;

    let (path, text) = timeline::text(arguments)?;
    let turned = Changes::loras(&text);
    drawing::check_loras(&arguments.draw, &turned, path)?;
    report.warnings.extend(idle::loras(&arguments.draw, |name| turned.contains_key(name)));
    report.warnings.extend(clip::ignored_options(&arguments.place.machine, "draws")?);
    let models =
        Models { adjustable: turned.into_keys().collect(), ..Models::new(&arguments.draw, &arguments.place) };
    let live = drawing::open(models, &mut display)?;
    let settings = drawing::settings(&live, &arguments.draw)?;
    let settings = arguments.row.apply(settings).glide(arguments.glide);
    let (changes, ever) = timeline::read((path, &text), &live, &settings)?;
    report.warnings.extend(idle::of_picture(&arguments.draw, live.configs(), &ever));
    report.warnings.extend(idle::of_video(arguments, &info, format(&output)?, &ever));
    let settings = changes.at(0, &settings).unwrap_or(settings);
    let size = [info.width, info.height];
    let _frames = live.set_aside("input", frames_bytes(size)).map_err(drawing::failure)?;
    let settings = kept(arguments, &live, (settings, size), &mut display, &mut report)?;
    let stream = live.begin_for(settings.clone(), size, |progress| {
        drawing::show(&mut display, progress);
        interrupt::control_flow()
    });
    let stream = stream.map_err(drawing::failure)?;
    interrupt::stops(stream.stop());
    display.end_stage();
    report.begin(&live, &settings, stream.tokens_left_out());
    report.warnings.extend(live.loras_kept_in_text().map(|(name, strength)| {
        format!(
            "the LoRA {name} changes the text encoder, too: there it keeps the strength {strength}, whatever the changes say"
        )
    }));
    let mut crops = Crops::default();
    let model = (live.configs(), live.precision());
    report.warnings.extend(crops.look([info.width, info.height], &settings, model));
    report.warnings.iter().for_each(|warning| display.warn(warning));

    let drawer = Drawer {
        arguments,
        live: &live,
        crops,
        stream,
        changes,
        pending: Pending::default(),
        similar,
        log: Changes::line(0, &settings),
        last: None,
        drawing: None,
        in_step: !arguments.realtime && is_stored(&arguments.input),
        given: 0,
        owed: VecDeque::new(),
        overflowed: false,
    };
    drawer.run(source, (&output, &video), record.as_ref(), &mut display, &mut report)?;
    display.result(&report.summary(), &report.line());
    if arguments.json { print(&format!("{}\n", report.json())) } else { Ok(()) }
}

/// The frames on their way.
struct Drawer<'a> {
    arguments: &'a LiveArgs,
    live: &'a Live,
    crops: Crops,
    stream: Stream,
    changes: Changes,
    pending: Pending,
    similar: Option<SimilarFrames>,
    /// The settings and all changes, with their frames.
    log: String,
    /// What was shown last.
    last: Option<RgbImage>,
    /// The drawing behind it, if similar frames are shown with their own surroundings.
    drawing: Option<RgbImage>,
    /// Whether each frame is shown at its own time, however late its drawing is: all of a file can be waited for.
    in_step: bool,
    /// How often the stream was given a frame.
    given: u64,
    /// The frames whose drawings have not come yet.
    owed: VecDeque<Owed>,
    /// Whether a frame came out black.
    overflowed: bool,
}

/// A frame whose drawing has not come yet.
struct Owed {
    /// Which of those that were given it is; a frame that was skipped is the one before it.
    call: u64,
    image: RgbImage,
    /// When it is shown.
    times: Vec<Duration>,
}

impl Drawer<'_> {
    fn run(
        mut self,
        source: Box<dyn FrameSource>,
        (output, video): (&Path, &VideoOptions),
        record: Option<&NewFile>,
        display: &mut Display,
        report: &mut Report,
    ) -> Result<(), Failure> {
        if output.as_os_str() == "-" { Phase::AtOnce } else { Phase::Writing }.enter();
        let mut source = source::start(source, self.arguments.realtime)?;
        let mut file = VideoFile::create(output, video)?;
        match self.draw_all(&mut source, (&mut file, display, report)) {
            // As for a camera that is switched off: what was drawn counts.
            Err(failure) if failure.reader_is_gone() => report.reader_is_gone(file.frames()),
            drawn => {
                drawn?;
                report.end(file.finish()?, interrupt::requested());
            }
        }
        display.end_stage();
        if let Some(record) = record {
            // Ctrl-C is how a camera ends: the log is kept as the video is.
            record.keep(self.log.as_bytes())?;
        }
        Ok(())
    }

    /// Draws and writes frames to the end of the input.
    fn draw_all(
        &mut self,
        source: &mut Source,
        (file, display, report): (&mut VideoFile, &mut Display, &mut Report),
    ) -> Result<(), Failure> {
        let (mut number, total) = (0, report.total());
        while !interrupt::requested() {
            let Next { frame, dropped } = match source.next() {
                Ok(Some(next)) => next,
                Ok(None) => break,
                // What came before it is whole.
                Err(error) if error.is_truncation() && number > 0 => {
                    report.warnings.push(error.to_string());
                    display.warn(&error.to_string());
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            display.advance("drawing frames", Unit::Frames, number, total.unwrap_or(number + 1));
            match self.advance(&mut number, frame, dropped, (file, display, report)) {
                Err(Failure::Interrupted) => break,
                done => done?,
            }
        }
        if !interrupt::requested() {
            match self.catch_up(file) {
                Err(Failure::Interrupted) => {}
                done => done?,
            }
        }
        // Without a single frame that was drawn, there is no video.
        if number == 0 || self.last.is_none() {
            let name = self.arguments.input.display().to_string();
            let none = Failure::Input(InputError::NoFrames { name });
            return Err(if interrupt::requested() { Failure::Interrupted } else { none });
        }
        let late = self.pending.count();
        report.changes = report.changes.saturating_sub(late as u64);
        let unused = timeline::unused(&self.changes, number, late);
        report.unused = unused.count;
        // Whoever ends a video early knows that the rest is left out.
        if !interrupt::requested() {
            unused.warnings.iter().for_each(|warning| display.warn(warning));
            report.warnings.extend(unused.warnings);
        }
        Ok(())
    }

    /// Draws the next frame, and shows the last one at the times of those that were dropped before it.
    fn advance(
        &mut self,
        number: &mut u64,
        frame: Frame,
        dropped: Vec<Duration>,
        (file, display, report): (&mut VideoFile, &mut Display, &mut Report),
    ) -> Result<(), Failure> {
        let mut before_the_first = Vec::new();
        for time in dropped {
            self.change(*number, (file, display, report))?;
            report.dropped += 1;
            *number += 1;
            match &self.last {
                Some(last) => file.write_frame_at(last, time)?,
                None => before_the_first.push(time),
            }
        }
        self.change(*number, (file, display, report))?;
        self.draw(*number, frame, before_the_first, (file, display, report))?;
        *number += 1;
        Ok(())
    }

    /// Makes the changes of this frame.
    fn change(
        &mut self,
        frame: u64,
        (file, display, report): (&mut VideoFile, &mut Display, &mut Report),
    ) -> Result<(), Failure> {
        let changes = self.changes.of(frame).to_vec();
        if frame == 0 || changes.is_empty() {
            return Ok(());
        }
        // What is in work is drawn with the settings that it began with, and nothing of it with others.
        self.catch_up(file)?;
        if self.in_step {
            self.stream.forget_in_work();
        }
        report.changes += changes.len() as u64;
        let mut left_out = self.pending.ask(&mut self.stream, &changes).map_err(drawing::failure)?;
        if !self.arguments.realtime {
            left_out.extend(self.pending.settle(&mut self.stream).map_err(drawing::failure)?);
            if !left_out.is_empty() {
                // The same again, so that what was in work ends here when the log is drawn, too.
                let kept = self.stream.asked().clone();
                self.stream.change(kept).map_err(drawing::failure)?;
            }
        }
        self.log += &Changes::line(frame, &self.pending.asked(&self.stream));
        leave_out(&left_out, display, report);
        Ok(())
    }

    /// Draws a frame, and writes those that are through. `earlier` are times at which it is shown as well.
    fn draw(
        &mut self,
        number: u64,
        Frame { image, time }: Frame,
        earlier: Vec<Duration>,
        (file, display, report): (&mut VideoFile, &mut Display, &mut Report),
    ) -> Result<(), Failure> {
        let model = (self.live.configs(), self.live.precision());
        if let Some(warning) = self.crops.look(image.size(), self.stream.settings(), model) {
            display.warn(&warning);
            report.warnings.push(warning);
        }
        // Every frame is looked at, so that the first one is known. A change shows in a still picture too.
        let steady = self.stream.is_steady();
        let skipped = self.similar.as_mut().is_some_and(|similar| {
            if !steady {
                similar.forget();
            }
            similar.skips(&image)
        });
        let skipped = skipped && self.given > 0;
        let times = earlier.into_iter().chain([time]).collect();
        if skipped {
            report.repeated += 1;
            if let (true, Some(last)) = (self.owed.is_empty(), &self.last) {
                // What was cropped is this frame's own.
                let around = self.drawing.as_ref().map(|drawn| self.shown(drawn, &image)).transpose()?;
                return Ok(file.write_frame_at(around.as_ref().unwrap_or(last), time)?);
            }
            self.owed.push_back(Owed { call: self.given, image, times });
            return Ok(());
        }
        let began = Instant::now();
        let mut left_out = Vec::new();
        let drawn = loop {
            match interrupt::drawing(|| self.stream.frame(&image)) {
                // The frame was not drawn yet.
                Err(GenerateError::Change(error)) => {
                    let refused = self.pending.refused(&mut self.stream, *error);
                    left_out.extend(refused.map_err(drawing::failure)?);
                }
                drawn => break drawn.map_err(drawing::failure)?,
            }
        };
        report.drawn(began.elapsed());
        if drawn.is_black() && !image.is_black() && !self.overflowed {
            self.overflowed = true;
            let warning = overflow(number);
            display.warn(&warning);
            report.warnings.push(warning);
        }
        left_out.extend(self.pending.proceed(&mut self.stream).map_err(drawing::failure)?);
        if !left_out.is_empty() {
            self.log += &Changes::line(number, &self.pending.asked(&self.stream));
        }
        leave_out(&left_out, display, report);
        report.late = report.late.max(if self.in_step { 0 } else { self.stream.late() });
        self.given += 1;
        self.owed.push_back(Owed { call: self.given, image, times });
        self.write(&drawn, file)
    }

    /// Writes the frames that a result shows.
    fn write(&mut self, drawn: &RgbImage, file: &mut VideoFile) -> Result<(), Failure> {
        let late = if self.in_step { self.stream.late() as u64 } else { 0 };
        let through = self.given.saturating_sub(late);
        while self.owed.front().is_some_and(|owed| owed.call <= through) {
            let Some(Owed { image, times, .. }) = self.owed.pop_front() else { break };
            if self.similar.is_some() && self.arguments.original_size {
                self.drawing = Some(drawn.clone());
            }
            let shown = self.shown(drawn, &image)?;
            for time in times {
                file.write_frame_at(&shown, time)?;
            }
            self.last = Some(shown);
        }
        Ok(())
    }

    /// Draws the last frame again until all are through.
    fn catch_up(&mut self, file: &mut VideoFile) -> Result<(), Failure> {
        for _ in 0..MAX_STEPS {
            let Some(last) = self.owed.back() else { break };
            let drawn = interrupt::drawing(|| self.stream.frame(&last.image)).map_err(drawing::failure)?;
            self.given += 1;
            self.write(&drawn, file)?;
        }
        Ok(())
    }

    /// What is shown of a drawing of a frame.
    fn shown(&self, drawn: &RgbImage, frame: &RgbImage) -> Result<RgbImage, Failure> {
        if !self.arguments.original_size {
            return self.as_the_first(drawn.clone());
        }
        let LiveSettings { fit, .. } = *self.stream.settings();
        let placement = Placement::new(fit, frame.size(), drawn.size());
        let back = placement.and_then(|placement| placement.back(drawn, frame));
        self.as_the_first(back.map_err(GenerateError::from)?)
    }

    /// A video has one size: that of its first frame.
    fn as_the_first(&self, frame: RgbImage) -> Result<RgbImage, Failure> {
        match &self.last {
            Some(last) if last.size() != frame.size() => {
                let LiveSettings { fit, background, .. } = *self.stream.settings();
                let placement = Placement::new(fit, frame.size(), last.size());
                let placed = placement.and_then(|placement| placement.forward(&frame, background));
                Ok(placed.map_err(GenerateError::from)?)
            }
            _ => Ok(frame),
        }
    }
}

/// Whether an input is a file, a folder or a pattern of file names, not standard input or a pipe.
fn is_stored(input: &Path) -> bool {
    let kind = |found: fs::Metadata| found.is_file() || found.is_dir();
    input.as_os_str() != "-" && fs::metadata(input).map_or(true, kind)
}

/// A warning about a drawing that is black although its frame is not. NaN becomes black.
fn overflow(frame: u64) -> String {
    format!(
        "frame {frame} came out all black: its numbers have probably overflowed. Lower the strength of a LoRA, or try \
         --precision bf16 or f32"
    )
}

/// Says which changes are left out, and why: the stream goes on without them.
fn leave_out(errors: &[GenerateError], display: &Display, report: &mut Report) {
    for error in errors {
        let warning = format!("a change is left out: {error}");
        display.warn(&warning);
        report.warnings.push(warning);
        report.changes = report.changes.saturating_sub(1);
    }
}

/// The video to write: `in-live.mp4` for `in.mp4`.
fn output(arguments: &LiveArgs) -> PathBuf {
    arguments.output.clone().unwrap_or_else(|| {
        let stem = arguments.input.file_stem().map_or_else(|| "video".into(), |stem| stem.to_string_lossy());
        let stem = if stem == "-" { "video".into() } else { stem };
        PathBuf::from(format!("{stem}-live.mp4"))
    })
}

fn similar(arguments: &LiveArgs) -> Result<Option<SimilarFrames>, Failure> {
    let Some(threshold) = arguments.similar else { return Ok(None) };
    match SimilarFrames::new(threshold) {
        Some(similar) => Ok(Some(similar)),
        None => Err(Failure::Usage(format!(
            "--similar {threshold} is out of range; it must be above 0 and below 1"
        ))),
    }
}

fn open_source(arguments: &LiveArgs) -> Result<Box<dyn FrameSource>, Failure> {
    let mut options = InputOptions::new().background(arguments.draw.background);
    if let Some(size) = arguments.input_size {
        options = options.raw_size([size.width, size.height]);
    }
    if let Some(rate) = arguments.input_fps {
        options = options.frame_rate(FrameRate::new(rate)?);
    }
    Ok(input::open(&arguments.input, &options)?)
}

/// The format of the video; `None` for standard output.
fn format(output: &Path) -> Result<Option<VideoFormat>, Failure> {
    if output.as_os_str() == "-" { Ok(None) } else { Ok(Some(VideoFormat::from_path(output)?)) }
}

fn video_options(
    arguments: &LiveArgs,
    output: &Path,
    source: &dyn FrameSource,
    protected: Vec<PathBuf>,
    report: &mut Report,
) -> Result<VideoOptions, Failure> {
    let VideoInfo { timing, has_audio, .. } = source.info();
    let rate = match timing.frame_rate() {
        Some(rate) => rate,
        None => FrameRate::new(USUAL_RATE)?,
    };
    let format = format(output)?;
    let audio = source.audio().filter(|_| format.is_some_and(VideoFormat::holds_audio));
    if *has_audio && audio.is_none() {
        report.warnings.push("the sound is left out: it is passed on from .mp4 to .mp4 only".to_owned());
    }
    let quality = arguments.quality.unwrap_or(VideoOptions::DEFAULT_QUALITY);
    Ok(VideoOptions::new(rate).quality(quality).overwrite(arguments.force).protect(protected).audio(audio))
}

/// What the frames of the input take: one that is drawn, one that waits, and one that is read, with its form in the file, which
/// has 12 bits a pixel.
fn frames_bytes([width, height]: [usize; 2]) -> usize {
    width.saturating_mul(height).saturating_mul(3 * 3 + 2)
}

/// The settings, or those that keep the deadline.
fn kept(
    arguments: &LiveArgs,
    live: &Live,
    (settings, size): (LiveSettings, [usize; 2]),
    display: &mut Display,
    report: &mut Report,
) -> Result<LiveSettings, Failure> {
    let Some(milliseconds) = arguments.deadline else { return Ok(settings) };
    let period = Duration::try_from_secs_f64(milliseconds / 1e3).ok().filter(|period| !period.is_zero());
    let Some(period) = period else {
        let problem = format!("--deadline {milliseconds} is out of range; it must be above 0");
        return Err(Failure::Usage(problem));
    };
    display.advance("trying frames", Unit::Parts, 0, 1);
    let kept = live.within(&settings, size, period).map_err(drawing::failure)?;
    display.end_stage();
    match kept.keeps {
        true => display.note(&kept.reason),
        false => report.warnings.push(kept.reason.clone()),
    }
    report.deadline = Some(kept.reason);
    Ok(kept.settings)
}
