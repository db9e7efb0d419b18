//! A model's folder gives its parts, and whatever is wrong with it is said.
#![allow(clippy::unwrap_used)]

mod tiny_model;

use std::fs;

use kinora_graph::{DType, TensorType};
use kinora_models::{
    folder::{EmbeddedModel, FolderError, ModelFolder},
    weights::Variant,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tiny_model::{MODEL_INDEX, TinyModel};

/// Replaces a file of a model.
fn write(model: &TinyModel, name: &str, text: &str) {
    fs::write(model.path().join(name), text).unwrap();
}

#[test]
fn a_folder_gives_its_parts() {
    let model = TinyModel::new();
    let folder = ModelFolder::open(model.path()).unwrap();
    assert_eq!(folder.pipeline(), "StableVideoDiffusionPipeline");
    let classes: Vec<_> = folder.parts().iter().map(|part| (part.name(), part.class())).collect();
    assert_eq!(
        classes,
        [
            ("unet", "UNetSpatioTemporalConditionModel"),
            ("vae", "AutoencoderKLTemporalDecoder"),
            ("image_encoder", "CLIPVisionModelWithProjection"),
            ("scheduler", "EulerDiscreteScheduler"),
            ("feature_extractor", "CLIPImageProcessor"),
        ]
    );
    #[derive(Deserialize)]
    struct Config {
        name: String,
    }
    for part in folder.parts() {
        assert_eq!(folder.config::<Config>(part.name()).unwrap().name, part.name());
        assert_eq!(folder.config::<Value>(part.name()).unwrap()["name"], part.name());
        let weights = folder.weights(part.name(), &Variant::For(DType::F16));
        assert_eq!(weights.is_ok(), part.has_weights());
    }
    assert_eq!(folder.weights("unet", &Variant::For(DType::F16)).unwrap().variant(), Some("fp16"));
    assert_eq!(folder.weights("unet", &Variant::For(DType::F32)).unwrap().variant(), None);
    let error = folder.weights("scheduler", &Variant::Plain).unwrap_err().to_string();
    assert_eq!(error, "the model's scheduler has no weights: its class is EulerDiscreteScheduler");
    let error = folder.part("text_encoder").unwrap_err().to_string();
    assert!(
        error.ends_with("class is StableVideoDiffusionPipeline, and such a model has no text_encoder"),
        "{error}"
    );
}

/// A model in the program, as `include_bytes!` would bring it there.
fn embedded(files: Vec<(&'static str, Vec<u8>)>) -> &'static EmbeddedModel {
    let files = files.into_iter().map(|(name, bytes)| (name, &*Box::leak(bytes.into_boxed_slice())));
    let files = Box::leak(files.collect::<Vec<_>>().into_boxed_slice());
    Box::leak(Box::new(EmbeddedModel { name: "tiny", files }))
}

#[test]
fn an_embedded_model_is_read_like_a_folder() {
    let model = TinyModel::new();
    let on_disk = ModelFolder::open(model.path()).unwrap();
    let in_program = ModelFolder::embedded(embedded(tiny_model::files())).unwrap();
    for part in on_disk.parts() {
        let name = part.name();
        assert_eq!(in_program.config_text(name).unwrap(), on_disk.config_text(name).unwrap());
        for variant in [Variant::For(DType::F16), Variant::For(DType::F32), Variant::Plain] {
            let describe = |folder: &ModelFolder| {
                let weights = folder.weights(name, &variant).ok()?;
                let tensors = weights.tensors().map(|tensor| (tensor.name().to_owned(), tensor.elements()));
                let tensors: Vec<_> = tensors.collect();
                let (first, elements) = tensors.first().cloned()?;
                let ty = TensorType::new(DType::F16, [usize::try_from(elements).ok()?]);
                Some((tensors, weights.tensor(&first, &ty).ok()?.bytes().to_vec()))
            };
            assert_eq!(describe(&in_program), describe(&on_disk), "{name}");
            assert_eq!(describe(&on_disk).is_some(), part.has_weights());
        }
    }

    let defaults = |folder: &ModelFolder| folder.defaults_text().unwrap();
    assert_eq!((defaults(&on_disk), defaults(&in_program)), (None, None));
    fs::write(model.path().join("defaults.json"), "{}").unwrap();
    let mut more = tiny_model::files();
    more.push(("defaults.json", b"{}".to_vec()));
    let in_program = ModelFolder::embedded(embedded(more)).unwrap();
    assert_eq!((defaults(&on_disk), defaults(&in_program)), (Some("{}".into()), Some("{}".into())));

    let without = |name: &str| {
        let files = tiny_model::files().into_iter().filter(|(file, _)| !file.starts_with(name)).collect();
        ModelFolder::embedded(embedded(files))
    };
    assert!(matches!(without("model_index.json"), Err(FolderError::NoIndex(_))));
    let error = without("unet/config.json").unwrap().config_text("unet").unwrap_err();
    assert!(matches!(error, FolderError::MissingFile(path) if path.ends_with("tiny/unet/config.json")));
    let error = without("unet/diffusion").unwrap().weights("unet", &Variant::Plain).unwrap_err().to_string();
    assert!(error.contains("unet") && error.contains("diffusion_pytorch_model.safetensors"), "{error}");
    let mut cut = tiny_model::files();
    for (_, bytes) in cut.iter_mut().filter(|(file, _)| file.starts_with("unet/diffusion")) {
        bytes.truncate(20);
    }
    let folder = ModelFolder::embedded(embedded(cut)).unwrap();
    assert!(folder.weights("unet", &Variant::Plain).unwrap_err().to_string().contains("header"));
}

#[test]
fn a_path_that_is_no_model_is_refused_with_what_one_looks_like() {
    let empty = tempfile::tempdir().unwrap();
    let error = |path| ModelFolder::open(path).unwrap_err().to_string();
    assert!(error(empty.path().join("absent")).ends_with("absent: there is no such folder"));
    let none = error(empty.path().to_owned());
    assert!(none.contains("no model_index.json here") && none.contains("image_encoder"), "{none}");
    let file = empty.path().join("svd_xt.safetensors");
    fs::write(&file, "x").unwrap();
    assert!(error(file).contains("this is a file, and a model is a folder"));
    fs::create_dir(empty.path().join("model_index.json")).unwrap();
    assert!(error(empty.path().to_owned()).contains("cannot be read"));
}

#[test]
fn an_index_that_names_something_unknown_is_refused_by_name() {
    let model = TinyModel::new();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut index: Value = serde_json::from_str(MODEL_INDEX).unwrap();
        change(&mut index);
        write(&model, "model_index.json", &index.to_string());
        ModelFolder::open(model.path()).unwrap_err().to_string()
    };
    let error = with(&|index| index["_class_name"] = json!("FluxPipeline"));
    assert!(error.contains("is FluxPipeline; Kinora runs StableVideoDiffusionPipeline"), "{error}");
    let error = with(&|index| index["unet"] = json!(["diffusers", "UNet2DConditionModel"]));
    assert!(error.contains("unet is a UNet2DConditionModel"), "{error}");
    assert!(error.contains("knows UNetSpatioTemporalConditionModel"), "{error}");
    let error = with(&|index| index["scheduler"] = json!(["diffusers", "HeunDiscreteScheduler"]));
    assert!(error.contains("DDIMScheduler, DPMSolverMultistepScheduler, LCMScheduler"), "{error}");
    for missing in [json!([null, null]), Value::Null] {
        let error = with(&|index| {
            if missing.is_null() {
                index.as_object_mut().unwrap().remove("vae");
            } else {
                index["vae"] = missing.clone();
            }
        });
        assert!(error.contains("has no vae, which must be one of AutoencoderKLTemporalDecoder"), "{error}");
    }
    for wrong in [json!(3), json!([]), json!(["diffusers"]), json!(["diffusers", 4]), json!({})] {
        let error = with(&|index| index["vae"] = wrong.clone());
        assert!(error.contains("vae must be [library, class]"), "{error}");
    }
    assert!(with(&|index| *index = json!([1])).contains("must be a JSON object"));
    assert!(with(&|index| *index = json!({})).contains("there is no _class_name"));
}

#[test]
fn json_that_does_not_parse_is_refused_with_its_line() {
    let model = TinyModel::new();
    write(&model, "unet/config.json", "{\n  \"name\": \"unet\",\n  oops\n}");
    write(&model, "vae/config.json", "{}");
    let folder = ModelFolder::open(model.path()).unwrap();
    let error = folder.config::<Value>("unet").unwrap_err().to_string();
    assert!(error.contains("config.json") && error.contains("line 3"), "{error}");
    #[derive(Debug, Deserialize)]
    struct Config {
        #[serde(rename = "block_out_channels")]
        _widths: Vec<usize>,
    }
    let error = folder.config::<Config>("vae").unwrap_err().to_string();
    assert!(error.contains("missing field `block_out_channels`"), "{error}");
    fs::remove_file(model.path().join("scheduler/scheduler_config.json")).unwrap();
    let error = folder.config::<Value>("scheduler").unwrap_err().to_string();
    assert!(error.ends_with("scheduler_config.json: this file of the model is missing"), "{error}");
    fs::remove_dir_all(model.path().join("unet")).unwrap();
    let error = folder.weights("unet", &Variant::Plain).unwrap_err().to_string();
    assert!(error.ends_with("unet: there is no such folder"), "{error}");
    write(&model, "model_index.json", "{\n\n\"a\"}");
    let error = ModelFolder::open(model.path()).unwrap_err().to_string();
    assert!(error.contains("line 3"), "{error}");
}

/// An index as it is published, for a pipeline with so many text encoders.
fn image_index(class: &str, encoders: usize) -> Value {
    let mut index = json!({
        "_class_name": class,
        "_diffusers_version": "0.24.0.dev0",
        "feature_extractor": ["transformers", "CLIPImageProcessor"],
        "requires_safety_checker": false,
        "safety_checker": [null, null],
        "scheduler": ["diffusers", "PNDMScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    });
    if encoders == 2 {
        index["text_encoder_2"] = json!(["transformers", "CLIPTextModelWithProjection"]);
        index["tokenizer_2"] = json!(["transformers", "CLIPTokenizer"]);
    }
    index
}

#[test]
fn models_of_images_are_known_by_their_pipelines() {
    let folder = tempfile::tempdir().unwrap();
    let open = |index: &Value| {
        fs::write(folder.path().join("model_index.json"), index.to_string()).unwrap();
        ModelFolder::open(folder.path())
    };
    for (class, encoders) in [
        ("StableDiffusionPipeline", 1),
        ("StableDiffusionImg2ImgPipeline", 1),
        ("LatentConsistencyModelPipeline", 1),
        ("StableDiffusionXLPipeline", 2),
        ("StableDiffusionXLImg2ImgPipeline", 2),
    ] {
        let model = open(&image_index(class, encoders)).unwrap();
        assert_eq!((model.pipeline(), model.parts().len()), (class, 3 + 2 * encoders));
        assert!(!model.part("tokenizer").unwrap().has_weights());
        assert_eq!(model.part("tokenizer_2").is_ok(), encoders == 2);
        assert!(model.config_path("tokenizer").unwrap().ends_with("tokenizer/tokenizer_config.json"));
    }
    let error = open(&image_index("StableDiffusionXLPipeline", 1)).unwrap_err().to_string();
    assert!(
        error.contains("has no text_encoder_2, which must be one of CLIPTextModelWithProjection"),
        "{error}"
    );
    let mut index = image_index("StableDiffusionPipeline", 1);
    index["unet"] = json!(["diffusers", "UNetSpatioTemporalConditionModel"]);
    let error = open(&index).unwrap_err().to_string();
    assert!(error.ends_with("for it, Kinora knows UNet2DConditionModel"), "{error}");
}

#[test]
fn a_model_of_another_kind_is_refused_by_what_needs_it() {
    let model = TinyModel::new();
    let model = ModelFolder::open(model.path()).unwrap();
    model.require(&["StableDiffusionPipeline", "StableVideoDiffusionPipeline"]).unwrap();
    let error =
        model.require(&["StableDiffusionPipeline", "StableDiffusionXLPipeline"]).unwrap_err().to_string();
    let expected = "class is StableVideoDiffusionPipeline, but this needs one of StableDiffusionPipeline, StableDiffusionXLPipeline";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn a_network_by_itself_is_a_folder_with_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    write("config.json", br#"{"_class_name": "AutoencoderTiny", "name": "taesd"}"#);
    write("diffusion_pytorch_model.safetensors", &tiny_model::weights(5));
    let model = ModelFolder::open(folder.path()).unwrap();
    assert_eq!(model.pipeline(), "AutoencoderTiny");
    assert_eq!(model.config::<Value>("vae").unwrap()["name"], "taesd");
    assert_eq!(model.weights("vae", &Variant::Plain).unwrap().parameter_count(), 5);
    write("config.json", br#"{"_class_name": "UNet2DConditionModel"}"#);
    let error = ModelFolder::open(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("config.json: the class of the model is UNet2DConditionModel; Kinora runs"),
        "{error}"
    );
    write("config.json", br#"{"architectures": ["CLIPTextModel"]}"#);
    let error = ModelFolder::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("there is no _class_name"), "{error}");
    let files = vec![
        ("config.json", br#"{"_class_name": "AutoencoderTiny"}"#.to_vec()),
        ("diffusion_pytorch_model.safetensors", tiny_model::weights(6)),
    ];
    let model = ModelFolder::embedded(embedded(files)).unwrap();
    assert_eq!(model.weights("vae", &Variant::Plain).unwrap().parameter_count(), 6);
    assert!(model.config_text("vae").unwrap().contains("AutoencoderTiny"));
}

#[test]
fn a_tokenizer_that_cannot_be_read_is_named_by_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let index = image_index("StableDiffusionPipeline", 1);
    fs::write(folder.path().join("model_index.json"), index.to_string()).unwrap();
    let model = ModelFolder::open(folder.path()).unwrap();
    assert!(matches!(model.tokenizer("tokenizer"), Err(FolderError::NotFound(_))));
    fs::create_dir(folder.path().join("tokenizer")).unwrap();
    let error = model.tokenizer("tokenizer").unwrap_err().to_string();
    assert!(error.contains("has neither vocab.json with merges.txt nor tokenizer.json"), "{error}");
    fs::write(folder.path().join("tokenizer/vocab.json"), "{}").unwrap();
    fs::write(folder.path().join("tokenizer/merges.txt"), "").unwrap();
    let error = model.tokenizer("tokenizer").unwrap_err().to_string();
    assert!(
        error.ends_with("tokenizer: the tokenizer's vocabulary does not have <|startoftext|>"),
        "{error}"
    );
}
