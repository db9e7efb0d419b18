//! Live video on the CPU, with small models of random weights. What a frame must look like is in the golden files of
//! `kinora-models`; here it is what a stream does with its settings.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use std::{collections::BTreeMap, ops::ControlFlow, path::Path, sync::OnceLock, thread, time::Duration};

use kinora::{
    Device, Live, LiveModel, LiveSettings, LoadOptions, ModelFolder, RgbImage,
    image_to_video::{GenerateError, MemoryBudget, Precision},
    live::{Guidance, LiveConfigs, Stream, estimate_live},
    photo::{Colour, Fit},
    video::fit::Placement,
};
use kinora_models::{lora::Lora, synthetic::SyntheticImageModel};
use tempfile::TempDir;

/// A model with its tiny autoencoder, written once for all tests.
fn model(name: &str) -> LiveModel {
    static FOLDERS: OnceLock<TempDir> = OnceLock::new();
    let folders = FOLDERS.get_or_init(|| {
        let folders = tempfile::tempdir().unwrap();
        for name in SyntheticImageModel::PRESETS {
            let model = SyntheticImageModel::preset(name).unwrap();
            model.write(&folders.path().join(name)).unwrap();
            model.write_tiny_vae(&folders.path().join(format!("{name}-tiny"))).unwrap();
        }
        folders
    });
    let open = |name: String| ModelFolder::open(folders.path().join(name)).unwrap();
    LiveModel::new(open(name.to_owned())).tiny_autoencoder(open(format!("{name}-tiny")))
}

fn live(name: &str) -> Live {
    Live::new(model(name), LoadOptions::default().device(Device::Cpu)).unwrap()
}

fn settings(live: &Live) -> LiveSettings {
    live.settings().prompt("a harbour").seed(7).strength(0.5)
}

/// A picture that a number determines.
fn picture(number: usize, width: usize, height: usize) -> RgbImage {
    let bytes = (0..width * height * 3).map(|i| ((i * (number + 3) * 31 + i / 97) % 251) as u8).collect();
    RgbImage::new(width, height, bytes).unwrap()
}

fn input(live: &Live, number: usize) -> RgbImage {
    let [height, width] = live.configs().default_size;
    picture(number, width, height)
}

/// The first input, a little later: no cut lies between the two.
fn later(live: &Live) -> RgbImage {
    let first = input(live, 0);
    let bytes = first.bytes().iter().map(|byte| byte.saturating_add(25)).collect();
    RgbImage::new(first.width(), first.height(), bytes).unwrap()
}

#[test]
fn a_stream_gives_the_same_frames_again() {
    let live = live("live");
    let run = || -> Vec<RgbImage> {
        let mut stream = live.begin(settings(&live)).unwrap();
        (0..3).map(|number| stream.frame(&input(&live, number)).unwrap()).collect()
    };
    let frames = run();
    assert_eq!(frames[0].size(), input(&live, 0).size());
    assert_ne!(frames[0], frames[1]);
    assert_eq!(frames, run());
}

#[test]
fn a_change_gives_what_a_new_stream_would() {
    let live = live("live");
    let first = settings(&live);
    let mut stream = live.begin(first.clone()).unwrap();
    let frame = input(&live, 0);
    let before = stream.frame(&frame).unwrap();
    let changes = [
        first.clone().prompt("a harbour at night"),
        first.clone().strength(0.9),
        first.clone().steps(2),
        first.clone().timesteps(vec![700, 300, 20]),
        first.clone().seed(8),
        first.clone().guidance(Guidance::Full).guidance_scale(3.0).negative_prompt("fog"),
        first.clone().width(first.width * 2),
        first.clone().guidance(Guidance::SelfNegative).guidance_scale(2.0),
        first.clone().guidance(Guidance::Initialize).guidance_scale(2.0).negative_prompt("fog"),
        first.clone().steps(3).stream_batch(true),
        first.clone().steps(2).guidance(Guidance::SelfNegative).guidance_scale(2.0),
        first.clone().steps(2).guidance(Guidance::Initialize).guidance_scale(2.0).negative_prompt("fog"),
        first.clone().steps(2).guidance(Guidance::Full).stream_batch(true).blend(0.5),
    ];
    for change in changes {
        stream.change(change.clone()).unwrap();
        stream.settle().unwrap();
        assert_eq!(stream.settings(), &change);
        let changed = stream.frame(&frame).unwrap();
        assert_ne!(changed, before, "{change:?}");
        assert_eq!(changed, live.begin(change.clone()).unwrap().frame(&frame).unwrap(), "{change:?}");
        stream.change(first.clone()).unwrap();
        stream.settle().unwrap();
        assert_eq!(stream.frame(&frame).unwrap(), before, "back from {change:?}");
    }
}

/// The LoRA files that peft's results were made with: see `golden/make_lora.py`. They fit the model `live`.
fn lora(name: &str) -> Lora {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/lora");
    Lora::open(&folder.join(format!("{name}.safetensors"))).unwrap()
}

/// A model with both LoRAs, whose strengths can be turned. The text encoder keeps the first strengths.
fn adjustable(first: f64) -> Live {
    let model =
        model("live").adjustable_lora("a", lora("peft"), first).adjustable_lora("b", lora("kohya"), first);
    Live::new(model, LoadOptions::default().device(Device::Cpu)).unwrap()
}

