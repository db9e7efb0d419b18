//! Windows of three frames.

use super::*;

/// A window of three frames over clips of `frames` images of 3×2 pixels, with padding before and after each clip.
pub(super) fn clips(
    count: usize,
    frames: usize,
    channels: usize,
    [before, after]: [usize; 2],
) -> ConvGeometry {
    ConvGeometry {
        frames,
        kernel: [3, 1, 1],
        padding_before: [before, 0, 0],
        padding_after: [after, 0, 0],
        ..geometry(count * frames, [3, 2], channels, NONE)
    }
}

#[test]
fn every_length_padding_and_number_of_channels() {
    for frames in [1, 2, 3, 5, 8] {
        for padding in [[1, 1], [2, 0], [0, 0], [0, 2], [3, 2]] {
            for (channels, columns) in [(1, 1), (7, 33), (32, 32), (33, 64), (64, 33)] {
                for count in [1, 3] {
                    check::<f32, f32>(&clips(count, frames, channels, padding), columns);
                }
            }
        }
    }
}

#[test]
fn blocks_of_tiles_channels_and_columns() {
    check::<f32, f32>(&clips(2, 3, 3 * CHANNEL_BLOCK - 5, [1, 1]), 9);
    check::<f32, f32>(&clips(1, 4, 5, [1, 1]), 2 * COLUMN_BLOCK + 3);
    check::<f32, f32>(&ConvGeometry { height: 13, width: 11, ..clips(2, 5, 9, [2, 0]) }, 21);
}

#[test]
fn every_storage_type_of_input_and_output() {
    for (channels, columns) in [(32, 33), (33, 64), (64, 32)] {
        check_storage_types(&clips(2, 5, channels, [1, 1]), columns);
    }
}

/// The first of two clips is all ones, the second NaN: had a window reached over the edge, the first would show it.
#[test]
fn clips_do_not_see_each_other() {
    for padding in [[1, 1], [2, 0], [0, 2]] {
        for frames in [1, 2, 3, 5] {
            let geometry = clips(2, frames, 32, padding);
            let half = frames * 6 * 32;
            let kernels = vec![1.0f32; 3 * 32];
            for isa in Isa::available() {
                for poisoned in 0..2 {
                    let mut x = vec![1.0f32; 2 * half];
                    x[poisoned * half..][..half].fill(f32::NAN);
                    let got = convolved::<f32, f32>(isa, &x, &kernels, &geometry);
                    let clean = &got[(1 - poisoned) * frames * 6..][..frames * 6];
                    for (at, &value) in clean.iter().enumerate() {
                        let frame = at / 6;
                        let seen =
                            (0..3).filter(|tap| (padding[0]..padding[0] + frames).contains(&(frame + tap)));
                        assert_eq!(
                            value,
                            32.0 * seen.count() as f32,
                            "{isa:?} {padding:?} frame {frame} of {frames}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn the_epilogue_adds_bias_and_a_residual_in_place() {
    for frames in [1, 3, 8] {
        let (geometry, columns) = (clips(2, frames, 33, [1, 1]), 64);
        let rows = output_rows(&geometry);
        let mut random = Random::new(29);
        let x = random.vector::<f32>(rows * 33);
        let kernels = random.vector::<f32>(columns * 3 * 33);
        let (bias, residual) = (random.vector::<f32>(columns), random.vector::<f32>(rows * columns));
        let (mut want, largest) = exact(&x, &kernels, &geometry, columns);
        for (at, want) in want.iter_mut().enumerate() {
            *want += f64::from(bias[at % columns]) + f64::from(residual[at]);
        }
        let ty = TensorType::new(DType::F32, [rows, columns]);
        for isa in Isa::available() {
            let weights = weights(isa, &kernels, &geometry);
            let mut output = residual.clone();
            let memory: *mut u8 = output.as_mut_ptr().cast();
            // SAFETY: the vector is as long as the type says and outlives the views; the epilogue works in place.
            let (own, view) = unsafe { (View::new(&ty, memory), ViewMut::new(&ty, memory)) };
            let finish =
                Finish::new(view, rows, columns).bias(Cow::Borrowed(&bias)).stages(&[Stage::Add], &[own]);
            convolve(Values::F32(&x), &geometry, &weights, &finish);
            assert_close(&format!("{isa:?}"), &output, &want, largest);
        }
    }
}

#[test]
fn convolutions_that_suit() {
    let weight = |dtype, columns, channels| TensorType::new(dtype, [columns, 3, 1, 1, channels]);
    let wide = weight(DType::F32, 64, 64);
    let plain = Conv::temporal(3, 8);
    assert_eq!(Form::of(&plain, &wide), Some(Form::Frames));
    for padding in [[0, 0], [2, 0], [0, 2]] {
        let op = Conv { padding: [padding, [0; 2], [0; 2]], ..plain.clone() };
        assert_eq!(Form::of(&op, &wide), Some(Form::Frames));
    }
    assert_eq!(Form::of(&Conv::temporal(3, 2), &wide), Some(Form::Frames));
    assert_eq!(Form::of(&Conv::temporal(3, 1), &wide), None);
    assert_eq!(Form::of(&Conv { padding: [[0; 2]; 3], ..Conv::temporal(3, 3) }, &wide), None);
    assert_eq!(Form::of(&plain, &weight(DType::F16, 64, 64)), Some(Form::Frames));
    assert_eq!(Form::of(&plain, &weight(DType::F16, 640, 640)), None);
    assert_eq!(Form::of(&plain, &weight(DType::BF16, 64, 64)), None);
    assert_eq!(Form::of(&plain, &weight(DType::F32, 64, 31)), None);
    assert_eq!(Form::of(&plain, &weight(DType::F32, 31, 64)), None);
    assert_eq!(Form::of(&Conv { stride: [2, 1, 1], ..plain.clone() }, &wide), None);
    assert_eq!(Form::of(&Conv { dilation: [2, 1, 1], ..plain.clone() }, &wide), None);
    assert_eq!(Form::of(&Conv { groups: 2, ..plain.clone() }, &wide), None);
    assert_eq!(Form::of(&Conv { padding: [[1; 2], [1; 2], [0; 2]], ..plain }, &wide), None);
}

#[test]
fn memory_is_four_thirds_of_the_kernels() {
    for isa in Isa::available() {
        let kernels = vec![1.0; 64 * 3 * 40];
        let weights = WinogradWeights::new(isa, Form::Frames, Values::F32(&kernels), 64, 40)
            .expect("a type that suits");
        let bytes = WinogradWeights::bytes_of(isa, Form::Frames, DType::F32, 64, 40);
        assert_eq!(weights.bytes(), bytes, "{isa:?}");
        let least = kernels.len() * size_of::<f32>() / 3 * 4;
        assert!((least..least + 128).contains(&weights.bytes()), "{isa:?}: {} bytes", weights.bytes());
    }
}

#[test]
fn a_convolution_op_takes_this_way() {
    for (frames, padding) in [(5, [1, 1]), (8, [2, 0])] {
        let op = Conv { bias: true, padding: [padding, [0; 2], [0; 2]], ..Conv::temporal(3, frames) };
        check_op(&op, Form::Frames, &clips(2, frames, 40, padding), 72);
    }
}
