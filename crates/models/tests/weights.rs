//! Weights files written by safetensors, diffusers and transformers are read as PyTorch reads them, and damaged ones are
//! refused.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use half::{bf16, f16};
use kinora_graph::{DType, GraphBuilder, Parameters, TensorType};
use kinora_models::weights::{Variant, Weights, WeightsError};
use proptest::prelude::*;
use safetensors::{Dtype, tensor::TensorView};
use support::fixtures;

const DIFFUSERS: &str = "diffusion_pytorch_model";

fn fixture(name: &str) -> PathBuf {
    fixtures::folder("weights").join(name)
}

/// A value rounded to a storage type.
fn rounded(value: f32, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => f16::from_f32(value).to_f32(),
        DType::BF16 => bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

fn check(folder: &str, stem: &str, variant: &Variant) {
    let weights = Weights::open(&fixture(folder), stem, variant).unwrap();
    // What PyTorch reads from it, in the graph's layout.
    let expected = fixtures::read(&fixture(&format!("{folder}.expected.safetensors")));
    let names: Vec<&str> = expected.keys().map(String::as_str).collect();
    assert_eq!(weights.tensors().map(|tensor| tensor.name()).collect::<Vec<_>>(), names);
    for (name, expected) in &expected {
        if name == "position_ids" {
            continue;
        }
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let got = weights.tensor(name, &TensorType::new(dtype, expected.shape().clone())).unwrap();
            let want: Vec<f32> = expected.to_f32().into_iter().map(|value| rounded(value, dtype)).collect();
            assert_eq!(got.to_f32(), want, "{folder}: {name} as {dtype}");
        }
    }
}

#[test]
fn files_of_every_float_type_give_what_pytorch_reads() {
    for folder in ["float32", "float16", "bfloat16"] {
        check(folder, DIFFUSERS, &Variant::Plain);
    }
}

#[test]
fn shards_and_variants_give_what_pytorch_reads() {
    check("sharded", DIFFUSERS, &Variant::Plain);
    check("sharded_fp16", DIFFUSERS, &Variant::Named("fp16".to_owned()));
    check("sharded_fp16", DIFFUSERS, &Variant::For(DType::F16));
    check("transformers_sharded", "model", &Variant::For(DType::F16));
    check("transformers_fp16", "model", &Variant::For(DType::F32));
}

/// A file with the tensors, all f32.
fn saved(folder: &Path, stem: &str, tensors: &[(&str, &[usize])]) {
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .enumerate()
        .map(|(i, (name, shape))| {
            let numbers = vec![i as f32; shape.iter().product()];
            ((*name).to_owned(), shape.to_vec(), numbers.iter().flat_map(|n| n.to_le_bytes()).collect())
        })
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    let file = safetensors::serialize(views, None::<HashMap<_, _>>).unwrap();
    fs::write(folder.join(format!("{stem}.safetensors")), file).unwrap();
}

/// As Stable Diffusion 1.5's autoencoder and a text encoder saved by transformers 5 have them.
#[test]
fn tensors_are_found_under_the_names_of_other_versions() {
    let folder = tempfile::tempdir().unwrap();
    let attention = "encoder.mid_block.attentions.0";
    let names =
        ["query", "key", "value", "proj_attn", "to_v"].map(|name| format!("{attention}.{name}.weight"));
    let mut tensors: Vec<(&str, &[usize])> =
        names.iter().map(|name| (name.as_str(), [2, 2].as_slice())).collect();
    tensors.push(("final_layer_norm.bias", &[2]));
    saved(folder.path(), DIFFUSERS, &tensors);
    let weights = Weights::open(folder.path(), DIFFUSERS, &Variant::Plain).unwrap();
    let first = |name: &str, shape: &[usize]| {
        weights.tensor(name, &TensorType::new(DType::F32, shape)).map(|tensor| tensor.to_f32()[0])
    };
    // A tensor of the name itself comes first.
    for (name, number) in [("to_q", 0.0), ("to_k", 1.0), ("to_v", 4.0), ("to_out.0", 3.0)] {
        assert_eq!(first(&format!("{attention}.{name}.weight"), &[2, 2]).unwrap(), number, "{name}");
    }
    assert_eq!(first("text_model.final_layer_norm.bias", &[2]).unwrap(), 5.0);
    let error = first("text_model.final_layer_norm.weight", &[2]).unwrap_err().to_string();
    assert!(error.contains("text_model.final_layer_norm.weight"), "{error}");
}

