//! Directed rounding in f64 and f32 against arithmetic on whole numbers of 128 bits.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::{Argument, LaunchConfig, Module};
use support::{Bench, random};

/// Runs an instruction on three f64 a lane, `%fd1` to `%fd3`; the result is `%fd0`.
fn lanes(body: &str, operands: &[[f64; 3]]) -> Vec<f64> {
    let text = format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y) {{
        .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<9>; .reg .f64 %fd<9>;
        ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 24;
        add.s64 %rd1, %rd1, %rd3; mul.wide.u32 %rd3, %r1, 8; add.s64 %rd2, %rd2, %rd3;
        ld.global.f64 %fd1, [%rd1]; ld.global.f64 %fd2, [%rd1+8]; ld.global.f64 %fd3, [%rd1+16];
        {body}
        st.global.f64 [%rd2], %fd0; ret; }}"
    );
    let mut bench = Bench::new(&text, "90");
    let bytes: Vec<u8> = operands.as_flattened().iter().flat_map(|value| value.to_le_bytes()).collect();
    let x = bench.simulator.upload(&bytes).unwrap();
    let y = bench.simulator.allocate(8 * operands.len()).unwrap();
    let threads = operands.len() as u32;
    bench.clean_launch(&LaunchConfig::new(1, threads, vec![Argument::U64(x), Argument::U64(y)]));
    let mut out = vec![0; 8 * operands.len()];
    bench.simulator.copy_out(y, &mut out).unwrap();
    out.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

const MODES: [&str; 4] = ["rn", "rz", "rm", "rp"];

/// A whole number times 2^place, rounded to 53 digits.
fn rounded(exact: i128, place: i32, mode: &str) -> f64 {
    let magnitude = exact.unsigned_abs();
    let excess = (128 - magnitude.leading_zeros()).saturating_sub(53);
    let (kept, rest) = (magnitude >> excess, magnitude & ((1 << excess) - 1));
    let half = if excess == 0 { 1 } else { 1 << (excess - 1) };
    let up = match mode {
        "rn" => rest > half || rest == half && excess > 0 && kept & 1 == 1,
        "rz" => false,
        "rm" => rest != 0 && exact < 0,
        _ => rest != 0 && exact > 0,
    };
    let value = (kept + u128::from(up)) as f64 * 2f64.powi(place + excess as i32);
    if exact < 0 { -value } else { value }
}

/// Numbers of up to 53 digits: a whole number, times 2^place.
fn numbers(seed: u64, place: i32) -> Vec<i64> {
    let (high, low) = (random(256, seed), random(256, seed + 100));
    (0..256)
        .map(|i| {
            let value = (f64::from(high[i]) * 2f64.powi(place)) as i64 + (f64::from(low[i]) * 1e6) as i64;
            if value == 0 { 1 } else { value }
        })
        .collect()
}

#[test]
fn sums_and_products_of_f64() {
    let (a, b, c) = (numbers(1, 51), numbers(2, 49), numbers(3, 50));
    // Sums of numbers that are up to 2^40 apart, products of more digits than an f64 has, and sums that cancel.
    let operands: Vec<[f64; 3]> = (0..256)
        .map(|i| {
            [
                a[i] as f64,
                b[i] as f64 * 2f64.powi(-(i as i32 % 40)),
                c[i] as f64 * 2f64.powi(i as i32 % 50 - 40),
            ]
        })
        .collect();
    for mode in MODES {
        let shift = |i: usize| i as i32 % 40;
        let check = |body: &str, exact: &dyn Fn(usize) -> (i128, i32)| {
            for (i, ours) in lanes(body, &operands).into_iter().enumerate() {
                let (value, place) = exact(i);
                let expected = rounded(value, place, mode);
                assert_eq!(ours, expected, "{body} of {:?}: {ours:e}", operands[i]);
            }
        };
        check(&format!("add.{mode}.f64 %fd0, %fd1, %fd2;"), &|i| {
            ((i128::from(a[i]) << shift(i)) + i128::from(b[i]), -shift(i))
        });
        check(&format!("sub.{mode}.f64 %fd0, %fd1, %fd2;"), &|i| {
            ((i128::from(a[i]) << shift(i)) - i128::from(b[i]), -shift(i))
        });
        check(&format!("mul.{mode}.f64 %fd0, %fd1, %fd2;"), &|i| {
            (i128::from(a[i]) * i128::from(b[i]), -shift(i))
        });
        check(&format!("mul.{mode}.f64 %fd4, %fd2, %fd2; fma.{mode}.f64 %fd0, %fd1, %fd2, %fd2;"), &|i| {
            (i128::from(a[i]) * i128::from(b[i]) + i128::from(b[i]), -shift(i))
        });
        // The product's error, exactly: a · b − (a · b, rounded).
        check(
            &format!(
                "mul.{mode}.f64 %fd4, %fd1, %fd2; neg.f64 %fd4, %fd4; fma.{mode}.f64 %fd0, %fd1, %fd2, %fd4;"
            ),
            &|i| {
                let exact = i128::from(a[i]) * i128::from(b[i]);
                let near = rounded(exact, 0, mode);
                let error = exact - near as i128;
                if error == 0 { (0, 0) } else { (error, -shift(i)) }
            },
        );
    }
}

