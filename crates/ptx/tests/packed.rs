//! Packed, video and bit instructions against loops over their parts in wide whole numbers.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use half::f16;
use kinora_ptx::{Argument, LaunchConfig};
use support::{Bench, random};

/// Runs a body on three words a lane, `%r1` to `%r3`, which are also `%f1` to `%f3`; the result is `%r0`.
fn run(body: &str, target: &str, words: &[[u32; 3]]) -> Vec<u32> {
    let text = format!(
        ".version 9.0\n.target sm_{target}\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y) {{
        .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<20>; .reg .f32 %f<9>; .reg .b64 %rd<9>;
        ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mov.u32 %r9, %tid.x; mul.wide.u32 %rd3, %r9, 12;
        add.s64 %rd1, %rd1, %rd3; mul.wide.u32 %rd3, %r9, 4; add.s64 %rd2, %rd2, %rd3;
        ld.global.u32 %r1, [%rd1]; ld.global.u32 %r2, [%rd1+4]; ld.global.u32 %r3, [%rd1+8];
        mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3;
        {body}
        st.global.u32 [%rd2], %r0; ret; }}"
    );
    let mut bench = Bench::new(&text, "90");
    let x = bench.words(words.as_flattened());
    let y = bench.simulator.allocate(4 * words.len()).unwrap();
    let threads = words.len() as u32;
    bench.clean_launch(&LaunchConfig::new(1, threads, vec![Argument::U64(x), Argument::U64(y)]));
    bench.read_words(y, words.len())
}

/// Words of any bits, and the ends of the ranges of bytes, halves and words.
fn words() -> Vec<[u32; 3]> {
    const ENDS: [u32; 10] = [
        0,
        1,
        0xff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x7f80_ff01,
        0x8000_7fff,
        0x8080_8080,
        0x0000_0020,
    ];
    let picks = random(3 * 256, 9);
    let others = random(3 * 256, 10);
    let one = |i: usize| {
        if i.is_multiple_of(3) {
            ENDS[i / 3 % 10]
        } else {
            (picks[i] * 1e9) as i32 as u32 ^ ((others[i] * 2e9) as i32 as u32) << 7
        }
    };
    (0..256).map(|i| [one(i), one(i * 7 % 768), one(i * 11 % 768)]).collect()
}

fn check(body: &str, expected: impl Fn(u32, u32, u32) -> u32) {
    let words = words();
    for (ours, [a, b, c]) in run(body, "90", &words).into_iter().zip(words) {
        assert_eq!(ours, expected(a, b, c), "{body} of {a:#x}, {b:#x}, {c:#x}");
    }
}

/// The numbers in a word.
fn parts(word: u32, bits: u32, signed: bool) -> Vec<i64> {
    (0..32 / bits)
        .map(|i| {
            let raw = i64::from(word) >> (bits * i) & ((1 << bits) - 1);
            if signed && raw >> (bits - 1) == 1 { raw - (1 << bits) } else { raw }
        })
        .collect()
}

fn pack(values: &[i64], bits: u32) -> u32 {
    values.iter().rev().fold(0u64, |all, &value| all << bits | value as u64 & ((1 << bits) - 1)) as u32
}

