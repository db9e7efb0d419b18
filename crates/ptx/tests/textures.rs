//! Textures against the formulas of the CUDA C++ Programming Guide, written as sums over texels that go on for ever in every direction.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use half::f16;
use kinora_ptx::{
    AddressMode, Argument, ArrayDescription, ArrayKind, ChannelKind, DeviceArray, FilterMode, FindingKind,
    LaunchConfig, PtxError, ReadMode, Report, TexelFormat, TextureDescription, TextureSource,
};
use support::{Bench, random};

const FLOAT: TexelFormat = TexelFormat { kind: ChannelKind::Float, bits: 32, channels: 1 };

/// A kernel that reads `x` words for every lane, runs the body on `%r0` to `%r3`, which are also `%f0` to `%f3`, and writes `%r4` to
/// `%r7` to `y`.
fn kernel(body: &str) -> Bench {
    Bench::new(
        &format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 t, .param .u64 x, .param .u64 y) {{
            .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .f32 %f<20>; .reg .b16 %h<5>;
            ld.param.u64 %rd1, [t]; ld.param.u64 %rd2, [x]; ld.param.u64 %rd3, [y];
            mov.u32 %r9, %tid.x; mul.wide.u32 %rd4, %r9, 16; add.s64 %rd2, %rd2, %rd4; add.s64 %rd3, %rd3, %rd4;
            ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%rd2];
            mov.b32 %f0, %r0; mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3;
            mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0;
            {body}
            st.global.v4.u32 [%rd3], {{%r4, %r5, %r6, %r7}}; ret; }}"
        ),
        "90",
    )
}

const RESULTS: &str = "{%r4, %r5, %r6, %r7}";

fn run(bench: &mut Bench, handle: u64, words: &[[u32; 4]]) -> (Vec<[u32; 4]>, Report) {
    assert_eq!(words.len(), 32);
    let x = bench.words(words.as_flattened());
    let y = bench.words(&[0; 128]);
    let arguments = [handle, x, y].map(Argument::U64).to_vec();
    let report = bench.launch(&LaunchConfig::new(1, 32, arguments));
    let out = bench.read_words(y, 128);
    (out.as_chunks::<4>().0.to_vec(), report)
}

fn clean(bench: &mut Bench, handle: u64, words: &[[u32; 4]]) -> Vec<[u32; 4]> {
    let (out, report) = run(bench, handle, words);
    let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    out
}

fn array(bench: &mut Bench, description: ArrayDescription, bytes: &[u8]) -> DeviceArray {
    let array = bench.simulator.array(description).unwrap();
    bench.simulator.copy_in(array.address, bytes).unwrap();
    array
}

fn of_floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The texel of any whole number; `None` for the border.
fn texel(mode: AddressMode, normalised: bool, at: i64, extent: i64) -> Option<usize> {
    let inside = (0..extent).contains(&at);
    Some(match mode {
        _ if inside => at,
        AddressMode::Border => return None,
        // The texels repeat; mirrored, every second time from the end.
        AddressMode::Wrap if normalised => ((at % extent) + extent) % extent,
        AddressMode::Mirror if normalised => {
            let turn = at.div_euclid(extent);
            let within = at - turn * extent;
            if turn % 2 == 0 { within } else { extent - 1 - within }
        }
        _ if at < 0 => 0,
        _ => extent - 1,
    } as usize)
}

/// What a filtered texture gives: a sum over the texels near the coordinates, on as many axes as there are.
fn filtered(
    texture: &TextureDescription,
    extents: &[i64],
    coordinates: &[f64],
    value: &dyn Fn(&[Option<usize>]) -> f64,
) -> f64 {
    let axes = extents.len();
    let places: Vec<f64> = (0..axes)
        .map(|axis| coordinates[axis] * if texture.normalised { extents[axis] as f64 } else { 1.0 })
        .collect();
    if texture.filter == FilterMode::Point {
        let at: Vec<_> = (0..axes)
            .map(|axis| {
                let (mode, extent) = (texture.address[axis], extents[axis]);
                let mut place = places[axis];
                // Between two texels it matters that mirrored coordinates run backwards.
                let x = coordinates[axis];
                if mode == AddressMode::Mirror && texture.normalised && x.floor() % 2.0 != 0.0 {
                    place = (1.0 - (x - x.floor())) * extent as f64;
                }
                texel(mode, texture.normalised, place.floor() as i64, extent)
            })
            .collect();
        return value(&at);
    }
    let mut sum = 0.0;
    for corner in 0..1 << axes {
        let mut weight = 1.0;
        let mut at = Vec::new();
        for axis in 0..axes {
            let place = places[axis] - 0.5;
            // Weights have eight fractional bits.
            let fraction = ((place - place.floor()) * 256.0).round() / 256.0;
            let second = corner >> axis & 1;
            weight *= if second == 1 { fraction } else { 1.0 - fraction };
            let whole = place.floor() as i64 + second;
            at.push(texel(texture.address[axis], texture.normalised, whole, extents[axis]));
        }
        sum += weight * value(&at);
    }
    sum
}

