//! Surfaces: what is written is read, by surfaces and by textures of later launches, and what lies outside is found.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::{
    Argument, ArrayDescription, ArrayKind, ChannelKind, DeviceArray, FindingKind, LaunchConfig, TexelFormat,
    TextureDescription, TextureSource,
};
use support::Bench;

const WORD: TexelFormat = TexelFormat { kind: ChannelKind::Unsigned, bits: 32, channels: 1 };

/// A kernel over a surface `%rd1` and words `%rd2`; `%r0` is the thread's number, `%r1` its quarter, `%r2` the rest.
fn kernel(body: &str) -> Bench {
    Bench::new(
        &format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 s, .param .u64 y) {{
            .reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .b16 %h<9>;
            ld.param.u64 %rd1, [s]; ld.param.u64 %rd2, [y]; mov.u32 %r0, %tid.x;
            shr.u32 %r1, %r0, 2; and.b32 %r2, %r0, 3; mul.wide.u32 %rd3, %r0, 4; add.s64 %rd2, %rd2, %rd3;
            {body}
            ret; }}"
        ),
        "90",
    )
}

fn launch(bench: &mut Bench, handle: u64, y: u64) -> Vec<FindingKind> {
    let report = bench.launch(&LaunchConfig::new(1, 32, vec![Argument::U64(handle), Argument::U64(y)]));
    report.findings.iter().map(|finding| finding.kind).collect()
}

fn texels(bench: &Bench, array: &DeviceArray) -> Vec<u8> {
    let mut bytes = vec![0; array.description.bytes().unwrap()];
    bench.simulator.copy_out(array.address, &mut bytes).unwrap();
    bytes
}

#[test]
fn stores_land_where_their_coordinates_say() {
    let layers = |extents: &[u32], layers| ArrayDescription {
        layers: Some(layers),
        ..ArrayDescription::new(WORD, extents)
    };
    // Each thread has a texel of its own; the first coordinate counts bytes.
    for (axes, coordinates, shape) in [
        ("1d", "%r3", ArrayDescription::new(WORD, &[32])),
        ("2d", "%r4, %r1", ArrayDescription::new(WORD, &[4, 8])),
        ("3d", "%r4, %r5, %r6, %r6", ArrayDescription::new(WORD, &[4, 2, 4])),
        ("a1d", "%r1, %r4", layers(&[4], 8)),
        ("a2d", "%r6, %r4, %r5, %r5", layers(&[4, 2], 4)),
    ] {
        let places = "shl.b32 %r3, %r0, 2; shl.b32 %r4, %r2, 2; and.b32 %r5, %r1, 1; shr.u32 %r6, %r1, 1;";
        let mut bench = kernel(&format!(
            "{places} mul.lo.u32 %r7, %r0, 3; sust.b.{axes}.b32.trap [%rd1, {{{coordinates}}}], {{%r7}};"
        ));
        let array = bench.simulator.array(shape).unwrap();
        let surface = bench.simulator.surface(&array).unwrap();
        assert_eq!(launch(&mut bench, surface, 0), []);
        let bytes = texels(&bench, &array);
        let (words, _) = bytes.as_chunks::<4>();
        assert!(
            words.iter().enumerate().all(|(i, word)| u32::from_le_bytes(*word) == 3 * i as u32),
            "{axes}"
        );
        // A second module reads them.
        let text = format!(
            "{places} suld.b.{axes}.b32.trap {{%r7}}, [%rd1, {{{coordinates}}}]; st.global.u32 [%rd2], %r7;"
        );
        let mut bench = kernel(&text);
        let array = bench.simulator.array(shape).unwrap();
        bench.simulator.copy_in(array.address, &bytes).unwrap();
        let surface = bench.simulator.surface(&array).unwrap();
        let y = bench.words(&[0; 32]);
        assert_eq!(launch(&mut bench, surface, y), []);
        assert_eq!(bench.read_words(y, 32), (0..32).map(|i| 3 * i).collect::<Vec<_>>(), "{axes}");
    }
}

