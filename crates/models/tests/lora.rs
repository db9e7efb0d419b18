//! LoRA against peft (`golden/make_lora.py`), and files that must be refused.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use kinora_cpu::{Options, Program};
use kinora_graph::{DType, Graph, GraphBuilder, Parameters, Phase, Tensor, TensorType};
use kinora_models::{
    folder::ModelFolder,
    lora::{Adapted, Adjustable, Lora, LoraError, LoraPart, STRENGTHS},
    networks::{
        clip_text::{self, ClipTextConfig, TextEncode},
        frame::{Parts, UNET},
        unet2d::{TimeInputs, Unet2dConfig, Unet2dInputs, time_embedding, unet2d},
    },
    synthetic::SyntheticImageModel,
    weights::{Variant, Weights},
};
use kinora_runtime::Tensors;
use safetensors::{Dtype, tensor::TensorView};
use serde::Deserialize;
use support::{
    fixtures::{Fixture, folder, read},
    networks::{assert_close, inputs},
};

#[derive(Deserialize)]
struct Case {
    name: String,
    /// By file.
    strengths: BTreeMap<String, f32>,
}

/// The model of the script in a folder.
struct Model {
    _folder: tempfile::TempDir,
    read: ModelFolder,
}

impl Model {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        SyntheticImageModel::preset("live").unwrap().write(folder.path()).unwrap();
        let read = ModelFolder::open(folder.path()).unwrap();
        Model { _folder: folder, read }
    }

    fn weights(&self, part: LoraPart) -> Weights {
        self.read.weights(part.name(), &Variant::Plain).unwrap()
    }

    /// The UNet, with the names that a frame's graph has for its weights.
    fn unet(&self) -> Graph {
        let config = Unet2dConfig::from_json(&self.read.config_text("unet").unwrap()).unwrap();
        let mut g = GraphBuilder::new("unet");
        let mut input = |name: &str, shape: &[usize]| {
            g.input(name, TensorType::new(DType::F32, shape), Phase::Step).unwrap()
        };
        let sample = input("sample", &[1, 8, 8, 4]);
        let context = input("context", &[1, 5, config.context_channels().unwrap()]);
        let timesteps = input("timesteps", &[1]);
        let time = TimeInputs { timesteps, guidance: None, added: None };
        let prediction = g.scope(UNET, |g| {
            let time = time_embedding(g, &config, DType::F32, &time).unwrap();
            unet2d(g, &config, DType::F32, &Unet2dInputs { sample, time, context }).unwrap()
        });
        g.output("prediction", prediction).unwrap();
        g.finish()
    }

    fn text_encoder(&self) -> Graph {
        let config = ClipTextConfig::from_json(&self.read.config_text("text_encoder").unwrap()).unwrap();
        let dtype = DType::F32;
        let request = TextEncode { prompts: 1, tokens: 6, dtype, skip: 0, final_norm: true, pooled: false };
        clip_text::encoder(&config, &request).unwrap()
    }
}

fn run(graph: &Graph, weights: &dyn Parameters, known: Tensors) -> Tensors {
    let inputs = inputs(graph, "lora", known);
    Program::new(graph, weights, Options::default()).unwrap().run(&inputs).unwrap()
}

fn fixture(name: &str) -> Lora {
    Lora::open(&folder("lora").join(format!("{name}.safetensors"))).unwrap()
}

#[test]
fn merged_networks_are_those_of_peft() {
    let golden: Fixture<Case> = Fixture::load("lora");
    assert_eq!(golden.cases.len(), 4);
    let (model, files) = (Model::new(), ["peft", "kohya"].map(|name| (name, fixture(name))));
    for case in &golden.cases {
        let loras = files.iter().filter_map(|(name, lora)| Some((lora, *case.strengths.get(*name)?)));
        let loras: Vec<(&Lora, f32)> = loras.collect();
        assert_eq!(loras.len(), case.strengths.len());
        let timestep = Tensor::from_slice([1], &[499.0f32]).unwrap();
        let tokens = Tensor::from_slice([1, 6], &[512, 7, 300, 511, 513, 0]).unwrap();
        for (part, graph, result, input) in [
            (LoraPart::Unet, model.unet(), "prediction", ("timesteps", timestep)),
            (LoraPart::TextEncoder, model.text_encoder(), "hidden", ("tokens", tokens)),
        ] {
            let weights = model.weights(part);
            let adapted = Adapted::new(&weights, part, &loras).unwrap();
            let parts = Parts(vec![(UNET, &adapted)]);
            let weights: &dyn Parameters = if part == LoraPart::Unet { &parts } else { &adapted };
            let got = run(&graph, weights, Tensors::from([(input.0.to_owned(), input.1)]));
            let label = format!("{} of {}", result, case.name);
            assert_close(&label, golden.expected(&case.name, result), &got[result], 2e-5);
        }
    }
}

