//! Extents and chips as the command line spells them.

use std::str::FromStr;

use kinora_ptx::ChipSpec;

/// Extents on up to three axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents(pub [u32; 3]);

/// Why extents or a chip cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// More than three extents.
    #[error("{0} axes are too many; write X, X,Y or X,Y,Z")]
    Axes(usize),
    /// Not a number.
    #[error("{0:?} is not a number of blocks or threads")]
    Number(String),
    /// Not the name of a chip.
    #[error("unknown chip; write {}", ChipSpec::NAMES.join(", "))]
    Chip,
}

impl FromStr for Extents {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let mut extents = [1; 3];
        let parts: Vec<&str> = text.split(',').collect();
        if parts.len() > 3 {
            return Err(QuantityError::Axes(parts.len()));
        }
        for (extent, part) in extents.iter_mut().zip(parts) {
            *extent = part.trim().parse().map_err(|_| QuantityError::Number(part.to_owned()))?;
        }
        Ok(Extents(extents))
    }
}

/// A chip by its name.
pub fn chip(name: &str) -> Result<ChipSpec, QuantityError> {
    ChipSpec::named(name).ok_or(QuantityError::Chip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_are_left_out_are_one() {
        assert_eq!("7".parse(), Ok(Extents([7, 1, 1])));
        assert_eq!("7, 8,9".parse(), Ok(Extents([7, 8, 9])));
        for wrong in ["", "1,2,3,4", "x", "-1", "1,,2"] {
            assert!(wrong.parse::<Extents>().is_err(), "{wrong}");
        }
        assert_eq!(chip("H200").map(|chip| chip.name), Ok("H200".to_owned()));
        assert!(chip("abacus").unwrap_err().to_string().contains("rtx4090"));
    }
}
