//! Single instructions against arithmetic that is exact: Rust's own, the `half` crate's, sums in f64.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use half::{bf16, f16};
use kinora_ptx::{Argument, LaunchConfig, Simulator};
use support::{Bench, profile, random};

/// Runs instructions in each of 32 lanes: `%r1` to `%r3` and `%rd1` to `%rd3` hold the operands, `%r10` or `%rd10` the
/// result.
fn lanes(body: &str, operands: &[[u64; 32]], wide: bool) -> Vec<u64> {
    let ptx = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y) {{
        .reg .pred %p<10>; .reg .b16 %h<20>; .reg .b32 %r<40>; .reg .f32 %f<20>; .reg .b64 %rd<40>; .reg .f64 %fd<20>;
        ld.param.u64 %rd20, [x]; ld.param.u64 %rd21, [y];
        mov.u32 %r20, %tid.x; mul.wide.u32 %rd22, %r20, 8;
        add.s64 %rd20, %rd20, %rd22; add.s64 %rd21, %rd21, %rd22;
        ld.global.u64 %rd1, [%rd20]; ld.global.u64 %rd2, [%rd20+256]; ld.global.u64 %rd3, [%rd20+512];
        cvt.u32.u64 %r1, %rd1; cvt.u32.u64 %r2, %rd2; cvt.u32.u64 %r3, %rd3;
        mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3;
        mov.b64 %fd1, %rd1; mov.b64 %fd2, %rd2;
        cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2; cvt.u16.u32 %h3, %r3;
        mov.u32 %r10, 0; mov.u64 %rd10, 0;
        {body}
        {}
        st.global.u64 [%rd21], %rd10; ret; }}",
        if wide { "" } else { "cvt.u64.u32 %rd10, %r10;" }
    );
    let mut bench = Bench::new(&ptx, "90a");
    let mut bytes = Vec::new();
    for i in 0..3 {
        let values = operands.get(i).copied().unwrap_or([0; 32]);
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
    let x = bench.simulator.upload(&bytes).unwrap();
    let y = bench.simulator.allocate(256).unwrap();
    bench.clean_launch(&LaunchConfig::new(1, 32, vec![Argument::U64(x), Argument::U64(y)]));
    let mut result = vec![0; 256];
    bench.simulator.copy_out(y, &mut result).unwrap();
    result.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Bits that reach corners: zeros, ones, signs, infinities, NaN, subnormals and anything.
fn corners(seed: u64) -> [u64; 32] {
    const KNOWN: [u32; 20] = [
        0,
        1,
        2,
        31,
        32,
        33,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
        0xffff_ffff,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7f7f_ffff,
        0x0000_0001,
        0x0080_0000,
        0x4b80_0001,
        0x0000_ffff,
        0x3380_0000,
    ];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let low = if state >> 8 & 1 == 0 { KNOWN[(state >> 16) as usize % 20] } else { (state >> 20) as u32 };
        let high =
            if state >> 9 & 1 == 0 { KNOWN[(state >> 24) as usize % 20] } else { (state >> 12) as u32 };
        u64::from(low) | u64::from(high) << 32
    })
}

fn check32(body: &str, expected: impl Fn(u32, u32, u32) -> u32) {
    for seed in 1..5 {
        let operands = [corners(seed), corners(seed + 10), corners(seed + 20)];
        for (lane, &ours) in lanes(body, &operands, false).iter().enumerate() {
            let [a, b, c] = operands.map(|operand| operand[lane] as u32);
            assert_eq!(ours as u32, expected(a, b, c), "{body} of {a:#x}, {b:#x}, {c:#x}");
        }
    }
}

fn check64(body: &str, expected: impl Fn(u64, u64, u64) -> u64) {
    for seed in 1..5 {
        let operands = [corners(seed), corners(seed + 10), corners(seed + 20)];
        for (lane, &ours) in lanes(body, &operands, true).iter().enumerate() {
            let [a, b, c] = operands.map(|operand| operand[lane]);
            assert_eq!(ours, expected(a, b, c), "{body} of {a:#x}, {b:#x}, {c:#x}");
        }
    }
}