/// What the UNet predicts with the strengths as an input, on top of what is merged at load.
fn turned(base: Adapted<'_>, loras: &[&Lora], strengths: &[f32], graph: &Graph) -> Tensor {
    let adjustable = Adjustable::new(base, loras).unwrap();
    let graph = adjustable.attach(graph, UNET).unwrap();
    let known = Tensors::from([
        ("timesteps".to_owned(), Tensor::from_slice([1], &[499.0f32]).unwrap()),
        (STRENGTHS.to_owned(), Tensor::from_slice([strengths.len()], strengths).unwrap()),
    ]);
    run(&graph, &Parts(vec![(UNET, &adjustable)]), known).remove("prediction").unwrap()
}

/// With the strengths as an input the results are those of peft as well: linear layers and convolutions, two LoRAs at once, a
/// negative strength. And they are those of weights that were merged when they were read.
#[test]
fn strengths_as_an_input_give_the_networks_of_peft() {
    let golden: Fixture<Case> = Fixture::load("lora");
    let (model, files) = (Model::new(), ["peft", "kohya"].map(|name| (name, fixture(name))));
    let loras = files.each_ref().map(|(_, lora)| lora);
    let (weights, graph) = (model.weights(LoraPart::Unet), model.unet());
    let merged_at_load = |strengths: &[f32]| {
        let loras: Vec<(&Lora, f32)> = loras.iter().copied().zip(strengths.iter().copied()).collect();
        Adapted::new(&weights, LoraPart::Unet, &loras).unwrap()
    };
    for case in &golden.cases {
        let strengths = files.each_ref().map(|(name, _)| case.strengths.get(*name).copied().unwrap_or(0.0));
        let got = turned(merged_at_load(&[]), &loras, &strengths, &graph);
        assert_close(&case.name, golden.expected(&case.name, "prediction"), &got, 2e-5);
        let timestep = Tensor::from_slice([1], &[499.0f32]).unwrap();
        let known = Tensors::from([("timesteps".to_owned(), timestep)]);
        let adapted = merged_at_load(&strengths);
        let at_load = run(&graph, &Parts(vec![(UNET, &adapted)]), known);
        match strengths {
            // The model's own weights, in the same kernels.
            [0.0, 0.0] => assert_eq!(got, at_load["prediction"]),
            // Sums of the same terms in f32, in another order.
            _ => assert_close(&case.name, &at_load["prediction"], &got, 1e-5),
        }
        // One merged when the weights are read, the other by its strength.
        let [peft, kohya] = strengths;
        let got = turned(merged_at_load(&[peft]), &loras[1..], &[kohya], &graph);
        assert_close(&case.name, golden.expected(&case.name, "prediction"), &got, 2e-5);
    }
}

/// A merged weight in f64, in the graph's order, each with the sum of its terms' magnitudes.
fn merged_weight(own: &[f32], layer: &str, taps: usize, strengths: [f32; 2]) -> Vec<(f64, f64)> {
    let tensors = ["peft", "kohya"].map(|name| read(&folder("lora").join(format!("{name}.safetensors"))));
    let flat = layer.replace('.', "_");
    let names = [
        [format!("unet.{layer}.lora_A.weight"), format!("unet.{layer}.lora_B.weight")],
        [format!("lora_unet_{flat}.lora_down.weight"), format!("lora_unet_{flat}.lora_up.weight")],
    ];
    let alpha = tensors[1].get(&format!("lora_unet_{flat}.alpha")).unwrap().to_f32()[0];
    let mut merged: Vec<(f64, f64)> = own.iter().map(|&own| (f64::from(own), f64::from(own.abs()))).collect();
    for (i, [down, up]) in names.iter().enumerate() {
        let (down, up) = (&tensors[i][down], &tensors[i][up]);
        let rank = down.shape()[0];
        let scale = f64::from(strengths[i]) * if i == 0 { 1.0 } else { f64::from(alpha) / rank as f64 };
        let (down, up) = (down.to_f32(), up.to_f32());
        let row = down.len() / rank;
        for (at, (sum, magnitude)) in merged.iter_mut().enumerate() {
            // In the graph a tap's channels lie together, in the file a channel's taps do.
            let (output, tap, channel) = (at / row, at % row / (row / taps), at % (row / taps));
            for r in 0..rank {
                let factors = [up[output * rank + r], down[r * row + channel * taps + tap]];
                let term = scale * f64::from(factors[0]) * f64::from(factors[1]);
                *sum += term;
                *magnitude += term.abs();
            }
        }
    }
    merged
}