#[test]
fn quotients_and_roots_of_f64() {
    let (a, b) = (numbers(4, 52), numbers(5, 30));
    let operands: Vec<[f64; 3]> = (0..256).map(|i| [a[i] as f64, b[i] as f64, (a[i] as f64).abs()]).collect();
    let quotients = MODES.map(|mode| lanes(&format!("div.{mode}.f64 %fd0, %fd1, %fd2;"), &operands));
    let inverses = MODES.map(|mode| lanes(&format!("rcp.{mode}.f64 %fd0, %fd2;"), &operands));
    let roots = MODES.map(|mode| lanes(&format!("sqrt.{mode}.f64 %fd0, %fd3;"), &operands));
    // A result as a whole number times 2^-place.
    let whole = |value: f64| {
        let place = 52 - ((value.abs().to_bits() >> 52) as i32 - 1023);
        ((value * 2f64.powi(place)) as i128, place as u32)
    };
    for i in 0..256 {
        let enclosed = |[near, zero, down, up]: [f64; 4], sign: &dyn Fn(f64) -> i128, what: &str| {
            // Down is not above the exact result, up is not below it, and no number lies between them.
            assert!(sign(down) >= 0 && sign(up) <= 0, "{what} of {:?}: {down:e}, {up:e}", operands[i]);
            assert!(up == down && sign(up) == 0 || up == down.next_up(), "{what}: {down:e}, {up:e}");
            assert_eq!(zero, if up > 0.0 { down } else { up });
            assert!(near == down || near == up);
        };
        // The sign of exact − result, times b.
        let of_quotient = |a: i64, b: i64| {
            move |result: f64| {
                let (digits, place) = whole(result);
                // Both sides have fewer than 100 bits.
                let left = (i128::from(a) << place) - digits * i128::from(b);
                left.signum() * i128::from(b.signum())
            }
        };
        enclosed(quotients.each_ref().map(|all| all[i]), &of_quotient(a[i], b[i]), "quotient");
        let near = 1.0 / b[i] as f64;
        assert_eq!(inverses[0][i], near);
        let error = near.mul_add(-(b[i] as f64), 1.0) * (b[i] as f64).signum();
        let up = if error > 0.0 { near.next_up() } else { near };
        let down = if error < 0.0 { near.next_down() } else { near };
        assert_eq!((inverses[2][i], inverses[3][i]), (down, up));
        let of_root = |result: f64| {
            let (digits, place) = whole(result);
            // a − r²; r has 27 digits before the point and 26 after it.
            let square = digits.unsigned_abs() * digits.unsigned_abs();
            let a = u128::from(a[i].unsigned_abs()) << (2 * place);
            if a > square {
                1
            } else if a < square {
                -1
            } else {
                0
            }
        };
        enclosed(roots.each_ref().map(|all| all[i]), &of_root, "root");
    }
}