const MODES: [AddressMode; 4] =
    [AddressMode::Wrap, AddressMode::Clamp, AddressMode::Mirror, AddressMode::Border];

#[test]
fn all_modes_on_all_axes() {
    for (axes, extents) in [("1d", &[8i64][..]), ("2d", &[8, 4]), ("3d", &[8, 4, 16])] {
        let count: i64 = extents.iter().product();
        let values = random(count as usize, 5);
        let coordinates = ["%f0", "%f0, %f1", "%f0, %f1, %f2, %f2"][extents.len() - 1];
        let mut bench = kernel(&format!("tex.{axes}.v4.f32.f32 {RESULTS}, [%rd1, {{{coordinates}}}];"));
        let shape: Vec<u32> = extents.iter().map(|&extent| extent as u32).collect();
        let array = array(&mut bench, ArrayDescription::new(FLOAT, &shape), &of_floats(&values));
        for (i, mode) in MODES.into_iter().enumerate() {
            for filter in [FilterMode::Point, FilterMode::Linear] {
                for normalised in [false, true] {
                    let address = [mode, MODES[(i + 1) % 4], MODES[(i + 2) % 4]];
                    let border = [0.25, 0.0, 0.0, 0.0];
                    let texture = TextureDescription {
                        address,
                        filter,
                        normalised,
                        border,
                        ..TextureDescription::new(TextureSource::Array(array))
                    };
                    let handle = bench.simulator.texture(&texture).unwrap();
                    // Multiples of 1/1024 from -2 to 3 extents, which are exact in every step.
                    let places: Vec<[f32; 4]> = (0..32)
                        .map(|lane| {
                            let picks = random(4, 7 + lane + 100 * i as u64);
                            std::array::from_fn(|axis| {
                                let extent = extents.get(axis).copied().unwrap_or(1) as f32;
                                let scale = if normalised { 1.0 } else { extent };
                                (picks[axis] * 2560.0).round() / 1024.0 * scale + scale / 2.0
                            })
                        })
                        .collect();
                    let words: Vec<[u32; 4]> = places.iter().map(|place| place.map(f32::to_bits)).collect();
                    let out = clean(&mut bench, handle, &words);
                    for (place, out) in places.iter().zip(out) {
                        let exact = filtered(&texture, extents, &place.map(f64::from), &|at| {
                            let mut index = 0;
                            for axis in (0..extents.len()).rev() {
                                let Some(at) = at[axis] else { return 0.25 };
                                index = index * extents[axis] as usize + at;
                            }
                            f64::from(values[index])
                        });
                        assert_eq!(
                            f64::from(f32::from_bits(out[0])),
                            f64::from(exact as f32),
                            "{axes} {mode:?} {filter:?} {normalised} at {place:?}"
                        );
                        assert_eq!(out[1..3], [0, 0]);
                    }
                }
            }
        }
    }
}

/// A fraction between two texels is rounded to 1/256.
#[test]
fn weights_have_eight_bits() {
    let mut bench = kernel(&format!("tex.1d.v4.f32.f32 {RESULTS}, [%rd1, {{%f0}}];"));
    let array = array(&mut bench, ArrayDescription::new(FLOAT, &[2]), &of_floats(&[0.0, 256.0]));
    let texture = TextureDescription {
        filter: FilterMode::Linear,
        ..TextureDescription::new(TextureSource::Array(array))
    };
    let handle = bench.simulator.texture(&texture).unwrap();
    let words: Vec<[u32; 4]> =
        (0..32).map(|i| [(0.5 + i as f32 / 31.0 * 0.9999).to_bits(), 0, 0, 0]).collect();
    for (i, out) in clean(&mut bench, handle, &words).into_iter().enumerate() {
        let fraction = f64::from(0.5 + i as f32 / 31.0 * 0.9999) - 0.5;
        assert_eq!(f64::from(f32::from_bits(out[0])), (fraction * 256.0).round());
    }
}

