//! What was copied between host and device, and how fast.

use serde::Serialize;

use crate::{Direction, Profile};

/// Copies of one thing in one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Copies {
    /// What was copied.
    pub name: String,
    /// Where to.
    pub direction: Direction,
    /// How many copies there were.
    pub count: u64,
    /// Their total time.
    pub nanoseconds: u64,
    /// Their total bytes.
    pub bytes: u64,
    /// Bytes per second.
    pub bytes_per_second: f64,
}

/// Adds up the copies by what was copied, the longest total first.
pub fn copies(profile: &Profile) -> Vec<Copies> {
    let mut found: Vec<Copies> = Vec::new();
    for span in &profile.spans {
        let Some(copied) = span.copied else { continue };
        let known = found.iter().position(|of| of.name == span.name && of.direction == copied.direction);
        let place = known.unwrap_or_else(|| {
            let (name, direction) = (span.name.clone(), copied.direction);
            found.push(Copies { name, direction, count: 0, nanoseconds: 0, bytes: 0, bytes_per_second: 0.0 });
            found.len() - 1
        });
        let of = &mut found[place];
        of.count += 1;
        of.nanoseconds = of.nanoseconds.saturating_add(span.nanoseconds());
        of.bytes = of.bytes.saturating_add(copied.bytes);
    }
    for of in &mut found {
        if of.nanoseconds > 0 {
            of.bytes_per_second = of.bytes as f64 / of.nanoseconds as f64 * 1e9;
        }
    }
    found.sort_by_key(|of| std::cmp::Reverse(of.nanoseconds));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Copied, Span};

    #[test]
    fn copies_of_the_same_value_become_one() {
        let span = |name: &str, copied: Option<(Direction, u64)>, start, end| Span {
            name: name.into(),
            lane: 0,
            parent: None,
            start,
            end,
            work: None,
            copied: copied.map(|(direction, bytes)| Copied { direction, bytes }),
        };
        let spans = vec![
            span("latents", Some((Direction::ToDevice, 100)), 0, 10),
            span("weights", Some((Direction::ToDevice, 3000)), 10, 40),
            span("weights", Some((Direction::ToDevice, 5000)), 40, 90),
            span("latents", Some((Direction::FromDevice, 100)), 90, 90),
            span("step", None, 90, 900),
        ];
        let found = copies(&Profile { spans, ..Profile::default() });
        let shown: Vec<_> = found
            .iter()
            .map(|of| {
                (of.name.as_str(), of.direction, of.count, of.nanoseconds, of.bytes, of.bytes_per_second)
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("weights", Direction::ToDevice, 2, 80, 8000, 1e11),
                ("latents", Direction::ToDevice, 1, 10, 100, 1e10),
                ("latents", Direction::FromDevice, 1, 0, 100, 0.0),
            ]
        );
    }
}
