//! Cuts: frames that have nothing to do with the one before.

/// How far a frame is from the one before at a cut, on average over its bytes, of 255. A fast pan over a detailed scene stays
/// below it.
const CUT: u64 = 40;
/// Of so many rows of bytes one is compared: a cut shows everywhere.
const ROWS: usize = 4;

/// Whether a frame begins another scene than the one before, of the same size. `row` is the number of bytes of a row.
pub(super) fn is_cut(before: &[u8], frame: &[u8], row: usize) -> bool {
    let rows = || before.chunks(row.max(1)).zip(frame.chunks(row.max(1))).step_by(ROWS);
    // Of a row in 32 bits, which processors add up four times as fast: rows have far fewer than 2²⁴ bytes.
    let apart = |(before, frame): (&[u8], &[u8])| -> u64 {
        let sum: u32 =
            before.iter().zip(frame).map(|(before, frame)| u32::from(before.abs_diff(*frame))).sum();
        sum.into()
    };
    let compared: usize = rows().map(|(before, _)| before.len()).sum();
    rows().map(apart).sum::<u64>() > CUT * compared as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_scene_is_a_cut() {
        let scene: Vec<u8> = (0..64 * 48).map(|i| (i % 200) as u8).collect();
        let brighter: Vec<u8> = scene.iter().map(|byte| byte + 40).collect();
        let far: Vec<u8> = scene.iter().map(|byte| byte + 41).collect();
        assert!(!is_cut(&scene, &scene, 48) && !is_cut(&scene, &brighter, 48));
        assert!(is_cut(&scene, &far, 48) && is_cut(&far, &scene, 48));
        // The rows that are compared count by themselves.
        let mut some = scene.clone();
        some.chunks_mut(48).skip(1).step_by(4).for_each(|row| row.fill(255));
        assert!(!is_cut(&scene, &some, 48));
        assert!(!is_cut(&[], &[], 0));
    }
}
