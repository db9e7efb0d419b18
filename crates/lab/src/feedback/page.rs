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
    /// It as a part of an HTML page: what limits the kernel, what to try, and the roofline.
    pub(crate) fn section(&self) -> String {
        let prediction = &self.prediction;
        let mut body = String::new();
        // Writing to a String cannot fail.
        let _ = write!(
            body,
            "<h2>What limits <code>{}</code></h2><p class=lead>{} predicted on {}, limited by {}, then by {}. {:.0} % occupancy at {} \
             registers per thread; {} to and from device memory.</p>",
            escape(&self.function),
            time(prediction.seconds),
            escape(&self.chip),
            prediction.limiter.describe(),
            prediction.next_limiter.describe(),
            100.0 * prediction.occupancy.share,
            prediction.registers,
            bytes_text(prediction.dram_bytes),
        );
        body += "<div class=columns><section><h3>What to try</h3>";
        if self.advice.is_empty() {
            body += "<p>Nothing stands out: no single repair is predicted to gain 3 %.</p>";
        }
        body += "<ol>";
        self.advice.iter().for_each(|advice| body += &card(advice));
        body += "</ol></section><section><h3>Roofline</h3>";
        body += &picture(&self.roofline, prediction.seconds);
        body + "</section></div>"
    }
}

/// A whole page with a body.
pub(crate) fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{title}</title><style>{STYLE}</style><main>{body}</main></html>\n"
    )
}

/// A source with what each line costs, as far as that is known, and marks at the lines that advice or findings are about.
pub(crate) fn listing(name: &str, text: &str, feedback: Option<&Feedback>, found: &[u32]) -> String {
    let mut table = format!("<h2>{}</h2><div class=scroll><table><thead><tr><th>line", escape(name));
    if feedback.is_some() {
        table += "<th>time<th title=\"warp instructions\">instructions<th title=\"active threads per warp\">lanes\
             <th title=\"sectors per request to global memory\">sectors<th title=\"bank conflicts of shared memory\">conflicts";
    }
    table += "<th class=source>source<tbody>";
    let at = |number: u32| {
        let here = |line: &&ExplainedLine| {
            line.cost.line.source.as_ref().is_some_and(|at| at.file == name && at.line == number)
        };
        feedback?.lines.iter().find(here)
    };
    for (number, source) in (1..).zip(text.lines()) {
        let advice = feedback.map_or(&[][..], |feedback| &feedback.advice);
        let mut marks = String::new();
        for (place, _) in (1..).zip(advice).filter(|(_, advice)| {
            advice.line.as_ref().is_some_and(|line| line.file == name && line.line == number)
        }) {
            let _ = write!(marks, " <mark>{place}</mark>");
        }
        let class = if found.contains(&number) { " class=found" } else { "" };
        let cells = match feedback {
            Some(_) => at(number).map_or_else(|| "<td><td><td><td><td>".to_owned(), cells),
            None => String::new(),
        };
        let _ = write!(
            table,
            "<tr id=L{number}{class}><th>{number}{marks}{cells}<td class=source>{}",
            escape(source)
        );
    }
    table + "</table></div>"
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
    let mut card = format!("<li><h4>{}", escape(advice.title));
    if let (Some(gain), Some(seconds)) = (advice.gain, advice.seconds) {
        let _ = write!(card, " <span class=gain>up to {gain:.2}×</span> <small>{}", time(seconds));
        if let Some(next) = advice.next_limiter {
            let _ = write!(card, ", then limited by {}", next.describe());
        }
        card += "</small>";
    }
    card += "</h4>";
    if let Some(line) = &advice.line {
        let excerpt = advice.excerpt.as_deref().unwrap_or("");
        let _ = write!(
            card,
            "<pre><a href=\"#L{}\">{}:{}</a>  {}</pre>",
            line.line,
            escape(&line.file),
            line.line,
            escape(excerpt)
        );
    }
    let (first, rest) = advice.what.split_at(advice.what.chars().next().map_or(0, char::len_utf8));
    let _ = write!(card, "<p>{}{}.</p><ul>", escape(&first.to_uppercase()), escape(rest));
    for figure in &advice.figures {
        let _ = write!(card, "<li>{}: <b>{}</b>", escape(figure.name), number_text(figure.value));
        if let Some(ideal) = figure.ideal {
            let _ = write!(card, ", at best {}", number_text(ideal));
        }
        if let Some(metric) = figure.metric {
            let _ = write!(card, " <code>{}</code>", escape(metric));
        }
    }
    let _ = write!(card, "</ul><p class=try>Try: {}.", escape(advice.advice));
    card
}