#[test]
fn the_listing_counts_what_is_in_the_files() {
    for (folder, variant, bytes) in
        [("sharded", Variant::Plain, 1036), ("sharded_fp16", Variant::For(DType::F16), 518)]
    {
        let weights = Weights::open(&fixture(folder), DIFFUSERS, &variant).unwrap();
        assert_eq!(weights.parameter_count(), 259);
        assert_eq!(weights.byte_count(), bytes);
        let conv = weights.tensors().find(|tensor| tensor.name() == "conv3d.weight").unwrap();
        assert_eq!(conv.shape(), [2, 4, 3, 1, 2]);
    }
    // Three i64 indices take room, but are no parameters.
    let weights = Weights::open(&fixture("float16"), DIFFUSERS, &Variant::Plain).unwrap();
    assert_eq!((weights.parameter_count(), weights.byte_count()), (259, 518 + 24));
    let ids = weights.tensors().find(|tensor| tensor.name() == "position_ids").unwrap();
    assert_eq!((ids.dtype(), ids.elements()), ("I64".to_owned(), 3));
}

#[test]
fn a_pointwise_convolution_and_a_linear_layer_stand_for_each_other() {
    let weights = Weights::open(&fixture("float32"), DIFFUSERS, &Variant::Plain).unwrap();
    let read = |name: &str, shape: &[usize]| {
        weights.tensor(name, &TensorType::new(DType::F32, shape)).unwrap().to_f32()
    };
    assert_eq!(read("pointwise.weight", &[6, 4]), read("pointwise.weight", &[6, 1, 1, 1, 4]));
    assert_eq!(read("linear.weight", &[6, 1, 1, 1, 4]), read("linear.weight", &[6, 4]));
}

#[test]
fn what_does_not_fit_the_network_is_named() {
    let weights = Weights::open(&fixture("float32"), DIFFUSERS, &Variant::Plain).unwrap();
    let error = |name: &str, dtype, shape: &[usize]| {
        weights.tensor(name, &TensorType::new(dtype, shape)).unwrap_err().to_string()
    };
    assert_eq!(
        error("conv2d.weight", DType::F16, &[3, 1, 3, 2, 8]),
        "float32: conv2d.weight must be [3, 8, 3, 2], the file has [3, 4, 3, 2]"
    );
    assert_eq!(
        error("position_ids", DType::F32, &[3]),
        "float32: position_ids is stored as I64; weights are read from F32, F16 and BF16"
    );
    assert_eq!(error("nothing", DType::F32, &[3]), "float32: the weights have no tensor nothing");
    assert!(error("norm.bias", DType::I32, &[4]).contains("was asked for as"));
    // A graph's loader asks another way: a missing weight is none, a wrong one an error.
    let ty = TensorType::new(DType::F32, [4]);
    assert_eq!(weights.parameter("nothing", &ty), Ok(None));
    assert!(weights.parameter("linear.weight", &ty).unwrap_err().to_string().contains("must be [4]"));
    assert!(weights.parameter("norm.bias", &ty).unwrap().is_some());
}

/// A folder with one small weights file.
struct Folder {
    folder: tempfile::TempDir,
    bytes: Vec<u8>,
}

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data: Vec<u8> = (0..96).collect();
        let tensors = [
            ("a.weight", TensorView::new(Dtype::F32, vec![2, 3, 1, 2], &data[..48]).unwrap()),
            ("b.bias", TensorView::new(Dtype::BF16, vec![12], &data[48..72]).unwrap()),
            ("c", TensorView::new(Dtype::F16, vec![3, 4], &data[72..]).unwrap()),
        ];
        let bytes = safetensors::serialize(tensors, None::<HashMap<_, _>>).unwrap();
        Folder { folder, bytes }
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        fs::write(self.folder.path().join(name), bytes).unwrap();
        self
    }

    fn open(&self) -> Result<Weights, WeightsError> {
        Weights::open(self.folder.path(), "model", &Variant::For(DType::F16))
    }

    fn error(&self) -> WeightsError {
        self.open().unwrap_err()
    }
}

