//! `kinora bench`.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use support::{Answer, Studio, answer, kinora, run};

/// The smallest of all cases.
const CASE: &str = "linear 8×512→512 (embedding)";

fn bench(words: &[&str]) -> Command {
    let mut command = kinora();
    command.env_remove("KINORA_PEER_PYTHON");
    command.args(["bench", "cpu", "--quick", "--no-peers", "--only", CASE]).args(words);
    command
}

fn succeeded(answer: &Answer) -> String {
    assert_eq!(answer.code, Some(0), "{answer:?}");
    answer.text()
}

/// A file of results of the smallest case.
fn saved(place: &Studio, name: &str) -> (PathBuf, Value) {
    let path = place.folder.path().join(name);
    succeeded(&answer(bench(&["--save"]).arg(&path)));
    let results = serde_json::from_slice(&place.read(name)).unwrap();
    (path, results)
}

/// The same results with every time multiplied.
fn scaled(results: &Value, factor: f64) -> Value {
    let mut results = results.clone();
    for case in results["suites"][0]["cases"].as_array_mut().unwrap() {
        let time = &mut case["entries"][0]["milliseconds"];
        for place in ["/median", "/best", "/interval/0", "/interval/1"] {
            let value = time.pointer_mut(place).unwrap();
            *value = (value.as_f64().unwrap() * factor).into();
        }
    }
    results
}

#[test]
#[cfg(unix)]
fn ctrl_c_keeps_what_was_measured() {
    let place = Studio::new();
    let mut command = kinora();
    command.current_dir(place.folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.args(["bench", "cpu", "--no-peers", "--only", "linear", "--quick", "--turns", "40"]);
    command.args(["--save", "run.json", "--plot", "run.svg"]);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // A case's line is there once it is done.
    assert!(lines.any(|line| line.contains("linear") && line.contains("ms")));
    // As `timeout` does it: the program, and then its group, to which it belongs.
    let process = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &process, &process]).status().unwrap().success());
    lines.for_each(drop);
    let ended = Answer::from(child.wait_with_output().unwrap());
    let results: Value = serde_json::from_slice(&place.read("run.json")).unwrap();
    let suite = &results["suites"][0];
    let (done, all) = (suite["cases"].as_array().unwrap().len(), 9);
    assert!((1..all).contains(&done), "{done} cases");
    assert_eq!(suite["failed"], "stopped before its end");
    assert!(place.read("run.svg").starts_with(b"<svg"));
    let kept = if done == 1 { "1 finished case is".to_owned() } else { format!("{done} finished cases are") };
    ended.must_fail(130, &[&format!("interrupted; {kept} saved in run.json and run.svg\n")]);
}

