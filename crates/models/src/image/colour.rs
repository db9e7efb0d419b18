//! Colours as people write them.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};
use thiserror::Error;

use super::CHANNELS;

/// A colour: red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub [u8; CHANNELS]);

/// A text that is no colour.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} is not a colour; write white, black, or #rrggbb with two hexadecimal digits each for red, green and blue"
)]
pub struct NotAColour(String);

impl Colour {
    /// Black.
    pub const BLACK: Colour = Colour([0; CHANNELS]);
    /// White.
    pub const WHITE: Colour = Colour([255; CHANNELS]);
}

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Colour::BLACK => f.pad("black"),
            Colour::WHITE => f.pad("white"),
            Colour([red, green, blue]) => f.pad(&format!("#{red:02x}{green:02x}{blue:02x}")),
        }
    }
}

impl FromStr for Colour {
    type Err = NotAColour;

    /// `white`, `black`, `#rrggbb`, or `rrggbb`: a shell takes what follows a `#` for a comment.
    fn from_str(text: &str) -> Result<Self, NotAColour> {
        match text.to_ascii_lowercase().as_str() {
            "black" => return Ok(Colour::BLACK),
            "white" => return Ok(Colour::WHITE),
            _ => {}
        }
        let digits = text.strip_prefix('#').unwrap_or(text);
        let valid = digits.len() == 2 * CHANNELS && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        match u32::from_str_radix(digits, 16) {
            Ok(number) if valid => {
                let [_, red, green, blue] = number.to_be_bytes();
                Ok(Colour([red, green, blue]))
            }
            _ => Err(NotAColour(text.to_owned())),
        }
    }
}

impl Serialize for Colour {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_names_or_hexadecimal_digits() {
        for (text, colour) in [
            ("white", Colour::WHITE),
            ("Black", Colour::BLACK),
            ("#FF8000", Colour([255, 128, 0])),
            ("0a0b0c", Colour([10, 11, 12])),
        ] {
            assert_eq!(text.parse(), Ok(colour), "{text}");
        }
        for text in ["", "#", "red", "#fff", "#ff80000", "+f8000", "#ff80é"] {
            let message = text.parse::<Colour>().unwrap_err().to_string();
            assert!(message.contains("#rrggbb"), "{message}");
        }
        for colour in [Colour::BLACK, Colour::WHITE, Colour([1, 254, 16])] {
            assert_eq!(colour.to_string().parse(), Ok(colour));
        }
    }
}