#[test]
fn pairs_and_quads_of_integers() {
    let each = |bits: u32, signed: bool, f: &'static dyn Fn(i64, i64) -> i64| {
        move |a: u32, b: u32| -> Vec<i64> {
            parts(a, bits, signed).into_iter().zip(parts(b, bits, signed)).map(|(a, b)| f(a, b)).collect()
        }
    };
    for (lanes, bits) in [(2, 16), (4, 8)] {
        for (kind, signed) in [("s32", true), ("u32", false)] {
            let kinds = format!("{kind}.{kind}.{kind}");
            type Lane = &'static dyn Fn(i64, i64) -> i64;
            let ops: [(&str, Lane); 6] = [
                ("vadd", &|a, b| a + b),
                ("vsub", &|a, b| a - b),
                ("vmin", &|a, b| a.min(b)),
                ("vmax", &|a, b| a.max(b)),
                ("vabsdiff", &|a, b| (a - b).abs()),
                ("vavrg", &|a, b| (a as f64 / 2.0 + b as f64 / 2.0).round() as i64),
            ];
            for (name, f) in ops {
                let f = each(bits, signed, f);
                check(&format!("{name}{lanes}.{kinds} %r0, %r1, %r2, %r3;"), |a, b, _| pack(&f(a, b), bits));
                check(&format!("{name}{lanes}.{kinds}.add %r0, %r1, %r2, %r3;"), |a, b, c| {
                    (f(a, b).into_iter().sum::<i64>() + i64::from(c)) as u32
                });
                let (low, high) =
                    if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
                check(&format!("{name}{lanes}.{kinds}.sat %r0, %r1, %r2, %r3;"), |a, b, _| {
                    pack(&f(a, b).into_iter().map(|x| x.clamp(low, high)).collect::<Vec<_>>(), bits)
                });
            }
            let f = each(bits, signed, &|a, b| i64::from(a < b));
            check(&format!("vset{lanes}.{kind}.{kind}.lt %r0, %r1, %r2, %r3;"), |a, b, _| {
                pack(&f(a, b), bits)
            });
        }
    }
    let (signed, unsigned) = (|w| parts(w, 16, true), |w| parts(w, 16, false));
    check("add.s16x2 %r0, %r1, %r2;", |a, b, _| pack(&[0, 1].map(|i| signed(a)[i] + signed(b)[i]), 16));
    check("max.s16x2 %r0, %r1, %r2;", |a, b, _| pack(&[0, 1].map(|i| signed(a)[i].max(signed(b)[i])), 16));
    check("min.u16x2 %r0, %r1, %r2;", |a, b, _| {
        pack(&[0, 1].map(|i| unsigned(a)[i].min(unsigned(b)[i])), 16)
    });
    check("max.relu.s16x2 %r0, %r1, %r2;", |a, b, _| {
        pack(&[0, 1].map(|i| signed(a)[i].max(signed(b)[i]).max(0)), 16)
    });
    check("min.relu.s32 %r0, %r1, %r2;", |a, b, _| (a as i32).min(b as i32).max(0) as u32);
}

#[test]
fn scalar_video_instructions() {
    let s = |x: u32| i64::from(x as i32);
    let saturated = |x: i64| x.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32;
    check("vadd.s32.s32.s32 %r0, %r1, %r2;", |a, b, _| (s(a) + s(b)) as u32);
    check("vadd.s32.s32.s32.sat %r0, %r1, %r2;", |a, b, _| saturated(s(a) + s(b)));
    check("vsub.u32.u32.u32.sat %r0, %r1, %r2;", |a, b, _| a.saturating_sub(b));
    check("vsub.s32.u32.s32.sat %r0, %r1, %r2;", |a, b, _| saturated(i64::from(a) - s(b)));
    check("vabsdiff.u32.u32.u32 %r0, %r1, %r2;", |a, b, _| a.abs_diff(b));
    check("vabsdiff.u32.u32.u32.add %r0, %r1, %r2, %r3;", |a, b, c| a.abs_diff(b).wrapping_add(c));
    check("vmax.s32.s32.s32.max %r0, %r1, %r2, %r3;", |a, b, c| s(a).max(s(b)).max(s(c)) as u32);
    check("vmin.s32.s32.s32 %r0, %r1.b1, %r2.h1;", |a, b, _| {
        i64::from((a >> 8) as i8).min(i64::from((b >> 16) as i16)) as u32
    });
    check("vmad.u32.u32.u32 %r0, %r1.h0, %r2.h1, %r3;", |a, b, c| ((a & 0xffff) * (b >> 16)).wrapping_add(c));
    check("vshl.u32.u32.u32.clamp %r0, %r1, %r2;", |a, b, _| a.checked_shl(b).unwrap_or(0));
    check("vshr.u32.u32.u32.wrap %r0, %r1, %r2;", |a, b, _| a >> (b & 31));
    check("vset.u32.u32.ge %r0, %r1, %r2;", |a, b, _| u32::from(a >= b));
}

