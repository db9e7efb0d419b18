//! The classes of pipelines and of their parts that Kinora knows, by the names that diffusers and transformers give them.

/// A pipeline: its class and the parts that it needs.
pub(super) struct Pipeline {
    pub class: &'static str,
    pub parts: &'static [PartOf],
    /// The folder is that of a single part: it has the part's configuration in place of an index.
    pub alone: bool,
}

/// A part of a pipeline: its name, and the classes that it may have.
pub(super) struct PartOf {
    pub name: &'static str,
    pub classes: &'static [&'static str],
    pub kind: Kind,
}

/// What a part's folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A network that diffusers saved.
    DiffusersNetwork,
    /// A network that transformers saved.
    TransformersNetwork,
    /// The numbers of a scheduler.
    Scheduler,
    /// The numbers of an image processor.
    ImageProcessor,
    /// The vocabulary of a tokenizer.
    Tokenizer,
}

impl Kind {
    /// The file with the part's configuration.
    pub fn config_file(self) -> &'static str {
        match self {
            Kind::DiffusersNetwork | Kind::TransformersNetwork => "config.json",
            Kind::Scheduler => "scheduler_config.json",
            Kind::ImageProcessor => "preprocessor_config.json",
            Kind::Tokenizer => "tokenizer_config.json",
        }
    }

    /// What the names of its weights files start with; `None` if it has no weights.
    pub fn weights_stem(self) -> Option<&'static str> {
        match self {
            Kind::DiffusersNetwork => Some("diffusion_pytorch_model"),
            Kind::TransformersNetwork => Some("model"),
            Kind::Scheduler | Kind::ImageProcessor | Kind::Tokenizer => None,
        }
    }

    /// The library that saves it.
    pub fn library(self) -> &'static str {
        match self {
            Kind::DiffusersNetwork | Kind::Scheduler => "diffusers",
            Kind::TransformersNetwork | Kind::ImageProcessor | Kind::Tokenizer => "transformers",
        }
    }
}

const fn diffusers(name: &'static str, classes: &'static [&'static str]) -> PartOf {
    PartOf { name, classes, kind: Kind::DiffusersNetwork }
}

const fn transformers(name: &'static str, classes: &'static [&'static str]) -> PartOf {
    PartOf { name, classes, kind: Kind::TransformersNetwork }
}

const fn tokenizer(name: &'static str) -> PartOf {
    // transformers names the fast one after what wrote the folder; both have the same vocabulary.
    PartOf { name, classes: &["CLIPTokenizer", "CLIPTokenizerFast"], kind: Kind::Tokenizer }
}

const SCHEDULER: PartOf = PartOf {
    name: "scheduler",
    classes: &["EulerDiscreteScheduler", "DDIMScheduler", "DPMSolverMultistepScheduler", "LCMScheduler"],
    kind: Kind::Scheduler,
};
/// Published models of images name others too, in whose place Euler's runs with the same noise levels.
const IMAGE_SCHEDULER: PartOf = PartOf {
    classes: &[
        "EulerDiscreteScheduler",
        "DDIMScheduler",
        "DPMSolverMultistepScheduler",
        "LCMScheduler",
        "PNDMScheduler",
        "EulerAncestralDiscreteScheduler",
    ],
    ..SCHEDULER
};
const IMAGE_UNET: PartOf = diffusers("unet", &["UNet2DConditionModel"]);
const IMAGE_VAE: PartOf = diffusers("vae", &["AutoencoderKL", "AutoencoderTiny"]);
const TEXT_ENCODER: PartOf = transformers("text_encoder", &["CLIPTextModel"]);

/// What Stable Diffusion needs. A safety checker and what it reads are left alone.
const STABLE_DIFFUSION: &[PartOf] =
    &[IMAGE_UNET, IMAGE_VAE, TEXT_ENCODER, tokenizer("tokenizer"), IMAGE_SCHEDULER];
/// What Stable Diffusion XL needs.
const STABLE_DIFFUSION_XL: &[PartOf] = &[
    IMAGE_UNET,
    IMAGE_VAE,
    TEXT_ENCODER,
    transformers("text_encoder_2", &["CLIPTextModelWithProjection"]),
    tokenizer("tokenizer"),
    tokenizer("tokenizer_2"),
    IMAGE_SCHEDULER,
];

const fn pipeline(class: &'static str, parts: &'static [PartOf]) -> Pipeline {
    Pipeline { class, parts, alone: false }
}

/// Every pipeline that Kinora runs, and the networks that come by themselves.
pub(super) const PIPELINES: &[Pipeline] = &[
    pipeline(
        "StableVideoDiffusionPipeline",
        &[
            diffusers("unet", &["UNetSpatioTemporalConditionModel"]),
            diffusers("vae", &["AutoencoderKLTemporalDecoder"]),
            transformers("image_encoder", &["CLIPVisionModelWithProjection"]),
            SCHEDULER,
            PartOf {
                name: "feature_extractor",
                // The second is what transformers 5 calls the first if torchvision is not installed.
                classes: &["CLIPImageProcessor", "CLIPImageProcessorPil"],
                kind: Kind::ImageProcessor,
            },
        ],
    ),
    pipeline("StableDiffusionPipeline", STABLE_DIFFUSION),
    pipeline("StableDiffusionImg2ImgPipeline", STABLE_DIFFUSION),
    pipeline("LatentConsistencyModelPipeline", STABLE_DIFFUSION),
    pipeline("StableDiffusionXLPipeline", STABLE_DIFFUSION_XL),
    pipeline("StableDiffusionXLImg2ImgPipeline", STABLE_DIFFUSION_XL),
    Pipeline {
        class: "ControlNetModel",
        parts: &[diffusers("controlnet", &["ControlNetModel"])],
        alone: true,
    },
    Pipeline { class: "AutoencoderTiny", parts: &[diffusers("vae", &["AutoencoderTiny"])], alone: true },
];

/// The pipelines, for a message.
pub(super) fn pipelines() -> String {
    PIPELINES.iter().map(|pipeline| pipeline.class).collect::<Vec<_>>().join(", ")
}

/// The classes of a part, for a message.
pub(super) fn of_part(pipeline: &str, part: &str) -> String {
    let classes = PIPELINES
        .iter()
        .filter(|known| known.class == pipeline)
        .flat_map(|pipeline| pipeline.parts)
        .filter(|known| known.name == part)
        .flat_map(|known| known.classes);
    classes.copied().collect::<Vec<_>>().join(", ")
}
