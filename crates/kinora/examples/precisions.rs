//! What a clip of the model in the box costs on the CPU in each precision, and its layers by kind beside the arithmetic
//! that the CPU can do in f32. The precisions take turns. A layer's time is that of its fastest run, so other work on the
//! machine does not count. After an `@`, one of the CPU's instruction sets runs it instead of the best.
//!
//!     RAYON_NUM_THREADS=1 cargo run --release -p kinora --example precisions -- 5 f32 bf16 f16 bf16@avx512bf16

use std::{
    collections::{BTreeMap, HashMap},
    error::Error,
    sync::Arc,
    time::Instant,
};

use kinora::{ImageToVideo, LoadOptions, Settings, image_to_video::Precision, model_in_the_box};
use kinora_cpu::{CpuBackend, Options, ceilings, simd::Isa};
use kinora_profile::{Profile, Profiler};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let turns: usize = words.next().ok_or("how many turns?")?.parse()?;
    let mut contestants =
        words.map(|word| Contestant::new(&word)).collect::<Result<Vec<Contestant>, Box<dyn Error>>>()?;
    let still = model_in_the_box::still()?;
    let mut peak = 0.0f64;
    for _ in 0..turns {
        peak = peak.max(ceilings::arithmetic(Isa::detect()));
        for contestant in &mut contestants {
            let start = Instant::now();
            contestant.pipeline.generate(&still, &contestant.settings)?;
            contestant.clips.push(start.elapsed().as_secs_f64());
        }
    }
    let results: Vec<Value> = contestants.iter().map(|contestant| contestant.result(peak)).collect();
    let report = json!({ "f32_peak_gflops": round(peak / 1e9), "precisions": results });
    println!("{report:#}");
    Ok(())
}

/// A pipeline of one precision, and how long its clips took.
struct Contestant {
    precision: Precision,
    isa: Isa,
    pipeline: ImageToVideo,
    settings: Settings,
    profiler: Profiler,
    clips: Vec<f64>,
}

impl Contestant {
    /// Of a precision and, after an `@`, the name of an instruction set without spaces and hyphens.
    fn new(word: &str) -> Result<Contestant, Box<dyn Error>> {
        let (precision, set) = word.split_once('@').map_or((word, None), |(first, set)| (first, Some(set)));
        let precision: Precision = precision.parse()?;
        let named = |set: &str| {
            let is_it = |isa: &Isa| isa.name().replace([' ', '-'], "").eq_ignore_ascii_case(set);
            Isa::available().into_iter().find(is_it).ok_or_else(|| format!("this CPU has no `{set}`"))
        };
        let isa = set.map_or(Ok(Isa::detect()), named)?;
        let backend = CpuBackend { options: Options { isa, ..Options::default() } };
        let profiler = Profiler::on();
        let model = model_in_the_box::open()?;
        let settings = Settings::for_model(&model)?.seed(7);
        let options = LoadOptions::default().precision(precision).keep_loaded(true);
        let options = options.profiler(profiler.clone());
        let pipeline = ImageToVideo::on(Arc::new(backend), model, options)?;
        Ok(Contestant { precision, isa, pipeline, settings, profiler, clips: Vec::new() })
    }

    fn result(&self, peak: f64) -> Value {
        let kinds = kinds(&self.profiler.profile(), self.clips.len());
        let total = kinds.values().fold(Kind::default(), |sum, kind| sum.plus(kind));
        let of = |kind: &Kind| {
            json!({
                "ms": round(kind.seconds * 1e3),
                "gflops": round(kind.flops / kind.seconds / 1e9),
                "share_of_f32_peak": round(kind.flops / kind.seconds / peak),
            })
        };
        let largest = kinds.iter().filter(|(_, kind)| kind.seconds > 0.01 * total.seconds);
        let largest: BTreeMap<&String, Value> = largest.map(|(name, kind)| (name, of(kind))).collect();
        json!({
            "precision": self.precision.name(),
            "instruction_set": self.isa.name(),
            "fastest_clip_seconds": round(self.clips.iter().copied().fold(f64::INFINITY, f64::min)),
            "all_layers": of(&total),
            "layers": largest,
        })
    }
}

/// The layers of one kind in a clip.
#[derive(Clone, Copy, Default)]
struct Kind {
    seconds: f64,
    flops: f64,
}

impl Kind {
    fn plus(self, other: &Kind) -> Kind {
        Kind { seconds: self.seconds + other.seconds, flops: self.flops + other.flops }
    }
}

/// The layers by network and op.
fn kinds(profile: &Profile, clips: usize) -> BTreeMap<String, Kind> {
    let mut fastest: HashMap<usize, (u64, usize)> = HashMap::new();
    for span in &profile.spans {
        if let Some(work) = span.work {
            let (least, runs) = fastest.entry(work).or_insert((u64::MAX, 0));
            *least = (*least).min(span.nanoseconds());
            *runs += 1;
        }
    }
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    for (work, (nanoseconds, runs)) in fastest {
        let (work, runs) = (&profile.works[work], runs as f64 / clips as f64);
        let kind = kinds.entry(format!("{}, {}", work.program, work.op)).or_default();
        *kind =
            kind.plus(&Kind { seconds: nanoseconds as f64 * 1e-9 * runs, flops: work.flops as f64 * runs });
    }
    kinds
}

fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