#[test]
fn integers_of_32_bits() {
    check32("add.s32 %r10, %r1, %r2;", |a, b, _| a.wrapping_add(b));
    check32("sub.s32 %r10, %r1, %r2;", |a, b, _| a.wrapping_sub(b));
    check32("add.sat.s32 %r10, %r1, %r2;", |a, b, _| (a as i32).saturating_add(b as i32) as u32);
    check32("mul.lo.s32 %r10, %r1, %r2;", |a, b, _| a.wrapping_mul(b));
    check32("mul.hi.s32 %r10, %r1, %r2;", |a, b, _| {
        ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32
    });
    check32("mul.hi.u32 %r10, %r1, %r2;", |a, b, _| ((u64::from(a) * u64::from(b)) >> 32) as u32);
    check32("mad.lo.s32 %r10, %r1, %r2, %r3;", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    check32("min.s32 %r10, %r1, %r2;", |a, b, _| (a as i32).min(b as i32) as u32);
    check32("max.u32 %r10, %r1, %r2;", |a, b, _| a.max(b));
    check32("abs.s32 %r10, %r1;", |a, _, _| (a as i32).wrapping_abs() as u32);
    check32("shl.b32 %r10, %r1, %r2;", |a, b, _| if b < 32 { a << b } else { 0 });
    check32("shr.u32 %r10, %r1, %r2;", |a, b, _| if b < 32 { a >> b } else { 0 });
    check32("shr.s32 %r10, %r1, %r2;", |a, b, _| ((a as i32) >> b.min(31)) as u32);
    check32("popc.b32 %r10, %r1;", |a, _, _| a.count_ones());
    check32("clz.b32 %r10, %r1;", |a, _, _| a.leading_zeros());
    check32("brev.b32 %r10, %r1;", |a, _, _| a.reverse_bits());
    check32("bfind.u32 %r10, %r1;", |a, _, _| a.checked_ilog2().unwrap_or(u32::MAX));
    check32("lop3.b32 %r10, %r1, %r2, %r3, 0xe8;", |a, b, c| a & b | a & c | b & c);
    check32("lop3.b32 %r10, %r1, %r2, %r3, 0x96;", |a, b, c| a ^ b ^ c);
    check32("shf.l.wrap.b32 %r10, %r1, %r2, %r3;", |a, b, c| {
        ((u64::from(b) << 32 | u64::from(a)) << (c & 31) >> 32) as u32
    });
    check32("shf.r.clamp.b32 %r10, %r1, %r2, %r3;", |a, b, c| {
        ((u64::from(b) << 32 | u64::from(a)) >> c.min(32)) as u32
    });
    check32("bfe.u32 %r10, %r1, 5, 9;", |a, _, _| a >> 5 & 0x1ff);
    check32("bfe.s32 %r10, %r1, 28, 9;", |a, _, _| ((a as i32) >> 28) as u32);
    check32("bfi.b32 %r10, %r1, %r2, 4, 8;", |a, b, _| b & !0xff0 | (a & 0xff) << 4);
    check32("prmt.b32 %r10, %r1, %r2, 0x7531;", |a, b, _| {
        let [_, a1, _, a3] = a.to_le_bytes();
        let [_, b1, _, b3] = b.to_le_bytes();
        u32::from_le_bytes([a1, a3, b1, b3])
    });
    check32("sad.u32 %r10, %r1, %r2, %r3;", |a, b, c| a.abs_diff(b).wrapping_add(c));
    check32("dp4a.s32.s32 %r10, %r1, %r2, %r3;", |a, b, c| {
        let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
        products.fold(c, |sum, (a, b)| sum.wrapping_add((i32::from(a as i8) * i32::from(b as i8)) as u32))
    });
    check32("setp.lt.s32 %p1, %r1, %r2; selp.u32 %r10, 1, 0, %p1;", |a, b, _| {
        u32::from((a as i32) < b as i32)
    });
    check32(
        "setp.ne.u32 %p3, 0, 0; setp.hi.and.u32 %p1|%p2, %r1, %r2, !%p3; selp.u32 %r10, 1, 0, %p2;",
        |a, b, _| u32::from(a <= b),
    );
    check32("add.cc.u32 %r11, %r1, %r2; addc.u32 %r10, 0, 0;", |a, b, _| {
        u32::from(a.checked_add(b).is_none())
    });
    check32("slct.b32.s32 %r10, %r1, %r2, %r3;", |a, b, c| if c as i32 >= 0 { a } else { b });
    check32("add.s16 %h4, %h1, %h2; cvt.u32.u16 %r10, %h4;", |a, b, _| {
        u32::from((a as u16).wrapping_add(b as u16))
    });
    check32("cvt.s32.s16 %r10, %h1;", |a, _, _| i32::from(a as i16) as u32);
    check32("mul.wide.s16 %r10, %h1, %h2;", |a, b, _| (i32::from(a as i16) * i32::from(b as i16)) as u32);
    // Division by what is never zero.
    check32("or.b32 %r2, %r2, 1; div.u32 %r10, %r1, %r2;", |a, b, _| a / (b | 1));
    check32("or.b32 %r2, %r2, 1; rem.s32 %r10, %r1, %r2;", |a, b, _| {
        (a as i32).wrapping_rem((b | 1) as i32) as u32
    });
}

#[test]
fn integers_of_64_bits() {
    check64("add.s64 %rd10, %rd1, %rd2;", |a, b, _| a.wrapping_add(b));
    check64("mul.lo.s64 %rd10, %rd1, %rd2;", |a, b, _| a.wrapping_mul(b));
    check64("mul.hi.u64 %rd10, %rd1, %rd2;", |a, b, _| ((u128::from(a) * u128::from(b)) >> 64) as u64);
    check64("mad.wide.s32 %rd10, %r1, %r2, %rd3;", |a, b, c| {
        (i64::from(a as i32) * i64::from(b as i32)).wrapping_add(c as i64) as u64
    });
    check64("shl.b64 %rd10, %rd1, %r2;", |a, b, _| if (b as u32) < 64 { a << (b as u32) } else { 0 });
    check64("shr.s64 %rd10, %rd1, %r2;", |a, b, _| ((a as i64) >> (b as u32).min(63)) as u64);
    check64("min.s64 %rd10, %rd1, %rd2;", |a, b, _| (a as i64).min(b as i64) as u64);
    check64("or.b64 %rd2, %rd2, 1; div.s64 %rd10, %rd1, %rd2;", |a, b, _| {
        (a as i64).wrapping_div((b | 1) as i64) as u64
    });
    check64("cvt.s64.s32 %rd10, %r1;", |a, _, _| i64::from(a as i32) as u64);
    check64("mov.b64 %rd10, {%r2, %r1};", |a, b, _| u64::from(b as u32) | a << 32);
}

/// The same number: a NaN is a NaN.
fn same(ours: u32, expected: f32) -> bool {
    f32::from_bits(ours).is_nan() && expected.is_nan() || ours == expected.to_bits()
}

fn check_float(body: &str, expected: impl Fn(f32, f32, f32) -> f32) {
    for seed in 1..8 {
        let operands = [corners(seed), corners(seed + 10), corners(seed + 20)];
        for (lane, &ours) in
            lanes(&format!("{body} mov.b32 %r10, %f10;"), &operands, false).iter().enumerate()
        {
            let [a, b, c] = operands.map(|operand| f32::from_bits(operand[lane] as u32));
            let expected = expected(a, b, c);
            assert!(
                same(ours as u32, expected),
                "{body} of {a:e}, {b:e}, {c:e}: {:e}, {expected:e}",
                f32::from_bits(ours as u32)
            );
        }
    }
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

#[test]
fn numbers_of_32_bits() {
    check_float("add.f32 %f10, %f1, %f2;", |a, b, _| a + b);
    check_float("sub.rn.f32 %f10, %f1, %f2;", |a, b, _| a - b);
    check_float("mul.f32 %f10, %f1, %f2;", |a, b, _| a * b);
    check_float("fma.rn.f32 %f10, %f1, %f2, %f3;", |a, b, c| a.mul_add(b, c));
    check_float("div.rn.f32 %f10, %f1, %f2;", |a, b, _| a / b);
    check_float("sqrt.rn.f32 %f10, %f1;", |a, _, _| a.sqrt());
    check_float("rcp.rn.f32 %f10, %f1;", |a, _, _| 1.0 / a);
    check_float("mul.ftz.f32 %f10, %f1, %f2;", |a, b, _| flush(flush(a) * flush(b)));
    check_float("add.sat.f32 %f10, %f1, %f2;", |a, b, _| if a + b > 0.0 { (a + b).min(1.0) } else { 0.0 });
    check_float("neg.f32 %f10, %f1;", |a, _, _| -a);
    check_float("abs.f32 %f10, %f1;", |a, _, _| a.abs());
    check_float("copysign.f32 %f10, %f1, %f2;", |a, b, _| b.copysign(a));
    check_float("max.f32 %f10, %f1, %f2;", |a, b, _| {
        if a == 0.0 && b == 0.0 { if a.is_sign_positive() { a } else { b } } else { a.max(b) }
    });
    check_float("min.NaN.f32 %f10, %f1, %f2;", |a, b, _| {
        if a.is_nan() || b.is_nan() {
            f32::NAN
        } else if a == 0.0 && b == 0.0 {
            if a.is_sign_negative() { a } else { b }
        } else {
            a.min(b)
        }
    });
    // Within the range of f64 a sum of two f32 that is cut towards zero is never larger than the exact one.
    check_float(
        "add.rz.f32 %f10, %f1, %f2; add.rn.f32 %f11, %f1, %f2; sub.f32 %f12, %f10, %f10;",
        |a, b, _| {
            let exact = f64::from(a) + f64::from(b);
            let nearest = exact as f32;
            let inward = if nearest.abs() > 0.0 { f32::from_bits(nearest.to_bits() - 1) } else { nearest };
            let error =
                (f64::from(a) - (exact - (exact - f64::from(a)))) + (f64::from(b) - (exact - f64::from(a)));
            let above = f64::from(nearest).abs() > exact.abs()
                || f64::from(nearest) == exact && error != 0.0 && (error > 0.0) != (exact > 0.0);
            if nearest.is_infinite() && a.is_finite() && b.is_finite() {
                f32::MAX.copysign(nearest)
            } else if above && nearest.is_finite() {
                inward
            } else {
                nearest
            }
        },
    );
}

#[test]
fn conversions() {
    check32("cvt.rn.f32.s32 %f10, %r1; mov.b32 %r10, %f10;", |a, _, _| (a as i32 as f32).to_bits());
    check32("cvt.rn.f32.u32 %f10, %r1; mov.b32 %r10, %f10;", |a, _, _| (a as f32).to_bits());
    // Rust's conversions saturate as the hardware's do.
    check32("cvt.rzi.s32.f32 %r10, %f1;", |a, _, _| f32::from_bits(a) as i32 as u32);
    check32("cvt.rni.u32.f32 %r10, %f1;", |a, _, _| f32::from_bits(a).round_ties_even() as u32);
    check32("cvt.rmi.f32.f32 %f10, %f1; mov.b32 %r10, %f10;", |a, _, _| {
        let floor = f32::from_bits(a).floor();
        if floor.is_nan() { 0x7fff_ffff } else { floor.to_bits() }
    });
    check32("cvt.rn.f16.f32 %h4, %f1; cvt.u32.u16 %r10, %h4;", |a, _, _| {
        let value = f32::from_bits(a);
        if value.is_nan() { 0x7fff } else { u32::from(f16::from_f32(value).to_bits()) }
    });
    check32("cvt.rn.bf16x2.f32 %r10, %f1, %f2;", |a, b, _| {
        let one = |bits| {
            let value = f32::from_bits(bits);
            if value.is_nan() { 0x7fff } else { u32::from(bf16::from_f32(value).to_bits()) }
        };
        one(a) << 16 | one(b)
    });
    check32("cvt.f32.f16 %f10, %h1; mov.b32 %r10, %f10;", |a, _, _| {
        let value = f16::from_bits(a as u16);
        if value.is_nan() {
            f32::from_bits(a << 13 & 0x007f_e000 | 0x7f80_0000 | (a & 0x8000) << 16).to_bits()
        } else {
            value.to_f32().to_bits()
        }
    });
    check64("abs.f32 %f1, %f1; cvt.f64.f32 %fd10, %f1; mov.b64 %rd10, %fd10;", |a, _, _| {
        let value = f64::from(f32::from_bits(a as u32).abs());
        if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
    });
    check64("cvt.rn.f64.s64 %fd10, %rd1; mov.b64 %rd10, %fd10;", |a, _, _| (a as i64 as f64).to_bits());
    check64("cvt.rn.f32.u64 %f10, %rd1; mov.b32 %r10, %f10; cvt.u64.u32 %rd10, %r10;", |a, _, _| {
        u64::from((a as f32).to_bits())
    });
    check32("cvt.sat.u8.s32 %r10, %r1;", |a, _, _| (a as i32).clamp(0, 255) as u32);
}

#[test]
fn pairs_of_halves() {
    let halves = |a: u32| [f16::from_bits(a as u16).to_f64(), f16::from_bits((a >> 16) as u16).to_f64()];
    let check = |body: &str, expected: &dyn Fn(f64, f64, f64) -> f64| {
        for seed in 1..5 {
            let operands = [corners(seed), corners(seed + 10), corners(seed + 20)];
            for (lane, &ours) in lanes(body, &operands, false).iter().enumerate() {
                let [a, b, c] = operands.map(|operand| halves(operand[lane] as u32));
                for half in 0..2 {
                    let exact = expected(a[half], b[half], c[half]);
                    let ours = f16::from_bits((ours >> (16 * half)) as u16);
                    let right = ours.is_nan() && exact.is_nan() || ours == f16::from_f64(exact);
                    assert!(right, "{body} of {}, {}, {}: {ours} is not {exact}", a[half], b[half], c[half]);
                }
            }
        }
    };
    // Sums and products of f16 are exact in f64.
    check("add.f16x2 %r10, %r1, %r2;", &|a, b, _| a + b);
    check("mul.f16x2 %r10, %r1, %r2;", &|a, b, _| a * b);
    check("neg.f16x2 %r10, %r1;", &|a, _, _| -a);
    check("max.f16x2 %r10, %r1, %r2;", &|a, b, _| a.max(b));
    check("fma.rn.f16x2 %r10, %r1, %r2, %r3;", &|a, b, c| a.mul_add(b, c));
}

#[test]
fn approximations_are_within_their_bounds() {
    let inputs: [u64; 32] = std::array::from_fn(|i| u64::from((0.05f32 + i as f32 * 0.37).to_bits()));
    let check = |body: &str, exact: &dyn Fn(f64) -> f64, bound: f64| {
        let results = lanes(&format!("{body} mov.b32 %r10, %f10;"), &[inputs], false);
        for (&input, ours) in inputs.iter().zip(results) {
            let x = f64::from(f32::from_bits(input as u32));
            let (ours, exact) = (f64::from(f32::from_bits(ours as u32)), exact(x));
            assert!((ours - exact).abs() <= bound * exact.abs().max(1e-3), "{body} of {x}: {ours}, {exact}");
        }
    };
    check("ex2.approx.ftz.f32 %f10, %f1;", &|x| x.exp2(), 2.0f64.powi(-22));
    check("lg2.approx.f32 %f10, %f1;", &|x| x.log2(), 2.0f64.powi(-22));
    check("rcp.approx.f32 %f10, %f1;", &|x| 1.0 / x, 2.0f64.powi(-23));
    check("rsqrt.approx.f32 %f10, %f1;", &|x| 1.0 / x.sqrt(), 2.0f64.powi(-22));
    check("sqrt.approx.f32 %f10, %f1;", &|x| x.sqrt(), 2.0f64.powi(-23));
    check("tanh.approx.f32 %f10, %f1;", &|x| x.tanh(), 2.0f64.powi(-11));
}

#[test]
fn lanes_tell_each_other() {
    let values: [u64; 32] = std::array::from_fn(|i| (i * i) as u64);
    let run = |body: &str| lanes(body, &[values], false);
    let by = |f: &dyn Fn(usize) -> usize| (0..32).map(|i| values[f(i)]).collect::<Vec<u64>>();
    assert_eq!(run("shfl.sync.bfly.b32 %r10, %r1, 5, 31, -1;"), by(&|i| i ^ 5));
    assert_eq!(run("shfl.sync.up.b32 %r10, %r1, 3, 0, -1;"), by(&|i| if i < 3 { i } else { i - 3 }));
    assert_eq!(run("shfl.sync.down.b32 %r10, %r1, 3, 31, -1;"), by(&|i| if i > 28 { i } else { i + 3 }));
    // Segments of eight lanes.
    assert_eq!(run("shfl.sync.idx.b32 %r10, %r1, 2, 0x181f, -1;"), by(&|i| i / 8 * 8 + 2));
    let odd = (0..32).filter(|i| i * i % 3 == 0).fold(0u64, |all, i| all | 1 << i);
    assert_eq!(
        run("rem.u32 %r11, %r1, 3; setp.eq.u32 %p1, %r11, 0; vote.sync.ballot.b32 %r10, %p1, -1;"),
        [odd; 32]
    );
    assert_eq!(run("redux.sync.add.u32 %r10, %r1, -1;"), [(0..32).map(|i| i * i).sum::<u64>(); 32]);
    assert_eq!(run("redux.sync.max.u32 %r10, %r1, -1;"), [961; 32]);
    let same = |i: usize| (0..32).filter(|j| j % 4 == i % 4).fold(0u64, |all, j| all | 1 << j);
    assert_eq!(
        run("and.b32 %r11, %laneid, 3; match.any.sync.b32 %r10, %r11, -1;"),
        (0..32).map(same).collect::<Vec<_>>()
    );
    assert_eq!(run("elect.sync %r10|%p1, -1; selp.u32 %r10, 1, 0, %p1;")[..2], [1, 0]);
    // Lanes that went different ways, and met again.
    let parted = run(
        "setp.lt.u32 %p1, %r20, 10; mov.u32 %r10, 0; @%p1 bra low; add.u32 %r10, %r10, 100; bra meet;
         low: add.u32 %r10, %r10, 1; meet: activemask.b32 %r11; popc.b32 %r11, %r11; add.u32 %r10, %r10, %r11;",
    );
    assert_eq!(parted, (0..32).map(|i| if i < 10 { 33 } else { 132 }).collect::<Vec<u64>>());
    // As many rounds as the lane's number.
    let rounds = run(
        "mov.u32 %r10, 0; again: setp.ge.u32 %p1, %r10, %r20; @%p1 bra over; add.u32 %r10, %r10, 1; bra again; over:",
    );
    assert_eq!(rounds, (0..32).collect::<Vec<u64>>());
}

/// A warp's product of random matrices, each operand where PTX says that threads hold it.
fn warp_product(
    shape: (usize, usize, usize),
    kinds: &str,
    each: usize,
    encode: &dyn Fn(f32) -> u32,
    sum_is_integer: bool,
) {
    let (m, n, k) = shape;
    let scale = |values: Vec<f32>| -> Vec<f32> {
        values
            .iter()
            .map(|v| if sum_is_integer { (v * 100.0).round() } else { (v * 8.0).round() / 8.0 })
            .collect()
    };
    let (a, b, c) = (scale(random(m * k, 1)), scale(random(n * k, 2)), scale(random(m * n, 3)));
    let bits = 32 / each as u32;
    let (a_count, b_count, c_count) = (m * k / each / 32, n * k / each / 32, m * n / 32);
    // The fragments as the PTX manual draws them.
    let mut words = vec![0u32; 32 * (a_count + b_count + c_count)];
    for lane in 0..32 {
        let (group, thread) = (lane / 4, lane % 4);
        for r in 0..a_count {
            let row = group + if m == 16 { 8 * (r % 2) } else { 0 };
            let column = each * thread + 4 * each * if m == 16 { r / 2 } else { r };
            for i in 0..each {
                words[r * 32 + lane] |= encode(a[row * k + column + i]) << (bits * i as u32);
            }
        }
        for r in 0..b_count {
            let depth = each * thread + 4 * each * r;
            for i in 0..each {
                words[(a_count + r) * 32 + lane] |= encode(b[group * k + depth + i]) << (bits * i as u32);
            }
        }
        for r in 0..c_count {
            let value = c[(group + 8 * (r / 2)) * n + 2 * thread + r % 2];
            words[(a_count + b_count + r) * 32 + lane] =
                if sum_is_integer { value as i32 as u32 } else { value.to_bits() };
        }
    }
    let list = |first: usize, count: usize| {
        (first..first + count).map(|i| format!("%r{}", i + 1)).collect::<Vec<_>>().join(", ")
    };
    let loads: String = (0..a_count + b_count + c_count)
        .map(|i| format!("ld.global.u32 %r{}, [%rd1+{}];\n", i + 1, 128 * i))
        .collect();
    let stores: String =
        (0..c_count).map(|i| format!("st.global.u32 [%rd2+{}], %r{};\n", 128 * i, 50 + i)).collect();
    let results = (50..50 + c_count).map(|i| format!("%r{i}")).collect::<Vec<_>>().join(", ");
    let ptx = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y) {{
        .reg .b32 %r<60>; .reg .b64 %rd<9>;
        ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mov.u32 %r0, %tid.x; mul.wide.u32 %rd3, %r0, 4;
        add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
        {loads}
        mma.sync.aligned.m{m}n{n}k{k}.row.col.{kinds} {{{results}}}, {{{}}}, {{{}}}, {{{}}};
        {stores} ret; }}",
        list(0, a_count),
        list(a_count, b_count),
        list(a_count + b_count, c_count),
    );
    let mut bench = Bench::new(&ptx, "90a");
    let x = bench.words(&words);
    let y = bench.simulator.allocate(128 * c_count).unwrap();
    let report = bench.clean_launch(&LaunchConfig::new(1, 32, vec![Argument::U64(x), Argument::U64(y)]));
    assert_eq!(report.counters.matrix_flops, 2 * (m * n * k) as u64);
    let out = bench.read_words(y, 32 * c_count);
    for lane in 0..32 {
        for r in 0..c_count {
            let (row, column) = (lane / 4 + 8 * (r / 2), 2 * (lane % 4) + r % 2);
            let dot: f64 = (0..k).map(|i| f64::from(a[row * k + i]) * f64::from(b[column * k + i])).sum();
            let exact = dot + f64::from(c[row * n + column]);
            let bits = out[r * 32 + lane];
            let ours = if sum_is_integer { f64::from(bits as i32) } else { f64::from(f32::from_bits(bits)) };
            // The numbers are multiples of 1/64 whose sums an f32 holds.
            assert_eq!(ours, exact, "m{m}n{n}k{k} {kinds}: row {row}, column {column}");
        }
    }
}

