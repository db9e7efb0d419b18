//! A row of frames whose settings change while it runs.

use std::{
    ops::ControlFlow,
    sync::Arc,
    thread::{self, JoinHandle},
};

use kinora_models::{image::RgbImage, networks::frame::Start, schedulers::Schedule};
use kinora_runtime::Stop;

use super::{
    LiveSettings, Model,
    frames::{Frames, Given, Shape},
    glide,
    text::Embedding,
};
use crate::{
    image_to_video::{GenerateError, Observe},
    video::fit::Placement,
};

/// How many networks a stream keeps, each for a shape: going back to one of them takes no time.
const KEPT: usize = 8;

/// A row of frames.
///
/// One frame is drawn at a time. Streams of the same model know nothing of each other, but their memory counts together.
#[derive(Debug)]
pub struct Stream {
    model: Arc<Model>,
    start: Start,
    /// What the next frame is drawn with.
    now: Ready,
    /// The networks, the last used first.
    networks: Vec<Frames>,
    /// Whether the first network has to be told what has changed.
    changed: bool,
    /// The width and height of the frames that come in, if they are known.
    input: Option<[usize; 2]>,
    /// The network for frames of that size that is being prepared.
    fitting: Option<Fitting>,
    /// Shapes that no network could be prepared for with these settings: their frames are fitted on the host.
    refused: Vec<Shape>,
    glide: Option<Glide>,
    /// How many frames were given after the one that the last result shows.
    late: usize,
    /// The change that is being prepared.
    coming: Option<Coming>,
    /// The one to be prepared after it: the last that was asked for.
    next: Option<LiveSettings>,
    frames: u64,
    stop: Stop,
}

/// What a change brings: its settings, and a network if none has their shape yet.
type Made = Result<(Ready, Option<Brought>), GenerateError>;

/// A network that a change brings.
#[derive(Debug)]
struct Brought {
    network: Frames,
    /// The shape that was wanted, if it is another because there can be none for the size of the frames that come in.
    refused: Option<Shape>,
}

/// A change that is being prepared, in a thread that ends with the stream.
#[derive(Debug)]
struct Coming {
    settings: LiveSettings,
    thread: JoinHandle<Made>,
    stop: Stop,
}

/// A network for the size of the frames that come in, which is being prepared.
#[derive(Debug)]
struct Fitting {
    shape: Shape,
    thread: JoinHandle<Result<Frames, GenerateError>>,
    stop: Stop,
}

impl Fitting {
    /// Ends it, and waits until it has.
    fn end(self) {
        self.stop.request();
        let _ = self.thread.join();
    }
}

/// Settings with everything that they need.
#[derive(Debug)]
struct Ready {
    settings: LiveSettings,
    positive: Arc<Embedding>,
    negative: Arc<Embedding>,
    /// `None` if frames are left as they are.
    schedule: Option<Schedule>,
}

/// A prompt on its way to the next.
#[derive(Debug)]
struct Glide {
    from: Arc<Embedding>,
    done: usize,
    frames: usize,
}

impl Glide {
    /// How far it is: from 0 to 1.
    fn share(&self) -> f64 {
        self.done as f64 / self.frames as f64
    }
}

impl Stream {
    pub(super) fn begin(
        model: Arc<Model>,
        settings: LiveSettings,
        start: Start,
        input: Option<[usize; 2]>,
        observe: &mut Observe<'_>,
    ) -> Result<Stream, GenerateError> {
        let (now, network) = ready(&model, settings, (start, input), &[], observe)?;
        let mut stream = Stream {
            model,
            start,
            now,
            networks: Vec::new(),
            changed: true,
            input,
            fitting: None,
            refused: Vec::new(),
            glide: None,
            late: 0,
            coming: None,
            next: None,
            frames: 0,
            stop: Stop::new(),
        };
        network.into_iter().for_each(|brought| stream.keep_brought(brought));
        Ok(stream)
    }

    /// The settings that the next frame is drawn with, unless a change is ready by then.
    pub fn settings(&self) -> &LiveSettings {
        &self.now.settings
    }