#[test]
fn all_formats_of_texels() {
    use ChannelKind::{Float, Signed, Unsigned};
    let formats = [
        (Unsigned, 8),
        (Unsigned, 16),
        (Unsigned, 32),
        (Signed, 8),
        (Signed, 16),
        (Signed, 32),
        (Float, 16),
        (Float, 32),
    ];
    for (kind, bits) in formats {
        for channels in [1u8, 2, 4] {
            let format = TexelFormat { kind, bits, channels };
            let mut bench = kernel(&format!("tex.1d.v4.u32.s32 {RESULTS}, [%rd1, {{%r0}}];"));
            let numbers = random(32 * channels as usize, u64::from(bits) + u64::from(channels));
            let step = 2f64.powi(i32::from(bits) - 1) - 1.0;
            let whole = |x: f32| {
                let value = (f64::from(x) * (step + 1.0)).round() + 0.0;
                if kind == Unsigned { value.abs() } else { value.min(step) }
            };
            let bytes: Vec<u8> = numbers
                .iter()
                .flat_map(|&x| match (kind, bits) {
                    (Float, 16) => f16::from_f32(x).to_le_bytes().to_vec(),
                    (Float, _) => x.to_le_bytes().to_vec(),
                    _ => (whole(x) as i64).to_le_bytes()[..bits as usize / 8].to_vec(),
                })
                .collect();
            let array = array(&mut bench, ArrayDescription::new(format, &[32]), &bytes);
            let words: Vec<[u32; 4]> = (0..32).map(|i| [i, 0, 0, 0]).collect();
            let plain = TextureDescription::new(TextureSource::Array(array));
            for read in [ReadMode::Element, ReadMode::NormalisedFloat] {
                let made = bench.simulator.texture(&TextureDescription { read, ..plain });
                if read == ReadMode::NormalisedFloat && (kind == Float || bits == 32) {
                    assert!(matches!(made, Err(PtxError::Texture(_))));
                    continue;
                }
                let out = clean(&mut bench, made.unwrap(), &words);
                for (lane, out) in out.into_iter().enumerate() {
                    for (channel, ours) in out.into_iter().enumerate() {
                        let float = kind == Float || read == ReadMode::NormalisedFloat;
                        let expected = match numbers.get(lane * channels as usize + channel) {
                            _ if channel >= channels as usize && channel < 3 => 0,
                            _ if channel >= channels as usize && float => 1f32.to_bits(),
                            _ if channel >= channels as usize => 1,
                            Some(&x) if kind == Float => x.to_bits(),
                            Some(&x) if float => {
                                let most = if kind == Unsigned { 2.0 * step + 1.0 } else { step };
                                ((whole(x) / most).max(-1.0) as f32).to_bits()
                            }
                            Some(&x) => whole(x) as i64 as u32,
                            None => unreachable!(),
                        };
                        assert_eq!(ours, expected, "{format:?} {read:?}, channel {channel} of texel {lane}");
                    }
                }
            }
        }
    }
}

