//! Live video: every frame of a camera or a video is redrawn after a prompt, in milliseconds.
//!
//! ```no_run
//! use kinora::{Live, LoadOptions, ModelFolder, live::LiveModel, photo};
//!
//! let live = Live::new(LiveModel::new(ModelFolder::open("sd-turbo")?), LoadOptions::default())?;
//! let settings = live.settings().prompt("a watercolour of a harbour").strength(0.6);
//! let mut stream = live.begin(settings.clone())?;
//! let frame = stream.frame(&photo::open("frame-0001.png")?)?;
//! stream.change(settings.prompt("the same at night"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In [`Precision::Fp8`] the model is measured before the first frame, once: see [`quantisation`](crate::quantisation).
//!
//! A frame is one graph, from bytes to bytes, and on a GPU one launch. Prompts, timesteps and noise are computed when they
//! change, not for every frame. A [`Stream`] keeps a network for each of the last shapes that it was asked for; all of them share
//! their weights. A change that needs a new one is made ready beside the stream, which goes on until it is. Frames of another size
//! than the settings' are fitted to it, to the same bytes wherever it is done: by the network if it is built for their size
//! ([`Live::begin_for`], or after frames of that size have come), otherwise on the host.

mod changes;
mod configs;
mod cuts;
mod deadline;
mod estimate;
mod frames;
mod glide;
#[cfg(feature = "cuda")]
mod hardware;
#[cfg(feature = "cuda")]
mod kernels;
mod loading;
mod measuring;
mod memory;
mod parts;
mod settings;
mod similar;
mod stream;
mod text;

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use kinora_graph::Parameters;
use kinora_models::{
    folder::ModelFolder,
    lora::{Adapted, Adjustable, Lora, LoraError, LoraPart},
    networks::frame::{CONTROLNET, Parts, Start, UNET, VAE},
    weights::{Variant, Weights, WeightsError},
};
use kinora_profile::Machine;
use kinora_runtime::{Backend, SharedWeights};

pub use changes::{Change, Changes, ChangesError, MAX_CHANGES};
pub use configs::LiveConfigs;
pub use deadline::Kept;
#[cfg(all(feature = "cuda", feature = "simulator"))]
pub(crate) use estimate::estimate_live_on;
pub use estimate::{LiveEstimate, estimate_live};
#[cfg(feature = "cuda")]
pub use hardware::{FittingFrame, LiveFit, live_fits};
#[cfg(feature = "cuda")]
pub use kernels::live_kernels;
#[cfg(all(feature = "cuda", feature = "simulator"))]
pub(crate) use kernels::live_networks;
pub use memory::SetAside;
pub use parts::name_parts;
pub use settings::{Guidance, LiveSettings, MAX_SIDE, MAX_STEPS};
pub use similar::SimilarFrames;
pub use stream::Stream;

use crate::{
    device::{OpenDeviceError, start_threads},
    image_to_video::{GenerateError, LoadOptions, Observe, Precision},
    quantisation::Quantising,
};
use estimate::Request;
use frames::{Frames, Shape};
use loading::Loading;
use memory::Ledger;
use text::{EncoderGraph, Text};

/// The folders of a model for live video.
#[derive(Clone, Debug)]
pub struct LiveModel {
    model: ModelFolder,
    tiny: Option<ModelFolder>,
    control: Option<ModelFolder>,
    loras: Vec<LoraFile>,
}

/// A LoRA file of a model.
#[derive(Clone, Debug)]
struct LoraFile {
    lora: Arc<Lora>,
    strength: f64,
    /// What settings call it, if its strength can be turned.
    name: Option<String>,
}

impl LoraFile {
    /// What is merged at load.
    fn merged(&self) -> (&Lora, f32) {
        (&self.lora, self.strength as f32)
    }
}

impl LiveModel {
    /// A model of Stable Diffusion's kind.
    pub fn new(model: ModelFolder) -> Self {
        LiveModel { model, tiny: None, control: None, loras: Vec::new() }
    }

    /// The same with a tiny autoencoder instead of the model's own, from a folder of its own: a hundredth of the work, and a
    /// little less detail.
    #[must_use]
    pub fn tiny_autoencoder(self, folder: ModelFolder) -> Self {
        LiveModel { tiny: Some(folder), ..self }
    }

