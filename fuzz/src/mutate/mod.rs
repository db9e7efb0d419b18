//! Changes that leave an input almost good, so that what is behind a parser is reached too.

mod json;
mod lines;
mod random;

use crate::Shape;
use random::Random;

/// Changes the input in the first `size` bytes of `data`, and returns its new size. Every other time, and whenever the input
/// does not have the shape, `anything` changes it: the fuzzer's own way.
pub fn mutate(
    shape: Shape,
    data: &mut [u8],
    size: usize,
    seed: u32,
    anything: impl FnOnce(&mut [u8], usize) -> usize,
) -> usize {
    let mut random = Random::new(seed);
    let input = data.get(..size).unwrap_or_default();
    let changed = match shape {
        _ if random.below(2) == 0 => None,
        Shape::Bytes => None,
        Shape::Json => json::change(input, &mut random),
        Shape::Lines => lines::change(input, &mut random),
        Shape::Safetensors => change_header(input, &mut random),
    };
    match changed {
        Some(changed) if changed.len() <= data.len() => {
            data[..changed.len()].copy_from_slice(&changed);
            changed.len()
        }
        _ => anything(data, size),
    }
}

/// Changes the JSON of a safetensors file; the length in front of it becomes the new one, most of the time.
fn change_header(file: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let (length, rest) = file.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (header, numbers) = rest.split_at_checked(length)?;
    let header = json::change(header, random)?;
    let length = match random.below(16) {
        0 => random.hostile_integer(),
        _ => header.len() as u64,
    };
    Some([&length.to_le_bytes(), header.as_slice(), numbers].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(shape: Shape, input: &[u8], seed: u32) -> Vec<u8> {
        let mut data = vec![0; 4096];
        data[..input.len()].copy_from_slice(input);
        let size = mutate(shape, &mut data, input.len(), seed, |_, size| size);
        data[..size].to_vec()
    }

    /// A change of JSON is JSON again, and most seeds change something.
    #[test]
    fn json_stays_json() {
        let input = br#"{"a": [1, 2.5, {"b": null}], "c": "text", "d": {}}"#;
        let results: Vec<_> = (0..1000).map(|seed| changed(Shape::Json, input, seed)).collect();
        for result in &results {
            serde_json::from_slice::<serde_json::Value>(result)
                .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(result)));
        }
        assert!(results.iter().filter(|result| result.as_slice() != input).count() > 300);
    }

    #[test]
    fn a_changed_header_has_its_length_in_front() {
        let header = br#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
        let input = [&(header.len() as u64).to_le_bytes(), header.as_slice(), &[1, 2, 3, 4]].concat();
        let consistent = |file: &[u8]| {
            let length = u64::from_le_bytes(file[..8].try_into().unwrap());
            length.checked_add(12) == Some(file.len() as u64) && file.ends_with(&[1, 2, 3, 4])
        };
        let results: Vec<_> = (0..1000).map(|seed| changed(Shape::Safetensors, &input, seed)).collect();
        assert!(results.iter().filter(|&file| *file != input && consistent(file)).count() > 300);
        assert!(results.iter().any(|file| !consistent(file)));
    }

    #[test]
    fn what_does_not_have_the_shape_is_left_to_the_fuzzer() {
        for shape in [Shape::Bytes, Shape::Json, Shape::Safetensors] {
            for seed in 0..100 {
                assert_eq!(changed(shape, b"\xff{", seed), b"\xff{");
            }
        }
    }

    #[test]
    fn lines_are_moved_and_words_replaced() {
        let input = b"mov.u32 %r1, 4;\nadd.s32 %r2, %r1, %r1;\nret;\n";
        let results: Vec<_> = (0..1000).map(|seed| changed(Shape::Lines, input, seed)).collect();
        assert!(results.iter().filter(|result| result.as_slice() != input).count() > 300);
        assert!(results.iter().any(|result| result.starts_with(b"add")));
    }
}