#[test]
fn layers_and_faces() {
    let values: Vec<f32> = (0..8 * 3).map(|i| i as f32).collect();
    let layered = |extents: &[u32], layers| ArrayDescription {
        layers: Some(layers),
        ..ArrayDescription::new(FLOAT, extents)
    };
    // Layers are clamped.
    let words: Vec<[u32; 4]> = (0..32).map(|i| [i % 5, (i as f32 % 8.0 + 0.5).to_bits(), 0, 0]).collect();
    let mut bench = kernel(&format!("tex.a1d.v4.f32.f32 {RESULTS}, [%rd1, {{%r0, %f1}}];"));
    let rows = array(&mut bench, layered(&[8], 3), &of_floats(&values));
    let handle = bench.simulator.texture(&TextureDescription::new(TextureSource::Array(rows))).unwrap();
    for (i, out) in clean(&mut bench, handle, &words).into_iter().enumerate() {
        assert_eq!(f32::from_bits(out[0]), values[(i % 5).min(2) * 8 + i % 8]);
    }
    let mut bench = kernel(&format!("tex.a2d.v4.f32.f32 {RESULTS}, [%rd1, {{%r0, %f1, %f2, %f2}}];"));
    let pictures = array(&mut bench, layered(&[4, 2], 3), &of_floats(&values));
    let handle = bench.simulator.texture(&TextureDescription::new(TextureSource::Array(pictures))).unwrap();
    let words: Vec<[u32; 4]> = (0..32u32)
        .map(|i| [i % 3, (i as f32 % 4.0 + 0.5).to_bits(), ((i / 4 % 2) as f32 + 0.5).to_bits(), 0])
        .collect();
    for (i, out) in clean(&mut bench, handle, &words).into_iter().enumerate() {
        assert_eq!(f32::from_bits(out[0]), values[i % 3 * 8 + i / 4 % 2 * 4 + i % 4]);
    }
    // Directions near the middle of every face, and where they fall on faces of 2 × 2.
    let faces: Vec<f32> = (0..48).map(|i| i as f32).collect();
    let cube =
        |layers| ArrayDescription { kind: ArrayKind::Cube, layers, ..ArrayDescription::new(FLOAT, &[2, 2]) };
    let directions: [([f32; 3], usize); 8] = [
        // On +x, columns run towards -z and rows towards -y.
        ([1.0, 0.5, 0.5], 0),
        ([1.0, -0.5, -0.5], 3),
        ([-1.0, 0.5, -0.5], 4),
        ([0.5, 2.0, -0.5], 9),
        ([-0.5, -2.0, 0.5], 12),
        ([-0.25, 0.25, 1.0], 16),
        ([0.25, 0.25, 1.0], 17),
        ([0.25, 0.25, -1.0], 20),
    ];
    let words: Vec<[u32; 4]> = (0..32)
        .map(|i| {
            let [x, y, z] = directions[i % 8].0.map(f32::to_bits);
            [x, y, z, (i / 8) as u32 % 2]
        })
        .collect();
    let mut bench = kernel(&format!("tex.cube.v4.f32.f32 {RESULTS}, [%rd1, {{%f0, %f1, %f2, %f2}}];"));
    let one = array(&mut bench, cube(None), &of_floats(&faces[..24]));
    let handle = bench.simulator.texture(&TextureDescription::new(TextureSource::Array(one))).unwrap();
    for (i, out) in clean(&mut bench, handle, &words).into_iter().enumerate() {
        assert_eq!(f32::from_bits(out[0]), directions[i % 8].1 as f32, "{:?}", directions[i % 8]);
    }
    let mut bench = kernel(&format!("tex.acube.v4.f32.f32 {RESULTS}, [%rd1, {{%r3, %f0, %f1, %f2}}];"));
    let two = array(&mut bench, cube(Some(2)), &of_floats(&faces));
    let handle = bench.simulator.texture(&TextureDescription::new(TextureSource::Array(two))).unwrap();
    for (i, out) in clean(&mut bench, handle, &words).into_iter().enumerate() {
        assert_eq!(f32::from_bits(out[0]), (directions[i % 8].1 + 24 * (i / 8 % 2)) as f32);
    }
}

#[test]
fn device_memory_as_a_texture() {
    let values = random(100, 3);
    let mut bench = kernel(&format!("tex.1d.v4.f32.s32 {RESULTS}, [%rd1, {{%r0}}];"));
    let address = bench.singles(&values);
    let linear = |width| TextureDescription::new(TextureSource::Linear { address, format: FLOAT, width });
    let handle = bench.simulator.texture(&linear(100)).unwrap();
    let words: Vec<[u32; 4]> = (0..32).map(|i: i32| [(i * 5 - 20) as u32, 0, 0, 0]).collect();
    // Outside it is zero.
    for (i, out) in clean(&mut bench, handle, &words).into_iter().enumerate() {
        let at = usize::try_from(i as i32 * 5 - 20).ok();
        let expected = at.and_then(|at| values.get(at)).copied().unwrap_or(0.0);
        assert_eq!(f32::from_bits(out[0]), expected);
    }
    // A texture that is longer than its memory.
    let handle = bench.simulator.texture(&linear(110)).unwrap();
    let (_, report) = run(&mut bench, handle, &words);
    assert_eq!(
        report.findings.iter().map(|finding| finding.kind).collect::<Vec<_>>(),
        [FindingKind::OutOfBounds]
    );
    // Rows that are further apart than they are long.
    let mut bench = kernel(&format!("tex.level.2d.v4.f32.f32 {RESULTS}, [%rd1, {{%f0, %f1}}], 0f00000000;"));
    let address = bench.singles(&values);
    let source = TextureSource::Pitched { address, format: FLOAT, width: 6, height: 12, pitch: 32 };
    let handle = bench.simulator.texture(&TextureDescription::new(source)).unwrap();
    let words: Vec<[u32; 4]> =
        (0..32).map(|i| [(i % 6) as f32 + 0.5, (i / 3) as f32 + 0.5, 0.0, 0.0].map(f32::to_bits)).collect();
    for (i, out) in clean(&mut bench, handle, &words).into_iter().enumerate() {
        assert_eq!(f32::from_bits(out[0]), values[i / 3 * 8 + i % 6]);
    }
}

