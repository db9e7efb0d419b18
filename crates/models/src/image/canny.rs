//! Canny's edge detector, equal to `cv2.Canny` in every pixel (Canny 1986).

use super::{CHANNELS, RgbImage};

/// tan 22.5° with 15 binary digits after the point: what tells a slanted gradient from a level one.
const TAN_22: i64 = 13_573;
const POINT: u32 = 15;

/// The brightness change along both axes at a pixel.
#[derive(Clone, Copy, Default)]
struct Gradient {
    x: i32,
    y: i32,
}

impl Gradient {
    /// The sum of the magnitudes along both axes.
    fn magnitude(self) -> i32 {
        self.x.abs() + self.y.abs()
    }
}

impl RgbImage {
    /// The image's edges in white on black, as a ControlNet for edges reads them.
    ///
    /// A pixel is part of an edge if the brightness changes there by more than `low`, and more than on either side; and if
    /// it is joined, over such pixels, to one where it changes by more than `high`. Changes are sums over 3×3 pixels by
    /// Sobel's filter, in the channel in which they are largest. They go up to 2040; 100 and 200 are usual. Nothing is
    /// smoothed before. If `low` is above `high`, they change places.
    pub fn canny(&self, low: u16, high: u16) -> RgbImage {
        let (low, high) = (i32::from(low.min(high)), i32::from(low.max(high)));
        let gradients: Vec<Gradient> = (0..self.height)
            .flat_map(|y| (0..self.width).map(move |x| (x, y)))
            .map(|(x, y)| self.gradient(x, y))
            .collect();
        let field = Field { gradients, width: self.width, height: self.height };
        let mut kinds = vec![Kind::Flat; self.width * self.height];
        let mut open = Vec::new();
        for y in 0..self.height {
            for x in 0..self.width {
                let at = y * self.width + x;
                let magnitude = field.gradients[at].magnitude();
                if magnitude > low && field.is_ridge(x, y) {
                    kinds[at] = Kind::Weak;
                    if magnitude > high {
                        kinds[at] = Kind::Edge;
                        open.push((x, y));
                    }
                }
            }
        }
        while let Some((x, y)) = open.pop() {
            for ny in y.saturating_sub(1)..(y + 2).min(self.height) {
                for nx in x.saturating_sub(1)..(x + 2).min(self.width) {
                    let kind = &mut kinds[ny * self.width + nx];
                    if *kind == Kind::Weak {
                        *kind = Kind::Edge;
                        open.push((nx, ny));
                    }
                }
            }
        }
        let bytes = kinds.into_iter().flat_map(|kind| [if kind == Kind::Edge { 255 } else { 0 }; CHANNELS]);
        RgbImage { width: self.width, height: self.height, bytes: bytes.collect() }
    }

    /// Sobel's gradient at a pixel, of the channel in which it is largest; beyond its border the image goes on as it ends.
    fn gradient(&self, x: usize, y: usize) -> Gradient {
        let columns = [x.saturating_sub(1), x, (x + 1).min(self.width - 1)];
        let rows = [y.saturating_sub(1), y, (y + 1).min(self.height - 1)].map(|y| self.row(y));
        let of_channel = |channel: usize| {
            let at = |row: usize, column: usize| i32::from(rows[row][columns[column]][channel]);
            let column = |column| at(0, column) + 2 * at(1, column) + at(2, column);
            let row = |row| at(row, 0) + 2 * at(row, 1) + at(row, 2);
            Gradient { x: column(2) - column(0), y: row(2) - row(0) }
        };
        // Of equal ones the first.
        let larger = |a: Gradient, b: Gradient| if b.magnitude() > a.magnitude() { b } else { a };
        (0..CHANNELS).map(of_channel).reduce(larger).unwrap_or_default()
    }
}

/// What a pixel is to an edge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flat,
    /// Part of one if it is joined to one.
    Weak,
    Edge,
}

/// The gradients of an image.
struct Field {
    gradients: Vec<Gradient>,
    width: usize,
    height: usize,
}

impl Field {
    /// The magnitude beside a pixel; 0 outside the image.
    fn beside(&self, x: usize, y: usize, [dx, dy]: [isize; 2]) -> i32 {
        let x = x.checked_add_signed(dx).filter(|&x| x < self.width);
        let y = y.checked_add_signed(dy).filter(|&y| y < self.height);
        x.zip(y).map_or(0, |(x, y)| self.gradients[y * self.width + x].magnitude())
    }

    /// Whether the gradient is larger than on both sides of it, along its direction to the nearest eighth of a turn.
    fn is_ridge(&self, x: usize, y: usize) -> bool {
        let gradient = self.gradients[y * self.width + x];
        let magnitude = gradient.magnitude();
        let across = i64::from(gradient.x.abs());
        let (down, level) = (i64::from(gradient.y.abs()) << POINT, across * TAN_22);
        // tan 67.5° is tan 22.5° + 2.
        let upright = level + (across << (POINT + 1));
        let side = |step| self.beside(x, y, step);
        if down < level {
            magnitude > side([-1, 0]) && magnitude >= side([1, 0])
        } else if down > upright {
            magnitude > side([0, -1]) && magnitude >= side([0, 1])
        } else {
            let slant = if (gradient.x < 0) == (gradient.y < 0) { 1 } else { -1 };
            magnitude > side([-slant, -1]) && magnitude > side([slant, 1])
        }
    }
}