#[test]
fn products_of_a_warp() {
    let half = |x: f32| u32::from(f16::from_f32(x).to_bits());
    let brain = |x: f32| u32::from(bf16::from_f32(x).to_bits());
    warp_product((16, 8, 8), "f32.f16.f16.f32", 2, &half, false);
    warp_product((16, 8, 16), "f32.f16.f16.f32", 2, &half, false);
    warp_product((16, 8, 8), "f32.bf16.bf16.f32", 2, &brain, false);
    warp_product((16, 8, 16), "f32.bf16.bf16.f32", 2, &brain, false);
    warp_product((16, 8, 4), "f32.tf32.tf32.f32", 1, &|x| x.to_bits(), false);
    warp_product((16, 8, 8), "f32.tf32.tf32.f32", 1, &|x| x.to_bits(), false);
    let byte = |x: f32| u32::from(x as i8 as u8);
    warp_product((8, 8, 16), "s32.s8.s8.s32", 4, &byte, true);
    warp_product((16, 8, 16), "s32.s8.s8.s32", 4, &byte, true);
    warp_product((16, 8, 32), "s32.s8.s8.s32", 4, &byte, true);
    // Eighths up to one are exact in both 8-bit formats: two of four bits, three of three.
    let small = |x: f32, fraction: u32, bias: i32| {
        if x == 0.0 {
            return 0;
        }
        let exponent = x.abs().log2().floor() as i32;
        let significand = (x.abs() / 2f32.powi(exponent) * (1 << fraction) as f32) as u32;
        u32::from(x < 0.0) << 7 | ((exponent + bias) as u32) << fraction | significand & ((1 << fraction) - 1)
    };
    warp_product((16, 8, 32), "f32.e4m3.e4m3.f32", 4, &|x| small(x, 3, 7), false);
    warp_product((16, 8, 16), "f32.e4m3.e4m3.f32", 4, &|x| small(x, 3, 7), false);
}

/// A module whose code names no variable runs on a device that it was not loaded to; one that does is bound to its own.
#[test]
fn code_without_variables_runs_on_any_device() {
    let load = |place: &str| {
        let ptx = format!(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.global .align 4 .u32 v = 7;
            .visible .entry k(.param .u64 y) {{
            .reg .b32 %r<2>; .reg .b64 %rd<2>;
            ld.param.u64 %rd0, [y]; mov.u64 %rd1, {place}; ld.global.u32 %r0, [%rd1]; st.global.u32 [%rd0], %r0; ret; }}"
        );
        Bench::new(&ptx, "90a").module
    };
    assert!(!load("v").is_portable());
    let module = load("%rd0");
    assert!(module.is_portable());
    let mut other = Simulator::new(profile("90a"));
    let y = other.upload(&[1, 0, 0, 0]).unwrap();
    let report = other.launch(&module, "k", &LaunchConfig::new(1, 1, vec![Argument::U64(y)])).unwrap();
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
}