    /// How many frames were drawn.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Ends the stream from another thread: the frame that is being drawn, if it would take long, and all later ones fail with
    /// [`GenerateError::Cancelled`].
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Fails if the stream was ended.
    fn check_stop(&self) -> Result<(), GenerateError> {
        if self.stop.is_requested() { Err(GenerateError::Cancelled) } else { Ok(()) }
    }

    /// How many frames were given after the one that the last result shows: in a stream batch of some steps, one less than
    /// these, but none for the first frame, which takes all places; otherwise 0.
    pub fn late(&self) -> usize {
        self.late
    }

    /// Forgets the frames in work in a stream batch, for a caller who has seen all that it wants of them: the next frame takes all
    /// places, as the first did, and is blended with the last result.
    pub fn forget_in_work(&mut self) {
        self.networks.iter_mut().for_each(Frames::forget_in_work);
    }

    /// How many tokens of the prompt did not fit, and were left out at its end.
    pub fn tokens_left_out(&self) -> usize {
        self.now.positive.left_out
    }

    /// The memory that the stream's networks and the text encoders hold, with what they are given and leave and the prompts that
    /// may be remembered, in bytes. Weights count where they were read first.
    pub fn memory_bytes(&self) -> usize {
        let text = self.model.text.get().map_or(0, super::Text::bytes);
        text + self.networks.iter().map(Frames::bytes).sum::<usize>()
    }

    /// The settings that were asked for last, whether they have taken effect or not.
    pub fn asked(&self) -> &LiveSettings {
        let coming = self.coming.as_ref().map(|coming| &coming.settings);
        self.next.as_ref().or(coming).unwrap_or(&self.now.settings)
    }

    /// Whether the next frame is drawn as the one before was: no change is on its way, and no prompt glides.
    pub fn is_steady(&self) -> bool {
        self.coming.is_none() && self.glide.is_none() && !self.changed
    }

    /// Asks for other settings. They take effect with the first frame that begins when they are ready: prompts are encoded, and
    /// networks of a new shape prepared, beside the stream, which goes on meanwhile. If several are asked for before one is
    /// ready, the last one counts. A network of a new shape that does not fit the memory limit or the device's memory beside the
    /// others takes the place of those that were used the longest ago. A change that cannot be made ready, because its network
    /// does not fit beside the one in use either or for any other reason, has no effect: [`GenerateError::Change`] says why, and
    /// the stream goes on as it was.
    ///
    /// # Errors
    /// If the settings are refused, or the stream was [ended](Stream::stop).
    pub fn change(&mut self, settings: LiveSettings) -> Result<(), GenerateError> {
        self.check_stop()?;
        self.model.check(&settings, self.start)?;
        if self.coming.is_some() {
            self.next = Some(settings);
            return Ok(());
        }
        self.prepare(settings)
    }

    /// Makes a change at once if nothing has to be prepared for it, otherwise begins to prepare it.
    fn prepare(&mut self, settings: LiveSettings) -> Result<(), GenerateError> {
        let same_text = settings.prompt == self.now.settings.prompt
            && settings.negative_prompt == self.now.settings.negative_prompt;
        let shapes: Vec<Shape> = self.networks.iter().map(|network| network.shape).collect();
        if same_text {
            let schedule = self.model.configs.schedule(&settings, self.start)?;
            let configs = &self.model.configs;
            let shape =
                |schedule: &Schedule| Shape::new(configs, &settings, schedule, self.start, self.input);
            let known = |schedule: &Schedule| is_known(&shapes, shape(schedule));
            if schedule.as_ref().is_none_or(known) {
                let (positive, negative) = (self.now.positive.clone(), self.now.negative.clone());
                self.apply(Ready { settings, positive, negative, schedule }, None);
                return Ok(());
            }
        }
        let (model, what, stop) = (self.model.clone(), (self.start, self.input), Stop::new());
        let (wanted, stops) = (settings.clone(), [stop.clone(), self.stop()]);
        let work = move || ready(&model, wanted, what, &shapes, &mut |_| until(&stops));
        let thread = thread::Builder::new().name("live change".to_owned()).spawn(work);
        let thread = thread.map_err(|source| GenerateError::Thread { source })?;
        self.coming = Some(Coming { settings, thread, stop });
        Ok(())
    }