#[test]
fn a_lora_is_turned_at_the_next_frame() {
    let live = adjustable(0.0);
    let first = settings(&live);
    assert_eq!(first.lora, [("a".to_owned(), 0.0), ("b".to_owned(), 0.0)].into());
    let turned = |a: f64, b: f64| first.clone().lora_strength("a", a).lora_strength("b", b);
    let frame = input(&live, 0);
    let alone = |settings: &LiveSettings| live.begin(settings.clone()).unwrap().frame(&frame).unwrap();
    let mut stream = live.begin(first.clone()).unwrap();
    let before = stream.frame(&frame).unwrap();
    for change in [turned(0.8, 0.0), turned(0.8, -0.4), turned(0.0, 1.2), turned(0.8, 1.2).steps(2)] {
        stream.change(change.clone()).unwrap();
        if change.steps == 1 {
            assert_eq!(stream.settings(), &change, "nothing has to be made ready for a strength");
        }
        stream.settle().unwrap();
        let changed = stream.frame(&frame).unwrap();
        assert_ne!(changed, before, "{change:?}");
        assert_eq!(changed, alone(&change), "{change:?}");
        stream.change(first.clone()).unwrap();
        assert_eq!(stream.frame(&frame).unwrap(), before, "back from {change:?}");
    }
    // A strength that is not named is the first one.
    assert_eq!(alone(&first.clone().lora(BTreeMap::new())), before);
}

/// The frames of strengths that are turned are those of weights that were merged at load, and with 0 those of the model itself.
#[test]
fn a_turned_lora_draws_what_a_merged_one_does() {
    let cpu = || LoadOptions::default().device(Device::Cpu);
    let draw = |live: &Live, settings: &LiveSettings| {
        live.begin(settings.clone()).unwrap().frame(&input(live, 0)).unwrap()
    };
    let (plain, off) = (live("live"), adjustable(0.0));
    let settings = settings(&plain).guidance(Guidance::Full).guidance_scale(2.0);
    assert_eq!(draw(&off, &settings), draw(&plain, &settings), "off, they are not there");
    // With the first strengths the text encoder is the same as well.
    let merged = model("live").lora(lora("peft"), 0.7).lora(lora("kohya"), 0.7);
    let merged = draw(&Live::new(merged, cpu()).unwrap(), &settings);
    let turned = draw(&adjustable(0.7), &settings);
    assert_ne!(merged, draw(&plain, &settings));
    let worst = merged.bytes().iter().zip(turned.bytes()).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    assert!(worst <= 1, "a byte is {worst} off");
    // One of each kind.
    let mixed = model("live").lora(lora("peft"), 0.7).adjustable_lora("b", lora("kohya"), 0.7);
    let mixed = draw(&Live::new(mixed, cpu()).unwrap(), &settings);
    let worst = merged.bytes().iter().zip(mixed.bytes()).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    assert!(worst <= 1, "a byte is {worst} off");
}

#[test]
fn what_a_turned_lora_costs_is_known_and_a_frame_costs_no_more() {
    let (plain, turned) = (live("live"), adjustable(1.0));
    let settings = settings(&turned);
    let costs = |live: &Live, settings: &LiveSettings| live.estimate(settings).unwrap();
    let (before, after) = (costs(&plain, &settings.clone().lora(BTreeMap::new())), costs(&turned, &settings));
    assert_eq!(after.flops_per_frame(), before.flops_per_frame());
    assert!(after.flops_per_change() > before.flops_per_change());
    for settings in [settings.clone(), settings.steps(3)] {
        let turned = adjustable(1.0);
        let planned = costs(&turned, &settings).peak_bytes();
        let mut stream = turned.begin(settings).unwrap();
        assert_eq!(stream.memory_bytes(), planned, "also before the first frame");
        stream.frame(&input(&turned, 0)).unwrap();
        assert_eq!(stream.memory_bytes(), planned);
    }
}

#[test]
fn loras_that_are_not_there_are_refused() {
    let live = adjustable(1.0);
    let refused = |settings: LiveSettings| live.begin(settings).unwrap_err().to_string();
    let unknown = refused(settings(&live).lora_strength("c", 1.0));
    assert!(unknown.contains("LoRA is c") && unknown.ends_with("it must be one of a, b"), "{unknown}");
    let endless = refused(settings(&live).lora_strength("a", f64::INFINITY));
    assert!(endless.contains("LoRA is a = inf"), "{endless}");
    let none = self::live("live");
    let none = none.begin(settings(&none).lora_strength("a", 1.0)).unwrap_err().to_string();
    assert!(none.contains("no LoRA whose strength can be turned"), "{none}");
    let twice =
        model("live").adjustable_lora("a", lora("peft"), 1.0).adjustable_lora("a", lora("kohya"), 1.0);
    let twice = Live::new(twice, LoadOptions::default().device(Device::Cpu)).unwrap_err().to_string();
    assert!(twice.contains("another has the same name"), "{twice}");
}

/// What is in a LoRA file of one part alone: the tensors of another whose names begin so.
fn part_of(name: &str, part: &str) -> (TempDir, Lora) {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/lora");
    let bytes = std::fs::read(fixtures.join(format!("{name}.safetensors"))).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let kept = file.tensors().into_iter().filter(|(tensor, _)| tensor.starts_with(part));
    let path = folder.path().join("part.safetensors");
    safetensors::serialize_to_file(kept, None, &path).unwrap();
    let lora = Lora::open(&path).unwrap();
    (folder, lora)
}

