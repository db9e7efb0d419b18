//! Feedback as one page: advice, the roofline, and the source beside its counters.
//!
//! The page has no script and loads nothing, which its content security policy says as well. Everything that comes from a kernel is escaped.

use std::fmt::Write;

use super::{
    Advice, ExplainedLine, Feedback, Roofline,
    candidates::bytes_text,
    text::{number_text, time},
};

const STYLE: &str = include_str!("page.css");

impl Feedback {
    /// It as an HTML page. `sources` are the texts of the files by the names that they were compiled under.
    pub fn page(&self, sources: &[(String, String)]) -> String {
        let prediction = &self.prediction;
        let kernel = escape(&self.kernel);
        let mut body = String::new();
        // Writing to a String cannot fail.
        let _ = write!(
            body,
            "<h1>{kernel}</h1><p class=lead>{} predicted on a {}, limited by {}, then by {}. {:.0} % of the warps fit on a \
             multiprocessor at {} registers a thread; {} to and from device memory.</p>",
            time(prediction.seconds),
            escape(&self.chip),
            prediction.limiter.describe(),
            prediction.next_limiter.describe(),
            100.0 * prediction.occupancy.share,
            prediction.registers,
            bytes_text(prediction.dram_bytes),
        );
        body += "<div class=columns><section><h2>What to try</h2>";
        if self.advice.is_empty() {
            body += "<p>Nothing stands out: no single repair is predicted to gain 3 %.</p>";
        }
        body += "<ol>";
        self.advice.iter().for_each(|advice| body += &card(advice));
        body += "</ol></section><section><h2>Roofline</h2>";
        body += &picture(&self.roofline, prediction.seconds);
        body += "</section></div>";
        for (name, text) in sources {
            let _ = write!(body, "<h2>{}</h2>{}", escape(name), self.listing(name, text));
        }
        format!(
            "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
             <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">\
             <title>{kernel}</title><style>{STYLE}</style><main>{body}</main></html>\n"
        )
    }

    /// A source with what each line costs.
    fn listing(&self, name: &str, text: &str) -> String {
        let mut table = String::from(
            "<div class=scroll><table><thead><tr><th>line<th>time<th title=\"warp instructions\">instructions\
             <th title=\"active threads per warp\">lanes<th title=\"sectors per global request\">sectors\
             <th title=\"bank conflicts of shared memory\">conflicts<th class=source>source<tbody>",
        );
        let at = |number: u32| {
            self.lines.iter().find(|line| {
                line.cost
                    .line
                    .source
                    .as_ref()
                    .is_some_and(|source| source.file == name && source.line == number)
            })
        };
        let advised = |number: u32| {
            self.advice.iter().position(|advice| {
                advice.line.as_ref().is_some_and(|line| line.file == name && line.line == number)
            })
        };
        for (number, source) in (1..).zip(text.lines()) {
            let mark =
                advised(number).map(|place| format!(" <mark>{}</mark>", place + 1)).unwrap_or_default();
            let cells = at(number).map_or_else(|| "<td><td><td><td><td>".to_owned(), cells);
            let _ = write!(table, "<tr><th>{number}{mark}{cells}<td class=source>{}", escape(source));
        }
        table + "</table></div>"
    }
}

/// The numbers of a line.
fn cells(line: &ExplainedLine) -> String {
    let counters = &line.cost.line.counters;
    let (loads, stores) = (&counters.global_loads, &counters.global_stores);
    let requests = loads.requests + stores.requests;
    let sectors = (loads.transactions + stores.transactions) as f64 / requests.max(1) as f64;
    let conflicts = counters.shared_loads.conflicts
        + counters.shared_stores.conflicts
        + counters.shared_atomics.conflicts;
    let some = |text: String, there: bool| if there { text } else { String::new() };
    format!(
        "<td style=\"--share:{:.1}%\" class=bar>{}<td>{}<td>{:.0}<td>{}<td>{}",
        100.0 * line.share,
        some(format!("{:.1} %", 100.0 * line.share), line.share >= 0.0005),
        number_text(counters.warp_instructions() as f64),
        32.0 * counters.lane_efficiency(),
        some(format!("{sectors:.1}"), requests > 0),
        some(number_text(conflicts as f64), conflicts > 0),
    )
}