    /// The same with a ControlNet, which steers the UNet by the edges of each frame.
    #[must_use]
    pub fn control(self, folder: ModelFolder) -> Self {
        LiveModel { control: Some(folder), ..self }
    }

    /// The same with a LoRA file merged into the weights, with a strength; 1 is as it was trained.
    #[must_use]
    pub fn lora(mut self, file: Lora, strength: f32) -> Self {
        self.loras.push(LoraFile { lora: Arc::new(file), strength: strength.into(), name: None });
        self
    }

    /// The same with a LoRA file whose strength can be turned while a stream runs: [`LiveSettings::lora`] has it under this name,
    /// with this strength to begin with. It takes memory for the merged weights beside the model's own, and a change of settings
    /// merges them again, on the device; a frame takes no longer. What the file changes of text encoders keeps the first
    /// strength, as [`Live::loras_kept_in_text`] says; one that changes nothing else is refused.
    #[must_use]
    pub fn adjustable_lora(mut self, name: impl Into<String>, file: Lora, strength: f64) -> Self {
        self.loras.push(LoraFile { lora: Arc::new(file), strength, name: Some(name.into()) });
        self
    }

    /// The weights of a text encoder, with what the LoRA files add to them.
    fn adapted<'a>(&'a self, weights: &'a Weights, part: LoraPart) -> Result<Adapted<'a>, LoraError> {
        let loras: Vec<(&Lora, f32)> = self.loras.iter().map(LoraFile::merged).collect();
        Adapted::new(weights, part, &loras)
    }

    /// The weights of the UNet, with what the LoRA files add to them: at load, or by the strengths of the settings.
    fn adjustable<'a>(&'a self, unet: &'a Weights) -> Result<Adjustable<'a>, LoraError> {
        let (turned, fixed): (Vec<&LoraFile>, Vec<&LoraFile>) =
            self.loras.iter().partition(|file| file.name.is_some());
        let fixed: Vec<(&Lora, f32)> = fixed.into_iter().map(LoraFile::merged).collect();
        let turned: Vec<&Lora> = turned.iter().map(|file| &*file.lora).collect();
        Adjustable::new(Adapted::new(unet, LoraPart::Unet, &fixed)?, &turned)
    }

    /// Refuses LoRAs that settings could not tell apart or turn, and strengths that are no numbers.
    fn check_loras(&self) -> Result<(), GenerateError> {
        let mut names: Vec<&str> = Vec::new();
        for LoraFile { lora, strength, name } in &self.loras {
            let strength = *strength as f32;
            if !strength.is_finite() {
                return Err(LoraError::Strength { path: lora.path().to_owned(), strength }.into());
            }
            if let Some(name) = name.as_deref() {
                if names.contains(&name) {
                    let rule = "another has the same name".to_owned();
                    return Err(GenerateError::Setting { setting: "LoRA", value: name.to_owned(), rule });
                }
                if !lora.changes(LoraPart::Unet) {
                    let rule = "it changes text encoders alone, where a strength cannot be turned".to_owned();
                    return Err(GenerateError::Setting { setting: "LoRA", value: name.to_owned(), rule });
                }
                names.push(name);
            }
        }
        Ok(())
    }

    /// The LoRAs whose strengths can be turned, with those that they begin with.
    fn strengths(&self) -> impl Iterator<Item = (&str, f64)> {
        self.loras.iter().filter_map(|file| Some((file.name.as_deref()?, file.strength)))
    }
}

/// A model that draws frames of live video. Copies share the model.
#[derive(Clone, Debug)]
pub struct Live(Arc<Model>);

#[derive(Debug)]
struct Model {
    folders: LiveModel,
    options: LoadOptions,
    precision: Precision,
    ledger: Arc<Ledger>,
    backend: Arc<dyn Backend>,
    /// The same backend, if products are done in 8 bits.
    quantising: Option<Arc<Quantising>>,
    /// Held while activations are measured.
    measuring: Mutex<()>,
    configs: LiveConfigs,
    unet: Weights,
    vae: Weights,
    control: Option<Weights>,
    /// Loaded with the first prompt.
    text: OnceLock<Text>,
    /// Held while the text encoders are loaded, so that two streams that begin at once load them once.
    text_loading: Mutex<()>,
    shared: SharedWeights,
}