#[test]
fn what_a_lora_changes_of_text_is_not_turned_and_that_is_said() {
    let cpu = || LoadOptions::default().device(Device::Cpu);
    let (_text_folder, text) = part_of("peft", "text_encoder.");
    let refused =
        Live::new(model("live").adjustable_lora("words", text, 1.0), cpu()).unwrap_err().to_string();
    assert!(refused.contains("LoRA is words") && refused.contains("text encoders alone"), "{refused}");
    // Merged at load it is as good as any.
    let (_text_folder, text) = part_of("peft", "text_encoder.");
    Live::new(model("live").lora(text, 1.0), cpu()).unwrap();
    let (_unet_folder, unet) = part_of("peft", "unet.");
    let both = model("live").adjustable_lora("a", lora("kohya"), 0.25).adjustable_lora("b", unet, 1.0);
    let both = Live::new(both, cpu()).unwrap();
    assert_eq!(both.loras_kept_in_text().collect::<Vec<_>>(), [("a", 0.25)]);
    let fixed = Live::new(model("live").lora(lora("kohya"), 0.25), cpu()).unwrap();
    assert_eq!(fixed.loras_kept_in_text().count(), 0, "it cannot be turned at all");
}

#[test]
fn a_stream_goes_on_until_a_change_is_ready() {
    let live = live("live");
    let first = settings(&live);
    let mut stream = live.begin(first.clone()).unwrap();
    let frame = input(&live, 0);
    let before = stream.frame(&frame).unwrap();
    let change = first.prompt("snow").steps(4);
    let after = live.begin(change.clone()).unwrap().frame(&frame).unwrap();
    stream.change(change).unwrap();
    // Whenever it is ready: no frame is anything but the one or the other, and the change stays.
    let mut frames: Vec<RgbImage> = (0..3).map(|_| stream.frame(&frame).unwrap()).collect();
    stream.settle().unwrap();
    frames.push(stream.frame(&frame).unwrap());
    let changed = frames.iter().position(|drawn| *drawn == after).unwrap();
    assert!(frames[..changed].iter().all(|drawn| *drawn == before));
    assert!(frames[changed..].iter().all(|drawn| *drawn == after));
}

#[test]
fn a_prompt_glides_to_the_next() {
    let live = live("live");
    let first = settings(&live).strength(1.0);
    let mut stream = live.begin(first.clone()).unwrap();
    let frame = input(&live, 0);
    let before = stream.frame(&frame).unwrap();
    let change = first.prompt("a field of corn").glide(4);
    let after = live.begin(change.clone()).unwrap().frame(&frame).unwrap();
    stream.change(change).unwrap();
    stream.settle().unwrap();
    let frames: Vec<RgbImage> = (0..6).map(|_| stream.frame(&frame).unwrap()).collect();
    assert!(frames[..3].iter().all(|drawn| *drawn != before && *drawn != after), "still on its way");
    assert!(frames[3..].iter().all(|drawn| *drawn == after), "arrived");
    let apart = |a: &RgbImage, b: &RgbImage| -> u32 {
        a.bytes().iter().zip(b.bytes()).map(|(a, b)| u32::from(a.abs_diff(*b))).sum()
    };
    assert!(apart(&frames[0], &before) < apart(&frames[2], &before));
}

#[test]
fn a_blended_frame_keeps_some_of_the_one_before() {
    let live = live("live");
    let plain = settings(&live);
    let alone: Vec<RgbImage> = {
        let mut stream = live.begin(plain.clone()).unwrap();
        [input(&live, 0), later(&live), input(&live, 1)].iter().map(|x| stream.frame(x).unwrap()).collect()
    };
    let mut stream = live.begin(plain.clone().blend(0.5)).unwrap();
    assert_eq!(stream.frame(&input(&live, 0)).unwrap(), alone[0], "the first has none before it");
    let blended = stream.frame(&later(&live)).unwrap();
    assert_ne!(blended, alone[1]);
    assert_eq!(stream.frame(&input(&live, 1)).unwrap(), alone[2], "another scene keeps nothing");
    // After a while without blending, there is none before it again.
    stream.change(plain.clone()).unwrap();
    stream.settle().unwrap();
    assert_eq!(stream.frame(&later(&live)).unwrap(), alone[1]);
    stream.change(plain.blend(0.5)).unwrap();
    stream.settle().unwrap();
    assert_eq!(stream.frame(&input(&live, 0)).unwrap(), alone[0]);
}

/// How far apart the bytes of two frames are on average.
fn apart(a: &RgbImage, b: &RgbImage) -> f64 {
    let sum: u32 = a.bytes().iter().zip(b.bytes()).map(|(a, b)| u32::from(a.abs_diff(*b))).sum();
    f64::from(sum) / a.bytes().len() as f64
}