/// A weight in half precision is what it is in f64 but for the rounding of the model's weight, of each factor and of the sum.
#[test]
fn a_weight_of_half_precision_is_summed_in_f32() {
    let (model, files) = (Model::new(), ["peft", "kohya"].map(fixture));
    let weights = model.weights(LoraPart::Unet);
    let base = Adapted::new(&weights, LoraPart::Unet, &[]).unwrap();
    let adjustable = Adjustable::new(base, &files.each_ref()).unwrap();
    let layers: [(&str, &[usize]); 2] = [(Q, &[64, 64]), ("mid_block.resnets.0.conv1", &[64, 1, 3, 3, 64])];
    for (layer, shape) in layers {
        for (dtype, unit) in [(DType::F16, 2f64.powi(-11)), (DType::BF16, 2f64.powi(-8))] {
            let (name, ty) = (format!("{layer}.weight"), TensorType::new(dtype, shape));
            let mut g = GraphBuilder::new("weight");
            let weight = g.scope(UNET, |g| g.parameter(&name, ty.clone())).unwrap();
            g.output("weight", weight).unwrap();
            let graph = adjustable.attach(&g.finish(), UNET).unwrap();
            let given = |strengths: [f32; 2]| {
                let strengths = Tensor::from_slice([2], &strengths).unwrap();
                let known = Tensors::from([(STRENGTHS.to_owned(), strengths)]);
                run(&graph, &Parts(vec![(UNET, &adjustable)]), known).remove("weight").unwrap()
            };
            let own = |ty: &TensorType| weights.parameter(&name, ty).unwrap().unwrap();
            assert_eq!(given([0.0, 0.0]), own(&ty), "the model's own weight");
            let own = own(&TensorType::new(DType::F32, shape)).to_f32();
            let strengths = [0.7, -0.4];
            let expected = merged_weight(&own, layer, shape[1..].iter().product::<usize>() / 64, strengths);
            for (got, (expected, magnitude)) in given(strengths).to_f32().into_iter().zip(expected) {
                let allowed = 1.01 * unit * (expected.abs() + 3.0 * magnitude) + 1e-7;
                let off = (f64::from(got) - expected).abs();
                assert!(off <= allowed, "{layer} in {dtype:?}: {got} for {expected}, {allowed} allowed");
            }
        }
    }
}

/// A stream without such LoRAs has the graph that it has always had.
#[test]
fn a_graph_that_no_lora_changes_stays_as_it_is() {
    let (model, kohya) = (Model::new(), fixture("kohya"));
    let (weights, graph) = (model.weights(LoraPart::Unet), model.unet());
    let adjustable = |loras: &[&Lora], network: &str| {
        let base = Adapted::new(&weights, LoraPart::Unet, &[]).unwrap();
        Adjustable::new(base, loras).unwrap().attach(&graph, network).unwrap()
    };
    assert_eq!(adjustable(&[], UNET), graph);
    assert_eq!(adjustable(&[&kohya], "controlnet"), graph);
    let changed = adjustable(&[&kohya], UNET);
    assert_eq!(changed.step_flops(), graph.step_flops(), "a step costs what it did");
    assert_eq!(changed.inputs().len(), graph.inputs().len() + 1);
}

