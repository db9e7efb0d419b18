//! Feedback as text.

use std::fmt::Write;

use super::{Advice, Feedback};

/// Lines of the source that are listed.
const LINES: usize = 8;

impl Feedback {
    /// It as text, for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let prediction = &self.prediction;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "What limits {}: {} predicted on {}, limited by {}, then by {}",
            self.function,
            time(prediction.seconds),
            self.chip,
            prediction.limiter.describe(),
            prediction.next_limiter.describe()
        );
        if self.advice.is_empty() {
            text += "Nothing stands out: no single repair is predicted to gain 3 %.\n";
        }
        for (number, advice) in self.advice.iter().enumerate() {
            let _ = write!(text, "\n{}. {}", number + 1, advice.title);
            if let Some(line) = &advice.line {
                let _ = write!(text, " at {}:{}", line.file, line.line);
            }
            let _ = writeln!(text, "  {}", promise(advice));
            if let Some(excerpt) = &advice.excerpt {
                let _ = writeln!(text, "     | {excerpt}");
            }
            let _ = writeln!(text, "     {}", advice.what);
            for figure in &advice.figures {
                let _ = write!(text, "     {}: {}", figure.name, number_text(figure.value));
                if let Some(ideal) = figure.ideal {
                    let _ = write!(text, " (at best {})", number_text(ideal));
                }
                match figure.metric {
                    Some(metric) => {
                        let _ = writeln!(text, "  [{metric}]");
                    }
                    None => text.push('\n'),
                }
            }
            let _ = writeln!(text, "     try: {}", advice.advice);
        }
        if !self.lines.is_empty() {
            text += "\nWhere warps spend their time:\n";
        }
        for line in self.lines.iter().take(LINES).filter(|line| line.share >= 0.005) {
            let place = match &line.cost.line.source {
                Some(source) => format!("{}:{}", source.file, source.line),
                None => format!("PTX line {}", line.cost.line.ptx_line),
            };
            let source = line.text.as_deref().unwrap_or("");
            let _ = writeln!(text, "  {:>4.1} %  {place}  {source}", 100.0 * line.share);
        }
        text
    }
}

/// What a repair could gain.
fn promise(advice: &Advice) -> String {
    match (advice.gain, advice.seconds) {
        (Some(gain), Some(seconds)) => {
            let then = advice.next_limiter.map(|next| format!(", then limited by {}", next.describe()));
            format!("up to {gain:.2} times as fast ({}{})", time(seconds), then.unwrap_or_default())
        }
        _ => "gain not predicted".to_owned(),
    }
}

/// Seconds for people.
pub(crate) fn time(seconds: f64) -> String {
    crate::report::seconds(seconds)
}

/// A number with as many digits as one reads.
pub(crate) fn number_text(number: f64) -> String {
    match number.abs() {
        size if size >= 1e6 => {
            let (by, prefix) = match size {
                size if size >= 1e12 => (1e12, "T"),
                size if size >= 1e9 => (1e9, "G"),
                _ => (1e6, "M"),
            };
            format!("{:.1} {prefix}", number / by)
        }
        size if size >= 100.0 || number.fract() == 0.0 => format!("{number:.0}"),
        _ => format!("{number:.2}"),
    }
}
