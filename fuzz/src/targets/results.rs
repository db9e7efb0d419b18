//! Saved results of benchmarks.

use std::cell::OnceCell;

use kinora_bench::results::{
    Results, compare, comparison_text, header, row, suite_footer, suite_header, svg,
};

use crate::scratch::Scratch;

thread_local! {
    static FOLDER: OnceCell<Scratch> = const { OnceCell::new() };
}

/// Any bytes as saved results, with all that is made of them.
pub fn json(bytes: &[u8]) {
    let path = FOLDER.with(|folder| folder.get_or_init(Scratch::new).write("results.json", bytes));
    let Ok(results) = Results::read(&path) else { return };
    let _ = (header(&results), svg(&results), results.to_json(), results.failures().count());
    for suite in &results.suites {
        let _ = (suite_header(suite), suite_footer(suite));
        suite.cases.iter().for_each(|case| drop(row(case)));
    }
    let comparison = compare(&results, &results, 0.05);
    let _ = (comparison_text(&comparison), comparison.regressions().count());
}