    /// Waits until the last change is ready: the next frame is drawn with it.
    ///
    /// # Errors
    /// [`GenerateError::Change`] if a change failed, which then has no effect. Those after it are ready all the same. If the stream
    /// was [ended](Stream::stop).
    pub fn settle(&mut self) -> Result<(), GenerateError> {
        let mut settled = Ok(());
        while self.coming.is_some() {
            let taken = self.take_up(true);
            settled = settled.and(taken);
        }
        settled
    }

    /// Draws a frame. An input of another size than the settings' is fitted to it: by the network, if there is one for that
    /// size, otherwise on the host, for a network that takes fitted frames. The first frame of another size than the stream began with waits until that one
    /// is loaded. For a size that comes again a network is prepared beside the stream, if there is memory for it.
    ///
    /// # Errors
    /// [`GenerateError::Change`] if a change failed, which then has no effect: the frame was not drawn, and can be given again. If
    /// the input cannot be fitted; if the device fails; if the stream was [ended](Stream::stop).
    pub fn frame(&mut self, frame: &RgbImage) -> Result<RgbImage, GenerateError> {
        self.check_stop()?;
        self.take_up(false)?;
        let before = self.input.replace(frame.size());
        self.take_up_fitting();
        // One that comes again will come more often.
        if before == self.input {
            self.prepare_input();
        }
        self.draw(Some(frame))
    }

    /// Takes up the network for the size of the frames that come in, if it is ready. That it cannot be prepared is no failure, whatever
    /// the reason: frames are then fitted on the host.
    fn take_up_fitting(&mut self) {
        let finished = self.fitting.take_if(|fitting| fitting.thread.is_finished());
        let Some(Fitting { shape, thread, .. }) = finished else { return };
        let (made, wanted) = (thread.join(), self.shape() == Some(shape));
        match made {
            Ok(Ok(network)) if wanted => self.keep(network),
            // Meanwhile another is wanted.
            _ if !wanted => {}
            // The one that is coming may need what is idle.
            Ok(Err(error)) if error.lacks_memory() && self.coming.is_none() && self.drop_idle() => {}
            _ => self.refused.push(shape),
        }
    }

    /// Begins to prepare a network for the size of the frames that come in, unless there is one.
    fn prepare_input(&mut self) {
        let Some(wanted) = self.shape().filter(|shape| shape.input.is_some()) else { return };
        let there = self.networks.iter().any(|network| network.shape == wanted);
        if there || self.fitting.is_some() || self.coming.is_some() || self.refused.contains(&wanted) {
            return;
        }
        let (model, stop) = (self.model.clone(), Stop::new());
        let stops = [stop.clone(), self.stop()];
        let work = move || model.frames(wanted, &mut |_| until(&stops));
        match thread::Builder::new().name("live input".to_owned()).spawn(work) {
            Ok(thread) => self.fitting = Some(Fitting { shape: wanted, thread, stop }),
            Err(_) => self.refused.push(wanted),
        }
    }

    /// Keeps a network behind the one that drew the last frame, which it may go on for.
    fn keep(&mut self, mut network: Frames) {
        network.stop_on(&self.stop);
        self.networks.insert(self.networks.len().min(1), network);
        self.networks.truncate(KEPT);
    }

    fn keep_brought(&mut self, Brought { network, refused }: Brought) {
        self.keep(network);
        self.refused.extend(refused);
    }

    pub(super) fn draw(&mut self, frame: Option<&RgbImage>) -> Result<RgbImage, GenerateError> {
        let nothing = || GenerateError::NoResult { part: super::frames::PART, name: "frame" };
        let drawn = match self.shape() {
            Some(shape) => {
                self.bring_forward(shape)?;
                let positive = self.next_prompt()?;
                let network = self.networks.first_mut().ok_or_else(nothing)?;
                if let (true, Some(schedule)) = (self.changed, &self.now.schedule) {
                    let strengths = self.model.strengths(&self.now.settings);
                    let given =
                        Given { positive: &positive, negative: &self.now.negative, strengths: &strengths };
                    let settings = (&self.now.settings, schedule);
                    network.set(&self.model.configs, settings, given, self.model.precision)?;
                    self.changed = false;
                }
                let fit = |frame: &RgbImage| fitted(&self.now.settings, frame);
                let drawn = network.draw(frame, &fit, self.now.settings.blend)?;
                self.late = network.late();
                drawn
            }
            // Strength 0 leaves the frame as it is.
            None => {
                self.networks.iter_mut().for_each(Frames::forget);
                self.late = 0;
                fitted(&self.now.settings, frame.ok_or_else(nothing)?)?
            }
        };
        self.frames += 1;
        Ok(drawn)
    }