/// A peer that would compute for a minute.
#[test]
#[cfg(unix)]
fn a_second_ctrl_c_ends_the_peer_as_well() {
    let place = Studio::new();
    let busy = peer(&place, "echo $$ > started.part; mv started.part started; exec sleep 60");
    let mut command = kinora();
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.current_dir(place.folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.args(["bench", "cpu", "--quick", "--only", CASE, "--python"]).arg(&busy);
    let child = command.spawn().unwrap();
    let pause = || std::thread::sleep(std::time::Duration::from_millis(400));
    let started = place.folder.path().join("started");
    let came = (0..100).any(|_| {
        pause();
        started.exists()
    });
    assert!(came, "the peer got no request");
    let interrupt =
        || assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    interrupt();
    // Two at almost the same time count as one.
    pause();
    interrupt();
    Answer::from(child.wait_with_output().unwrap()).must_fail(130, &["interrupted"]);
    let process = std::fs::read_to_string(started).unwrap();
    let runs =
        Command::new("kill").args(["-0", process.trim()]).stderr(Stdio::null()).status().unwrap().success();
    assert!(!runs, "the peer still runs");
}

/// Peers that send Ctrl-C: before the first case, and during it.
#[test]
#[cfg(unix)]
fn ctrl_c_says_what_is_saved_and_where() {
    let place = Studio::new();
    place.write("run.json", b"of an earlier run");
    // The program handles it in another thread than the one that waits for the peer.
    let interrupt = "trap 'touch heard' INT; kill -s INT -- -$PPID; sleep 0.5";
    let stopped = |python: &Path, words: &[&str]| {
        let mut command = kinora();
        // Ctrl-C goes to a whole group of processes.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.current_dir(place.folder.path()).args(["bench", "cpu", "--quick", "--only", CASE]);
        answer(command.args(["--json", "--python"]).arg(python).args(words))
    };

    let early =
        python(&place, &format!("read -r hello; {interrupt}; echo '{{\"torch\": \"9.9\"}}'; read -r end"));
    let nothing = stopped(&early, &["--save", "run.json", "--plot", "run.svg", "--force"]);
    nothing.must_fail(130, &["interrupted before the first case was finished; nothing was written\n"]);
    assert_eq!(place.read("run.json"), b"of an earlier run");
    assert_eq!(place.names(), ["python", "run.json"]);

    let later = peer(&place, &format!("{interrupt}; echo '{{\"variants\": []}}'; read -r end"));
    let nowhere = stopped(&later, &[]);
    nowhere.must_fail(130, &["interrupted; 1 case was finished but not saved\n", "--save FILE"]);
    assert_eq!(nowhere.json()["error"]["kind"], "interrupted");
    let saved = stopped(&later, &["--save", "run.json", "--force"]);
    saved.must_fail(130, &["interrupted; 1 finished case is saved in run.json\n"]);
    let results: Value = serde_json::from_slice(&place.read("run.json")).unwrap();
    assert_eq!(results["suites"][0]["cases"][0]["name"], CASE);
    assert!(!place.folder.path().join("heard").exists(), "the peer was interrupted as well");
}

#[test]
fn a_case_is_measured_and_kept() {
    let place = Studio::new();
    let (path, results) = saved(&place, "run.json");
    assert_eq!(results["format"], 1);
    assert_eq!(results["kinora"]["version"], env!("CARGO_PKG_VERSION"));
    let commit = results["kinora"]["commit"].as_str().unwrap();
    assert!(["debug", "release"].contains(&results["kinora"]["build"].as_str().unwrap()));
    assert!(commit == "unknown" || commit.chars().all(|c| c.is_ascii_hexdigit()), "{commit}");
    assert!(results["processor"].as_str().is_some() && results["threads"].as_u64().unwrap() > 0);
    let date = results["date"].as_str().unwrap();
    assert!(date.len() == 20 && date.ends_with('Z'), "{date}");

    let suite = &results["suites"][0];
    assert_eq!((&suite["suite"], &suite["precision"]), (&"cpu".into(), &"f32".into()));
    assert!(suite["ceilings"]["flops_per_second"].as_f64().unwrap() > 0.0);
    assert!(suite["clock"]["after"].as_f64().unwrap() > 0.0);
    let case = &suite["cases"][0];
    assert_eq!((&case["name"], &case["family"]), (&CASE.into(), &"linear".into()));
    // Weights, bias, input and result in f32; a multiplication with an addition being two.
    assert_eq!(case["bytes"], 4 * (512 * 512 + 512 + 8 * 512 + 8 * 512));
    let flops = case["flops"].as_u64().unwrap();
    assert!((2 * 8 * 512 * 512..=2 * 8 * 512 * 513 + 8 * 512).contains(&flops), "{flops}");
    let entry = &case["entries"][0];
    assert_eq!(entry["by"], "kinora");
    let time = &entry["milliseconds"];
    let [low, median, high] =
        [&time["interval"][0], &time["median"], &time["interval"][1]].map(|value| value.as_f64().unwrap());
    assert!(0.0 < low && low <= median && median <= high);
    assert_eq!(time["turns"], 3);
    // With three turns, the median lies between the outermost with a probability of 75 %.
    assert_eq!(time["confidence"], 0.75);
    let rate = entry["flops_per_second"].as_f64().unwrap();
    assert!((rate * median / 1e3 / flops as f64 - 1.0).abs() < 1e-9);
    assert!(entry["of_ceiling"].as_f64().unwrap() > 0.0);

    answer(bench(&["--save"]).arg(&path)).must_fail(1, &["run.json exists already", "--force"]);
    let text = succeeded(&answer(kinora().args(["bench", "--from"]).arg(&path)));
    assert!(text.contains(CASE) && text.contains("of best") && text.contains(commit), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours in a pipe: {text}");
}

#[test]
fn only_slower_cases_are_a_failure() {
    let place = Studio::new();
    let (now, results) = saved(&place, "now.json");
    let compare = |baseline: &Path, words: &[&str]| {
        answer(kinora().args(["bench", "--from"]).arg(&now).arg("--compare").arg(baseline).args(words))
    };
    assert!(succeeded(&compare(&now, &[])).contains("unchanged"));

    // The earlier run took half as long.
    let quicker = place.write("quicker.json", scaled(&results, 0.5).to_string().as_bytes());
    // Intervals of a shared machine may be wide; these are not.
    let narrow = |results: &Value| {
        let mut results = results.clone();
        let time = &mut results["suites"][0]["cases"][0]["entries"][0]["milliseconds"];
        time["interval"] = serde_json::json!([time["median"], time["median"]]);
        results
    };
    place.write("now.json", narrow(&results).to_string().as_bytes());
    place.write("quicker.json", narrow(&scaled(&results, 0.5)).to_string().as_bytes());
    let slower = compare(&quicker, &[]);
    slower.must_fail(1, &["slower than before", CASE]);
    assert!(slower.text().contains("+100.0 %  slower ✗"), "{slower:?}");
    assert!(succeeded(&compare(&quicker, &["--threshold", "101%"])).contains("within the threshold"));
    let object = compare(&quicker, &["--json"]);
    assert_eq!(object.code, Some(1));
    let change = &object.json()["comparison"]["changes"][0];
    assert_eq!((&change["verdict"], &change["regression"]), (&"slower".into(), &true.into()));

    let slow = place.write("slow.json", narrow(&scaled(&results, 2.0)).to_string().as_bytes());
    assert!(succeeded(&compare(&slow, &[])).contains("−50.0 %  faster"));

    let mut other = results.clone();
    other["suites"][0]["cases"][0]["name"] = "something else".into();
    let other = place.write("other.json", other.to_string().as_bytes());
    compare(&other, &[]).must_fail(1, &["no case in common"]);
}

#[test]
fn a_plot_has_a_bar_for_every_entry() {
    let place = Studio::new();
    let (_, mut results) = saved(&place, "run.json");
    let peer = serde_json::json!({"by": "PyTorch <eager>", "milliseconds": {
        "median": 2.0, "interval": [1.0, 3.0], "confidence": 0.96, "best": 1.0, "turns": 12, "runs": 36,
    }});
    let entries = results["suites"][0]["cases"][0]["entries"].as_array_mut().unwrap();
    entries.push(peer);
    entries.push(serde_json::json!({"by": "PyTorch flash", "failed": "no kernel"}));
    let from = place.write("peers.json", results.to_string().as_bytes());
    succeeded(&answer(
        kinora().current_dir(place.folder.path()).args(["bench", "--plot", "a.svg", "--from"]).arg(&from),
    ));
    let svg = String::from_utf8(place.read("a.svg")).unwrap();
    let elements = elements(&svg);
    assert_eq!(elements.iter().filter(|name| *name == "rect").count(), 2, "{svg}");
    assert!(svg.contains("PyTorch &lt;eager&gt;") && !svg.contains("flash"), "{svg}");
}

/// The elements of an XML document; checks that each is closed by its own name.
fn elements(document: &str) -> Vec<String> {
    let (mut names, mut open) = (Vec::new(), Vec::new());
    let mut rest = document;
    while let Some((text, tag)) = rest.split_once('<') {
        let is_text = open.last().is_some() || text.trim().is_empty();
        assert!(is_text && !text.contains('>'), "text outside of elements: {text}");
        let (tag, after) = tag.split_once('>').unwrap();
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "{tag}");
            continue;
        }
        let name = tag.split_whitespace().next().unwrap().trim_end_matches('/').to_owned();
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        names.push(name.clone());
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty());
    names
}