#[test]
fn bits_and_dot_products() {
    let extended = |a: u32, n: u32| if n == 0 { 0 } else { i64::from(a) << (64 - n) >> (64 - n) };
    check("szext.clamp.s32 %r0, %r1, %r2;", |a, b, _| extended(a, b.min(32)) as u32);
    check("szext.wrap.u32 %r0, %r1, %r2;", |a, b, _| a & ((1 << (b & 31)) - 1));
    check("dp2a.lo.s32.u32 %r0, %r1, %r2, %r3;", |a, b, c| {
        let (a, b) = (parts(a, 16, true), parts(b, 8, false));
        (a[0] * b[0] + a[1] * b[1] + i64::from(c)) as u32
    });
    check("dp2a.hi.u32.s32 %r0, %r1, %r2, %r3;", |a, b, c| {
        let (a, b) = (parts(a, 16, false), parts(b, 8, true));
        (a[0] * b[2] + a[1] * b[3] + i64::from(c)) as u32
    });
    let cut = |x: u32| i64::from((x << 8) as i32 >> 8);
    check("mad24.lo.s32 %r0, %r1, %r2, %r3;", |a, b, c| (cut(a) * cut(b) + i64::from(c)) as u32);
    check("mad24.hi.s32 %r0, %r1, %r2, %r3;", |a, b, c| (((cut(a) * cut(b)) >> 16) + i64::from(c)) as u32);
    check("mad.hi.sat.s32 %r0, %r1, %r2, %r3;", |a, b, c| {
        let high = (i64::from(a as i32) * i64::from(b as i32)) >> 32;
        (high + i64::from(c as i32)).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32
    });
    check(
        "lop3.or.b32 %r0|%p1, %r1, %r2, %r3, 0x80, 0; selp.u32 %r4, 256, 0, %p1; and.b32 %r0, %r0, 255; or.b32 %r0, %r0, %r4;",
        |a, b, c| {
            let all = a & b & c;
            all & 255 | if all != 0 { 256 } else { 0 }
        },
    );
    // The place of every third bit from the fifth on, and of the second below the twentieth.
    check("fns.b32 %r0, %r1, 5, 3;", |a, _, _| {
        (5..32).filter(|at| a >> at & 1 == 1).nth(2).unwrap_or(u32::MAX)
    });
    check("fns.b32 %r0, %r1, 20, -2;", |a, _, _| {
        (0..=20).rev().filter(|at| a >> at & 1 == 1).nth(1).unwrap_or(u32::MAX)
    });
    check("fns.b32 %r0, %r1, 7, 0;", |a, _, _| if a >> 7 & 1 == 1 { 7 } else { u32::MAX });
    check("mov.b32 {%h1, %h2, %h3, %h4}, %r1; mov.b32 %r0, {%h4, %h3, %h2, %h1};", |a, _, _| a.swap_bytes());
    check(
        "mov.b64 %rd4, {%r1, %r2}; mov.b64 {%h1, %h2, %h3, %h4}, %rd4; mov.b64 %rd4, {%h4, %h3, %h2, %h1};
         mov.b64 {%r0, %r4}, %rd4;",
        |_, b, _| b.rotate_left(16),
    );
    check("cvt.pack.sat.u8.s32.b32 %r0, %r1, %r2, %r3;", |a, b, c| {
        let byte = |x: u32| (x as i32).clamp(0, 255) as u32;
        byte(b) | byte(a) << 8 | c << 16
    });
    check("cvt.pack.sat.s16.s32 %r0, %r1, %r2;", |a, b, _| {
        let half = |x: u32| (x as i32).clamp(-32768, 32767) as u32 & 0xffff;
        half(b) | half(a) << 16
    });
    check("mov.u32 %r0, %envreg3; mov.u32 %r4, %pm0; or.b32 %r0, %r0, %r4;", |_, _, _| 0);
}