    /// The shape of the network that draws the next frame. `None` if none does.
    fn shape(&self) -> Option<Shape> {
        let schedule = self.now.schedule.as_ref()?;
        Some(Shape::new(&self.model.configs, &self.now.settings, schedule, self.start, self.input))
    }

    /// Where the network is that draws the next frame: one that fits it, or one that it is fitted for.
    fn place(&self, wanted: Shape) -> Option<usize> {
        let place = |shape: Shape| self.networks.iter().position(|network| network.shape == shape);
        place(wanted).or_else(|| place(wanted.of_fitted()))
    }

    /// The prompt of the next frame: the one that was asked for, or one on the way there.
    fn next_prompt(&mut self) -> Result<Arc<Embedding>, GenerateError> {
        let Some(glide) = &mut self.glide else { return Ok(self.now.positive.clone()) };
        self.changed = true;
        glide.done += 1;
        if glide.done >= glide.frames {
            self.glide = None;
            return Ok(self.now.positive.clone());
        }
        Ok(Arc::new(glide::between(&glide.from, &self.now.positive, glide.share())?))
    }

    /// Puts the network of a shape first. It goes on with the row of the one that drew the last frame, if that differs in nothing
    /// but the frames that come in. Changes bring their networks along, but a size that was not expected has none: then one
    /// is loaded that frames of any size can be fitted for.
    fn bring_forward(&mut self, wanted: Shape) -> Result<(), GenerateError> {
        let at = self.place(wanted);
        if at == Some(0) {
            return Ok(());
        }
        let mut row = None;
        if let Some(before) = self.networks.first_mut() {
            if before.shape.of_fitted() == wanted.of_fitted() {
                row = before.hand_over()?;
            }
            // When it draws again, it begins another row.
            before.forget();
        }
        let mut network = match at {
            Some(at) => self.networks.remove(at),
            None => self.load(wanted.of_fitted())?,
        };
        network.take_over(row);
        self.networks.insert(0, network);
        self.networks.truncate(KEPT);
        self.changed = true;
        Ok(())
    }

    /// Loads a network now, in the place of idle ones if there is no room.
    fn load(&mut self, shape: Shape) -> Result<Frames, GenerateError> {
        loop {
            match self.model.frames(shape, &mut |_| until(std::slice::from_ref(&self.stop))) {
                Err(error) if error.lacks_memory() && self.drop_idle() => {}
                Ok(mut network) => {
                    network.stop_on(&self.stop);
                    return Ok(network);
                }
                failed => return failed,
            }
        }
    }

    /// Takes up the change that is ready, or waits for it, and begins to prepare the next. Unless the stream was ended, errors are
    /// those of changes.
    fn take_up(&mut self, wait: bool) -> Result<(), GenerateError> {
        let taken = self.take_up_ready(wait);
        self.check_stop()?;
        taken.map_err(|error| GenerateError::Change(Box::new(error)))
    }

    fn take_up_ready(&mut self, wait: bool) -> Result<(), GenerateError> {
        let ready = |coming: &mut Coming| wait || coming.thread.is_finished();
        let Some(coming) = self.coming.take_if(ready) else { return Ok(()) };
        let made = coming.thread.join().unwrap_or(Err(GenerateError::ChangePanicked));
        if made.as_ref().is_err_and(GenerateError::lacks_memory) && self.drop_idle() {
            let wanted = self.next.take().unwrap_or(coming.settings);
            return self.prepare(wanted);
        }
        let made = made.map(|(ready, network)| self.apply(ready, network));
        // A change that failed is no reason to forget the one after it.
        let next = self.next.take().map_or(Ok(()), |next| self.prepare(next));
        made.and(next)
    }