impl Live {
    /// Reads a model's configurations and opens its weights; they are read when a stream begins.
    ///
    /// # Errors
    /// If a part is missing, damaged, not supported, or does not fit the others, or the device cannot be used.
    pub fn new(model: LiveModel, options: LoadOptions) -> Result<Self, GenerateError> {
        // A wrong model is reported before a GPU is opened, which takes a while.
        let configs = LiveConfigs::read(&model)?;
        options.check_kernels()?;
        let backend = options.device.open(options.kernels, options.tuning)?;
        Self::with(configs, backend, model, options)
    }

    /// The same on a backend that is already open, perhaps one of the caller's own: [`LoadOptions::device`] and the
    /// related options are ignored.
    ///
    /// # Errors
    /// If a part is missing, damaged, not supported, or does not fit the others.
    pub fn on(
        backend: Arc<dyn Backend>,
        model: LiveModel,
        options: LoadOptions,
    ) -> Result<Self, GenerateError> {
        Self::with(LiveConfigs::read(&model)?, backend, model, options)
    }

    fn with(
        configs: LiveConfigs,
        backend: Arc<dyn Backend>,
        folders: LiveModel,
        options: LoadOptions,
    ) -> Result<Self, GenerateError> {
        start_threads()?;
        let precision = options.precision.unwrap_or_else(|| Precision::of(backend.default_dtype()));
        let variant = Variant::For(precision.dtype());
        let unet = folders.model.weights("unet", &variant)?;
        let quantising = match precision {
            Precision::Fp8 => Some(Arc::new(Quantising::new(backend.clone(), &folders.model, &unet)?)),
            _ => None,
        };
        let backend = quantising.clone().map_or(backend, |quantising| quantising);
        folders.check_loras()?;
        folders.adjustable(&unet)?;
        let control = folders.control.as_ref().map(|folder| folder.weights("controlnet", &variant));
        Ok(Live(Arc::new(Model {
            unet,
            control: control.transpose()?,
            vae: folders.tiny.as_ref().unwrap_or(&folders.model).weights("vae", &variant)?,
            ledger: Ledger::new(options.memory_budget.limit(&*backend).map_err(OpenDeviceError::from)?),
            configs,
            folders,
            options,
            precision,
            backend,
            quantising,
            measuring: Mutex::default(),
            text: OnceLock::new(),
            text_loading: Mutex::default(),
            shared: SharedWeights::default(),
        })))
    }

    /// The model's configurations.
    pub fn configs(&self) -> &LiveConfigs {
        &self.0.configs
    }

    /// What runs the model, in words.
    pub fn device(&self) -> String {
        self.0.backend.describe()
    }

    /// The device and what it can do at best, which is measured now: what a profile is compared with.
    ///
    /// # Errors
    /// If the device fails.
    pub fn machine(&self) -> Result<Machine, GenerateError> {
        let ceilings = self.0.backend.ceilings(self.precision().dtype()).map_err(OpenDeviceError::from)?;
        Ok(Machine { device: self.device(), ceilings })
    }

    /// How weights and activations are stored.
    pub fn precision(&self) -> Precision {
        self.0.precision
    }

    /// The settings that suit the model, with a fresh seed and an empty prompt.
    pub fn settings(&self) -> LiveSettings {
        let strengths = self.0.folders.strengths().map(|(name, strength)| (name.to_owned(), strength));
        LiveSettings::for_configs(&self.0.configs).lora(strengths.collect::<BTreeMap<_, _>>())
    }

    /// The LoRAs whose strengths can be turned and that change text encoders, too: there they keep the strength that is given here.
    pub fn loras_kept_in_text(&self) -> impl Iterator<Item = (&str, f64)> {
        let in_text =
            |lora: &Lora| lora.changes(LoraPart::TextEncoder) || lora.changes(LoraPart::TextEncoder2);
        let loras = self.0.folders.loras.iter().filter(move |file| in_text(&file.lora));
        loras.filter_map(|file| Some((file.name.as_deref()?, file.strength)))
    }

    /// What a stream with these settings costs on this device. Nothing is read or allocated.
    ///
    /// # Errors
    /// If the settings are refused, or a network cannot be planned.
    pub fn estimate(&self, settings: &LiveSettings) -> Result<LiveEstimate, GenerateError> {
        self.estimate_of(settings, None)
    }

