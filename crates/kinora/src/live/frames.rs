//! A network that draws frames of one shape, and what it was given last.

use std::collections::VecDeque;

use kinora_graph::{DType, Graph, Tensor, TensorType, Value};
use kinora_models::{
    image::{Colour, RgbImage},
    lora::STRENGTHS,
    networks::{
        NetworkError,
        denoise::SamplerNeeds,
        frame::{FrameConfig, FrameInput, Start, StreamConfig, StreamGuidance},
        memory::{FRESH, rings},
    },
    schedulers::Schedule,
};
use kinora_runtime::{Carried, RunError, Stop, Tensors};

use super::{Guidance, LiveConfigs, LiveSettings, cuts::is_cut, loading::Loaded, text::Embedding};
use crate::image_to_video::{GenerateError, Noise, Precision, configs::COLOURS};

/// Fits a frame to the settings' size, on the host.
pub(super) type FitFrame<'a> = dyn Fn(&RgbImage) -> Result<RgbImage, GenerateError> + 'a;

pub(super) const PART: &str = "live network";
/// Where edges begin, and what is surely one, for the picture that a ControlNet is given.
const EDGES: [u16; 2] = [100, 200];
/// The blend that leaves the frame before as it is, to the bit.
const NOTHING_NEW: f64 = 1.0;

/// What a network is built for. Everything else about a frame is numbers that it is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    height: usize,
    width: usize,
    /// The frames that come in, if the network fits them.
    pub input: Option<FrameInput>,
    start: Start,
    steps: usize,
    guided: bool,
    blended: bool,
    memory: usize,
    /// The guidance of a stream batch, if it is one.
    batch: Option<StreamGuidance>,
    control: bool,
    sampler: SamplerNeeds,
}

impl Shape {
    /// `input` is the width and height of the frames that come in, if they are known. A ControlNet reads the edges of fitted
    /// frames, which are found on the host: there, frames are fitted before.
    pub fn new(
        configs: &LiveConfigs,
        settings: &LiveSettings,
        schedule: &Schedule,
        start: Start,
        input: Option<[usize; 2]>,
    ) -> Shape {
        let &LiveSettings { width, height, fit, background, .. } = settings;
        let fits = start == Start::Picture && configs.control.is_none();
        let input = input.filter(|&size| fits && size != [width, height]).map(|size| {
            // Where there are no bars, their colour makes no other network.
            let bars = fit.filled(size, width, height) != [width, height];
            let background = if bars { background } else { Colour::BLACK };
            FrameInput { width: size[0], height: size[1], fit, background }
        });
        let batched = settings.is_batched() && start == Start::Picture;
        let batch = batched.then_some(match settings.guidance {
            Guidance::None => StreamGuidance::None,
            Guidance::SelfNegative => StreamGuidance::SelfNegative,
            Guidance::Initialize => StreamGuidance::Initialize,
            Guidance::Full => StreamGuidance::Full,
        });
        Shape {
            height: settings.height,
            width: settings.width,
            input,
            start,
            steps: schedule.timesteps.len(),
            guided: settings.guidance == Guidance::Full && !batched,
            blended: settings.blend > 0.0,
            memory: settings.memory_frames,
            batch,
            control: configs.control.is_some() && start == Start::Picture,
            sampler: schedule.needs(),
        }
    }

    /// What its network is built for.
    pub fn config(&self, configs: &LiveConfigs, precision: Precision) -> FrameConfig {
        FrameConfig {
            unet: configs.unet.clone(),
            autoencoder: configs.autoencoder.clone(),
            height: self.height,
            width: self.width,
            input: self.input,
            start: self.start,
            steps: self.steps,
            guided: self.guided,
            tokens: configs.tokens(),
            sampler: self.sampler,
            blended: self.blended,
            memory: self.memory,
            control: configs.control.clone().filter(|_| self.control),
            dtype: precision.dtype(),
        }
    }

    /// The same for frames that are fitted before.
    pub fn of_fitted(self) -> Shape {
        Shape { input: None, ..self }
    }

    /// The width and height of the frames that it is given.
    pub fn given_size(&self) -> [usize; 2] {
        self.input.map_or([self.width, self.height], |input| [input.width, input.height])
    }

    /// Whether a frame keeps something of the one before, unless a cut lies between them.
    fn keeps(&self) -> bool {
        self.blended || self.memory > 0
    }