#[test]
fn signed_extremes_and_pairs_of_halves() {
    let numbers: Vec<[u32; 3]> =
        words().into_iter().filter(|all| all.iter().all(|word| !f32::from_bits(*word).is_nan())).collect();
    let ours = run("min.xorsign.abs.f32 %f4, %f1, %f2; mov.b32 %r0, %f4;", "90", &numbers);
    for (ours, [a, b, _]) in ours.into_iter().zip(&numbers) {
        let (a, b) = (f32::from_bits(*a), f32::from_bits(*b));
        let least = a.abs().min(b.abs());
        let expected = if a.is_sign_negative() == b.is_sign_negative() { least } else { -least };
        assert_eq!(ours, expected.to_bits(), "{a:e}, {b:e}");
    }
    check(
        "setp.lt.f16x2 %p1|%p2, %r1, %r2; selp.u32 %r0, 1, 0, %p1; selp.u32 %r4, 2, 0, %p2; or.b32 %r0, %r0, %r4;",
        |a, b, _| {
            let less = |shift: u32| f16::from_bits((a >> shift) as u16) < f16::from_bits((b >> shift) as u16);
            u32::from(less(0)) | u32::from(less(16)) << 1
        },
    );
}

#[test]
fn matrices_are_transposed_between_lanes() {
    let text = ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x) {
        .reg .b32 %r<9>; .reg .b64 %rd<9>;
        ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2;
        ld.global.u32 %r2, [%rd1]; movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r2; st.global.u32 [%rd1], %r3; ret; }";
    let mut bench = Bench::new(text, "80");
    // Eight rows of eight numbers, two in a word.
    let x = bench.words(&(0..32).map(|i| (2 * i) | ((2 * i + 1) << 16)).collect::<Vec<u32>>());
    bench.clean_launch(&LaunchConfig::new(1, 32, vec![Argument::U64(x)]));
    for (i, word) in bench.read_words(x, 32).into_iter().enumerate() {
        let (row, column) = (i as u32 / 4, i as u32 % 4 * 2);
        assert_eq!(word, (8 * column + row) | (8 * (column + 1) + row) << 16);
    }
}

/// A vector of atomics updates each of its numbers.
#[test]
fn atomics_on_vectors() {
    let text = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 x) {
        .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
        ld.param.u64 %rd1, [x]; mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000;
        red.global.add.v2.f32 [%rd1+8], {%f1, %f2};
        red.global.add.v4.f32 [%rd1+16], {%f2, %f1, %f1, %f2}; ret; }";
    let mut bench = Bench::new(text, "90");
    let x = bench.singles(&[0.0; 8]);
    bench.clean_launch(&LaunchConfig::new(2, 64, vec![Argument::U64(x)]));
    assert_eq!(bench.read_singles(x, 8), [0.0, 0.0, 128.0, 256.0, 256.0, 128.0, 128.0, 256.0]);
}

#[test]
fn pairs_of_f32() {
    let text = ".version 9.0\n.target sm_100\n.address_size 64\n.visible .entry k(.param .u64 x) {
        .reg .b64 %rd<9>; ld.param.u64 %rd1, [x]; ld.global.v2.u64 {%rd2, %rd3}, [%rd1];
        add.rn.f32x2 %rd4, %rd2, %rd3; mul.rz.f32x2 %rd5, %rd2, %rd3; fma.rn.f32x2 %rd6, %rd2, %rd3, %rd4;
        st.global.v2.u64 [%rd1], {%rd4, %rd5}; st.global.u64 [%rd1+16], %rd6; ret; }";
    let mut simulator = kinora_ptx::Simulator::new(kinora_ptx::ChipSpec::b200());
    let module = kinora_ptx::Module::load(&mut simulator, text).unwrap();
    let mut bench = Bench { simulator, module };
    let x = bench.singles(&[1.5, -2.0, 0.25, 8.0, 0.0, 0.0]);
    bench.clean_launch(&LaunchConfig::new(1, 1, vec![Argument::U64(x)]));
    assert_eq!(bench.read_singles(x, 6), [1.75, 6.0, 0.375, -16.0, 2.125, -10.0]);
}