#[test]
fn a_frame_remembers_those_before_it() {
    let live = live("live");
    let plain = settings(&live).steps(2).guidance(Guidance::Full);
    let draw = |settings: &LiveSettings, inputs: &[&RgbImage]| -> Vec<RgbImage> {
        let mut stream = live.begin(settings.clone()).unwrap();
        inputs.iter().map(|input| stream.frame(input).unwrap()).collect()
    };
    let (first, later, other) = (input(&live, 0), later(&live), input(&live, 1));
    let alone = draw(&plain, &[&first, &later, &other]);
    let level = |a: &RgbImage, b: &RgbImage| {
        a.bytes().iter().zip(b.bytes()).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
    };
    for memory in [1, 3] {
        let settings = plain.clone().memory_frames(memory);
        // A still input is drawn as without, because all that is remembered is alike.
        let still = draw(&settings, &[&first, &first, &first]);
        assert!(still.iter().all(|frame| level(frame, &alone[0]) <= 1), "{memory}");
        let moved = draw(&settings, &[&first, &later, &other]);
        assert!(level(&moved[0], &alone[0]) <= 1, "the first has none before it");
        assert!(apart(&moved[1], &alone[1]) > 0.0);
        assert!(level(&moved[2], &alone[2]) <= 1, "another scene remembers nothing");
        // What was there before a while without memory is forgotten.
        let mut stream = live.begin(settings.clone()).unwrap();
        stream.frame(&first).unwrap();
        for change in [&plain, &settings] {
            stream.change(change.clone()).unwrap();
            stream.settle().unwrap();
            assert!(level(&stream.frame(&later).unwrap(), &alone[1]) <= 1);
        }
    }
}

/// What a frame becomes in a stream batch is what it becomes by steps one after the other, some frames later; and from the
/// first frame on it is a picture.
#[test]
fn a_stream_batch_draws_the_same_frames_later() {
    let live = live("live");
    let settings = settings(&live).steps(3);
    let draw = |settings: LiveSettings| -> Vec<RgbImage> {
        let mut stream = live.begin(settings).unwrap();
        (0..5).map(|number| stream.frame(&input(&live, number)).unwrap()).collect()
    };
    let (one_by_one, batched) = (draw(settings.clone()), draw(settings.stream_batch(true)));
    assert_eq!(batched[0], one_by_one[0]);
    assert_eq!(batched[1], one_by_one[0]);
    for number in 2..5 {
        assert_eq!(batched[number], one_by_one[number - 2], "frame {number}");
    }
}

/// A stream says how many frames ago the one was given that it shows.
#[test]
fn a_stream_batch_says_how_late_it_is() {
    let live = live("live");
    let batched = settings(&live).steps(3).stream_batch(true);
    let mut stream = live.begin(batched.clone()).unwrap();
    let late = |stream: &mut Stream, number| {
        stream.frame(&input(&live, number)).unwrap();
        stream.late()
    };
    assert_eq!([0, 1, 2, 3].map(|number| late(&mut stream, number)), [0, 1, 2, 2]);
    // Other noise levels begin anew.
    stream.change(batched.clone().strength(0.9)).unwrap();
    assert_eq!([4, 5].map(|number| late(&mut stream, number)), [0, 1]);
    stream.change(batched.strength(0.0)).unwrap();
    assert_eq!(late(&mut stream, 6), 0);
}

/// A network that was put aside begins another row when it draws again, however it comes to the front.
#[test]
fn a_network_that_was_put_aside_has_forgotten_its_row() {
    let free = live("live");
    let first = settings(&free).blend(0.5);
    let wide = first.clone().width(first.width * 2);
    let mut stream = free.begin(first.clone()).unwrap();
    stream.change(wide.clone()).unwrap();
    stream.settle().unwrap();
    let options = LoadOptions::default().device(Device::Cpu);
    let options = options.memory_budget(MemoryBudget::Bytes(stream.memory_bytes()));
    let live = Live::new(model("live"), options).unwrap();
    let mut stream = live.begin(first.clone()).unwrap();
    stream.frame(&input(&live, 0)).unwrap();
    stream.change(wide).unwrap();
    stream.settle().unwrap();
    stream.frame(&picture(1, 2 * first.width, first.height)).unwrap();
    // Back at once; then a change for which even the wide one is dropped in vain.
    stream.change(first.clone()).unwrap();
    stream.change(first.clone().width(first.width * 8).height(first.height * 8)).unwrap();
    assert!(stream.settle().is_err());
    assert_eq!(stream.settings(), &first);
    let begun_anew = live.begin(first).unwrap().frame(&later(&live)).unwrap();
    assert_eq!(stream.frame(&later(&live)).unwrap(), begun_anew);
}