/// The layers of the original code's names are found in a model, whose stages have as many layers as it says.
#[test]
fn the_original_names_of_blocks_are_found() {
    let (model, around) = (Model::new(), tempfile::tempdir().unwrap());
    let weights = model.weights(LoraPart::Unet);
    let path = around.path().join("lora.safetensors");
    // One layer a stage: blocks 1 and 2 on the way down are the first stage's layer and its change of size.
    for (original, in_file, shape) in [
        ("input_blocks_1_0_in_layers_2", "down_blocks.0.resnets.0.conv1", [3, 3]),
        ("input_blocks_2_0_op", "down_blocks.0.downsamplers.0.conv", [3, 3]),
        ("middle_block_1_transformer_blocks_0_attn1_to_q", Q, [1, 1]),
    ] {
        let weight = weights.tensors().find(|tensor| tensor.name() == format!("{in_file}.weight")).unwrap();
        let [outputs, inputs] = [weight.shape()[0], weight.shape()[1]];
        let names = ["lora_down", "lora_up"].map(|half| format!("lora_unet_{original}.{half}.weight"));
        let (down, up): (&[usize], &[usize]) = (&[4, inputs, shape[0], shape[1]], &[outputs, 4, 1, 1]);
        file(&path, &[(&names[0], down), (&names[1], up)], None);
        let lora = Lora::open(&path).unwrap();
        Adapted::new(&weights, LoraPart::Unet, &[(&lora, 1.0)]).unwrap();
    }
}

/// Writes a LoRA file with tensors of zeros.
fn file(path: &Path, tensors: &[(&str, &[usize])], metadata: Option<&str>) {
    let zeros = vec![0u8; 1 << 16];
    let view = |shape: &[usize]| {
        let bytes = 4 * shape.iter().product::<usize>();
        TensorView::new(Dtype::F32, shape.to_vec(), &zeros[..bytes]).unwrap()
    };
    let views: Vec<_> = tensors.iter().map(|&(name, shape)| (name, view(shape))).collect();
    let metadata =
        metadata.map(|text| HashMap::from([("lora_adapter_metadata".to_owned(), text.to_owned())]));
    safetensors::serialize_to_file(views, metadata, path).unwrap();
}

const Q: &str = "mid_block.attentions.0.transformer_blocks.0.attn1.to_q";

#[test]
fn what_does_not_fit_the_model_is_refused_by_name() {
    let (model, around) = (Model::new(), tempfile::tempdir().unwrap());
    let weights = model.weights(LoraPart::Unet);
    let path = around.path().join("lora.safetensors");
    let error = |tensors: &[(&str, &[usize])]| {
        file(&path, tensors, None);
        let lora = Lora::open(&path).unwrap();
        Adapted::new(&weights, LoraPart::Unet, &[(&lora, 1.0)]).map(|_| ()).unwrap_err().to_string()
    };
    let (down, up) = (format!("unet.{Q}.lora_A.weight"), format!("unet.{Q}.lora_B.weight"));
    let other = error(&[("unet.x.lora_A.weight", &[4, 320]), ("unet.x.lora_B.weight", &[640, 4])]);
    assert!(
        other.contains("for another model: none of its 1 modules is one of the unet's, such as x"),
        "{other}"
    );
    assert!(other.ends_with("which adds [640, 320]"), "{other}");
    let wide = error(&[(&down, &[4, 96]), (&up, &[96, 4])]);
    assert!(wide.contains("to_q adds [96, 96], but the unet has [64, 64] there"), "{wide}");
    let names: Vec<String> =
        (0..5).flat_map(|i| ["A", "B"].map(|ab| format!("unet.x.{i}.lora_{ab}.weight"))).collect();
    let mut some: Vec<(&str, &[usize])> = names.iter().map(|name| (name.as_str(), &[2, 2][..])).collect();
    some.extend([(&*down, &[4, 64][..]), (&*up, &[64, 4][..])]);
    let missing = error(&some);
    assert!(missing.contains("the unet has no x.0, x.1, x.2 and 2 more"), "{missing}");
    // A linear layer's change for a convolution of more than one tap.
    let conv = "mid_block.resnets.0.conv1";
    let (conv_down, conv_up) = (format!("unet.{conv}.lora_A.weight"), format!("unet.{conv}.lora_B.weight"));
    let flat = error(&[(&conv_down, &[4, 64]), (&conv_up, &[64, 4])]);
    assert!(flat.contains("adds [64, 64], but the unet has [64, 64, 3, 3] there"), "{flat}");
    file(&path, &[(&down, &[4, 64, 1, 1]), (&up, &[64, 4, 1, 1])], None);
    let lora = Lora::open(&path).unwrap();
    Adapted::new(&weights, LoraPart::Unet, &[(&lora, 1.0)])
        .expect("1×1 convolutions stand for linear layers");
    assert!(lora.changes(LoraPart::Unet) && !lora.changes(LoraPart::TextEncoder));
    let nan = Adapted::new(&weights, LoraPart::Unet, &[(&lora, f32::NAN)]);
    assert!(matches!(nan, Err(LoraError::Strength { .. })));
}

