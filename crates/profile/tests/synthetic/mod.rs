//! Profiles as a clip of Stable Video Diffusion on a GPU gives them, with times that are made up.

use kinora_profile::{
    Activity, ActivityKind, Ceilings, Copied, Direction, FORMAT, Lane, LaneKind, Machine, MemorySample,
    Profile, Span, Work,
};

/// How many layers the network of a step has.
pub const LAYERS: usize = 400;

/// A name that would be markup, were it not shown as text.
pub const HOSTILE: &str = "</script><img src=x onerror=alert(1)> \"quoted\" 'so' & 🎬";

/// The layer that bears another name after it was fused.
const FUSED: usize = 1;

const HOST: usize = 0;
const READER: usize = 1;
const DEVICE: usize = 2;

const CEILINGS: Ceilings =
    Ceilings { flops_per_second: 7.6e14, bytes_per_second: 4.2e12, launch_nanoseconds: 1900.0 };

/// A clip of so many steps: weights are loaded, the photo encoded, the clip denoised and decoded.
pub fn clip(steps: usize) -> Profile {
    made(steps, false)
}

/// The same after some work on it: quicker convolutions, slower norms, and a layer that is fused with its neighbour.
pub fn tuned_clip(steps: usize) -> Profile {
    made(steps, true)
}

/// The same with the device traced: a kernel shortly after the beginning of each layer, and the copy of the weights.
pub fn traced_clip(steps: usize) -> Profile {
    let mut profile = made(steps, false);
    let seen = |span: &Span| match (span.work, span.copied) {
        (Some(work), _) => Some(Activity {
            name: format!("{}_kernel", profile.works[work].op),
            kind: ActivityKind::Kernel,
            work: Some(work),
            bytes: None,
            start: span.start + span.nanoseconds() / 50,
            end: span.end,
        }),
        (None, Some(copied)) => Some(Activity {
            name: copied.direction.name().into(),
            kind: ActivityKind::Copy,
            work: None,
            bytes: Some(copied.bytes),
            start: span.start,
            end: span.end,
        }),
        _ => None,
    };
    profile.activity = profile.spans.iter().filter_map(seen).collect();
    profile.activity.sort_by_key(|activity| activity.start);
    profile.notes = vec!["12 kernels are missing: </p><script>alert(1)</script>".into()];
    profile.check().unwrap();
    profile
}

fn made(steps: usize, is_tuned: bool) -> Profile {
    let mut making = Making { profile: Profile::default(), seed: 7, is_tuned };
    making.profile = Profile {
        format: FORMAT,
        title: "SVD, 25 frames of 1024 × 576".into(),
        machine: Machine { device: "NVIDIA H200".into(), ceilings: Some(CEILINGS) },
        lanes: [("main", LaneKind::Host), ("reader", LaneKind::Host), ("stream 0", LaneKind::Device)]
            .map(|(name, kind)| Lane { name: name.into(), kind })
            .into(),
        works: unet().into_iter().chain(decoder()).collect(),
        planned_peak_bytes: Some(14_200_000_000),
        ..Profile::default()
    };
    if is_tuned {
        making.profile.title = "SVD, convolutions in wider tiles".into();
        making.profile.works[FUSED].layer.push_str("_silu");
    }
    making.run(steps);
    making.profile.memory.sort_by_key(|sample| sample.at);
    making.profile.check().unwrap();
    making.profile
}

struct Making {
    profile: Profile,
    seed: u64,
    is_tuned: bool,
}

impl Making {
    fn run(&mut self, steps: usize) {
        const MS: u64 = 1_000_000;
        let clip = self.span("clip", HOST, None, 0, u64::MAX, None);
        let read = self.span("load", HOST, Some(clip), 0, 640 * MS, None);
        for shard in 0..4 {
            self.span("read shard", READER, None, (20 + 150 * shard) * MS, (160 + 150 * shard) * MS, None);
            self.holds((20 + 150 * shard) * MS, "UNet: weights", (shard + 1) * 762_000_000);
        }
        self.span("plan", HOST, Some(read), 0, 90 * MS, None);
        let copies = self.span("weights", DEVICE, None, 200 * MS, 620 * MS, None);
        self.profile.spans[copies].copied =
            Some(Copied { direction: Direction::ToDevice, bytes: 3_048_000_000 });
        let encode = self.span("encode", HOST, Some(clip), 640 * MS, 700 * MS, None);
        self.span(HOSTILE, HOST, Some(encode), 642 * MS, 650 * MS, None);

        self.holds(700 * MS, "UNet: arena", 7_900_000_000);
        self.holds(700 * MS, "UNet: scratch", 512_000_000);
        self.holds(700 * MS, "latents", 92_000_000);
        let denoise = self.span("denoise", HOST, Some(clip), 700 * MS, u64::MAX, None);
        let mut now = 700 * MS + 300_000;
        for _ in 0..steps {
            let begin = now;
            now = self.layers("step", 0..LAYERS, begin);
            self.span("step", HOST, Some(denoise), begin, now, None);
            now += 60_000;
        }
        self.end(denoise, now);
        self.holds(now, "UNet: arena", 0);
        self.holds(now, "UNet: scratch", 0);
        self.holds(now, "UNet: weights", 0);

        self.holds(now, "VAE: weights", 200_000_000);
        self.holds(now, "VAE: arena", 13_600_000_000);
        let decode = self.span("decode", HOST, Some(clip), now, u64::MAX, None);
        for _ in 0..4 {
            let begin = now + 400_000;
            now = self.layers("chunk", LAYERS..self.profile.works.len(), begin);
            self.holds(now, "frames", (now - begin) * 3);
        }
        self.end(decode, now);
        self.holds(now + 1, "VAE: arena", 0);
        self.end(clip, now + 12 * MS);
    }