#[test]
fn corners_of_f64() {
    let (least, most) = (f64::from_bits(1), f64::MAX);
    let one = |body: &str, operands: [f64; 3]| lanes(body, &[operands])[0];
    let all = |op: &str, operands: [f64; 3]| MODES.map(|mode| one(&op.replace("MODE", mode), operands));
    let infinity = f64::INFINITY;
    let add = "add.MODE.f64 %fd0, %fd1, %fd2;";
    let mul = "mul.MODE.f64 %fd0, %fd1, %fd2;";
    let div = "div.MODE.f64 %fd0, %fd1, %fd2;";
    assert_eq!(all(add, [most, most, 0.0]), [infinity, most, most, infinity]);
    assert_eq!(all(add, [-most, -most, 0.0]), [-infinity, -most, -infinity, -most]);
    assert_eq!(all(mul, [least, 0.5, 0.0]), [0.0, 0.0, 0.0, least]);
    assert_eq!(all(mul, [least, -0.25, 0.0]), [0.0, 0.0, -least, 0.0]);
    assert_eq!(all(mul, [1e300, -1e300, 0.0]), [-infinity, -most, -infinity, -most]);
    assert_eq!(all(div, [least, 3.0, 0.0]), [0.0, 0.0, 0.0, least]);
    assert_eq!(all(div, [most, least, 0.0]), [infinity, most, most, infinity]);
    assert_eq!(all(div, [1.0, 0.0, 0.0]), [infinity; 4]);
    assert_eq!(all(add, [1.0, least, 0.0]), [1.0, 1.0, 1.0, 1.0f64.next_up()]);
    // Exact zeros: positive, except downwards.
    assert_eq!(all(add, [1.5, -1.5, 0.0]).map(f64::to_bits), [0, 0, 1 << 63, 0]);
    assert_eq!(all(mul, [-0.0, 3.0, 0.0]).map(f64::to_bits), [1 << 63; 4]);
    assert_eq!(all(add, [-0.0, -0.0, 0.0]).map(f64::to_bits), [1 << 63; 4]);
    assert_eq!(all("fma.MODE.f64 %fd0, %fd1, %fd2, %fd3;", [most, 2.0, -infinity]), [-infinity; 4]);
    assert!(all(add, [infinity, -infinity, 0.0]).iter().all(|value| value.is_nan()));
    assert!(all("sqrt.MODE.f64 %fd0, %fd1;", [-1.0, 0.0, 0.0]).iter().all(|value| value.is_nan()));
}

/// Only the upper 32 bits of operands and results count, and subnormals are zero.
#[test]
fn gross_approximations_of_f64() {
    let operands: Vec<[f64; 3]> =
        numbers(6, 40).iter().map(|&value| [(value.abs() as f64).sqrt(), 0.0, 0.0]).collect();
    for (op, exact) in [("rcp", (|x: f64| 1.0 / x) as fn(f64) -> f64), ("rsqrt", |x: f64| 1.0 / x.sqrt())] {
        for (ours, [x, ..]) in
            lanes(&format!("{op}.approx.ftz.f64 %fd0, %fd1;"), &operands).into_iter().zip(&operands)
        {
            assert_eq!(ours.to_bits() & 0xffff_ffff, 0);
            assert!((ours / exact(*x) - 1.0).abs() < 2f64.powi(-19), "{op} of {x}: {ours}");
        }
    }
    let rcp = |x: f64| lanes("rcp.approx.ftz.f64 %fd0, %fd1;", &[[x, 0.0, 0.0]])[0];
    let rsqrt = |x: f64| lanes("rsqrt.approx.ftz.f64 %fd0, %fd1;", &[[x, 0.0, 0.0]])[0];
    assert_eq!((rcp(1e-310), rcp(-0.0), rcp(f64::NEG_INFINITY)), (f64::INFINITY, f64::NEG_INFINITY, 0.0));
    assert_eq!((rcp(f64::MAX), rsqrt(1e-310), rsqrt(f64::INFINITY)), (0.0, f64::INFINITY, 0.0));
    assert!(rcp(f64::NAN).is_nan() && rsqrt(-1.0).is_nan());
}

/// A gross approximation is not defined to the bit; directed rounding is.
#[test]
fn what_is_approximate_is_listed() {
    for (body, exact) in [("rcp.approx.ftz.f64 %fd0, %fd1;", false), ("add.rz.f64 %fd0, %fd1, %fd2;", true)] {
        let text = format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k() {{ .reg .f64 %fd<9>; {body} ret; }}"
        );
        let module = Module::load(&mut kinora_ptx::Simulator::new(support::profile("90")), &text).unwrap();
        assert_eq!(module.rounding_latitude("k").unwrap().is_bit_exact(), exact, "{body}");
    }
}