#[test]
fn cases_can_be_listed() {
    let listed = succeeded(&run(&["bench", "--list"]));
    for words in ["cpu linear linear 8×512→512", "kernels attention attention.svd_temporal0"] {
        let columns = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(listed.lines().any(|line| columns(line).starts_with(words)), "{listed}");
    }
    for stage in ["clip", "vae_encode", "unet", "vae_decode"] {
        assert!(listed.lines().any(|line| line.ends_with(stage)), "{stage} is not in {listed}");
    }
    let some = run(&["bench", "svd", "vae", "--list", "--json", "--only", "vae"]).json();
    let names: Vec<&str> =
        some["cases"].as_array().unwrap().iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["vae_encode", "vae_decode"]);
}

#[test]
fn several_patterns_choose_cases_and_each_must_match() {
    let names = |words: &[&str]| -> Vec<String> {
        let listed = answer(kinora().args(["bench", "svd", "vae", "--list", "--json"]).args(words)).json();
        let cases = listed["cases"].as_array().unwrap();
        cases.iter().map(|case| case["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["--only", "unet", "--only", "decode"]), ["unet", "vae_decode"]);
    assert_eq!(names(&["--only", "unet,decode"]), ["unet", "vae_decode"]);
    // A name that has a comma is one pattern.
    let comma = run(&["bench", "cpu", "--list", "--only", "conv 3×3 8→128, 8×32×32"]);
    assert_eq!(succeeded(&comma).lines().count(), 1);

    let bar = run(&["bench", "cpu", "--only", "conv|linear"]);
    bar.must_fail(
        2,
        &["no case of cpu matches 'conv|linear'", "nearest: 'linear", "not a regular expression"],
    );
    // One that matches does not excuse another that does not.
    let typo = run(&["bench", "kernels", "--list", "--only", "linear,atention.svd"]);
    typo.must_fail(2, &["'atention.svd' (nearest: 'attention.svd"]);
    assert!(!typo.stderr.contains("'linear"), "{}", typo.stderr);
    let help = succeeded(&run(&["bench", "--help"]));
    assert!(help.contains("Only cases whose names contain this text"), "{help}");
}

#[test]
fn a_clip_of_the_pipeline_is_measured() {
    let words = ["bench", "pipeline", "--size", "tiny", "--device", "cpu", "--quick", "--no-peers", "--json"];
    let suite = run(&words).json()["results"]["suites"][0].clone();
    let case = &suite["cases"][0];
    assert_eq!(
        (&suite["size"], &case["name"], &case["family"]),
        (&"tiny".into(), &"pipeline".into(), &"pipeline".into())
    );
    assert!(case["flops"].as_u64().unwrap() > 0, "{case}");
    assert!(case["entries"][0]["milliseconds"]["median"].as_f64().unwrap() > 0.0, "{case}");
    run(&["bench", "pipeline", "--size", "full", "--device", "cpu", "--no-peers"])
        .must_fail(1, &["nothing was measured", "--size small"]);
}

#[test]
fn networks_and_small_kernels_run_on_the_cpu() {
    let words =
        ["bench", "kernels", "svd", "vae", "--device", "cpu", "--size", "tiny", "--quick", "--no-peers"];
    let mut command = kinora();
    command.args(words).args(["--json", "--only", "temporal3", "--only", "clip", "--only", "vae_decode"]);
    let results = answer(&mut command).json()["results"].clone();
    let suites = results["suites"].as_array().unwrap();
    let sizes: Vec<&str> = suites.iter().map(|suite| suite["size"].as_str().unwrap()).collect();
    assert_eq!(sizes, ["reduced", "tiny", "tiny"]);
    for case in suites.iter().flat_map(|suite| suite["cases"].as_array().unwrap()) {
        assert!(case["entries"][0]["milliseconds"]["median"].as_f64().unwrap() > 0.0, "{case}");
    }
    // `svd_clip` is one of the kernels.
    assert_eq!(suites[1]["cases"].as_array().unwrap().len(), 1);
}

#[test]
fn wrong_command_lines_are_refused() {
    run(&["bench", "gpu"]).must_fail(2, &["gpu", "kernels"]);
    run(&["bench", "--size", "huge"]).must_fail(2, &["huge", "tiny"]);
    run(&["bench", "cpu", "--only", "nothing like it"]).must_fail(2, &["nothing like it", "--list"]);
    run(&["bench", "--threshold", "5%"]).must_fail(2, &["--compare"]);
    run(&["bench", "--compare", "x.json", "--threshold", "much"]).must_fail(2, &["much"]);
    run(&["bench", "cpu", "--seconds", "0"]).must_fail(2, &["--seconds"]);
    run(&["bench", "cpu", "--python", "/nothing/here"]).must_fail(1, &["/nothing/here", "--no-peers"]);
    run(&["bench", "cpu", "--no-peers", "--compile"]).must_fail(2, &["--compile"]);
    // Before the work, not after it.
    answer(&mut bench(&["--save", "run.json", "--plot", "./run.json"]))
        .must_fail(2, &["./run.json is named for two outputs"]);
    answer(&mut bench(&["--save", "/nothing/here/run.json"]))
        .must_fail(1, &["cannot write /nothing/here/run.json"]);
    answer(&mut bench(&["--compare", "/nothing/here.json"]))
        .must_fail(1, &["cannot read /nothing/here.json"]);

    let place = Studio::new();
    let profile = place.write("profile.json", b"{\"format\": 1, \"spans\": []}");
    answer(bench(&["--compare"]).arg(&profile))
        .must_fail(1, &["profile.json holds no results of `kinora bench`"]);
    let (_, mut results) = saved(&place, "later.json");
    results["format"] = 2.into();
    let later = place.write("later.json", results.to_string().as_bytes());
    answer(kinora().args(["bench", "--from"]).arg(&later)).must_fail(1, &["its format is 2"]);
}

#[test]
fn patterns_that_are_empty_do_not_mean_everything() {
    for empty in ["", ",", ",,"] {
        run(&["bench", "cpu", "--list", "--only", empty]).must_fail(2, &["--only has no pattern"]);
    }
    let plain = succeeded(&run(&["bench", "cpu", "--list", "--only", "conv 1×1"]));
    assert_eq!(plain, succeeded(&run(&["bench", "cpu", "--list", "--only", "CONV 1x1"])));
    // All names begin in one column.
    let all = succeeded(&run(&["bench", "--list"]));
    let listed = run(&["bench", "--list", "--json"]).json();
    let names = listed["cases"].as_array().unwrap().iter().map(|case| case["name"].as_str().unwrap());
    let columns: Vec<usize> =
        all.lines().zip(names).map(|(line, name)| line.strip_suffix(name).unwrap().chars().count()).collect();
    assert!(columns.iter().all(|column| *column == columns[0]), "{all}");
}

/// A file of results may come from anywhere.
#[test]
fn saved_results_that_make_no_sense_are_refused() {
    let place = Studio::new();
    let (_, results) = saved(&place, "run.json");
    let with = |median: Value| {
        let mut changed = results.clone();
        changed["suites"][0]["cases"][0]["entries"][0]["milliseconds"]["median"] = median;
        place.write("changed.json", changed.to_string().as_bytes())
    };
    for median in [0.0, -1.0, 1e308] {
        let refused = answer(kinora().args(["bench", "--json", "--from"]).arg(with(median.into())));
        refused.must_fail(1, &["changed.json", CASE, "times are above 0"]);
    }
    let mut changed = results.clone();
    changed["suites"][0]["cases"][0]["name"] = "\u{1b}[31mred".into();
    let path = place.write("changed.json", changed.to_string().as_bytes());
    let plot = place.folder.path().join("plot.svg");
    let shown = answer(kinora().args(["bench", "--from"]).arg(&path).arg("--plot").arg(&plot));
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(!shown.text().contains('\u{1b}') && shown.text().contains("[31mred"), "{shown:?}");
    assert!(!place.read("plot.svg").contains(&0x1b));
}

/// With `--json`, whoever reads the object need not look at the exit code.
#[test]
fn a_failure_is_in_the_object_as_well() {
    let place = Studio::new();
    let (path, mut results) = saved(&place, "run.json");
    let other = {
        results["suites"][0]["precision"] = "f16".into();
        place.write("other.json", results.to_string().as_bytes())
    };
    let compared =
        answer(kinora().args(["bench", "--json", "--from"]).arg(&path).arg("--compare").arg(&other));
    compared.must_fail(1, &["nothing to compare"]);
    let json = compared.json();
    assert_eq!((&json["error"]["kind"], &json["error"]["exit_code"]), (&"bench".into(), &1.into()));
    assert!(json["results"].is_object() && json["comparison"].is_object(), "{json}");
}

/// A program that looks like a Python with PyTorch, and runs these commands as a peer.
#[cfg(unix)]
fn python(place: &Studio, commands: &str) -> PathBuf {
    use std::{fs, os::unix::fs::PermissionsExt};

    let script = format!("#!/bin/sh\nif [ \"$1\" = -c ]; then echo 9.9; exit; fi\n{commands}\n");
    let path = place.write("python", script.as_bytes());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A program that answers as a peer does. `$path` is where the result of a request to prepare goes.
#[cfg(unix)]
fn peer(place: &Studio, prepare: &str) -> PathBuf {
    let commands = format!(
        r#"read -r hello; echo '{{"torch": "9.9"}}'
read -r request; path=$(printf '%s' "$request" | sed 's/.*"result":"\([^"]*\)".*/\1/')
{prepare}"#
    );
    python(place, &commands)
}

#[cfg(unix)]
fn beside(python: &Path) -> Answer {
    let mut command = kinora();
    answer(command.args(["bench", "cpu", "--quick", "--json", "--only", CASE, "--python"]).arg(python))
}

#[test]
#[cfg(unix)]
fn a_peer_whose_result_differs_is_a_failure() {
    let place = Studio::new();
    // 8×512 zeros.
    let zeros =
        r#"head -c 16384 /dev/zero > "$path.0"; echo '{"variants": [{"name": "eager"}]}'; read -r end"#;
    let differs = beside(&peer(&place, zeros));
    differs.must_fail(1, &[CASE, "PyTorch eager", "differs from kinora by 1.0e0"]);
    let results = &differs.json()["results"];
    assert_eq!(results["peer"]["torch"], "9.9");
    let entries = results["suites"][0]["cases"][0]["entries"].as_array().unwrap();
    assert_eq!((entries.len(), &entries[1]["distance"]), (2, &1.0.into()));
    assert!(entries[0]["milliseconds"].is_object() && entries[1].get("milliseconds").is_none());
}

#[test]
#[cfg(unix)]
fn a_peer_that_refuses_or_stops_is_reported() {
    let place = Studio::new();
    let refuses = r#"echo '{"variants": [{"name": "SDPA flash", "failed": "no kernel"}]}'; read -r end"#;
    let refused = beside(&peer(&place, refuses));
    assert_eq!(refused.code, Some(0), "{refused:?}");
    let entry = &refused.json()["results"]["suites"][0]["cases"][0]["entries"][1];
    assert_eq!((&entry["by"], &entry["failed"]), (&"PyTorch SDPA flash".into(), &"no kernel".into()));

    let stopped = beside(&peer(&place, "echo out of luck >&2; exit 1"));
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    let suite = &stopped.json()["results"]["suites"][0];
    assert!(suite["notes"][0].as_str().unwrap().contains("the peer stopped: out of luck"), "{suite}");
    assert_eq!(suite["cases"][0]["entries"].as_array().unwrap().len(), 1);
}

#[test]
fn kernels_need_a_gpu_unless_the_cpu_is_asked_for() {
    let answer = run(&["bench", "kernels", "--no-peers", "--quick", "--only", "small_2x8x64"]);
    // A machine with a GPU runs it.
    if answer.text().contains("no GPU") {
        assert!(answer.text().contains("not run: "), "{answer:?}");
        answer.must_fail(1, &["nothing was measured: ", "--device cpu"]);
    }
}

#[test]
fn a_plot_is_an_svg() {
    let place = Studio::new();
    let path = place.folder.path().join("plot.png");
    answer(bench(&["--plot"]).arg(path)).must_fail(2, &["plot.png: the plot is an SVG"]);
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn live_video_is_measured_on_the_cpu() {
    let place = Studio::new();
    let path = |name: &str| place.folder.path().join(name);
    let mut command = kinora();
    command.args(["bench", "live", "--quick", "--no-peers", "--device", "cpu", "--size", "tiny", "--save"]);
    let table = succeeded(&answer(command.arg(path("live.json")).arg("--plot").arg(path("live.svg"))));
    assert!(table.contains("kinora: p50 "), "{table}");
    assert!(place.read("live.svg").starts_with(b"<svg"));
    let results: Value = serde_json::from_slice(&place.read("live.json")).unwrap();
    let suite = &results["suites"][0];
    assert_eq!((&suite["suite"], &suite["size"]), (&"live".into(), &"tiny".into()));
    let cases = suite["cases"].as_array().unwrap();
    let names: Vec<&str> = cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["frame, 1 step", "frame, 2 steps", "unet, batch 1", "unet, batch 2", "encode", "decode", "stream"]
    );
    for case in cases {
        let time = &case["entries"][0]["milliseconds"];
        let [best, most] = [&time["best"], &time["p99"]].map(|time| time.as_f64().unwrap());
        assert!(0.0 < best && best <= most, "{case}");
        assert!(case["flops"].as_u64().unwrap() > 0 && case["bytes"].as_u64().unwrap() > 0, "{case}");
    }
    assert_eq!(cases[6]["family"], "stream");
    let compared = answer(
        kinora()
            .args(["bench", "--json", "--from"])
            .arg(path("live.json"))
            .arg("--compare")
            .arg(path("live.json")),
    )
    .json();
    assert_eq!(compared["comparison"]["changes"].as_array().unwrap().len(), 7);
}

#[test]
fn targets_stand_beside_their_goals_and_none_passes_unmeasured() {
    let place = Studio::new();
    let path = place.folder.path().join("targets.json");
    let mut command = kinora();
    command.args([
        "bench",
        "targets",
        "--quick",
        "--no-peers",
        "--device",
        "cpu",
        "--size",
        "tiny",
        "--save",
    ]);
    let table = succeeded(&answer(command.arg(&path)));
    for words in [
        "attention 2×8×77×64",
        "temporal convolution, 1280 channels",
        "−20 to −30 %",
        "not measured: needs PyTorch",
        "not measured: needs a GPU",
        "0 passed, 0 failed, 10 not measured",
        "the goals are those of a GPU",
    ] {
        assert!(table.to_lowercase().contains(&words.to_lowercase()), "{words}: {table}");
    }
    let results: Value = serde_json::from_slice(&place.read("targets.json")).unwrap();
    let suite = &results["suites"][0];
    assert_eq!((&suite["suite"], &suite["size"]), (&"targets".into(), &"reduced".into()));
    let names: Vec<&str> =
        suite["cases"].as_array().unwrap().iter().map(|case| case["name"].as_str().unwrap()).collect();
    // What was cut down says so.
    for name in ["attention.small_2x16x256", "conv.svd_temporal0, reduced", "sampler.svd", "unet, tiny"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let targets = suite["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 10);
    assert!(
        targets.iter().all(|target| target["outcome"] == "not_measured" && target.get("measured").is_none())
    );
    let again = succeeded(&answer(kinora().args(["bench", "--from"]).arg(&path)));
    assert!(again.contains("0 passed, 0 failed, 10 not measured"), "{again}");

    // They are no part of a run of everything.
    let listed = succeeded(&run(&["bench", "--list"]));
    assert!(!listed.contains("kernel sets"), "{listed}");
    let listed = run(&["bench", "targets", "--list", "--json", "--only", "sampler,unet"]).json();
    assert_eq!(listed["cases"].as_array().unwrap().len(), 2);
}

#[test]
#[cfg(unix)]
fn a_target_whose_peer_refuses_is_not_measured() {
    let place = Studio::new();
    let other = r#"echo '{"variants": [{"name": "eager", "failed": "no kernel"}]}'; read -r end"#;
    let python = peer(&place, other);
    let mut command = kinora();
    command
        .current_dir(place.folder.path())
        .args(["bench", "targets", "--quick", "--device", "cpu", "--json"]);
    let answer = answer(command.args(["--only", "sampler", "--python"]).arg(python));
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let target = &answer.json()["results"]["suites"][0]["targets"][0];
    assert_eq!((&target["target"], &target["outcome"]), (&"sampler step".into(), &"not_measured".into()));
    assert_eq!(target["why"], "PyTorch eager: no kernel");
}