/// Operations for each byte and per second, both by powers of ten, with the chip's roofs.
fn picture(roofline: &Roofline, seconds: f64) -> String {
    const SIZE: (f64, f64) = (420.0, 260.0);
    let Roofline { flops, dram_bytes, peak_bytes, peak_flops, peak_tensor_flops } = *roofline;
    if flops <= 0.0 || dram_bytes <= 0.0 || seconds <= 0.0 {
        let share = 100.0 * dram_bytes / (peak_bytes * seconds).max(f64::MIN_POSITIVE);
        return format!(
            "<p>The kernel does no floating-point arithmetic, so its roof is the memory's bandwidth, of which it uses {share:.0} %.</p>"
        );
    }
    let (intensity, rate) = (flops / dram_bytes, flops / seconds);
    let top = peak_flops.max(peak_tensor_flops).log10().ceil();
    let left = (intensity.log10().floor() - 1.0).clamp(-4.0, -1.0);
    let right = (intensity.log10().ceil() + 1.0).clamp(3.0, 6.0);
    let bottom = (rate.log10().floor() - 1.0).clamp(top - 9.0, top - 4.0);
    let x = |intensity: f64| (intensity.log10().clamp(left, right) - left) / (right - left) * SIZE.0;
    let y = |rate: f64| SIZE.1 * (1.0 - (rate.log10().clamp(bottom, top) - bottom) / (top - bottom));
    let mut svg = format!(
        "<svg viewBox=\"-46 -22 {} {}\" role=img aria-label=\"Roofline: {} operations per byte, {} operations per second\">",
        SIZE.0 + 58.0,
        SIZE.1 + 66.0,
        number_text(intensity),
        number_text(rate)
    );
    let power = |power: i32| match power {
        0 => "1".to_owned(),
        1..=3 => format!("{}", 10i32.pow(power as u32)),
        _ => format!("10<tspan dy=-4 font-size=8>{power}</tspan>"),
    };
    for at in left as i32..=right as i32 {
        let place = x(10f64.powi(at));
        let _ = write!(
            svg,
            "<path class=grid d=\"M{place:.1} 0V{0:.1}\"/><text x={place:.1} y={1:.1} text-anchor=middle>{2}</text>",
            SIZE.1,
            SIZE.1 + 14.0,
            power(at)
        );
    }
    for at in bottom as i32..=top as i32 {
        let (place, rate) = (y(10f64.powi(at)), 10f64.powi(at));
        let (by, unit) = if rate >= 1e12 {
            (1e12, "T")
        } else if rate >= 1e9 {
            (1e9, "G")
        } else {
            (1e6, "M")
        };
        let _ = write!(
            svg,
            "<path class=grid d=\"M0 {place:.1}H{:.1}\"/><text x=-6 y={:.1} text-anchor=end>{} {unit}</text>",
            SIZE.0,
            place + 4.0,
            number_text(rate / by)
        );
    }
    // The label of the lower roof is below its line, that of the higher one above.
    for (peak, name, below) in [(peak_flops, "f32", 14.0), (peak_tensor_flops, "tensor cores, f16", -5.0)] {
        if peak > 0.0 {
            let lowest = 10f64.powf(left).max(10f64.powf(bottom) / peak_bytes);
            let _ = write!(
                svg,
                "<path d=\"M{:.1} {:.1}L{:.1} {:.1}H{:.1}\"/><text x={:.1} y={:.1} text-anchor=end>{name}: {} TFLOP/s</text>",
                x(lowest),
                y(lowest * peak_bytes),
                x(peak / peak_bytes),
                y(peak),
                SIZE.0,
                SIZE.0 - 4.0,
                y(peak) + below,
                number_text((peak / 1e12).round())
            );
        }
    }
    let (dot_x, dot_y) = (x(intensity), y(rate));
    let (anchor, label_x) = if dot_x > 0.6 * SIZE.0 { ("end", dot_x - 9.0) } else { ("start", dot_x + 9.0) };
    let _ = write!(
        svg,
        "<circle cx={dot_x:.1} cy={dot_y:.1} r=5 /><text class=dot x={label_x:.1} y={:.1} text-anchor={anchor}>{} FLOP/B, {}FLOP/s</text>\
         <text x={:.1} y={:.1} text-anchor=middle>floating-point operations per byte of device memory</text></svg>",
        dot_y + 16.0,
        number_text(intensity),
        per_second(rate),
        SIZE.0 / 2.0,
        SIZE.1 + 34.0
    );
    svg
}

/// A rate with the prefix of its unit.
fn per_second(rate: f64) -> String {
    match rate {
        rate if rate >= 1e12 => format!("{:.1} T", rate / 1e12),
        rate if rate >= 1e9 => format!("{:.1} G", rate / 1e9),
        rate => format!("{:.1} M", rate / 1e6),
    }
}

/// Text as HTML: also within quotes.
pub(crate) fn escape(text: &str) -> String {
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
