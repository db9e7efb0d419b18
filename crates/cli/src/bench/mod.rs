//! `kinora bench`: how fast layers, networks and clips run, beside peers, and compared with saved results.

pub mod arguments;
mod progress;

use std::path::{Path, PathBuf};

use kinora::files::Inputs;
use kinora_bench::{
    BenchError, Filter,
    peers::Python,
    results::{
        Comparison, Method, Results, Version, compare, comparison_text, header, row, suite_footer,
        suite_header, svg,
    },
    run::{Bench, Listed, Options, Suite, Target, list},
};
use serde_json::json;

use self::{
    arguments::{BenchArgs, PeerArgs, ReportArgs},
    progress::Progress,
};
use crate::{
    answer,
    display::Display,
    failure::Failure,
    files::{self, NewFile},
    interrupt::{self, Phase},
    print,
};

/// The defaults, and those of `--quick`.
const METHOD: Method = Method { turns: 12, seconds: 0.05, runs: 3, copies: 32 };
const QUICK: Method = Method { turns: 3, seconds: 0.002, runs: 1, copies: 1 };

/// Measures, or reads saved results; then prints, saves, plots and compares them as asked.
pub fn run(arguments: &BenchArgs) -> Result<(), Failure> {
    let report = &arguments.report;
    if arguments.list {
        return print_list(arguments);
    }
    let outputs = Outputs::check(report)?;
    let baseline = report.compare.as_deref().map(Results::read).transpose()?;
    let (results, shown) = match &report.from {
        Some(path) => {
            let results = Results::read(path)?;
            if !report.json {
                print(&tables(&results))?;
            }
            (results, Ok(()))
        }
        None => measure(arguments)?,
    };
    let cases = results.suites.iter().map(|suite| suite.cases.len()).sum();
    // An earlier run's file is worth more than one without cases.
    let files = if cases == 0 && interrupt::requested() { Vec::new() } else { outputs.write(&results)? };
    shown?;
    if interrupt::requested() {
        return Err(Failure::InterruptedBench { cases, files });
    }
    let comparison = baseline.map(|before| compare(&before, &results, report.threshold.0));
    report_all(&results, comparison.as_ref(), report.json)
}

/// The chosen suites, in their own order and each once. The promised figures are cases of the others, measured again, and so have to
/// be asked for.
fn suites(arguments: &BenchArgs) -> Vec<Suite> {
    let asked = |suite: &Suite| match arguments.suites.as_slice() {
        [] => *suite != Suite::Targets,
        suites => suites.contains(suite),
    };
    Suite::ALL.into_iter().filter(asked).collect()
}

/// The cases that were asked for.
fn filter(arguments: &BenchArgs) -> Result<Filter, Failure> {
    let filter = Filter::new(&arguments.only);
    if filter.is_empty() && !arguments.only.is_empty() {
        return Err(Failure::Usage("--only has no pattern; leave it out for all cases".to_owned()));
    }
    Ok(filter)
}

fn print_list(arguments: &BenchArgs) -> Result<(), Failure> {
    let listed = list(&suites(arguments), &filter(arguments)?)?;
    if arguments.report.json {
        let cases: Vec<_> = listed
            .iter()
            .map(|case| json!({"suite": case.suite.name(), "name": case.name, "family": case.family}))
            .collect();
        return print(&format!("{}\n", json!({ "cases": cases })));
    }
    let suite = listed.iter().map(|case| case.suite.name().chars().count()).max().unwrap_or(0);
    let family = listed.iter().map(|case| case.family.chars().count()).max().unwrap_or(0);
    let line =
        |case: &Listed| format!("{:<suite$}  {:<family$}  {}\n", case.suite.name(), case.family, case.name);
    print(&listed.iter().map(line).collect::<String>())
}