/// A file with this header, and `data` bytes after it.
fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn a_file_that_was_cut_short_says_so_wherever_it_was_cut() {
    let folder = Folder::new();
    for length in 0..folder.bytes.len() {
        let error = folder.write("model.safetensors", &folder.bytes[..length]).error();
        let header = 8 + u64::from_le_bytes(folder.bytes[..8].try_into().unwrap()) as usize;
        match error {
            WeightsError::Truncated { got, .. } => {
                assert!(got == length as u64 && !(8..header).contains(&length), "{length}: {got}");
            }
            WeightsError::Header { .. } => assert!((8..header).contains(&length), "{length}"),
            other => panic!("{length}: {other}"),
        }
    }
    let mut longer = folder.bytes.clone();
    longer.push(0);
    assert!(matches!(folder.write("model.safetensors", &longer).error(), WeightsError::TrailingBytes { .. }));
    assert!(folder.write("model.safetensors", &folder.bytes).open().is_ok());
}

#[test]
fn a_header_that_makes_no_sense_is_refused() {
    let folder = Folder::new();
    let tensor = |dtype: &str, shape: &str, start: u64, end: u64| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}"#)
    };
    let whole = tensor("F32", "[2]", 0, 8);
    let headers = [
        String::new(),
        "null".to_owned(),
        "{".to_owned(),
        "[]".to_owned(),
        "\u{fffd}".to_owned(),
        format!(r#"{{"a":{}}}"#, tensor("F31", "[2]", 0, 8)),
        format!(r#"{{"a":{}}}"#, tensor("F32", "[3]", 0, 8)),
        format!(r#"{{"a":{}}}"#, tensor("F32", "[-2]", 0, 8)),
        format!(r#"{{"a":{}}}"#, tensor("F32", "[2]", 8, 0)),
        format!(r#"{{"a":{whole},"b":{}}}"#, tensor("F32", "[2]", 4, 12)),
        format!(r#"{{"a":{whole},"b":{whole}}}"#),
        format!(r#"{{"a":{whole},"b":{}}}"#, tensor("F32", "[1]", 12, 16)),
        format!(r#"{{"a":{}}}"#, tensor("F32", "[4611686018427387904,4]", 0, 8)),
        format!(r#"{{"a":{}}}"#, tensor("F32", "[18446744073709551615,18446744073709551615]", 0, 8)),
        format!(r#"{{"a":{whole}}}{{"#),
        "[".repeat(100_000),
    ];
    for header in headers {
        let error = folder.write("model.safetensors", with_header(&header, 8)).error();
        let short: String = header.chars().take(80).collect();
        assert!(matches!(error, WeightsError::Header { .. }), "{short}: {error}");
    }
    let far = format!(r#"{{"a":{}}}"#, tensor("F32", "[1000000000000]", 0, 4_000_000_000_000));
    let error = folder.write("model.safetensors", with_header(&far, 8)).error();
    assert!(matches!(error, WeightsError::Truncated { .. }), "{error}");
    for length in [9u64, 1 << 32, u64::MAX] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend([b' '; 8]);
        let error = folder.write("model.safetensors", bytes).error().to_string();
        assert!(
            error.contains(&format!("its header has {length} bytes, but the whole file has 16")),
            "{error}"
        );
    }
}

#[test]
fn pickles_are_refused_with_the_reason() {
    let folder = Folder::new();
    let error = folder.write("model.bin", "x").write("model.fp16.bin", "x").error().to_string();
    for words in ["model.bin, model.fp16.bin", "can run any program", "safe_serialization=True"] {
        assert!(error.contains(words), "{error}");
    }
    // With safetensors beside it, a pickle does not matter.
    assert!(folder.write("model.safetensors", &folder.bytes).open().is_ok());
}

#[test]
fn a_variant_that_is_not_there_is_named_with_those_that_are() {
    let folder = Folder::new();
    let empty = folder.error().to_string();
    assert!(empty.ends_with("there is no model.safetensors here"), "{empty}");
    folder.write("model.safetensors", &folder.bytes).write("model.bin", "x");
    let open = |variant: &Variant| Weights::open(folder.folder.path(), "model", variant);
    let error = open(&Variant::Named("fp16".to_owned())).unwrap_err().to_string();
    assert!(
        error.contains("no model.fp16.safetensors here; the weights files here are model.safetensors"),
        "{error}"
    );
    folder.write("model.fp16.safetensors", &folder.bytes);
    let variant = |wanted| open(&wanted).unwrap().variant().map(str::to_owned);
    assert_eq!(variant(Variant::For(DType::F16)).as_deref(), Some("fp16"));
    assert_eq!(variant(Variant::For(DType::F32)), None);
    assert_eq!(variant(Variant::For(DType::BF16)), None);
    assert_eq!(variant(Variant::Plain), None);
}

#[test]
fn shards_that_do_not_belong_together_are_refused() {
    let folder = Folder::new();
    let index = "model.safetensors.index.json";
    let map =
        |a: &str, c: &str| format!(r#"{{"weight_map":{{"{a}":"one.safetensors","{c}":"two.safetensors"}}}}"#);
    folder.write(index, map("a.weight", "c")).write("one.safetensors", &folder.bytes);
    let error = folder.error().to_string();
    assert!(error.contains("two.safetensors is missing") && error.contains(index), "{error}");
    folder.write("two.safetensors", &folder.bytes);
    assert_eq!(folder.open().unwrap().tensors().count(), 2);
    let error = folder.write(index, map("a.weight", "d")).error().to_string();
    assert!(error.contains("says that d is in two.safetensors"), "{error}");
    let error = folder.write(index, "{").error().to_string();
    assert!(error.contains("line 1"), "{error}");
}

#[test]
fn a_folder_that_is_none_is_an_error() {
    let folder = Folder::new();
    folder.write("file", "x");
    for name in ["absent", "file"] {
        let error = Weights::open(&folder.folder.path().join(name), "model", &Variant::Plain).unwrap_err();
        assert!(matches!(error, WeightsError::Io { .. }), "{error}");
    }
    fs::create_dir(folder.folder.path().join("model.safetensors")).unwrap();
    assert!(matches!(folder.error(), WeightsError::Io { .. }));
}

/// The file's name is `model.safetensors`, and it is none that could be read.
#[test]
#[cfg(unix)]
fn weights_that_are_no_file_are_refused_at_once() {
    let folder = Folder::new();
    let path = folder.folder.path().join("model.safetensors");
    fs::create_dir(&path).unwrap();
    let error = folder.error().to_string();
    assert!(
        error.ends_with("model.safetensors: cannot be read: it is a folder, not an ordinary file"),
        "{error}"
    );
    fs::remove_dir(&path).unwrap();
    // Nobody writes to the pipe.
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(folder.error().to_string().contains("it is a pipe, not an ordinary file"));
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(folder.error().to_string().contains("it is a device, not an ordinary file"));
    // An index is bounded as well.
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", folder.folder.path().join("model.safetensors.index.json"))
        .unwrap();
    assert!(folder.error().to_string().contains("it is a device, not an ordinary file"));
}

/// A mapped file would end the process here.
#[test]
fn a_file_that_is_cut_short_after_it_was_opened_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    // Several pages, several parts, and every way to read: as it is, converted, and with its axes moved.
    let data = vec![0; 4 << 20];
    let views = [
        ("first", TensorView::new(Dtype::F32, vec![8], &data[..32]).unwrap()),
        ("plain", TensorView::new(Dtype::F32, vec![1 << 20], &data).unwrap()),
        ("conv", TensorView::new(Dtype::F32, vec![1 << 18, 1, 2, 2], &data).unwrap()),
    ];
    safetensors::serialize_to_file(views, None::<HashMap<_, _>>, &path).unwrap();
    let whole = fs::metadata(&path).unwrap().len();
    let weights = Weights::open(folder.path(), "model", &Variant::Plain).unwrap();
    let read = |name: &str, dtype, shape: &[usize]| weights.tensor(name, &TensorType::new(dtype, shape));
    let conv = [1 << 18, 1, 2, 2, 1];
    assert!(read("plain", DType::F32, &[1 << 20]).is_ok() && read("conv", DType::F32, &conv).is_ok());
    // Within the page that holds the header, so that a tensor or two are beyond the end.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1000).unwrap();
    for (name, dtype, shape) in [
        ("plain", DType::F32, &[1 << 20][..]),
        ("plain", DType::F16, &[1 << 20]),
        ("conv", DType::F32, &conv),
        ("conv", DType::BF16, &conv),
    ] {
        let error = read(name, dtype, shape).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, WeightsError::Truncated { expected, got: 1000, .. } if expected == whole),
            "{text}"
        );
        assert!(text.contains("model.safetensors: the file is cut short"), "{text}");
        assert!(weights.parameter(name, &TensorType::new(dtype, shape)).is_err());
    }
}

/// Asks for everything that a file says it has.
fn read_all(weights: &Weights) {
    for tensor in weights.tensors() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let shape = match *tensor.shape() {
                [out, channels, height, width] => vec![out, 1, height, width, channels],
                ref other => other.to_vec(),
            };
            // A damaged file may still be a good file of something else.
            let _ = weights.tensor(tensor.name(), &TensorType::new(dtype, shape));
        }
    }
    let _ = (weights.parameter_count(), weights.byte_count());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn no_damage_is_worse_than_an_error(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        digits in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"0189[]{},:\"-eF".to_vec())), 0..3),
        cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
    ) {
        let folder = Folder::new();
        let mut bytes = folder.bytes.clone();
        // Anywhere, and then in the header, where it matters most.
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for (at, value) in digits {
            let header = folder.bytes.len() - 96;
            bytes[8 + at.index(header - 8)] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        folder.write("model.safetensors", bytes);
        if let Ok(weights) = folder.open() {
            read_all(&weights);
        }
    }
}

#[test]
fn what_a_graph_needs_is_looked_for_in_the_headers() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = vec![0; 4 * 6];
    let view = |dtype, shape: &[usize]| TensorView::new(dtype, shape.to_vec(), &bytes).unwrap();
    let views = [
        ("fits", view(Dtype::F32, &[2, 3])),
        ("turned", view(Dtype::F32, &[3, 2])),
        ("whole", view(Dtype::I32, &[2, 3])),
    ];
    let path = folder.path().join("model.safetensors");
    safetensors::serialize_to_file(views, None::<HashMap<_, _>>, &path).unwrap();
    let weights = Weights::open(folder.path(), "model", &Variant::Plain).unwrap();
    let graph = |names: &[&str]| {
        let mut g = GraphBuilder::new("graph");
        for name in names {
            g.parameter(name, TensorType::new(DType::F16, [2, 3])).unwrap();
        }
        g.finish()
    };
    assert!(weights.check(&graph(&["fits"])).is_ok());
    let all = graph(&["fits", "turned", "whole", "absent"]);
    let problems: Vec<WeightsError> = weights.problems(&all).collect();
    assert!(
        matches!(
            &*problems,
            [WeightsError::Shape { .. }, WeightsError::DType { .. }, WeightsError::MissingTensor { .. }]
        ),
        "{problems:?}"
    );
    assert!(matches!(weights.check(&all), Err(WeightsError::Shape { .. })));
}

#[test]
fn a_header_that_is_too_long_is_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    fs::write(&path, 100_000_001u64.to_le_bytes()).unwrap();
    // A hole: no disk is needed for it.
    fs::File::options().write(true).open(&path).unwrap().set_len(200_000_000).unwrap();
    let error = Weights::open(folder.path(), "model", &Variant::Plain).unwrap_err().to_string();
    assert!(error.contains("its header has 100000001 bytes") && error.contains("100000000"), "{error}");
}