/// The faces of a cube are layers to a surface.
#[test]
fn faces_of_cubes() {
    let mut bench = kernel("rem.u32 %r3, %r0, 6; sust.b.a2d.b32.zero [%rd1, {%r3, 4, 1, 1}], {%r3};");
    let shape = ArrayDescription { kind: ArrayKind::Cube, ..ArrayDescription::new(WORD, &[2, 2]) };
    let array = bench.simulator.array(shape).unwrap();
    let surface = bench.simulator.surface(&array).unwrap();
    let config = LaunchConfig::new(1, 6, vec![Argument::U64(surface), Argument::U64(0)]);
    bench.clean_launch(&config);
    let bytes = texels(&bench, &array);
    for (face, texels) in bytes.chunks_exact(16).enumerate() {
        assert_eq!(texels[12..], (face as u32).to_le_bytes());
    }
}

#[test]
fn values_of_all_widths() {
    let format = TexelFormat { channels: 4, ..WORD };
    for (suffix, registers, bytes) in [
        ("b8", "%h0", 1),
        ("v4.b8", "%h0, %h1, %h2, %h3", 4),
        ("v2.b16", "%h0, %h1", 4),
        ("b32", "%r10", 4),
        ("v4.b32", "%r10, %r11, %r12, %r13", 16),
        ("b64", "%rd4", 8),
        ("v2.b64", "%rd4, %rd5", 16),
    ] {
        // From the first row to the second.
        let mut bench = kernel(&format!(
            "mul.lo.u32 %r3, %r0, {bytes}; suld.b.2d.{suffix}.trap {{{registers}}}, [%rd1, {{%r3, 0}}];
             sust.b.2d.{suffix}.trap [%rd1, {{%r3, 1}}], {{{registers}}};"
        ));
        let array = bench.simulator.array(ArrayDescription::new(format, &[32, 2])).unwrap();
        let content: Vec<u8> = (0..512u32).map(|i| ((i * 37) >> 2) as u8).collect();
        bench.simulator.copy_in(array.address, &content).unwrap();
        let surface = bench.simulator.surface(&array).unwrap();
        assert_eq!(launch(&mut bench, surface, 0), []);
        let after = texels(&bench, &array);
        assert_eq!(after[512..512 + 32 * bytes], content[..32 * bytes], "{suffix}");
        assert!(after[512 + 32 * bytes..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn what_lies_outside() {
    // Two threads are left of the row of 28 texels, two right of it.
    let place = "sub.s32 %r3, %r0, 2; shl.b32 %r3, %r3, 2;";
    let expected = |mode: &str, i: i32| match (mode, i - 2) {
        ("clamp", at) => at.clamp(0, 27) + 100,
        (_, at @ 0..28) => at + 100,
        _ => 0,
    };
    let content: Vec<u8> = (100..128u32).flat_map(u32::to_le_bytes).collect();
    for mode in ["trap", "clamp", "zero"] {
        let load =
            format!("{place} suld.b.1d.b32.{mode} {{%r4}}, [%rd1, {{%r3}}]; st.global.u32 [%rd2], %r4;");
        let store = format!("{place} add.u32 %r4, %r0, 200; sust.b.1d.b32.{mode} [%rd1, {{%r3}}], {{%r4}};");
        let mut made = [&load, &store].map(|text| {
            let mut bench = kernel(text);
            let array = bench.simulator.array(ArrayDescription::new(WORD, &[28])).unwrap();
            bench.simulator.copy_in(array.address, &content).unwrap();
            let surface = bench.simulator.surface(&array).unwrap();
            (bench, array, surface)
        });
        let traps = if mode == "trap" { vec![FindingKind::OutOfBounds] } else { vec![] };
        let (bench, _, surface) = &mut made[0];
        let y = bench.words(&[7; 32]);
        assert_eq!(launch(bench, *surface, y), traps);
        let ours: Vec<i32> = bench.read_words(y, 32).into_iter().map(|word| word as i32).collect();
        assert_eq!(ours, (0..32).map(|i| expected(mode, i)).collect::<Vec<_>>(), "{mode}");
        // Clamped stores all go to the ends, where they race.
        let (bench, array, surface) = &mut made[1];
        let found = launch(bench, *surface, 0);
        assert_eq!(found, if mode == "clamp" { vec![FindingKind::Race] } else { traps }, "{mode}");
        let words: Vec<u32> =
            texels(bench, array).as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        assert_eq!(words[1..27], (203..229).collect::<Vec<_>>());
    }
}

#[test]
fn misused_surfaces_are_found() {
    let mut bench = kernel("shl.b32 %r3, %r0, 2; sust.b.1d.b32.trap [%rd1, {%r3}], {%r0};");
    let row = bench.simulator.array(ArrayDescription::new(WORD, &[32])).unwrap();
    let rows = bench.simulator.array(ArrayDescription::new(WORD, &[32, 2])).unwrap();
    let [good, other] = [row, rows].map(|array| bench.simulator.surface(&array).unwrap());
    let texture = bench.simulator.texture(&TextureDescription::new(TextureSource::Array(row))).unwrap();
    assert_eq!(launch(&mut bench, good, 0), []);
    for handle in [other, texture, row.address, 0, good + 5] {
        assert_eq!(launch(&mut bench, handle, 0), [FindingKind::TextureMisuse]);
    }
    // Bytes that are not those of one word.
    let mut odd =
        kernel("shl.b32 %r3, %r2, 2; add.u32 %r3, %r3, 2; suld.b.1d.b32.zero {%r4}, [%rd1, {%r3}];");
    let row = odd.simulator.array(ArrayDescription::new(WORD, &[32])).unwrap();
    odd.simulator.copy_in(row.address, &[0; 128]).unwrap();
    let surface = odd.simulator.surface(&row).unwrap();
    assert_eq!(launch(&mut odd, surface, 0), [FindingKind::Misaligned]);
    // Threads of a warp that write one texel.
    let mut race = kernel("shl.b32 %r3, %r1, 2; sust.b.1d.b32.trap [%rd1, {%r3}], {%r0};");
    let row = race.simulator.array(ArrayDescription::new(WORD, &[32])).unwrap();
    let surface = race.simulator.surface(&row).unwrap();
    assert_eq!(launch(&mut race, surface, 0), [FindingKind::Race]);
    // A read of what was written in the same launch, even by the same thread.
    let mut stale = kernel(
        "shl.b32 %r3, %r0, 2; sust.b.1d.b32.trap [%rd1, {%r3}], {%r0}; suld.b.1d.b32.trap {%r4}, [%rd1, {%r3}];",
    );
    let row = stale.simulator.array(ArrayDescription::new(WORD, &[32])).unwrap();
    let surface = stale.simulator.surface(&row).unwrap();
    assert_eq!(launch(&mut stale, surface, 0), [FindingKind::TextureMisuse]);
}

#[test]
fn accesses_to_surfaces_are_counted() {
    let mut bench = kernel(
        "shl.b32 %r3, %r0, 2; suld.b.2d.b32.trap {%r4}, [%rd1, {%r3, 0}]; sust.b.2d.b32.trap [%rd1, {%r3, 1}], {%r4};",
    );
    let rows = bench.simulator.array(ArrayDescription::new(WORD, &[32, 2])).unwrap();
    bench.simulator.copy_in(rows.address, &[0; 256]).unwrap();
    let surface = bench.simulator.surface(&rows).unwrap();
    let config = LaunchConfig::new(1, 32, vec![Argument::U64(surface), Argument::U64(0)]);
    let counters = bench.clean_launch(&config).counters;
    let (loads, stores) = (counters.surface_loads, counters.surface_stores);
    assert_eq!((loads.requests, loads.transactions, loads.bytes), (1, 4, 128));
    assert_eq!(stores, loads);
    assert_eq!(counters.class(kinora_ptx::InstructionClass::Texture), 2);
}