    /// The graph of its network.
    pub fn graph(&self, configs: &LiveConfigs, precision: Precision) -> Result<Graph, NetworkError> {
        let frame = self.config(configs, precision);
        match self.batch {
            Some(guidance) => StreamConfig { frame, guidance }.build(),
            None => frame.build(),
        }
    }

    /// Whether the network reads the negative prompt.
    fn has_negative(&self) -> bool {
        self.guided || self.batch.is_some_and(StreamGuidance::has_negative)
    }

    /// Frames in work at once.
    fn in_work(&self) -> usize {
        if self.batch.is_some() { self.steps } else { 1 }
    }

    /// What the UNet and the sampler read beside latents and noise, which does not change from frame to frame.
    pub fn conditions(
        &self,
        configs: &LiveConfigs,
        (settings, schedule): (&LiveSettings, &Schedule),
        given: Given<'_>,
    ) -> Result<Tensors, GenerateError> {
        let &Shape { steps, guided, batch, .. } = self;
        let mut inputs = Tensors::new();
        let mut set = |name: &str, tensor: Tensor| inputs.insert(name.to_owned(), tensor);
        let rows: Vec<&Embedding> =
            if self.has_negative() { vec![given.negative, given.positive] } else { vec![given.positive] };
        set("prompts", stacked(rows.iter().map(|row| &row.hidden))?);
        if let Some(pooled) = rows.iter().map(|row| row.pooled.as_ref()).collect::<Option<Vec<_>>>() {
            let pooled = stacked(pooled.into_iter())?;
            let channels = pooled.shape().elements() / rows.len();
            set("pooled", pooled.reshape([rows.len(), channels])?);
            let [height, width] = [settings.height as f32, settings.width as f32];
            let ids = [height, width, 0.0, 0.0, height, width].repeat(rows.len());
            set("time_ids", Tensor::from_slice([rows.len(), 6], &ids)?);
        }
        if configs.unet.time_cond_proj_dim.is_some() {
            set("guidance_embedding", numbers(&[settings.guidance_scale - 1.0])?);
        }
        if guided || batch.is_some_and(|guidance| guidance != StreamGuidance::None) {
            set("guidance", numbers(&[settings.guidance_scale])?);
        }
        set("timesteps", Tensor::from_slice([steps], &schedule.timesteps)?);
        set("input_scales", numbers(&schedule.input_scales)?);
        let table: Vec<f32> = schedule.table().into_iter().flatten().collect();
        set("table", Tensor::from_slice([steps, table.len() / steps.max(1)], &table)?);
        Ok(inputs)
    }
}

/// What a frame hands on to the next.
#[derive(Debug)]
struct HandedOn {
    result: String,
    /// The input that takes it.
    input: String,
    ty: TensorType,
}

/// All that a frame hands on.
fn handed_on(graph: &Graph) -> Vec<HandedOn> {
    let rings = rings(graph).map(|ring| (&*ring.name, ring));
    let others = graph.inputs().iter().map(|&id| graph.value(id)).filter_map(|value| match &*value.name {
        "previous" => Some(("latents", value)),
        name @ ("buffer" | "stock") => Some((name, value)),
        _ => None,
    });
    let pair = |(result, value): (&str, &Value)| HandedOn {
        result: result.to_owned(),
        input: value.name.clone(),
        ty: value.ty.clone(),
    };
    others.chain(rings).map(pair).collect()
}

/// What a network is given beside the settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    pub positive: &'a Embedding,
    pub negative: &'a Embedding,
    /// The strengths of the LoRAs that can be turned.
    pub strengths: &'a [f64],
}

/// What a network leaves to another that goes on with its row of frames.
#[derive(Debug)]
pub(super) struct Row {
    state: Tensors,
    /// The last frame as it came, if cuts are looked for.
    frame: Option<RgbImage>,
    filled: bool,
    copies: usize,
    alone: VecDeque<bool>,
    late: usize,
}