#[test]
fn gathers_and_queries() {
    let values: Vec<f32> = (0..5 * 3 * 2).map(|i| i as f32).collect();
    let format = TexelFormat { channels: 2, ..FLOAT };
    let mut bench = kernel(&format!("tld4.g.2d.v4.f32.f32 {RESULTS}, [%rd1, {{%f0, %f1}}];"));
    let picture = array(&mut bench, ArrayDescription::new(format, &[5, 3]), &of_floats(&values));
    let handle = bench.simulator.texture(&TextureDescription::new(TextureSource::Array(picture))).unwrap();
    let words = vec![[2f32.to_bits(), 1f32.to_bits(), 0, 0]; 32];
    // Columns 1 and 2 of rows 0 and 1, the second channel, anticlockwise from the lower left.
    let at = |column: usize, row: usize| values[(row * 5 + column) * 2 + 1].to_bits();
    assert_eq!(clean(&mut bench, handle, &words)[7], [at(1, 1), at(2, 1), at(2, 0), at(1, 0)]);
    let mut bench = kernel(
        "txq.width.b32 %r4, [%rd1]; txq.height.b32 %r5, [%rd1];
         txq.normalized_coords.b32 %r6, [%rd1]; txq.channel_order.b32 %r7, [%rd1];",
    );
    let picture = array(&mut bench, ArrayDescription::new(format, &[5, 3]), &of_floats(&values));
    let texture =
        TextureDescription { normalised: true, ..TextureDescription::new(TextureSource::Array(picture)) };
    let handle = bench.simulator.texture(&texture).unwrap();
    assert_eq!(clean(&mut bench, handle, &words)[31], [5, 3, 1, 2]);
}

