//! A profile as a page for a browser, and two of them compared.
//!
//! A page is one file: it contains its styles, script and data, and loads nothing. Its figures are computed here, by
//! the functions behind the terminal tables; the script lays them out and draws them.

mod document;
mod flame;
mod memory;
mod report;
mod timeline;

use serde::Serialize;

use crate::{
    Profile,
    compare::{Comparison, compare},
};
use document::{data, escaped, filled};

const STYLE: &str = include_str!("style.css");

/// Runs first, so that no later error goes unseen.
const FAULTS: &str = include_str!("script/faults.js");

/// What both pages use, in the order in which it is needed.
const SHARED: [&str; 5] = [
    include_str!("script/elements.js"),
    include_str!("script/quantity.js"),
    include_str!("script/colours.js"),
    include_str!("script/tooltip.js"),
    include_str!("script/table.js"),
];

const PAGE: [&str; 7] = [
    include_str!("script/summary.js"),
    include_str!("script/timeline.js"),
    include_str!("script/flame.js"),
    include_str!("script/roofline.js"),
    include_str!("script/memory.js"),
    include_str!("script/layers.js"),
    include_str!("script/page.js"),
];

const COMPARISON: [&str; 1] = [include_str!("script/comparison.js")];

/// The most layers that a comparison lists. If there are more, those that changed the most are listed.
const LAYERS: usize = 5000;

/// The page of a profile, one that passes [`Profile::check`].
pub fn page(profile: &Profile) -> String {
    let title = if profile.title.is_empty() { "A run" } else { &profile.title };
    assembled(include_str!("page.html"), title, &PAGE, &report::report(profile))
}

/// The page of two profiles side by side, both of which pass [`Profile::check`].
pub fn comparison(before: &Profile, after: &Profile) -> String {
    #[derive(Serialize)]
    struct Compared<'a> {
        #[serde(flatten)]
        comparison: &'a Comparison,
        layers_left_out: usize,
    }
    let mut comparison = compare(before, after);
    let layers_left_out = comparison.layers.len().saturating_sub(LAYERS);
    comparison.layers.truncate(LAYERS);
    let title = |profile: &Profile| match profile.title.as_str() {
        "" => "a run".to_owned(),
        title => title.to_owned(),
    };
    let title = format!("{} → {}", title(before), title(after));
    let compared = Compared { comparison: &comparison, layers_left_out };
    assembled(include_str!("comparison.html"), &title, &COMPARISON, &compared)
}

fn assembled(template: &str, title: &str, scripts: &[&str], shown: &impl Serialize) -> String {
    let scripts: Vec<&str> = SHARED.iter().chain(scripts).copied().collect();
    filled(
        template,
        &[
            ("title", &escaped(title)),
            ("style", STYLE),
            ("faults", FAULTS),
            ("data", &data(shown)),
            ("script", &scripts.join("\n")),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_whole_and_loads_nothing() {
        let nothing = Profile::default();
        for html in [page(&nothing), comparison(&nothing, &nothing)] {
            assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
            // SVG's namespace looks like an address, but nothing is loaded from it.
            assert!(!html.replace("http://www.w3.org/2000/svg", "").contains("://"));
            assert!(!html.contains("{{") && html.contains("default-src 'none'"));
            assert_eq!(html.matches("</script>").count(), 3);
            assert_eq!(html.matches("</style>").count(), 1);
        }
    }

    #[test]
    fn a_title_stays_a_title() {
        let profile =
            Profile { title: "</title><script>alert(1)</script>{{data}}".into(), ..Profile::default() };
        for html in [page(&profile), comparison(&profile, &profile)] {
            assert_eq!(html.matches("<script").count(), 3);
            assert!(html.contains("&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;{{data}}"));
        }
    }
}