/// Measures; gives the results, also if Ctrl-C ended the run, and whether the table could be printed.
fn measure(arguments: &BenchArgs) -> Result<(Results, Result<(), Failure>), Failure> {
    let suites = suites(arguments);
    let only = filter(arguments)?;
    // A wrong pattern is reported before a device is opened.
    list(&suites, &only)?;
    let default = if arguments.quick { QUICK } else { METHOD };
    let method = Method {
        turns: arguments.turns.unwrap_or(default.turns),
        seconds: arguments.seconds.unwrap_or(default.seconds),
        ..default
    };
    let display = Display::new(arguments.report.json, false);
    if cfg!(debug_assertions) {
        display
            .warn("this is a debug build, several times slower than a release build; its times mean little");
    }
    let python = python(&arguments.peers, &display)?;
    let options = Options {
        suites,
        only,
        target: Target::open(arguments.device)?,
        dtype: arguments.precision.map(|precision| precision.dtype()),
        size: arguments.size,
        method,
        all_kernels: arguments.all_kernels,
        python,
        compile: arguments.peers.compile,
        version: version(),
    };
    let mut progress = Progress::new(display, arguments.report.json);
    interrupt::on_immediate_exit(kinora_bench::peers::end_all);
    Phase::AtNextCase.enter();
    let results = Bench::new(options).run(&mut |event| progress.tell(event));
    Phase::AtOnce.enter();
    let shown = progress.end();
    match results {
        Ok(results) => Ok((results, shown)),
        Err(BenchError::Stopped(results)) => Ok((*results, shown)),
        Err(error) => Err(error.into()),
    }
}

/// The version of this program.
fn version() -> Version {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    Version {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("KINORA_COMMIT").to_owned(),
        build: build.to_owned(),
    }
}

/// The Python that runs the peers. One that was asked for must work; otherwise a line says that there are no peers.
fn python(peers: &PeerArgs, display: &Display) -> Result<Option<Python>, Failure> {
    if peers.no_peers {
        return Ok(None);
    }
    match Python::find(peers.python.as_deref()) {
        Ok(python) => Ok(Some(python)),
        Err(why) if peers.python.is_some() || peers.compile => Err(Failure::Peer(why)),
        Err(why) => {
            display.line(&format!("no peers: {}", why.with_causes()));
            Ok(None)
        }
    }
}

/// The files to write.
struct Outputs {
    save: Option<NewFile>,
    plot: Option<NewFile>,
}

impl Outputs {
    /// Checks before the work that the files can be written after it.
    fn check(report: &ReportArgs) -> Result<Outputs, Failure> {
        let (save, plot) = (report.save.as_deref(), report.plot.as_deref());
        files::refuse_same([save, plot].into_iter().flatten())?;
        if let Some(path) = plot.filter(|path| path.extension().is_none_or(|extension| extension != "svg")) {
            let text =
                format!("--plot {}: the plot is an SVG; give it a name that ends in .svg", path.display());
            return Err(Failure::Usage(text));
        }
        let inputs = Inputs::new(report.compare.iter().chain(&report.from));
        let check =
            |path: Option<&Path>| path.map(|path| files::check(path, report.force, &inputs)).transpose();
        Ok(Outputs { save: check(save)?, plot: check(plot)? })
    }

    /// Writes all of them, even after Ctrl-C; gives their names.
    fn write(&self, results: &Results) -> Result<Vec<PathBuf>, Failure> {
        interrupt::to_completion(|| {
            let saved = self.save.iter().map(|file| file.keep(results.to_json().as_bytes()));
            let plotted = self.plot.iter().map(|file| file.keep(svg(results).as_bytes()));
            saved.chain(plotted).collect()
        })
    }
}

/// The tables of saved results.
fn tables(results: &Results) -> String {
    let mut text = header(results);
    for suite in &results.suites {
        text += &suite_header(suite);
        suite.cases.iter().for_each(|case| text += &row(case));
        text += &suite_footer(suite);
    }
    text
}

/// Prints the comparison, or one JSON object with everything.
fn report_all(results: &Results, comparison: Option<&Comparison>, json: bool) -> Result<(), Failure> {
    if let (Some(comparison), false) = (comparison, json) {
        print(&comparison_text(comparison))?;
    }
    answer(json, json!({"results": results, "comparison": comparison}), failure(results, comparison))
}

/// Why the run is a failure, if it is one.
fn failure(results: &Results, comparison: Option<&Comparison>) -> Option<Failure> {
    let failures: Vec<String> = results.failures().collect();
    if !failures.is_empty() {
        return Some(Failure::Benchmark(failures.join("; ")));
    }
    if let Some(why) = results.suites.iter().map(|suite| suite.not_run.as_deref()).collect::<Option<Vec<_>>>()
    {
        return Some(Failure::Benchmark(format!("nothing was measured: {}", why.join("; "))));
    }
    let comparison = comparison?;
    if comparison.changes.is_empty() {
        return Some(Failure::Benchmark(
            "nothing to compare: the two runs have no case in common".to_owned(),
        ));
    }
    let slower: Vec<&str> = comparison.regressions().map(|change| change.case.as_str()).collect();
    (!slower.is_empty()).then(|| Failure::Slower(slower.join(", ")))
}
