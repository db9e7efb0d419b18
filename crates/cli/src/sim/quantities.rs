//! Extents and chips as the command line has them.

use std::str::FromStr;

use kinora::ptx::Profile;

/// Extents on up to three axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents(pub [u32; 3]);

impl FromStr for Extents {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut extents = [1; 3];
        let parts: Vec<&str> = text.split(',').collect();
        if parts.len() > 3 {
            return Err("there are three axes at most: X,Y,Z".to_owned());
        }
        for (extent, part) in extents.iter_mut().zip(parts) {
            *extent = part.trim().parse().map_err(|_| format!("{part} is no number of blocks or threads"))?;
        }
        Ok(Extents(extents))
    }
}

/// A chip by its name.
pub fn chip(name: &str) -> Result<Profile, String> {
    Profile::named(name).ok_or_else(|| format!("there is {}", Profile::NAMES.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_are_not_given_are_one() {
        assert_eq!("7".parse(), Ok(Extents([7, 1, 1])));
        assert_eq!("7, 8,9".parse(), Ok(Extents([7, 8, 9])));
        for wrong in ["", "1,2,3,4", "x", "-1", "1,,2"] {
            assert!(wrong.parse::<Extents>().is_err(), "{wrong}");
        }
        assert_eq!(chip("H200").map(|profile| profile.name), Ok("H200".to_owned()));
        assert!(chip("abacus").unwrap_err().contains("rtx4090"));
    }
}