#[test]
fn files_that_are_no_lora_are_refused() {
    let around = tempfile::tempdir().unwrap();
    let path = around.path().join("lora.safetensors");
    let open = |tensors: &[(&str, &[usize])], metadata: Option<&str>| {
        file(&path, tensors, metadata);
        Lora::open(&path)
    };
    let (down, up) = (format!("unet.{Q}.lora_A.weight"), format!("unet.{Q}.lora_B.weight"));
    let pair: [(&str, &[usize]); 2] = [(&down, &[4, 64]), (&up, &[64, 4])];
    assert!(matches!(open(&[], None), Err(LoraError::Empty(_))));
    assert!(matches!(open(&pair[..1], None), Err(LoraError::Incomplete { what: "up", .. })));
    assert!(matches!(open(&pair[1..], None), Err(LoraError::Incomplete { what: "down", .. })));
    assert!(matches!(open(&[pair[0], (&up, &[64, 5])], None), Err(LoraError::Rank { .. })));
    assert!(matches!(open(&[pair[0], (&up, &[])], None), Err(LoraError::Rank { .. })));
    assert!(matches!(open(&[("conv_in.weight", &[4])], None), Err(LoraError::Unknown { .. })));
    assert!(matches!(open(&pair, Some("{")), Err(LoraError::Settings { .. })));
    assert!(matches!(open(&pair, Some(r#"{"unet.use_rslora": true}"#)), Err(LoraError::Setting { .. })));
    open(&pair, Some(r#"{"unet.use_rslora": false, "unet.lora_alpha": 8}"#)).unwrap();
    let alpha = format!("unet.{Q}.alpha");
    assert!(matches!(open(&[pair[0], pair[1], (&alpha, &[2])], None), Err(LoraError::Weights(_))));
    std::fs::write(&path, "no file of weights").unwrap();
    assert!(matches!(Lora::open(&path), Err(LoraError::Weights(_))));
}

/// Settings of peft scale as an `alpha` in the file does.
#[test]
fn the_settings_of_peft_scale_a_module() {
    let (model, around) = (Model::new(), tempfile::tempdir().unwrap());
    let path = around.path().join("lora.safetensors");
    let ones: Vec<u8> = [1f32; 256].iter().flat_map(|one| one.to_le_bytes()).collect();
    let views = [("A", [4, 64]), ("B", [64, 4])].map(|(ab, shape)| {
        (format!("unet.{Q}.lora_{ab}.weight"), TensorView::new(Dtype::F32, shape.to_vec(), &ones).unwrap())
    });
    let settings = format!(r#"{{"unet.lora_alpha": 8, "unet.alpha_pattern": {{"{Q}": 2}}}}"#);
    for (settings, scale) in [("{\"unet.lora_alpha\": 8}", 2.0), (&settings, 0.5), ("{}", 1.0)] {
        let metadata = HashMap::from([("lora_adapter_metadata".to_owned(), settings.to_owned())]);
        safetensors::serialize_to_file(views.clone(), Some(metadata), &path).unwrap();
        let (lora, weights) = (Lora::open(&path).unwrap(), model.weights(LoraPart::Unet));
        let adapted = Adapted::new(&weights, LoraPart::Unet, &[(&lora, 3.0)]).unwrap();
        let (name, ty) = (format!("{Q}.weight"), TensorType::new(DType::F32, [64, 64]));
        let [before, after] = [&weights as &dyn Parameters, &adapted]
            .map(|weights| weights.parameter(&name, &ty).unwrap().unwrap().to_f32());
        // Each element is a sum over a rank of four.
        let added: Vec<f32> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
        assert!(
            added.iter().all(|added| (added - 12.0 * scale).abs() < 1e-4),
            "{settings}: {:?}",
            &added[..4]
        );
        assert!(adapted.parameter("nothing.weight", &ty).unwrap().is_none());
    }
}
