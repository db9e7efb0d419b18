//! The approximate functions of the special-function unit.
//!
//! The hardware interpolates in tables that are not published, so results agree within a few units in the last place, not to the bit.
//! PTX guarantees an error of at most 2 ulp for `ex2`, 2^-22 for `lg2` (absolute, near 1), 1 ulp for `rcp`, 2^-22.9 for `rsqrt`
//! (relative), 2^-23 for `sqrt.approx`, 2^-20.5 for `sin` and `cos` (absolute, within ±π) and 2^-11 for `tanh` (relative). Here `rcp`,
//! `rsqrt` and `sqrt` are correctly rounded, `ex2` is within 1.2 ulp, and the others are within 1 ulp.

/// 2 to the power of x, within 1.2 ulp; branchless, so that it vectorises.
#[inline(always)]
pub(crate) fn exp2(x: f32) -> f32 {
    let clamped = x.clamp(-151.0, 129.0);
    let whole = (clamped + 12_582_912.0) - 12_582_912.0;
    let f = clamped - whole;
    // The series of 2^f for |f| <= 1/2; the first omitted term is below 2^-28.
    let mut p = 1.525_273_4e-5_f32;
    p = p * f + 1.540_353e-4;
    p = p * f + 1.333_355_8e-3;
    p = p * f + 9.618_129e-3;
    p = p * f + 5.550_411e-2;
    p = p * f + 0.240_226_5;
    p = p * f + std::f32::consts::LN_2;
    p = p * f + 1.0;
    // Two steps, since the power alone may be subnormal or infinite.
    let n = whole as i32;
    let half = n >> 1;
    let scale = |e: i32| f32::from_bits(((e + 127) as u32) << 23);
    let result = p * scale(half) * scale(n - half);
    if x.is_nan() { f32::from_bits(0x7fff_ffff) } else { result }
}

/// The logarithm to base 2.
#[inline(always)]
pub(crate) fn log2(x: f32) -> f32 {
    f64::from(x).log2() as f32
}

/// Sine or cosine of an angle.
#[inline(always)]
pub(crate) fn sine_cosine(x: f32, cosine: bool) -> f32 {
    let x = f64::from(x);
    (if cosine { x.cos() } else { x.sin() }) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp2_is_more_exact_than_the_hardware_promises() {
        let mut worst = 0.0f64;
        for i in -1_500_000..1_280_000 {
            let x = i as f32 / 10_000.0;
            let exact = f64::from(x).exp2();
            let ulp = f64::from((exact as f32).next_up()) - f64::from(exact as f32);
            worst = worst.max((f64::from(exp2(x)) - exact).abs() / ulp);
        }
        assert!(worst <= 1.2, "{worst}");
        assert_eq!(exp2(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp2(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp2(0.0), 1.0);
        assert_eq!(exp2(3.0), 8.0);
        assert!(exp2(f32::NAN).is_nan());
    }
}