fn card(advice: &Advice) -> String {
    let mut card = format!("<li><h3>{}", escape(advice.title));
    if let (Some(gain), Some(seconds)) = (advice.gain, advice.seconds) {
        let _ = write!(card, " <span class=gain>up to {gain:.2}×</span> <small>{}", time(seconds));
        if let Some(next) = advice.next_limiter {
            let _ = write!(card, ", then limited by {}", next.describe());
        }
        card += "</small>";
    }
    card += "</h3>";
    if let Some(line) = &advice.line {
        let excerpt = advice.excerpt.as_deref().unwrap_or("");
        let _ = write!(card, "<pre><b>{}:{}</b>  {}</pre>", escape(&line.file), line.line, escape(excerpt));
    }
    let _ = write!(card, "<p>{}.</p><ul>", escape(&advice.what));
    for figure in &advice.figures {
        let _ = write!(card, "<li>{}: <b>{}</b>", escape(figure.name), number_text(figure.value));
        if let Some(ideal) = figure.ideal {
            let _ = write!(card, ", at best {}", number_text(ideal));
        }
        if let Some(metric) = figure.metric {
            let _ = write!(card, " <code>{}</code>", escape(metric));
        }
    }
    let _ = write!(card, "</ul><p class=try>Try: {}.</p>", escape(advice.advice));
    card
}

/// Operations for each byte and per second, both by powers of ten, with the chip's roofs.
fn picture(roofline: &Roofline, seconds: f64) -> String {
    const SIZE: (f64, f64) = (420.0, 260.0);
    let Roofline { flops, dram_bytes, peak_bytes, peak_flops, peak_tensor_flops } = *roofline;
    if flops <= 0.0 || dram_bytes <= 0.0 || seconds <= 0.0 {
        return "<p>The kernel does no floating-point arithmetic: its roof is the memory's bandwidth.</p>"
            .to_owned();
    }
    let top = peak_flops.max(peak_tensor_flops).log10().ceil();
    let (left, right, bottom) = (-3.0, 5.0, top - 6.0);
    let x = |intensity: f64| (intensity.log10().clamp(left, right) - left) / (right - left) * SIZE.0;
    let y = |rate: f64| SIZE.1 * (1.0 - (rate.log10().clamp(bottom, top) - bottom) / (top - bottom));
    let (intensity, rate) = (flops / dram_bytes, flops / seconds);
    let mut svg = format!(
        "<svg viewBox=\"-8 -8 {} {}\" role=img aria-label=\"Roofline: {} operations for each byte, {} operations per second\">",
        SIZE.0 + 16.0,
        SIZE.1 + 40.0,
        number_text(intensity),
        number_text(rate)
    );
    for (peak, name) in [(peak_flops, "f32"), (peak_tensor_flops, "tensor cores")] {
        if peak > 0.0 {
            let lowest = 10f64.powf(left);
            let _ = write!(
                svg,
                "<path d=\"M{:.1} {:.1}L{:.1} {:.1}L{:.1} {:.1}\"/><text x={:.1} y={:.1} text-anchor=end>{name}: {} TFLOP/s</text>",
                x(lowest),
                y(lowest * peak_bytes),
                x(peak / peak_bytes),
                y(peak),
                SIZE.0,
                y(peak),
                SIZE.0,
                y(peak) + 14.0,
                number_text(peak / 1e12)
            );
        }
    }
    let _ = write!(
        svg,
        "<circle cx={:.1} cy={:.1} r=5 /><text x={:.1} y={:.1}>{} FLOP per byte, {} GFLOP/s</text>\
         <text x=0 y={:.1}>operations for each byte of device memory →</text></svg>",
        x(intensity),
        y(rate),
        (x(intensity) + 8.0).min(SIZE.0 - 200.0),
        y(rate) + 18.0,
        number_text(intensity),
        number_text(rate / 1e9),
        SIZE.1 + 22.0
    );
    svg
}

/// Text as HTML: also within quotes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_from_outside_is_text() {
        assert_eq!(escape("<script a=\"1\" b='2'>&"), "&lt;script a=&quot;1&quot; b=&#39;2&#39;&gt;&amp;");
    }
}