    /// A span of the device with layers in it, and when it ends.
    fn layers(&mut self, name: &str, works: std::ops::Range<usize>, begin: u64) -> u64 {
        let outer = self.span(name, DEVICE, None, begin, u64::MAX, None);
        let mut now = begin;
        for work in works {
            let layer = &self.profile.works[work];
            let floor = CEILINGS.floor(layer).nanoseconds;
            let (name, slow) = (layer.layer.clone(), if layer.op == "attention" { 2.4 } else { 1.35 });
            let tuned = match layer.op.as_str() {
                "conv" if self.is_tuned => 0.82,
                "norm" if self.is_tuned => 1.1,
                _ => 1.0,
            };
            let taken = (floor * slow * tuned * (1.0 + self.random() * 0.2)) as u64;
            self.span(&name, DEVICE, Some(outer), now, now + taken, Some(work));
            now += taken + (self.random() * 900.0) as u64;
        }
        self.end(outer, now);
        now
    }

    fn span(
        &mut self,
        name: &str,
        lane: usize,
        parent: Option<usize>,
        start: u64,
        end: u64,
        work: Option<usize>,
    ) -> usize {
        self.profile.spans.push(Span { name: name.to_owned(), lane, parent, start, end, work, copied: None });
        self.profile.spans.len() - 1
    }

    fn end(&mut self, span: usize, end: u64) {
        self.profile.spans[span].end = end;
    }

    fn holds(&mut self, at: u64, owner: &str, bytes: u64) {
        self.profile.memory.push(MemorySample { at, owner: owner.to_owned(), bytes });
    }

    /// From 0 to 1, the same in every run.
    fn random(&mut self) -> f64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 40) as f64 / (1u64 << 24) as f64
    }
}

fn work(program: &str, layer: String, op: &str, kernel: &str, flops: f64, bytes: f64) -> Work {
    Work {
        program: program.into(),
        layer,
        op: op.into(),
        kernel: Some(kernel.into()),
        flops: flops as u64,
        bytes: bytes as u64,
        launches: 1,
    }
}

/// Names as diffusers gives them: blocks that go down and up, each of residual blocks and transformers.
fn unet() -> Vec<Work> {
    let mut works = Vec::new();
    for (side, blocks) in [("down_blocks", 4), ("up_blocks", 4)] {
        for block in 0..blocks {
            // A block further down has a quarter of the pixels and up to four times the channels.
            let level = if side == "down_blocks" { block } else { 3 - block };
            let pixels = 460_800.0 / 4f64.powi(level);
            let channels = (320 << level.min(2)) as f64;
            for part in 0..2 {
                let path = format!("{side}.{block}.resnets.{part}");
                for half in [1, 2] {
                    let moved = 2.0 * 2.0 * pixels * channels;
                    works.push(work(
                        "UNet",
                        format!("{path}.norm{half}"),
                        "norm",
                        "group_norm",
                        8.0 * pixels * channels,
                        moved,
                    ));
                    let flops = 18.0 * pixels * channels * channels;
                    works.push(work(
                        "UNet",
                        format!("{path}.conv{half}"),
                        "conv",
                        "conv_wgmma_128x256",
                        flops,
                        moved,
                    ));
                }
                let path = format!("{side}.{block}.attentions.{part}.transformer_blocks.0");
                let linear = |name: &str, wide: f64| {
                    let flops = 2.0 * pixels * channels * channels * wide;
                    let moved = 2.0 * pixels * channels * (1.0 + wide);
                    work("UNet", format!("{path}.{name}"), "linear", "gemm_wgmma_128x128", flops, moved)
                };
                works.push(work(
                    "UNet",
                    format!("{path}.norm1"),
                    "norm",
                    "layer_norm",
                    8.0 * pixels * channels,
                    4.0 * pixels * channels,
                ));
                works.extend([
                    linear("attn1.to_q", 1.0),
                    linear("attn1.to_k", 1.0),
                    linear("attn1.to_v", 1.0),
                ]);
                let flops = 4.0 * pixels * channels * pixels / 25.0;
                works.push(work(
                    "UNet",
                    format!("{path}.attn1"),
                    "attention",
                    "flash_hopper_128",
                    flops,
                    8.0 * pixels * channels,
                ));
                works.extend([
                    linear("attn1.to_out.0", 1.0),
                    linear("ff.net.0.proj", 8.0),
                    linear("ff.net.2", 4.0),
                ]);
                works.push(work(
                    "UNet",
                    format!("{path}.residual"),
                    "add",
                    "pointwise",
                    pixels * channels,
                    6.0 * pixels * channels,
                ));
            }
        }
    }
    for frame in 0.. {
        if works.len() == LAYERS {
            break;
        }
        let name = format!("time_embeddings.{}.linear_{}", frame / 2, frame % 2 + 1);
        works.push(work("UNet", name, "linear", "gemm_small", 3.3e6, 3.3e6));
    }
    works[LAYERS - 1].layer = HOSTILE.to_owned();
    works
}

fn decoder() -> Vec<Work> {
    let layer = |number: usize| {
        let pixels = 14_745_600.0 / 4f64.powi(3 - number as i32 / 10);
        let name = format!("decoder.up_blocks.{}.resnets.{}.conv1", number / 10, number % 10);
        work("VAE", name, "conv", "conv_wgmma_128x256", 18.0 * pixels * 256.0 * 128.0, 4.0 * pixels * 256.0)
    };
    let mut works: Vec<Work> = (0..40).map(layer).collect();
    // What moves bytes and computes nothing.
    works.push(work("VAE", "decoder.unpatch".into(), "copy", "copy", 0.0, 4e8));
    works
}