/// A network that draws frames.
#[derive(Debug)]
pub(super) struct Frames {
    pub shape: Shape,
    loaded: Loaded,
    handed_on: Vec<HandedOn>,
    /// Whether it reads strengths of LoRAs.
    has_strengths: bool,
    /// The noise of a seed, which is drawn once. Nothing else that it depends on changes: the shape says how much there is, and
    /// a scheduler that adds noise adds it after every step but the last.
    noise: Option<(u64, Vec<Tensor>)>,
    /// What a frame reads, and what it leaves: written again for every frame.
    inputs: Tensors,
    results: Tensors,
    /// The last frame as it came, if the host has fitted it and cuts are looked for.
    came: Option<RgbImage>,
    /// The row that it goes on with, until it draws.
    taken: Option<Row>,
    /// Whether there is a frame before the next one.
    begun: bool,
    /// Whether frames of this row are in work: otherwise the next one takes all places.
    filled: bool,
    /// How many of the results to come are copies of one that was there already: of the frame that took all places.
    copies: usize,
    /// Of the other frames in work, the oldest first: whether it keeps nothing of the one before.
    alone: VecDeque<bool>,
    /// How many frames were given after the one that the last result shows.
    late: usize,
}

impl Frames {
    /// All memory is allocated here, where a change that finds none can still be left out.
    pub fn new(shape: Shape, graph: &Graph, loaded: Loaded) -> Result<Frames, GenerateError> {
        let mut frames = Frames {
            shape,
            loaded,
            handed_on: handed_on(graph),
            has_strengths: graph.inputs().iter().any(|&id| graph.value(id).name == STRENGTHS),
            noise: None,
            inputs: Tensors::new(),
            results: Tensors::new(),
            came: None,
            taken: None,
            begun: false,
            filled: false,
            copies: 0,
            alone: VecDeque::new(),
            late: 0,
        };
        frames.begin(Tensors::new())?;
        Ok(frames)
    }

    /// The memory that it holds, in bytes.
    pub fn bytes(&self) -> usize {
        self.loaded.bytes()
    }

    /// Lets a request stop a frame that is being drawn.
    pub fn stop_on(&mut self, stop: &Stop) {
        self.loaded.network.stop_on(stop);
    }

    /// How many frames were given after the one that the last result shows.
    pub fn late(&self) -> usize {
        self.late
    }

    /// Forgets the frame before.
    pub fn forget(&mut self) {
        self.begun = false;
        self.filled = false;
        self.taken = None;
    }

    /// What another network of this shape, but for the frames that come in, needs to go on with the row. `None` if none has begun.
    pub fn hand_over(&mut self) -> Result<Option<Row>, GenerateError> {
        if !self.begun {
            return Ok(None);
        }
        let (state, frame) = match self.taken.take() {
            Some(row) => (row.state, row.frame),
            None => (self.loaded.network.handed_on().map_err(failed)?, self.last_frame()?),
        };
        let alone = std::mem::take(&mut self.alone);
        Ok(Some(Row { state, frame, filled: self.filled, copies: self.copies, alone, late: self.late }))
    }

    /// Goes on with a row of another network, or begins one.
    pub fn take_over(&mut self, row: Option<Row>) {
        self.forget();
        if let Some(row) = row {
            (self.filled, self.copies, self.late) = (row.filled, row.copies, row.late);
            self.alone.clone_from(&row.alone);
            self.begun = true;
            self.taken = Some(row);
        }
    }

    /// The last frame as it came, if cuts are looked for.
    fn last_frame(&self) -> Result<Option<RgbImage>, GenerateError> {
        if !self.shape.keeps() {
            return Ok(None);
        }
        if let Some(came) = &self.came {
            return Ok(Some(came.clone()));
        }
        let Some(last) = self.inputs.get("frame") else { return Ok(None) };
        let [width, height] = self.shape.given_size();
        Ok(Some(RgbImage::new(width, height, last.bytes().to_vec())?))
    }

    /// Forgets the frames in work. The next one is blended with the last result all the same.
    pub fn forget_in_work(&mut self) {
        self.filled = false;
    }