    /// The same for frames of a known width and height, as [`Live::begin_for`] takes them.
    ///
    /// # Errors
    /// As [`Live::estimate`].
    pub fn estimate_for(
        &self,
        settings: &LiveSettings,
        input: [usize; 2],
    ) -> Result<LiveEstimate, GenerateError> {
        self.estimate_of(settings, Some(input))
    }

    fn estimate_of(
        &self,
        settings: &LiveSettings,
        input: Option<[usize; 2]>,
    ) -> Result<LiveEstimate, GenerateError> {
        let unet = self.0.folders.adjustable(&self.0.unet)?;
        Request { unet: Some(&unet), input, ..self.request(settings) }.estimate()
    }

    /// The memory that all streams of the model hold together, in bytes, with the text encoders: what the memory limit is for.
    pub fn memory_bytes(&self) -> usize {
        self.0.ledger.held()
    }

    /// Counts what the caller holds beside the streams, such as the frames of a video, towards the memory limit. On a device with
    /// memory of its own it counts nothing: the limit is about that. `part` is what errors call it.
    ///
    /// # Errors
    /// [`GenerateError::OverLimit`] if it does not fit; if the device fails.
    pub fn set_aside(&self, part: &'static str, bytes: usize) -> Result<SetAside, GenerateError> {
        match self.0.backend.free_memory().map_err(OpenDeviceError::from)? {
            Some(_) => Ok(SetAside::nothing()),
            None => SetAside::new(&self.0.ledger, part, bytes),
        }
    }

    /// What the weights lack for a stream with these settings. Only the headers of their files are read.
    ///
    /// # Errors
    /// If the settings are refused, or weights cannot be opened.
    pub fn weights_problems(&self, settings: &LiveSettings) -> Result<Vec<WeightsError>, GenerateError> {
        self.0.problems(&self.request(settings))
    }

    fn request<'a>(&'a self, settings: &'a LiveSettings) -> Request<'a> {
        let Model { configs, precision, backend, .. } = &*self.0;
        Request { configs, settings, precision: *precision, backend: &**backend, unet: None, input: None }
    }

    /// Begins a stream: reads the weights, unless another stream has, and prepares the first frame.
    ///
    /// # Errors
    /// If the settings are refused, memory runs out, or weights are missing or damaged.
    pub fn begin(&self, settings: LiveSettings) -> Result<Stream, GenerateError> {
        self.begin_with(settings, |_| ControlFlow::Continue(()))
    }

