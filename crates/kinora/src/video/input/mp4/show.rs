//! What becomes of decoded pictures: upright RGB, in the order in which they are shown.

use kinora_models::image::RgbImage;

use super::{
    super::{
        Frame,
        error::{Fault, zeroed},
    },
    description::Description,
    openh264::Decoded,
    order::{Schedule, Waiting},
    sequence::Sequence,
    turn::Turn,
};
use crate::video::ycbcr::{Chroma, Colours, Picture, Place};

/// What becomes of decoded pictures.
pub(super) struct Show {
    schedule: Schedule,
    waiting: Waiting,
    turn: Turn,
    colours: Colours,
    /// Where chroma lies along a row and a column.
    places: (Place, Place),
}

impl Show {
    /// Pictures of the kind that a description says.
    pub(super) fn new(schedule: Schedule, turn: Turn, description: &Description) -> Self {
        let sequence = &description.sequence;
        let (colours, places) = (description.colours(sequence), places(sequence));
        Self { schedule, waiting: Waiting::default(), turn, colours, places }
    }

    /// From now on pictures are of another kind.
    pub(super) fn change(&mut self, description: &Description, sequence: &Sequence) {
        (self.colours, self.places) = (description.colours(sequence), places(sequence));
    }

    /// The next picture to be shown, if it is there, or if `all` have come.
    pub(super) fn next(&mut self, all: bool) -> Option<Frame> {
        self.waiting.pop(&self.schedule, all)
    }

    /// Takes a decoded picture if it is to be shown.
    pub(super) fn take(&mut self, decoded: Decoded<'_>) -> Result<(), Fault> {
        let Some(place) = self.schedule.place(decoded.stamp) else { return Ok(()) };
        let (across, down) = self.places;
        let chroma = Chroma { planes: decoded.chroma, across, down };
        let picture = Picture::new(decoded.size, decoded.luma, Some(chroma))
            .ok_or_else(|| Fault::damaged("a decoded picture is too short"))?;
        let [width, height] = decoded.size;
        let mut pixels = zeroed(RgbImage::check_size(width, height).map_err(|_| Fault::Size(decoded.size))?)?;
        picture.write_rgb(self.colours, &mut pixels);
        self.waiting.push(place, self.turn.apply(RgbImage::new(width, height, pixels)?)?);
        Ok(())
    }
}

/// Where chroma lies.
fn places(sequence: &Sequence) -> (Place, Place) {
    match sequence.chroma_place {
        1 => (Place::Between, Place::Between),
        2 => (Place::First, Place::First),
        3 => (Place::Between, Place::First),
        _ => (Place::First, Place::Between),
    }
}