/// The limit holds for the sum of everything: just enough is enough, and a byte less is not.
#[test]
fn one_limit_holds_for_all_networks_together() {
    let within = |bytes: usize| {
        let options = LoadOptions::default().device(Device::Cpu).memory_budget(MemoryBudget::Bytes(bytes));
        Live::new(model("live"), options).unwrap()
    };
    let free = live("live");
    let first = settings(&free);
    let need = free.estimate(&first).unwrap().peak_bytes();
    assert!(within(need).begin(first.clone()).unwrap().frame(&input(&free, 0)).is_ok());
    let refused = within(need - 1).begin(first.clone()).unwrap_err();
    assert!(matches!(refused, GenerateError::OverLimit(_)), "{refused}");
    let text = refused.to_string();
    assert!(
        text.contains(&format!("{} bytes may be used", need - 1)) && text.contains("asked for"),
        "{text}"
    );

    // A second shape beside the first: its weights are there already.
    let wide = first.clone().width(first.width * 2);
    let both = {
        let mut stream = free.begin(first.clone()).unwrap();
        // From here on, the size of the frames that come in is known.
        stream.frame(&input(&free, 0)).unwrap();
        stream.change(wide.clone()).unwrap();
        stream.settle().unwrap();
        stream.memory_bytes()
    };
    let apart = need + free.estimate(&wide).unwrap().peak_bytes();
    assert!(need < both && both < apart, "{need} {both} {apart}");
    let changed = |bytes: usize, change: &LiveSettings| {
        let live = within(bytes);
        let mut stream = live.begin(first.clone()).unwrap();
        let before = stream.frame(&input(&live, 0)).unwrap();
        stream.change(change.clone()).unwrap();
        let settled = stream.settle();
        if settled.is_err() {
            assert_eq!(stream.frame(&input(&live, 0)).unwrap(), before, "it goes on as it was");
        }
        (settled, stream)
    };
    let (settled, stream) = changed(both, &wide);
    settled.unwrap();
    assert_eq!((stream.settings(), stream.memory_bytes()), (&wide, both));
    let (refused, stream) = changed(both - 1, &wide);
    let Err(GenerateError::Change(refused)) = refused else { panic!("{refused:?}") };
    assert!(matches!(*refused, GenerateError::OverLimit(_)), "{refused:?}");
    assert_eq!(stream.settings(), &first);

    // Room for two shapes and, but for a byte, for a third, which takes the place of the one that was used the longest ago.
    let tall = first.clone().height(first.height * 2);
    let (settled, stream) = changed(usize::MAX, &tall);
    settled.unwrap();
    let limit = both + (stream.memory_bytes() - need) - 1;
    let live = within(limit);
    let mut stream = live.begin(first.clone()).unwrap();
    let expected = [&first, &wide, &tall].map(|settings| {
        free.begin(settings.clone()).unwrap().frame(&picture(0, settings.width, settings.height)).unwrap()
    });
    for number in [0, 1, 2, 1, 0, 2] {
        let change = [&first, &wide, &tall][number];
        stream.change(change.clone()).unwrap();
        stream.settle().unwrap();
        let drawn = stream.frame(&picture(0, change.width, change.height)).unwrap();
        assert_eq!(drawn, expected[number]);
        assert!(live.memory_bytes() <= limit, "{number}");
    }
    drop(stream);
    assert!(live.memory_bytes() < need, "the text encoder is left");
}

#[test]
fn frames_in_work_do_not_outlive_their_noise_levels() {
    let live = live("live");
    let first = settings(&live).steps(3).stream_batch(true);
    let mut stream = live.begin(first.clone()).unwrap();
    (0..4).for_each(|number| drop(stream.frame(&input(&live, number)).unwrap()));
    for change in [first.clone().strength(0.9), first.clone().seed(9), first.timesteps(vec![600, 200, 10])] {
        stream.change(change.clone()).unwrap();
        stream.settle().unwrap();
        let new = live.begin(change).unwrap().frame(&input(&live, 5)).unwrap();
        assert_eq!(stream.frame(&input(&live, 5)).unwrap(), new);
    }
}

#[test]
fn the_last_of_several_changes_counts() {
    let live = live("live");
    let first = settings(&live);
    let mut stream = live.begin(first.clone()).unwrap();
    let changes =
        [first.clone().prompt("one").steps(2), first.clone().prompt("two").steps(3), first.prompt("three")];
    for change in &changes {
        stream.change(change.clone()).unwrap();
        assert_eq!(stream.asked(), change);
    }
    assert!(!stream.is_steady());
    stream.settle().unwrap();
    assert_eq!(stream.settings(), &changes[2]);
    let frame = input(&live, 0);
    let new = live.begin(changes[2].clone()).unwrap().frame(&frame).unwrap();
    assert_eq!(stream.frame(&frame).unwrap(), new);
    assert!(stream.is_steady());
    // A change that is still being prepared ends with its stream.
    stream.change(changes[1].clone().width(256)).unwrap();
}

#[test]
fn streams_know_nothing_of_each_other() {
    let live = live("live");
    let (one, other) = (settings(&live).blend(0.5), settings(&live).prompt("a forest").blend(0.3));
    let alone = |settings: &LiveSettings, from: usize| -> Vec<RgbImage> {
        let mut stream = live.begin(settings.clone()).unwrap();
        (from..from + 3).map(|number| stream.frame(&input(&live, number)).unwrap()).collect()
    };
    let expected = (alone(&one, 0), alone(&other, 5));
    let mut first = live.begin(one).unwrap();
    let mut second = live.begin(other).unwrap();
    let turns = (0..3).map(|number| {
        let first = first.frame(&input(&live, number)).unwrap();
        (first, second.frame(&input(&live, number + 5)).unwrap())
    });
    let turns: (Vec<RgbImage>, Vec<RgbImage>) = turns.unzip();
    assert_eq!(turns, expected);
    assert!(second.memory_bytes() < first.memory_bytes(), "the second stream has the weights of the first");
}

#[test]
fn any_input_fits() {
    let live = live("live");
    let mut stream = live.begin(settings(&live)).unwrap();
    let size = input(&live, 0).size();
    for [width, height] in [[1, 1], [7, 300], [640, 480], [64, 64]] {
        assert_eq!(stream.frame(&picture(1, width, height)).unwrap().size(), size);
    }
    let mut unchanged = live.begin(settings(&live).strength(0.0)).unwrap();
    assert_eq!(unchanged.frame(&input(&live, 2)).unwrap(), input(&live, 2));
}

#[test]
fn every_strength_draws_something() {
    let live = live("live");
    let mut stream = live.begin(settings(&live)).unwrap();
    let mut before = input(&live, 0);
    for strength in [0.0005, 0.01, 0.3, 1.0] {
        stream.change(settings(&live).strength(strength).steps(2)).unwrap();
        stream.settle().unwrap();
        let drawn = stream.frame(&input(&live, 0)).unwrap();
        assert_ne!(drawn, before, "{strength}");
        before = drawn;
    }
}