    /// Sets everything that does not change from frame to frame, and computes what depends on it alone.
    pub fn set(
        &mut self,
        configs: &LiveConfigs,
        (settings, schedule): (&LiveSettings, &Schedule),
        given: Given<'_>,
        precision: Precision,
    ) -> Result<(), GenerateError> {
        let Shape { steps, batch, .. } = self.shape;
        let mut inputs = self.shape.conditions(configs, (settings, schedule), given)?;
        let mut set = |name: &str, tensor: Tensor| inputs.insert(name.to_owned(), tensor);
        if batch.is_some_and(StreamGuidance::has_stock) {
            set("delta", numbers(&[1.0])?);
            // With one step no noise is handed on.
            if steps > 1 {
                let table: Vec<f32> = schedule.noise_table().into_iter().flatten().collect();
                set("noise_table", Tensor::from_slice([steps, table.len() / steps], &table)?);
            }
        }
        if self.shape.control {
            set("control_scale", numbers(&[settings.control_scale])?);
        }
        if self.has_strengths {
            set(STRENGTHS, numbers(given.strengths)?);
        }
        set("mix", numbers(&schedule.mix())?);
        let mut noise = self.noise(configs, settings, schedule, precision)?.into_iter();
        if let Some(first) = noise.next() {
            set("noise", first);
        }
        if self.shape.sampler.noise && batch.is_none() {
            set("fresh", stacked_rows(&noise.collect::<Vec<_>>())?);
        }
        self.loaded.network.run_clip(&inputs).map_err(failed)
    }

    /// The noise of the start, and that of each step if the sampler adds any, in the order in which diffusers draws it.
    fn noise(
        &mut self,
        configs: &LiveConfigs,
        settings: &LiveSettings,
        schedule: &Schedule,
        precision: Precision,
    ) -> Result<Vec<Tensor>, GenerateError> {
        if let Some((seed, noise)) = &self.noise
            && *seed == settings.seed
        {
            return Ok(noise.clone());
        }
        let [height, width] = self.shape.config(configs, precision).latent_size()?;
        let shape = [1, height, width, configs.unet.in_channels];
        let mut noise = Noise::new(settings.seed);
        let mut draw = |shape: [usize; 4]| Tensor::from_slice(shape, &noise.draw(precision.dtype(), shape));
        // A stream batch has noise of its own for every step.
        let mut drawn = vec![draw([self.shape.in_work(), height, width, configs.unet.in_channels])?];
        if self.shape.sampler.noise && self.shape.batch.is_none() {
            for step in &schedule.coefficients {
                drawn.push(match step.next_noise {
                    0.0 => Tensor::zeros(TensorType::new(DType::F32, shape)),
                    _ => draw(shape)?,
                });
            }
        }
        self.noise = Some((settings.seed, drawn.clone()));
        Ok(drawn)
    }

    /// Draws a frame from a picture, or from noise alone.
    pub fn draw(
        &mut self,
        frame: Option<&RgbImage>,
        fit: &FitFrame<'_>,
        blend: f64,
    ) -> Result<RgbImage, GenerateError> {
        let Shape { height, width, memory, control, .. } = self.shape;
        let cut = frame.map_or(Ok(false), |frame| self.cuts_to(frame, fit))?;
        let fitted = frame.filter(|frame| frame.size() != self.shape.given_size()).map(fit).transpose()?;
        self.came = frame.filter(|_| fitted.is_some() && self.shape.keeps()).cloned();
        let frame = fitted.as_ref().or(frame);
        if let Some(frame) = frame {
            self.give("frame", frame)?;
            if control {
                let [low, high] = EDGES;
                self.give("control", &frame.canny(low, high))?;
            }
        }
        // There is nothing to blend the first frame of a stream or of a scene with.
        let alone = cut || !self.begun;
        match self.taken.take() {
            Some(row) => self.begin(row.state)?,
            None if !self.begun => self.begin(Tensors::new())?,
            None => {}
        }
        if memory > 0 {
            let fresh = if alone { 1.0_f32 } else { 0.0 };
            self.inputs.insert(FRESH.to_owned(), Tensor::from_slice([1], &[fresh])?);
        }
        let last = self.shape.in_work() - 1;
        let blend_of = |alone: bool| if alone { 0.0 } else { blend };
        if self.filled {
            self.alone.push_back(alone);
            let blend = match self.copies {
                0 => blend_of(self.alone.pop_front().unwrap_or(alone)),
                _ => NOTHING_NEW,
            };
            self.copies = self.copies.saturating_sub(1);
            self.pass(blend)?;
            self.late = (self.late + 1).min(last);
        } else {
            // The first one takes all places, so that what comes out is a picture from the start. What it pushes out is not
            // seen, and leaves no trace.
            for _ in 0..last {
                self.pass(NOTHING_NEW)?;
            }
            self.pass(blend_of(alone))?;
            self.alone.clear();
            (self.copies, self.late, self.filled) = (last, 0, true);
        }
        self.begun = true;
        let missing = GenerateError::NoResult { part: PART, name: "frame" };
        let bytes = self.results.get("frame").ok_or(missing)?.bytes().to_vec();
        let drawn = RgbImage::new(width, height, bytes)?;
        // Numbers that are not finite become zeros, but later frames would be blended with the numbers.
        if drawn.is_black() && frame.is_some_and(|frame| !frame.is_black()) {
            self.forget();
        }
        Ok(drawn)
    }

