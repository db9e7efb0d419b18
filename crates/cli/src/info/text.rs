//! What is known about a model, for people.

use std::fmt;

use kinora::image_to_video::Settings;

use super::{
    Info,
    contents::{Contents, PartContents},
    memory::{Length, MemoryTable},
};
use crate::quantities::{Bytes, Flops, PictureSize, grouped};

/// If a file belongs to another model, everything is wrong in the same way.
const SHOWN_PROBLEMS: usize = 5;

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.contents, &self.config) {
            (Some(contents), _) => writeln!(f, "{contents}")?,
            (None, Some(name)) => writeln!(f, "{name}: the published configuration, without weights\n")?,
            (None, None) => {}
        }
        self.write_clip(f)?;
        writeln!(f)?;
        write!(f, "{}", self.memory)
    }
}

impl Info {
    fn write_clip(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { width, height, frames, steps, decode_chunk, .. } = self.settings;
        let size = PictureSize { width, height };
        writeln!(
            f,
            "A clip of {frames} frames, {size}, in {} and {steps} steps, {} decoded at a time:",
            self.precision,
            decode_chunk.min(frames),
        )?;
        let mut table = Table::new(["network", "parameters", "weights", "activations", "runs", "a run"]);
        for part in &self.estimate.parts {
            table.row([
                part.name.to_owned(),
                grouped(part.parameters),
                Bytes(part.weight_bytes as u64).to_string(),
                Bytes(part.arena_bytes as u64).to_string(),
                grouped(part.runs as u64),
                Flops(part.flops as f64).to_string(),
            ]);
        }
        write!(f, "{table}")?;
        writeln!(
            f,
            "  {} of memory at the peak (one {} at a time), {} in all",
            Bytes(self.estimate.peak_bytes() as u64),
            // Whole and shallow steps have a network each.
            if self.settings.cached() { "stage" } else { "network" },
            Flops(self.estimate.flops() as f64),
        )
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.folder, self.pipeline)?;
        let mut table = Table::new(["part", "class", "variant", "tensors", "parameters", "on disk"]);
        for PartContents { name, class, weights } in &self.parts {
            if weights.is_empty() {
                table.row([name, class, "", "", "", ""].map(str::to_owned));
            }
            for stored in weights {
                let variant = stored.variant.as_deref().unwrap_or("plain");
                table.row([
                    name.clone(),
                    class.clone(),
                    format!("{variant} ({})", stored.types.join(", ")),
                    grouped(stored.tensors as u64),
                    grouped(stored.parameters),
                    Bytes(stored.bytes).to_string(),
                ]);
            }
        }
        write!(f, "{table}")?;
        if self.problems.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nNo {} can be made with these weights:", self.product)?;
        for problem in self.problems.iter().take(SHOWN_PROBLEMS) {
            writeln!(f, "  {problem}")?;
        }
        match self.problems.len().saturating_sub(SHOWN_PROBLEMS) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

impl fmt::Display for MemoryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Memory at the peak, weights included:")?;
        let heads = self.columns.iter().map(|&Length { frames, decode_chunk }| match decode_chunk {
            all if all == frames => format!("{frames} frames"),
            some => format!("{frames}, decoded {some} at a time"),
        });
        let mut table = Table::new(["size".to_owned()].into_iter().chain(heads));
        for row in &self.rows {
            let size = PictureSize { width: row.width, height: row.height };
            let bytes = row.peak_bytes.iter().map(|&bytes| Bytes(bytes as u64).to_string());
            table.row([size.to_string()].into_iter().chain(bytes));
        }
        write!(f, "{table}")
    }
}

/// Columns as wide as their cells; words are aligned left, numbers right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<S: Into<String>>(heads: impl IntoIterator<Item = S>) -> Self {
        Table { rows: vec![heads.into_iter().map(Into::into).collect()] }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |column: usize| self.rows.iter().filter_map(move |row| row.get(column));
        let width = |column| cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let is_number = |cell: &String| cell.is_empty() || cell.starts_with(|c: char| c.is_ascii_digit());
        let numeric = |column: usize| column > 0 && cells(column).skip(1).all(is_number);
        let layout: Vec<(usize, bool)> =
            (0..columns).map(|column| (width(column), numeric(column))).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, &(width, numeric)) in row.iter().zip(&layout) {
                let cell = if numeric { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
                line.push_str(&format!("  {cell}"));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