#[test]
fn a_model_with_two_text_encoders_draws() {
    let live = live("live-xl");
    let mut stream = live.begin(settings(&live)).unwrap();
    let frame = input(&live, 0);
    let drawn = stream.frame(&frame).unwrap();
    stream.change(settings(&live).prompt("another prompt").guidance(Guidance::Full)).unwrap();
    stream.settle().unwrap();
    assert_ne!(stream.frame(&frame).unwrap(), drawn);
}

#[test]
fn long_and_empty_prompts_are_prompts() {
    let live = live("live");
    let mut stream = live.begin(settings(&live).prompt("")).unwrap();
    assert_eq!(stream.tokens_left_out(), 0);
    let frame = input(&live, 0);
    stream.frame(&frame).unwrap();
    stream.change(settings(&live).prompt("word ".repeat(10_000))).unwrap();
    stream.settle().unwrap();
    assert!(stream.tokens_left_out() >= 9_900, "{}", stream.tokens_left_out());
    stream.frame(&frame).unwrap();
}

#[test]
fn settings_that_make_no_sense_are_refused_and_the_stream_goes_on() {
    let live = live("live");
    let good = settings(&live);
    let mut stream = live.begin(good.clone()).unwrap();
    let frame = input(&live, 0);
    let before = stream.frame(&frame).unwrap();
    let wrong = [
        (good.clone().width(63), "width"),
        (good.clone().height(0), "height"),
        (good.clone().width(1 << 40), "width"),
        (good.clone().steps(0), "steps"),
        (good.clone().steps(9), "steps"),
        (good.clone().strength(-0.1), "strength"),
        (good.clone().strength(f64::NAN), "strength"),
        (good.clone().blend(1.0), "blend"),
        (good.clone().memory_frames(5), "memory_frames"),
        (good.clone().memory_frames(1).stream_batch(true), "memory_frames"),
        (good.clone().guidance_scale(f64::INFINITY), "guidance scale"),
        (good.clone().timesteps(vec![]), "timesteps"),
        (good.clone().prompt("x".repeat(2 << 20)), "prompt"),
    ];
    for (settings, name) in wrong {
        match stream.change(settings) {
            Err(GenerateError::Setting { setting, .. }) => assert_eq!(setting, name),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(stream.frame(&frame).unwrap(), before);
    }
    let rising = stream.change(good.timesteps(vec![5, 600]));
    assert!(matches!(rising, Err(GenerateError::Scheduler(_))), "{rising:?}");
    assert_eq!(stream.frame(&frame).unwrap(), before);
}

/// What is chosen depends on the machine; what is asked for here does not.
#[test]
fn a_deadline_is_kept_by_what_is_needed_and_no_more() {
    let live = live("live");
    let asked = settings(&live).steps(4).width(256).height(128);
    let kept = live.within(&asked, [96, 64], Duration::from_secs(3600)).unwrap();
    assert!(kept.keeps && kept.settings == asked, "{kept:?}");
    let kept = live.within(&asked, [96, 64], Duration::ZERO).unwrap();
    assert!(!kept.keeps && kept.reason.contains("not kept"), "{kept:?}");
    assert_eq!((kept.settings.steps, kept.settings.width, kept.settings.height), (1, 128, 64), "{kept:?}");
    live.begin(kept.settings).unwrap();
}

#[test]
fn an_estimate_is_what_a_stream_takes() {
    for name in SyntheticImageModel::PRESETS {
        let live = live(name);
        let first = settings(&live);
        for settings in [
            first.clone(),
            first.clone().steps(2).blend(0.5),
            first.clone().width(first.width * 2).guidance(Guidance::Full),
            first.clone().steps(3).stream_batch(true),
            first.clone().strength(0.0),
        ] {
            let live = self::live(name);
            let estimate = live.estimate(&settings).unwrap();
            let mut stream = live.begin(settings.clone()).unwrap();
            stream.frame(&input(&live, 0)).unwrap();
            let (planned, held) = (estimate.peak_bytes(), stream.memory_bytes());
            assert_eq!(planned, held, "{name} {settings:?}");
            assert_eq!(estimate.flops_per_frame() == 0, settings.strength == 0.0);
        }
        let refused = live.estimate(&first.clone().steps(9)).unwrap_err();
        assert!(refused.to_string().contains("from 1 to 8"), "{refused}");
        // Twice the pixels, twice the work at least; a prompt costs the same.
        let [one, two] =
            [&first, &first.clone().width(first.width * 2)].map(|settings| live.estimate(settings).unwrap());
        assert!(two.flops_per_frame() >= 2 * one.flops_per_frame());
        assert_eq!(two.flops_per_prompt(), one.flops_per_prompt());
        assert_eq!(two.parameters(), one.parameters());
        assert!(live.weights_problems(&first).unwrap().is_empty());
    }
}

/// The parameters that diffusers and transformers count in the published models: UNet, autoencoder, text encoders. XL's first
/// text encoder has a layer and a norm that are not read.
#[test]
fn published_models_have_their_parameters() {
    const TAESD: u64 = 2_445_063;
    for (name, unet, autoencoder, text) in [
        ("sd-turbo", 865_910_724, 83_653_863, vec![340_387_840]),
        ("sd15", 859_520_964, 83_653_863, vec![123_060_480]),
        ("sdxl-turbo", 2_567_463_684, 83_653_863, vec![123_060_480 - 7_087_872 - 1_536, 694_659_840]),
    ] {
        let configs = LiveConfigs::preset(name).unwrap();
        let settings = LiveSettings::for_configs(&configs);
        assert_eq!([settings.width, settings.height], [512, 512]);
        let estimate = estimate_live(&configs, &settings, Precision::F16).unwrap();
        let parameters: Vec<u64> = estimate.parts.iter().map(|part| part.parameters).collect();
        let (frame, encoders) = parameters.split_last().unwrap();
        assert_eq!(*frame, unet + autoencoder, "{name}");
        assert_eq!(encoders, text, "{name}");
        let tiny = configs.tiny_autoencoder().unwrap();
        let tiny = estimate_live(&tiny, &settings, Precision::F16).unwrap();
        assert_eq!(tiny.parts.last().unwrap().parameters, unet + TAESD, "{name}");
        assert!(tiny.flops_per_frame() < estimate.flops_per_frame());
        assert!(tiny.peak_bytes() < estimate.peak_bytes());
    }
    assert!(LiveConfigs::preset("sd16").is_none());
}

/// A frame in the size of the settings, as the host makes it.
fn fitted(frame: &RgbImage, settings: &LiveSettings) -> RgbImage {
    let placement = Placement::new(settings.fit, frame.size(), [settings.width, settings.height]).unwrap();
    placement.forward(frame, settings.background).unwrap()
}

/// A dark scene that moves a little, then a little more, then a bright scene, and on. Cuts show as much in fitted frames, with bars
/// around them too.
fn scenes([width, height]: [usize; 2]) -> Vec<RgbImage> {
    let moved = |number: usize, by: u8| {
        let base = [10, 200, 20][number] + by;
        let picture = picture(number, width, height);
        let bytes = picture.bytes().iter().map(|byte| base + byte % 24).collect();
        RgbImage::new(width, height, bytes).unwrap()
    };
    vec![moved(0, 0), moved(0, 4), moved(0, 30), moved(1, 0), moved(1, 9), moved(2, 0)]
}

/// Settings for every kind of row: with nothing kept, blended, with a memory, and several frames in work.
fn rows(live: &Live) -> Vec<LiveSettings> {
    let plain = settings(live).background(Colour([9, 180, 60]));
    let batched = plain.clone().steps(3).stream_batch(true);
    vec![
        plain.clone(),
        plain.clone().blend(0.5).fit(Fit::Pad),
        plain.clone().memory_frames(2).fit(Fit::Stretch),
        batched.clone().fit(Fit::Pad),
        batched.blend(0.4).guidance(Guidance::SelfNegative),
    ]
}

#[test]
fn a_network_fits_frames_to_the_same_bytes_as_the_host() {
    let live = live("live");
    for settings in rows(&live) {
        let (width, height) = (settings.width, settings.height);
        for size in [[2 * width + 3, height], [width / 2, height - 1], [1, 1]] {
            let what = format!("{size:?} {settings:?}");
            let mut host = live.begin(settings.clone()).unwrap();
            let mut stream = live.begin_for(settings.clone(), size, |_| ControlFlow::Continue(())).unwrap();
            for (number, frame) in scenes(size).iter().enumerate() {
                let expected = host.frame(&fitted(frame, &settings)).unwrap();
                assert!(stream.frame(frame).unwrap() == expected, "frame {number} of {what}");
                assert_eq!(stream.late(), host.late());
            }
        }
    }
}

/// Gives a stream the same frame until it has prepared a network for it, and compares every result with that of the host's
/// fitting.
fn until_prepared(stream: &mut Stream, host: &mut Stream, frame: &RgbImage) {
    let before = stream.memory_bytes();
    for number in 0..2000 {
        assert!(number < 2 || stream.is_steady());
        let expected = host.frame(&fitted(frame, stream.settings())).unwrap();
        assert!(stream.frame(frame).unwrap() == expected, "frame {number} of {:?}", frame.size());
        if stream.memory_bytes() > before {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("no network was prepared");
}

#[test]
fn frames_may_change_their_size_while_a_stream_runs() {
    let live = live("live");
    for settings in rows(&live) {
        let (width, height) = (settings.width, settings.height);
        let (small, large) = ([width / 2, height / 2 + 1], [width + 9, 2 * height]);
        let mut host = live.begin(settings.clone()).unwrap();
        let mut stream = live.begin_for(settings.clone(), large, |_| ControlFlow::Continue(())).unwrap();
        let give = |stream: &mut Stream, host: &mut Stream, size: [usize; 2], count: usize| {
            for frame in scenes(size).iter().take(count) {
                let expected = host.frame(&fitted(frame, &settings)).unwrap();
                assert!(stream.frame(frame).unwrap() == expected, "{size:?} {settings:?}");
            }
        };
        give(&mut stream, &mut host, large, 3);
        // Nothing expected these, and they come once each.
        give(&mut stream, &mut host, small, 1);
        give(&mut stream, &mut host, [width, height], 2);
        give(&mut stream, &mut host, [1, 3], 1);
        let known = stream.memory_bytes();
        give(&mut stream, &mut host, large, 3);
        assert_eq!(stream.memory_bytes(), known, "there is one already");
        until_prepared(&mut stream, &mut host, &scenes(small)[0]);
        give(&mut stream, &mut host, small, 6);
        // Another fit is another network, which goes on as well.
        let fit = if settings.fit == Fit::Pad { Fit::Crop } else { Fit::Pad };
        let change = settings.clone().fit(fit);
        for stream in [&mut stream, &mut host] {
            stream.change(change.clone()).unwrap();
            stream.settle().unwrap();
        }
        for frame in scenes(small) {
            let expected = host.frame(&fitted(&frame, &change)).unwrap();
            assert!(stream.frame(&frame).unwrap() == expected, "{change:?}");
        }
    }
}

/// What is planned for frames of a size is what is held; if that is too much, frames are fitted on the host.
#[test]
fn without_memory_for_it_frames_are_fitted_on_the_host() {
    let within = |bytes: usize| {
        let options = LoadOptions::default().device(Device::Cpu).memory_budget(MemoryBudget::Bytes(bytes));
        Live::new(model("live"), options).unwrap()
    };
    let free = live("live");
    let first = settings(&free);
    let size = [4 * first.width + 1, 3 * first.height];
    let [plain, need] =
        [free.estimate(&first), free.estimate_for(&first, size)].map(|e| e.unwrap().peak_bytes());
    assert!(need >= plain + (size[0] * size[1] - first.width * first.height) * 3, "{need} {plain}");
    let expected: Vec<RgbImage> = {
        let mut stream = free.begin(first.clone()).unwrap();
        scenes(size).iter().map(|frame| stream.frame(&fitted(frame, &first)).unwrap()).collect()
    };
    for (limit, held) in [(need, need), (need - 1, plain), (plain, plain)] {
        let live = within(limit);
        let mut stream = live.begin_for(first.clone(), size, |_| ControlFlow::Continue(())).unwrap();
        for (frame, expected) in scenes(size).iter().zip(&expected) {
            assert!(stream.frame(frame).unwrap() == *expected);
            assert_eq!((stream.memory_bytes(), live.memory_bytes()), (held, held), "{limit}");
        }
    }
    // One that was not expected takes the place of the one that was.
    let live = within(need);
    let mut stream = live.begin_for(first.clone(), size, |_| ControlFlow::Continue(())).unwrap();
    stream.frame(&scenes(size)[0]).unwrap();
    assert_eq!(stream.frame(&fitted(&scenes(size)[0], &first)).unwrap(), expected[0]);
    assert!(live.memory_bytes() <= need);
    assert!(within(plain - 1).begin_for(first, size, |_| ControlFlow::Continue(())).is_err());
}

/// A frame of this size takes minutes, and whoever ends the stream does not wait for it.
#[test]
fn a_stream_is_ended_in_the_middle_of_a_frame() {
    let live = live("live");
    let mut stream = live.begin(settings(&live).width(2048).height(2048)).unwrap();
    let stop = stream.stop();
    let ending = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        stop.request();
    });
    let frame = stream.frame(&input(&live, 0));
    assert!(matches!(frame, Err(GenerateError::Cancelled)), "{frame:?}");
    ending.join().unwrap();
    // It is over, and others are not.
    assert!(matches!(stream.change(settings(&live)), Err(GenerateError::Cancelled)));
    assert!(matches!(stream.frame(&input(&live, 0)), Err(GenerateError::Cancelled)));
    live.begin(settings(&live)).unwrap().frame(&input(&live, 0)).unwrap();
}

/// What a LoRA that overflows makes of a frame is not blended into those that follow.
#[test]
fn a_frame_that_is_not_finite_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/lora");
    let mut bytes = std::fs::read(fixtures.join("peft.safetensors")).unwrap();
    let data = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    // Its numbers are f16: each becomes 61440, with the sign that it has.
    for number in bytes[data..].as_chunks_mut::<2>().0 {
        number[1] = number[1] & 0x80 | 0x7B;
        number[0] = 0x80;
    }
    let path = folder.path().join("huge.safetensors");
    std::fs::write(&path, &bytes).unwrap();
    let model = model("live").adjustable_lora("huge", Lora::open(&path).unwrap(), 0.0);
    let options = LoadOptions::default().device(Device::Cpu).precision(Precision::F16);
    let live = Live::new(model, options).unwrap();
    let calm = settings(&live).blend(0.5);
    let mut stream = live.begin(calm.clone()).unwrap();
    let first = stream.frame(&input(&live, 0)).unwrap();
    stream.change(calm.clone().lora_strength("huge", 1.0)).unwrap();
    assert!(stream.frame(&input(&live, 0)).unwrap().is_black());
    stream.change(calm).unwrap();
    assert_eq!(stream.frame(&input(&live, 0)).unwrap(), first);
}

/// What a caller holds counts towards the limit, as long as it holds it.
#[test]
fn what_is_set_aside_counts() {
    let limit = 64_000_000;
    let options = LoadOptions::default().device(Device::Cpu).memory_budget(MemoryBudget::Bytes(limit));
    let live = Live::new(model("live"), options).unwrap();
    let refused = live.set_aside("input", limit + 1).unwrap_err().to_string();
    assert!(refused.starts_with("the input needs 64"), "{refused}");
    let aside = live.set_aside("input", limit - 1000).unwrap();
    assert_eq!(live.memory_bytes(), limit - 1000);
    assert!(matches!(live.begin(settings(&live)), Err(GenerateError::OverLimit(_))));
    drop(aside);
    assert_eq!(live.memory_bytes(), 0);
    live.begin(settings(&live)).unwrap();
}
