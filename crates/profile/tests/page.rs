//! The pages as a real browser shows them.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod browser;
mod synthetic;

use std::fmt::Write;

use browser::{Browser, between, noted, text};
use kinora_profile::{
    Machine, Profile,
    bottlenecks::{bottlenecks, stages},
    compare::compare,
    groups::{By, Group, groups},
    html,
    quantity::{bytes, change, change_percent, prefixed, time},
};
use synthetic::{HOSTILE, LAYERS, clip, traced_clip, tuned_clip};

/// How wide the window of a phone is.
const PHONE: u32 = 360;

/// How many rows of a table are shown at first.
const ROWS: usize = 25;

/// A page that ran to its end without an error and fits into its window.
#[track_caller]
fn whole(dom: String) -> String {
    assert_eq!(noted(&dom, "faults"), Some("0"), "{:?}", noted(&dom, "fault"));
    assert!(noted(&dom, "ready").is_some(), "the script did not run to its end");
    let [wide, window] = ["width", "window"].map(|name| noted(&dom, name).unwrap().parse::<u32>().unwrap());
    assert!(wide <= window, "{wide} pixels in a window of {window}");
    dom
}

/// A part of a page from its mark to the end of it.
fn section<'a>(dom: &'a str, name: &str) -> &'a str {
    between(dom, &format!("<section id=\"{name}\""), "</section>")
}

/// The rows of a section's table as they are read.
fn rows(section: &str) -> Vec<String> {
    between(section, "<tbody>", "</tbody>").split("<tr>").skip(1).map(text).collect()
}

fn figure(dom: &str, name: &str) -> String {
    text(between(dom, &format!("data-figure=\"{name}\""), "</dd>"))
}

