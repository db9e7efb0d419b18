//! The classes of pipelines and of their parts that Kinora knows, by the names that diffusers and transformers give them.

/// A pipeline: its class and the parts that it needs.
pub(super) struct Pipeline {
    pub class: &'static str,
    pub parts: &'static [PartOf],
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
}

impl Kind {
    /// The file with the part's configuration.
    pub fn config_file(self) -> &'static str {
        match self {
            Kind::DiffusersNetwork | Kind::TransformersNetwork => "config.json",
            Kind::Scheduler => "scheduler_config.json",
            Kind::ImageProcessor => "preprocessor_config.json",
        }
    }

    /// What the names of its weights files start with; `None` if it has no weights.
    pub fn weights_stem(self) -> Option<&'static str> {
        match self {
            Kind::DiffusersNetwork => Some("diffusion_pytorch_model"),
            Kind::TransformersNetwork => Some("model"),
            Kind::Scheduler | Kind::ImageProcessor => None,
        }
    }
}

/// Every pipeline that Kinora runs.
pub(super) const PIPELINES: &[Pipeline] = &[Pipeline {
    class: "StableVideoDiffusionPipeline",
    parts: &[
        PartOf { name: "unet", classes: &["UNetSpatioTemporalConditionModel"], kind: Kind::DiffusersNetwork },
        PartOf { name: "vae", classes: &["AutoencoderKLTemporalDecoder"], kind: Kind::DiffusersNetwork },
        PartOf {
            name: "image_encoder",
            classes: &["CLIPVisionModelWithProjection"],
            kind: Kind::TransformersNetwork,
        },
        PartOf {
            name: "scheduler",
            classes: &[
                "EulerDiscreteScheduler",
                "DDIMScheduler",
                "DPMSolverMultistepScheduler",
                "LCMScheduler",
            ],
            kind: Kind::Scheduler,
        },
        PartOf {
            name: "feature_extractor",
            // The second is what transformers 5 calls the first if torchvision is not installed.
            classes: &["CLIPImageProcessor", "CLIPImageProcessorPil"],
            kind: Kind::ImageProcessor,
        },
    ],
}];

/// The pipelines, for a message.
pub(super) fn pipelines() -> String {
    PIPELINES.iter().map(|pipeline| pipeline.class).collect::<Vec<_>>().join(", ")
}

/// The classes of a part, for a message.
pub(super) fn of_part(part: &str) -> String {
    let classes = PIPELINES
        .iter()
        .flat_map(|pipeline| pipeline.parts)
        .filter(|known| known.name == part)
        .flat_map(|known| known.classes);
    classes.copied().collect::<Vec<_>>().join(", ")
}