fn kinds(bench: &mut Bench, handle: u64) -> Vec<FindingKind> {
    let words = vec![[0; 4]; 32];
    run(bench, handle, &words).1.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn misused_textures_are_found() {
    let mut bench = kernel(&format!("tex.2d.v4.f32.f32 {RESULTS}, [%rd1, {{%f0, %f1}}];"));
    let picture = array(&mut bench, ArrayDescription::new(FLOAT, &[4, 4]), &[0; 64]);
    let row = array(&mut bench, ArrayDescription::new(FLOAT, &[4]), &[0; 16]);
    let [good, other] = [picture, row]
        .map(|array| bench.simulator.texture(&TextureDescription::new(TextureSource::Array(array))).unwrap());
    let surface = bench.simulator.surface(&picture).unwrap();
    assert_eq!(kinds(&mut bench, good), []);
    for handle in [other, surface, picture.address, 0, 1, good + 7, u64::MAX] {
        assert_eq!(kinds(&mut bench, handle), [FindingKind::TextureMisuse], "{handle:#x}");
    }
    let empty = bench.simulator.array(ArrayDescription::new(FLOAT, &[4, 4])).unwrap();
    let unwritten = bench.simulator.texture(&TextureDescription::new(TextureSource::Array(empty))).unwrap();
    assert_eq!(kinds(&mut bench, unwritten), [FindingKind::Uninitialised]);
    bench.simulator.free(picture.address).unwrap();
    assert_eq!(kinds(&mut bench, good), [FindingKind::UseAfterFree]);
}

/// The texture cache does not see what is written while a kernel runs, not even by the same thread.
#[test]
fn texels_that_were_just_written_are_found() {
    let fetch = format!("tex.1d.v4.f32.s32 {RESULTS}, [%rd1, {{%r9}}];");
    for (before, after, expected) in [
        ("st.global.u32 [%rd6], 0;", "", vec![FindingKind::TextureMisuse]),
        ("", "bar.warp.sync -1; st.global.u32 [%rd6], 0;", vec![]),
    ] {
        let place = "mul.wide.u32 %rd5, %r9, 4; sub.s64 %rd6, %rd2, %rd4; add.s64 %rd6, %rd6, %rd5;";
        let mut bench = kernel(&format!("{place} {before} {fetch} {after}"));
        // The texture lies over the words that the kernel gets.
        let x = bench.words(&[0; 128]);
        let y = bench.words(&[0; 128]);
        let source = TextureSource::Linear { address: x, format: FLOAT, width: 128 };
        let handle = bench.simulator.texture(&TextureDescription::new(source)).unwrap();
        // Every thread has read its own words before.
        let report = bench.launch(&LaunchConfig::new(1, 1, [handle, x, y].map(Argument::U64).to_vec()));
        assert_eq!(report.findings.iter().map(|finding| finding.kind).collect::<Vec<_>>(), expected);
    }
}

/// A request counts each sector once, whichever of four neighbours lies in it.
#[test]
fn reads_of_textures_are_counted() {
    for (filter, sectors) in [(FilterMode::Point, 4), (FilterMode::Linear, 8)] {
        let mut bench = kernel(&format!("tex.2d.v4.f32.f32 {RESULTS}, [%rd1, {{%f0, %f1}}];"));
        let picture = array(&mut bench, ArrayDescription::new(FLOAT, &[64, 64]), &[0; 4 * 64 * 64]);
        let texture = TextureDescription { filter, ..TextureDescription::new(TextureSource::Array(picture)) };
        let handle = bench.simulator.texture(&texture).unwrap();
        // 32 columns of a row; with their neighbours on two rows, from the first texel on.
        let words: Vec<[u32; 4]> =
            (0..32).map(|i| [(i as f32 + 0.5).to_bits(), 8.75f32.to_bits(), 0, 0]).collect();
        let counters = run(&mut bench, handle, &words).1.counters;
        let loads = counters.texture_loads;
        // The last column's neighbour begins another sector of both rows.
        let expected = if filter == FilterMode::Linear { sectors + 2 } else { sectors };
        assert_eq!((loads.requests, loads.transactions), (1, expected));
    }
}

#[test]
fn forms_that_do_not_exist_are_refused() {
    let load = |text: &str| {
        let text = format!(
            ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry k() {{
            .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %rd<20>; {text} ret; }}"
        );
        let mut simulator = kinora_ptx::Simulator::new(kinora_ptx::ChipSpec::t4());
        let module = kinora_ptx::Module::load(&mut simulator, &text)?;
        // What is not supported is an error once it is reached.
        module.unsupported("k")?.pop().map_or(Ok(()), Err)
    };
    for wrong in [
        "tex.2d.v4.f32.f32 {%r4, %r5, %r6, %r7}, [%rd1, {%f0}];",
        "tex.2d.v4.f32.f32 {%r4, %r5, %r6}, [%rd1, {%f0, %f1}];",
        "tex.2d.v4.f32.f32 {%rd4, %rd5, %rd6, %rd7}, [%rd1, {%f0, %f1}];",
        "tex.5d.v4.f32.f32 {%r4, %r5, %r6, %r7}, [%rd1, {%f0, %f1}];",
        "tex.2d.v4.f64.f32 {%r4, %r5, %r6, %r7}, [%rd1, {%f0, %f1}];",
        "tex.2d.v4.f32.f32 {%r4, %r5, %r6, %r7}, [%r1, {%f0, %f1}];",
        "tex.2d.v4.f32.f32 {%r4, %r5, %r6, %r7}, [%rd1];",
        "tex.2d.v4.f32.f32 {%r4, %r5, %r6, %r7}, %rd1;",
        "tld4.2d.v4.f32.f32 {%r4, %r5, %r6, %r7}, [%rd1, {%f0, %f1}];",
        "tld4.r.3d.v4.f32.f32 {%r4, %r5, %r6, %r7}, [%rd1, {%f0, %f1, %f2}];",
        "txq.colour.b32 %r4, [%rd1];",
        "suld.b.2d.b32.trap {%r1}, [%rd1, {%r0}];",
        "suld.b.2d.v2.b32.trap {%r1}, [%rd1, {%r0, %r1}];",
        "suld.b.cube.b32.trap {%r1}, [%rd1, {%r0, %r1, %r2}];",
        "sust.b.2d.v4.b64.trap [%rd1, {%r0, %r1}], {%rd1, %rd2, %rd3, %rd4};",
        "sust.p.2d.b32.trap [%rd1, {%r0, %r1}], {%r2};",
    ] {
        assert!(load(wrong).is_err(), "{wrong}");
    }
    assert_eq!(load("tex.2d.v2.f16x2.f32 {%r4, %r5}, [%rd1, {%f0, %f1}];"), Ok(()));
}