    /// As [`Live::begin`], with an observer of what is loaded, compiled and measured.
    ///
    /// # Errors
    /// As [`Live::begin`], and [`GenerateError::Cancelled`] if the observer stops it.
    pub fn begin_with(
        &self,
        settings: LiveSettings,
        mut observe: impl FnMut(&crate::image_to_video::Progress<'_>) -> ControlFlow<()> + Send,
    ) -> Result<Stream, GenerateError> {
        Stream::begin(self.0.clone(), settings, Start::Picture, None, &mut observe)
    }

    /// As [`Live::begin_with`], for frames of a known width and height, which need not be the settings': the first network fits
    /// them on the device, if there is memory for it. Frames of any size may be given all the same.
    ///
    /// # Errors
    /// As [`Live::begin_with`].
    pub fn begin_for(
        &self,
        settings: LiveSettings,
        input: [usize; 2],
        mut observe: impl FnMut(&crate::image_to_video::Progress<'_>) -> ControlFlow<()> + Send,
    ) -> Result<Stream, GenerateError> {
        Stream::begin(self.0.clone(), settings, Start::Picture, Some(input), &mut observe)
    }

    /// Draws one picture from the prompt alone.
    ///
    /// # Errors
    /// As [`Live::begin`].
    pub fn draw_with(
        &self,
        settings: &LiveSettings,
        mut observe: impl FnMut(&crate::image_to_video::Progress<'_>) -> ControlFlow<()> + Send,
    ) -> Result<crate::RgbImage, GenerateError> {
        let settings = settings.clone().strength(1.0).blend(0.0).memory_frames(0);
        Stream::begin(self.0.clone(), settings, Start::Noise, None, &mut observe)?.draw(None)
    }
}

impl Live {
    /// Refuses settings that the model cannot draw frames with, before anything is loaded for them.
    ///
    /// # Errors
    /// Names the setting, its value and the rule that it breaks.
    pub fn check(&self, settings: &LiveSettings) -> Result<(), GenerateError> {
        self.0.check(settings, Start::Picture)
    }
}

impl Model {
    fn check(&self, settings: &LiveSettings, start: Start) -> Result<(), GenerateError> {
        settings.check(&self.configs, self.precision)?;
        let known: Vec<&str> = self.folders.strengths().map(|(name, _)| name).collect();
        if let Some(unknown) = settings.lora.keys().find(|name| !known.contains(&name.as_str())) {
            let rule = match &*known {
                [] => "the model has no LoRA whose strength can be turned".to_owned(),
                known => format!("it must be one of {}", known.join(", ")),
            };
            return Err(GenerateError::Setting { setting: "LoRA", value: unknown.clone(), rule });
        }
        let by_noise = matches!(settings.guidance, Guidance::SelfNegative | Guidance::Initialize);
        let predicts = self.configs.scheduler.get("prediction_type").and_then(|kind| kind.as_str());
        if by_noise && predicts.is_some_and(|kind| kind != "epsilon") {
            let rule = "the model does not predict noise, which this guidance needs; use none or full";
            return Err(GenerateError::Setting {
                setting: "guidance",
                value: settings.guidance.to_string(),
                rule: rule.to_owned(),
            });
        }
        if let Some(schedule) = self.configs.schedule(settings, start)? {
            let shape = Shape::new(&self.configs, settings, &schedule, start, None);
            shape.graph(&self.configs, self.precision)?;
        }
        Ok(())
    }

    /// The strengths of the LoRAs that can be turned: those of the settings, or else those that they began with.
    fn strengths(&self, settings: &LiveSettings) -> Vec<f64> {
        let strength = |(name, first): (&str, f64)| settings.lora.get(name).copied().unwrap_or(first);
        self.folders.strengths().map(strength).collect()
    }

    fn loading(&self) -> Loading<'_> {
        Loading {
            backend: &*self.backend,
            quantises: self.quantising.is_some(),
            profiler: &self.options.profiler,
            ledger: &self.ledger,
        }
    }

    /// The text encoders, which are loaded if they are not yet.
    fn text(&self, observe: &mut Observe<'_>) -> Result<&Text, GenerateError> {
        if let Some(text) = self.text.get() {
            return Ok(text);
        }
        let _loading = self.text_loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = self.text.get() {
            return Ok(text);
        }
        let dtype = self.precision.dtype();
        let text = Text::load(&self.configs, &self.folders, dtype, self.loading(), observe)?;
        Ok(self.text.get_or_init(|| text))
    }

    /// What the weights lack for the networks of a stream.
    fn problems(&self, request: &Request<'_>) -> Result<Vec<WeightsError>, GenerateError> {
        let mut problems = Vec::new();
        let variant = Variant::For(self.precision.dtype());
        for EncoderGraph { part, graph, .. } in text::graphs(request.configs, self.precision.dtype())? {
            let weights = self.folders.model.weights(part.name(), &variant)?;
            problems.extend(weights.problems(&graph));
        }
        let Some(graph) = request.frame()? else { return Ok(problems) };
        for (_, value) in graph.parameters() {
            let Some((part, name)) = value.name.split_once('.') else { continue };
            let weights = match part {
                UNET => Some(&self.unet),
                VAE => Some(&self.vae),
                _ => self.control.as_ref(),
            };
            problems.extend(weights.and_then(|weights| weights.problem(name, &value.ty)));
        }
        Ok(problems)
    }

    /// A network for a shape, with the weights that the others have.
    fn frames(&self, shape: Shape, observe: &mut Observe<'_>) -> Result<Frames, GenerateError> {
        let unet = self.folders.adjustable(&self.unet)?;
        let graph = unet.attach(&shape.graph(&self.configs, self.precision)?, UNET)?;
        let mut weights: Vec<(&'static str, &dyn Parameters)> = vec![(UNET, &unet), (VAE, &self.vae)];
        weights.extend(self.control.as_ref().map(|control| (CONTROLNET, control as &dyn Parameters)));
        let weights = Parts(weights);
        let beside = memory::beside(&graph);
        let loaded =
            self.loading().load((frames::PART, beside), &graph, &weights, Some(&self.shared), observe)?;
        Frames::new(shape, &graph, loaded)
    }
}