    /// Runs the network once. The result is blended by so much with the one before.
    fn pass(&mut self, blend: f64) -> Result<(), GenerateError> {
        if self.shape.blended {
            self.inputs.insert("blend".to_owned(), Tensor::from_slice([1], &[blend as f32])?);
        }
        self.loaded.network.run_frame(&self.inputs, &mut self.results).map_err(failed)
    }

    /// Whether a frame begins another scene, of which nothing that came before is to be kept. Frames are compared as they come,
    /// whoever fits them; those of different sizes are fitted first.
    fn cuts_to(&self, frame: &RgbImage, fit: &FitFrame<'_>) -> Result<bool, GenerateError> {
        if !(self.shape.keeps() && self.begun) {
            return Ok(false);
        }
        let cut = |before: &[u8], frame: &RgbImage| is_cut(before, frame.bytes(), frame.width() * COLOURS);
        let before = match &self.taken {
            Some(row) => row.frame.clone(),
            // The network was given the last frame as it came: no copy is needed.
            None if self.came.is_none() && frame.size() == self.shape.given_size() => {
                return Ok(self.inputs.get("frame").is_some_and(|before| cut(before.bytes(), frame)));
            }
            None => self.last_frame()?,
        };
        let Some(before) = before else { return Ok(false) };
        if before.size() == frame.size() {
            return Ok(cut(before.bytes(), frame));
        }
        let frame = fit(frame)?;
        Ok(cut(fit(&before)?.bytes(), &frame))
    }

    /// Sets a picture that the next frame reads. The tensor of the frame before is written again: new memory would cost more
    /// than the copy.
    fn give(&mut self, name: &str, picture: &RgbImage) -> Result<(), GenerateError> {
        match self.inputs.get_mut(name) {
            Some(tensor) if tensor.bytes().len() == picture.bytes().len() => {
                tensor.bytes_mut().copy_from_slice(picture.bytes());
            }
            _ => {
                let shape = [1, picture.height(), picture.width(), COLOURS];
                self.inputs.insert(name.to_owned(), Tensor::from_slice(shape, picture.bytes())?);
            }
        }
        Ok(())
    }

    /// Begins a row of frames, or goes on with one by what its last frame handed on. In the place of what is absent are zeros.
    fn begin(&mut self, mut state: Tensors) -> Result<(), GenerateError> {
        let carried: Vec<(&str, &str)> =
            self.handed_on.iter().map(|state| (&*state.result, &*state.input)).collect();
        let first = self.handed_on.iter().map(|HandedOn { input, ty, .. }| {
            (input.clone(), state.remove(input).unwrap_or_else(|| Tensor::zeros(ty.clone())))
        });
        let first: Tensors = first.collect();
        self.loaded.network.begin_frames(Carried(&carried), &first).map_err(failed)
    }
}

fn failed(source: RunError) -> GenerateError {
    GenerateError::run(PART, source)
}

fn numbers(values: &[f64]) -> Result<Tensor, GenerateError> {
    let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    Ok(Tensor::from_slice([values.len()], &values)?)
}

/// Tensors of one shape as one, with an axis more.
fn stacked<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Result<Tensor, GenerateError> {
    let tensors: Vec<&Tensor> = tensors.collect();
    let one = tensors.first().map_or_else(Vec::new, |tensor| tensor.shape().to_vec());
    let values: Vec<f32> = tensors.iter().flat_map(|tensor| tensor.to_f32()).collect();
    let shape: Vec<usize> = [tensors.len()].into_iter().chain(one).collect();
    Ok(Tensor::from_slice(shape, &values)?)
}

/// Tensors of one shape as one, along their first axis.
fn stacked_rows(tensors: &[Tensor]) -> Result<Tensor, GenerateError> {
    let values: Vec<f32> = tensors.iter().flat_map(Tensor::to_f32).collect();
    let mut shape = tensors.first().map_or_else(|| vec![0], |tensor| tensor.shape().to_vec());
    shape[0] *= tensors.len();
    Ok(Tensor::from_slice(shape, &values)?)
}