    /// Drops the network that is prepared for the size of the frames that come in, or else the one that was used the longest ago,
    /// unless the next frame needs it. Says whether there was one.
    fn drop_idle(&mut self) -> bool {
        if let Some(fitting) = self.fitting.take() {
            fitting.end();
            return true;
        }
        let needed = self.shape().and_then(|wanted| self.place(wanted));
        let idle = (0..self.networks.len()).rev().find(|&at| Some(at) != needed);
        idle.map(|at| self.networks.remove(at)).is_some()
    }

    fn apply(&mut self, ready: Ready, network: Option<Brought>) {
        let before = std::mem::replace(&mut self.now, ready);
        let frames = self.now.settings.glide;
        if before.settings.prompt != self.now.settings.prompt {
            // From where an unfinished glide has come to.
            let from = match &self.glide {
                Some(glide) => glide::between(&glide.from, &before.positive, glide.share())
                    .map_or_else(|_| before.positive.clone(), Arc::new),
                None => before.positive.clone(),
            };
            self.glide = (frames > 0).then_some(Glide { from, done: 0, frames });
        }
        let levels = |settings: &LiveSettings| {
            (settings.strength.to_bits(), settings.timesteps.clone(), settings.seed)
        };
        if levels(&before.settings) != levels(&self.now.settings) {
            // They are at noise levels that no longer count.
            self.forget_in_work();
        }
        self.changed = true;
        self.refused.clear();
        network.into_iter().for_each(|brought| self.keep_brought(brought));
    }
}

/// Ends the threads that prepare something: a device must not be used when the program ends.
impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(coming) = self.coming.take() {
            coming.stop.request();
            let _ = coming.thread.join();
        }
        if let Some(fitting) = self.fitting.take() {
            fitting.end();
        }
    }
}

/// A frame in the size of the settings.
fn fitted(settings: &LiveSettings, frame: &RgbImage) -> Result<RgbImage, GenerateError> {
    let &LiveSettings { width, height, fit, background, .. } = settings;
    if frame.size() == [width, height] {
        return Ok(frame.clone());
    }
    let placement = Placement::new(fit, frame.size(), [width, height])?;
    Ok(placement.forward(frame, background)?)
}

/// Goes on until one of these is requested.
fn until(stops: &[Stop]) -> ControlFlow<()> {
    match stops.iter().any(Stop::is_requested) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// Whether there is a network of a shape, or one that its frames can be fitted for.
fn is_known(shapes: &[Shape], wanted: Shape) -> bool {
    shapes.contains(&wanted) || shapes.contains(&wanted.of_fitted())
}

/// Encodes the prompts, and loads a network if none has its shape. If there can be none for the size of the frames that come in,
/// it is one that they are fitted for.
fn ready(
    model: &Model,
    settings: LiveSettings,
    (start, input): (Start, Option<[usize; 2]>),
    shapes: &[Shape],
    observe: &mut Observe<'_>,
) -> Made {
    model.check(&settings, start)?;
    let schedule = model.configs.schedule(&settings, start)?;
    let text = model.text(observe)?;
    let positive = text.encode(&settings.prompt)?;
    let negative = text.encode(&settings.negative_prompt)?;
    if schedule.is_some() {
        model.calibrate(&settings, &positive, observe)?;
    }
    let shape = |schedule: &Schedule| Shape::new(&model.configs, &settings, schedule, start, input);
    let network = match schedule.as_ref().map(shape) {
        Some(shape) if !is_known(shapes, shape) => Some(match model.frames(shape, observe) {
            Err(GenerateError::Cancelled) => return Err(GenerateError::Cancelled),
            Err(_) if shape.input.is_some() => {
                Brought { network: model.frames(shape.of_fitted(), observe)?, refused: Some(shape) }
            }
            made => Brought { network: made?, refused: None },
        }),
        _ => None,
    };
    Ok((Ready { settings, positive, negative, schedule }, network))
}
