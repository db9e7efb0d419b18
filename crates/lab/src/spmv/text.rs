//! What was found out about a matrix, as text.

use std::fmt::Write;

use super::examine::{Examination, KernelResult};

/// Seconds in the unit that suits them.
fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds >= 1.0 => format!("{seconds:.2} s"),
        _ if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{:.1} µs", seconds * 1e6),
    }
}

fn or_dash(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), time)
}

/// Bytes in the unit that suits them.
fn size(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes >= 1e9 => format!("{:.2} GB", bytes / 1e9),
        bytes if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
        bytes if bytes >= 1e3 => format!("{:.1} kB", bytes / 1e3),
        bytes => format!("{bytes:.0} B"),
    }
}

impl Examination {
    /// The whole report. Names that come from outside are shown without anything that a terminal would obey.
    pub fn text(&self) -> String {
        let mut text = self.head();
        text += &self.table();
        text += &self.peer_lines();
        text += &self.conclusion();
        text
    }

    fn head(&self) -> String {
        let known = &self.statistics;
        let mut text = format!(
            "{}: {} × {}, {} non-zeros, {} values, {} indices, {}\n",
            kinora_outside::printable(&self.name),
            known.rows,
            known.columns,
            known.nonzeros,
            self.values,
            self.indices,
            size(self.matrix_bytes)
        );
        let kind = if self.irregular { "irregular" } else { "regular" };
        text += &format!(
            "rows of {:.1} ± {:.1} non-zeros, from {} to {}, {} empty: {kind}; {} columns used, {:.0} % of the reads of x far from the one before\n\n",
            known.mean,
            known.deviation,
            known.shortest,
            known.longest,
            known.empty_rows,
            known.columns_used,
            100.0 * known.scattered
        );
        text += "  non-zeros a row   rows\n";
        text += &known.plot();
        let cpu = &self.cpu;
        let right = if cpu.difference.wrong_rows == 0 { "right" } else { "WRONG" };
        text += &format!(
            "\nCPU, {} threads: {}, {:.1} GB/s, {right}; the plain loop in f64 takes {}\n",
            cpu.threads,
            time(cpu.seconds),
            self.floor_bytes as f64 / cpu.seconds.max(f64::MIN_POSITIVE) / 1e9,
            time(cpu.reference_seconds)
        );
        let how = if self.measured { "measured on" } else { "predicted for" };
        let rate = match self.memory_rate {
            Some(rate) => {
                format!("; at {:.0} GB/s this takes {}", rate / 1e9, time(self.floor_bytes as f64 / rate))
            }
            None => String::new(),
        };
        text + &format!(
            "{how} {}: a product moves at least {}{rate}\n\n",
            self.device,
            size(self.floor_bytes)
        )
    }

    fn table(&self) -> String {
        let mut text = format!(
            "{:<20} {:>10} {:>14} {:>14} {:>7} {:>6}  {}\n",
            "kernel", "product", "device prepares", "host prepares", "GB/s", "share", "result"
        );
        for kernel in &self.kernels {
            let share =
                kernel.share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
            let rate =
                kernel.gigabytes_per_second.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<20} {:>10} {:>15} {:>14} {rate:>7} {share:>6}  {}",
                kernel.kernel,
                or_dash(kernel.seconds),
                time(kernel.device_preparation_seconds),
                time(kernel.host_preparation_seconds),
                result(kernel, self.statistics.rows)
            );
        }
        text
    }

    fn peer_lines(&self) -> String {
        let mut text = String::new();
        for peer in &self.peers {
            let right = match (&peer.problem, peer.difference) {
                (Some(problem), _) => format!("did not run: {problem}"),
                (None, Some(difference)) if difference.wrong_rows > 0 => {
                    format!("{} rows off", difference.wrong_rows)
                }
                _ => "right".to_owned(),
            };
            let _ = writeln!(
                text,
                "{}: {}, after an analysis of {} {}; {right}",
                peer.name,
                or_dash(peer.seconds),
                or_dash(peer.preprocessing_seconds),
                or_dash(peer.preprocessed_seconds)
            );
        }
        if let Some(why) = &self.no_peers {
            let _ = writeln!(text, "not compared with cuSPARSE: {}", kinora_outside::printable(why));
        }
        text
    }

    fn conclusion(&self) -> String {
        let mut text = match self.best() {
            Some(best) => format!("\nthe fastest is {}", best.kernel),
            None => "\nno kernel is right and has a time".to_owned(),
        };
        if let (Some(best), Some(peer)) = (self.best().and_then(|best| best.seconds), self.best_peer()) {
            text += &format!(", {:.2} × as fast as the best of cuSPARSE", peer / best);
        }
        if let Some(products) = self.pays_after.filter(|&products| products > 1) {
            text += &format!("; with all preparation, after {products} products");
        }
        if !self.left_out.is_empty() {
            text += &format!("\nleft out, because the time was over: {}", self.left_out.join("; "));
        }
        text + &format!("\nby its statistics alone: {}, because {}\n", self.choice.variant, self.choice.why)
    }
}

/// Whether a kernel is right, and what limits it.
fn result(kernel: &KernelResult, rows: usize) -> String {
    if let Some(problem) = &kernel.problem {
        return format!("did not run: {}", kinora_outside::printable(problem));
    }
    if let Some(finding) = kernel.findings.first() {
        return format!("WRONG: {finding}");
    }
    let Some(difference) = kernel.difference else { return "not checked".to_owned() };
    if difference.wrong_rows > 0 {
        let first = difference.first_wrong.unwrap_or(0);
        return format!("WRONG: {} rows exceed the bound, the first is row {first}", difference.wrong_rows);
    }
    let mut text = match kernel.checked_rows {
        checked if checked == rows => "right".to_owned(),
        checked => format!("right in the first {checked} rows"),
    };
    if let Some(prediction) = &kernel.prediction {
        text += &format!(", limited by {}", prediction.limiter.describe());
        if prediction.straggles {
            text += " of the longest row";
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_the_unit_that_suits_them() {
        assert_eq!([time(2.0), time(0.0123), time(4.2e-6)], ["2.00 s", "12.30 ms", "4.2 µs"]);
        assert_eq!(
            [size(7), size(1500), size(2_500_000), size(3 << 30)],
            ["7 B", "1.5 kB", "2.5 MB", "3.22 GB"]
        );
    }
}