/// A row of a table of layers.
fn row(group: &Group, kind: &str, all: u64) -> String {
    let share = 100.0 * group.nanoseconds as f64 / all as f64;
    let runs = if group.runs < 1000 {
        group.runs.to_string()
    } else {
        format!("{},{:03}", group.runs / 1000, group.runs % 1000)
    };
    let words = [
        group.name.as_str(),
        &group.program,
        &time(group.nanoseconds),
        &format!("{share:.1} %"),
        &runs,
        kind,
        &prefixed(group.flops_per_second(), "FLOP/s"),
        &prefixed(group.bytes_per_second(), "B/s"),
        &format!("{:.0} %", 100.0 * group.efficiency().unwrap()),
        &time(group.saving_nanoseconds().unwrap() as u64),
        group.limit.unwrap().name(),
    ];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_page_shows_what_was_recorded() {
    let Some(browser) = Browser::find() else { return };
    let profile = clip(10);
    let dom = whole(browser.opened(&html::page(&profile), 1280));

    assert_eq!(text(between(&dom, "<h1", "</h1>")), profile.title);
    let machine = text(between(&dom, "id=\"machine\"", "</p>"));
    assert_eq!(machine, "NVIDIA H200 peak 760 TFLOP/s 4.20 TB/s 1.90 µs per launch");
    assert_eq!(figure(&dom, "total"), time(profile.duration()));
    assert_eq!(figure(&dom, "peak"), bytes(profile.memory_peak().unwrap().1));
    assert!(dom.contains(&format!("planned: {}", bytes(profile.planned_peak_bytes.unwrap()))));

    let shown: Vec<&str> = section(&dom, "stages").split("<li class=\"stage\">").skip(1).collect();
    let expected = stages(&profile);
    assert_eq!((shown.len(), expected.len()), (4, 4));
    for (shown, stage) in shown.into_iter().zip(expected) {
        let shown = text(shown);
        let start = format!("{} {}", stage.name, time(stage.nanoseconds));
        assert!(shown.starts_with(&start) && shown.contains(stage.limit.name()), "{shown}");
    }
    let shown: Vec<&str> = section(&dom, "bottlenecks").split("<li class=\"bottleneck\"").skip(1).collect();
    let expected = bottlenecks(&profile);
    assert_eq!(shown.len(), expected.len());
    for (shown, found) in shown.into_iter().zip(expected) {
        let shown = text(shown);
        let saving = format!("{} of {}", time(found.saving_nanoseconds as u64), time(found.nanoseconds));
        assert!([&found.what, &saving, &found.advice].iter().all(|words| shown.contains(*words)), "{shown}");
    }

    let kind = |group: &Group| {
        let work = profile
            .works
            .iter()
            .find(|work| work.layer == group.name || work.kernel.as_ref() == Some(&group.name));
        work.unwrap().op.clone()
    };
    for (name, by) in [("kinds", By::Op), ("kernels", By::Kernel), ("layers", By::Layer)] {
        let groups = groups(&profile, by);
        let all = groups.iter().map(|group| group.nanoseconds).sum();
        let section = section(&dom, name);
        assert!(section.contains(&format!("data-rows=\"{}\"", groups.len())), "{name}");
        let shown = rows(section);
        assert_eq!(shown.len(), groups.len().min(ROWS), "{name}");
        for (shown, group) in shown.iter().zip(&groups) {
            let kind = if by == By::Op { String::new() } else { kind(group) };
            assert_eq!(*shown, row(group, &kind, all));
        }
    }

    let with_arithmetic = profile.works.iter().filter(|work| work.flops > 0).count();
    assert!(profile.works.len() > LAYERS && with_arithmetic == profile.works.len() - 1);
    let points = between(section(&dom, "roofline"), "<g class=\"points\">", "</g>");
    assert_eq!(points.matches("<circle").count(), with_arithmetic);
    let memory = section(&dom, "memory");
    assert_eq!(memory.matches("<polygon class=\"owner\"").count(), 7);
    assert!(memory.contains("class=\"planned\"") && memory.contains("class=\"peak\""));
    let flame = section(&dom, "flame");
    let device: u64 =
        profile.spans.iter().filter(|s| s.lane == 2 && s.parent.is_none()).map(|s| s.nanoseconds()).sum();
    assert!(flame.contains(&format!("aria-label=\"stream 0, {}\"", time(device))), "{flame}");
    assert!(
        ["denoise", "decode", "UNet", "up_blocks"].iter().all(|name| flame.contains(&format!("{name}, ")))
    );
    assert!(section(&dom, "timeline").contains("<canvas"));
}

#[test]
fn what_the_device_was_seen_to_do_is_a_lane_of_the_timeline() {
    let Some(browser) = Browser::find() else { return };
    let label = |profile: &Profile| {
        let dom = whole(browser.opened_in_frame(&html::page(profile), PHONE));
        let notes = text(between(&dom, "id=\"notes\"", "</div>"));
        (between(section(&dom, "timeline"), "aria-label=\"Timeline of ", "\"").to_owned(), notes)
    };
    let (plain, traced) = (clip(1), traced_clip(1));
    let spans = |profile: &Profile| profile.spans.len() + profile.activity.len();
    assert_eq!(label(&plain), (format!("{} spans in 3 lanes", spans(&plain)), String::new()));
    let shown = format!("{},{:03} spans in 4 lanes", spans(&traced) / 1000, spans(&traced) % 1000);
    assert_eq!(label(&traced), (shown, traced.notes[0].clone()));
}

#[test]
fn names_are_text_and_pages_fit_a_phone() {
    let Some(browser) = Browser::find() else { return };
    let mut profile = clip(2);
    let hostile = || HOSTILE.to_owned();
    (profile.title, profile.machine.device) = (hostile(), hostile());
    profile.lanes.iter_mut().for_each(|lane| lane.name = hostile());
    profile.memory.iter_mut().for_each(|sample| sample.owner = hostile());
    for work in profile.works.iter_mut().skip(3) {
        (work.program, work.op, work.kernel) = (hostile(), hostile(), Some(hostile()));
    }
    for (name, html) in [("page", html::page(&profile)), ("comparison", html::comparison(&profile, &profile))]
    {
        let dom = whole(browser.opened_in_frame(&html, PHONE));
        assert_eq!(noted(&dom, "window"), Some("360"), "{name}");
        assert_eq!(noted(&dom, "images"), Some("0"), "{name}");
        assert_eq!(
            text(between(&dom, "<title>", "</title>")).split(" · ").next().unwrap().split(" → ").next(),
            Some(HOSTILE)
        );
        assert!(rows(section(&dom, "kinds")).iter().any(|row| row.contains(HOSTILE)), "{name}");
    }
}

#[test]
fn a_page_says_what_it_has_not() {
    let Some(browser) = Browser::find() else { return };
    let full = clip(2);
    let without_ceilings =
        Profile { machine: Machine { ceilings: None, ..full.machine.clone() }, ..full.clone() };
    let without_memory = Profile { memory: Vec::new(), ..full.clone() };
    let mut without_works = Profile { works: Vec::new(), ..full.clone() };
    without_works.spans.iter_mut().for_each(|span| span.work = None);
    for (profile, sentences) in [
        (
            without_ceilings,
            &["the device's ceilings were not measured", "so nothing can be ranked", "so there is no roof"][..],
        ),
        (without_memory, &["No memory use was recorded.", "predicted a peak of 14.2 GB"]),
        (without_works, &["No layers were recorded.", "no layers were recorded"]),
        (Profile::default(), &["A run", "Nothing was recorded.", "No memory use was recorded."]),
    ] {
        let dom = whole(browser.opened_in_frame(&html::page(&profile), PHONE));
        for sentence in sentences {
            assert!(dom.contains(sentence), "{sentence} is not in the page");
        }
    }
    let nothing = Profile::default();
    let dom = whole(browser.opened_in_frame(&html::comparison(&nothing, &nothing), PHONE));
    assert!(dom.contains("Neither run has stages.") && dom.contains("Neither run has layers."));
}

#[test]
fn of_a_huge_profile_the_page_says_what_it_leaves_out() {
    let Some(browser) = Browser::find() else { return };
    let profile = clip(650);
    let html = html::page(&profile);
    assert!(profile.spans.len() > 260_000 && html.len() < 6_000_000, "{} bytes", html.len());
    let dom = whole(browser.opened(&html, 1280));
    let hint = text(between(&dom, "id=\"timeline-left-out\"", "</p>"));
    let spans = format!("{},{:03}", profile.spans.len() / 1000, profile.spans.len() % 1000);
    assert!(
        hint.starts_with(&format!("The 250,000 longest of {spans} spans are drawn, none shorter than")),
        "{hint}"
    );
    assert_eq!(figure(&dom, "total"), time(profile.duration()));
}

#[test]
fn a_comparison_shows_both_sides() {
    let Some(browser) = Browser::find() else { return };
    let (before, after) = (clip(10), tuned_clip(8));
    let dom = whole(browser.opened(&html::comparison(&before, &after), 1280));
    let expected = compare(&before, &after);

    let sides = text(between(&dom, "id=\"sides\"", "<dl"));
    assert_eq!(sides, format!("Before {} NVIDIA H200 After {} NVIDIA H200", before.title, after.title));
    assert_eq!(figure(&dom, "total"), format!("{} → {}", time(before.duration()), time(after.duration())));
    let shown: Vec<&str> = section(&dom, "stages").split("<li class=\"pair\">").skip(1).collect();
    assert_eq!((shown.len(), expected.stages.len()), (4, 4));
    for (name, changes) in [("kinds", &expected.ops), ("layers", &expected.layers)] {
        let section = section(&dom, name);
        assert!(section.contains(&format!("data-rows=\"{}\"", changes.len())), "{name}");
        let shown = rows(section);
        assert_eq!(shown.len(), changes.len().min(ROWS), "{name}");
        for (shown, row) in shown.iter().zip(changes) {
            let side = |part: Option<kinora_profile::compare::Part>| {
                part.map_or("–".to_owned(), |part| time(part.nanoseconds))
            };
            let percent = match (row.before, row.after) {
                (None, _) => "new".to_owned(),
                (_, None) => "gone".to_owned(),
                _ => change_percent(row.percent.unwrap()),
            };
            let difference = change(row.difference_nanoseconds);
            let start = format!(
                "{} {} {} {} {difference} {percent}",
                row.name,
                row.program,
                side(row.before),
                side(row.after)
            );
            assert!(shown.starts_with(&start), "{shown} does not begin with {start}");
        }
    }
    // Fused, a layer has another name: one is gone, the other new.
    let words = |section: &str| ["new", "gone"].map(|word| section.contains(&format!(">{word}</span>")));
    assert_eq!(words(section(&dom, "layers")), [true, true]);
    assert_eq!(words(section(&dom, "kinds")), [false, false]);
}

/// A browser formats numbers as the crate does, digit for digit.
#[test]
fn quantities_are_the_same_in_the_page() {
    let Some(browser) = Browser::find() else { return };
    let mut cases = String::new();
    let mut case = |call: String, expected: String| {
        writeln!(cases, "check({call}, {});", serde_json::to_string(&expected).unwrap()).unwrap();
    };
    // Bounds, exact halves, and everything between.
    let mut amounts: Vec<u64> =
        vec![0, 999, 1000, 1125, 1375, 9994, 9995, 9996, 12_250, 12_750, 99_949, 99_950, 100_500, 101_500];
    amounts.extend([999_499, 999_500, 59_949_999_999, 59_950_000_000, 3_599_499_999_999]);
    let mut amount = 1u64;
    while amount < 1 << 52 {
        amounts.extend([amount, amount + amount / 8, amount + amount / 3]);
        amount += amount / 2 + 1;
    }
    for &amount in &amounts {
        case(format!("time({amount})"), time(amount));
        case(format!("bytes({amount})"), bytes(amount));
        case(format!("change(-{amount})"), change(-(amount as i64)));
        let percent = amount as f64 / 1000.0;
        case(format!("changePercent({percent:?})"), change_percent(percent));
        case(format!("wholePercent({percent:?})"), format!("{:.0} %", 100.0 * percent));
    }
    let page = format!(
        "<!doctype html><meta charset=\"utf-8\"><script>let wrong = [];\n{}\n\
         function check(found, expected) {{ if (found !== expected) wrong.push(`${{found}} is ${{expected}}`); }}\n{cases}\
         document.documentElement.dataset.wrong = wrong.join(\"; \");</script>",
        include_str!("../src/html/script/quantity.js"),
    );
    assert_eq!(noted(&browser.opened(&page, 800), "wrong"), Some(""));
}
