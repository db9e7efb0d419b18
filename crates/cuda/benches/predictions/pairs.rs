//! The tuner's record of a device: calls by their signatures, with the milliseconds of each implementation.

use std::{collections::BTreeMap, fs, path::Path};

use kinora_cuda::{
    Chip, CudaError,
    kernels::{Call, Implementation, KernelSet, implementations},
    vendor::Libraries,
};
use kinora_graph::{DType, Op, TensorType};
use serde::Deserialize;

/// A call, an implementation of it, and its time.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The family of kernels: the op's name and the implementation's.
    pub family: String,
    pub signature: String,
    pub way: String,
    pub milliseconds: f64,
    /// Whether a calibration is fitted to it; the others test the calibration.
    pub calibrates: bool,
}

#[derive(Deserialize)]
struct Records {
    calls: BTreeMap<String, Record>,
}

#[derive(Deserialize)]
struct Record {
    milliseconds: BTreeMap<String, f64>,
}

/// Every pair of a file except those of vendor libraries.
pub fn read(path: &Path) -> Result<Vec<Pair>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let records: Records =
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut pairs = Vec::new();
    for (signature, record) in records.calls {
        let op = signature.split('"').nth(1).unwrap_or_default().to_owned();
        for (way, milliseconds) in record.milliseconds {
            let kind = way.split(' ').next().unwrap_or_default().to_owned();
            if !kind.starts_with("cu") {
                let family = format!("{op} {kind}");
                let signature = signature.clone();
                pairs.push(Pair { family, signature, way, milliseconds, calibrates: false });
            }
        }
    }
    Ok(pairs)
}

impl Pair {
    /// The FNV-1a hash of the pair.
    fn hash(&self) -> u64 {
        let bytes = self.signature.bytes().chain([0]).chain(self.way.bytes());
        bytes
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// The shapes, abbreviated.
    pub fn shapes(&self) -> String {
        let end = self.signature.rfind(", ").unwrap_or(self.signature.len());
        let begin = self.signature.find("} (").map_or(0, |at| at + 2);
        self.signature[begin..end].replace("), all", ")")
    }

    /// Calls a function with the call and the implementation.
    pub fn with<T>(
        &self,
        chip: &Chip,
        work: impl FnOnce(&Call<'_>, &dyn Implementation) -> Result<T, CudaError>,
    ) -> Result<T, String> {
        let unreadable = || format!("the signature {} cannot be read", self.signature);
        let (op, rest) = self.signature.split_once(" (").ok_or_else(unreadable)?;
        let op: Op = serde_json::from_str(op).map_err(|error| format!("{op}: {error}"))?;
        let (inputs, rest) = rest.split_once(") -> (").ok_or_else(unreadable)?;
        let (outputs, _) = rest.split_once(')').ok_or_else(unreadable)?;
        let inputs = types(inputs).ok_or_else(unreadable)?;
        let outputs = types(outputs).ok_or_else(unreadable)?;
        let inputs: Vec<&TensorType> = inputs.iter().collect();
        let outputs: Vec<&TensorType> = outputs.iter().collect();
        let call = Call { layer: "call", op: &op, inputs: &inputs, outputs: &outputs };
        let ways = implementations(&call, chip, KernelSet::Fused, &Libraries::default())
            .map_err(|error| error.to_string())?;
        let way = ways.iter().find(|way| way.name() == self.way);
        let way = way.ok_or_else(|| format!("there is no implementation {} any more", self.way))?;
        work(&call, &**way).map_err(|error| error.to_string())
    }
}

/// Types as in signatures: `f16[14, 9216, 512], f16[512]`.
fn types(text: &str) -> Option<Vec<TensorType>> {
    let mut types = Vec::new();
    let mut rest = text;
    while let Some((dtype, after)) = rest.split_once('[') {
        let (extents, after) = after.split_once(']')?;
        let dtype = match dtype.trim_start_matches(", ") {
            "f32" => DType::F32,
            "f16" => DType::F16,
            "bf16" => DType::BF16,
            "u8" => DType::U8,
            "i32" => DType::I32,
            _ => return None,
        };
        let extents: Option<Vec<usize>> = extents
            .split(", ")
            .filter(|extent| !extent.is_empty())
            .map(|extent| extent.parse().ok())
            .collect();
        types.push(TensorType::new(dtype, extents?));
        rest = after;
    }
    Some(types)
}

/// Some pairs of every family, from the shortest to the longest. Half of each family, chosen by a hash, is for calibration.
pub fn choose(mut pairs: Vec<Pair>, each: usize) -> Vec<Pair> {
    pairs.sort_by(|a, b| a.family.cmp(&b.family).then(a.milliseconds.total_cmp(&b.milliseconds)));
    let mut chosen = Vec::new();
    for family in pairs.chunk_by(|a, b| a.family == b.family) {
        let count = family.len().min(each);
        let place = |i: usize| if count > 1 { i * (family.len() - 1) / (count - 1) } else { 0 };
        let mut some: Vec<Pair> = (0..count).map(|i| family[place(i)].clone()).collect();
        let mut hashes: Vec<u64> = some.iter().map(Pair::hash).collect();
        hashes.sort_unstable();
        some.iter_mut().for_each(|pair| pair.calibrates = hashes[..count / 2].contains(&pair.hash()));
        chosen.extend(some);
    }
    chosen
}
