//! `kinora lab`, as a person uses it.
#![cfg(all(feature = "cuda", feature = "simulator"))]
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use std::{
    fs,
    io::Write,
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use support::{Answer, Studio, answer, kinora};

/// Runs in a folder, with the compiler of the project's environment.
fn lab(place: &Studio, words: &[&str]) -> Answer {
    answer(command(place).args(words))
}

fn command(place: &Studio) -> std::process::Command {
    let mut command = kinora();
    // The environment is named relative to the folder that the tests run in.
    if let Some(environment) = std::env::var_os("VIRTUAL_ENV") {
        let environment = std::path::absolute(environment).unwrap();
        command.env("VIRTUAL_ENV", environment);
    }
    command.current_dir(place.folder.path()).arg("lab");
    command
}

/// Whether there is no compiler, which is said.
fn no_compiler(ran: &Answer) -> bool {
    let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), ran.stderr);
    let absent = text.contains("(NVRTC) was not found") && std::env::var_os("KINORA_REQUIRE_NVRTC").is_none();
    if absent {
        let _ = writeln!(std::io::stderr(), "lab not run: no NVRTC");
    }
    absent
}

/// From an empty folder to a verified kernel, and to one that is wrong.
#[test]
fn a_new_kernel_passes_and_a_mistake_is_found() {
    let place = Studio::new();
    let made = lab(&place, &["new", "sum", "--like", "reduction"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.text().contains("kinora lab run sum"), "{}", made.text());
    let ran = lab(&place, &["run", "sum"]);
    if no_compiler(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = ran.text();
    for words in [
        "on a simulated H200",
        "✓ n = 50001",
        "predicted on H200",
        "of what the chip's memory allows",
        "right",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    assert!(!text.contains('\x1b'), "{text}");

    // Again, it would replace what is there.
    lab(&place, &["new", "sum"]).must_fail(3, &["exists already"]);
    lab(&place, &["new", "sum", "--like", "nothing"]).must_fail(2, &["reduction"]);
    lab(&place, &["new", "../up"]).must_fail(2, &["not a name"]);

    let source = fs::read_to_string(place.folder.path().join("sum/sum.cu")).unwrap();
    let wrong = source.replace("    __syncthreads();\n", "");
    assert_ne!(wrong, source);
    place.write("sum/sum.cu", wrong.as_bytes());
    let ran = lab(&place, &["run", "sum", "--json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let outcome = ran.json();
    assert_eq!(outcome["verdict"], "wrong");
    assert_eq!(outcome["schema"], 1);
    let size = &outcome["devices"][0]["sizes"][2];
    assert!(
        size["problems"].as_array().unwrap().iter().any(|problem| problem["kind"] == "finding"),
        "{size}"
    );
    assert!(size["findings"][0]["source"]["file"].as_str().unwrap().ends_with("sum.cu"), "{size}");
    assert!(outcome["error"]["message"].as_str().unwrap().contains("the kernel is wrong"), "{outcome}");
}

#[test]
fn what_cannot_be_run_has_an_exit_code_of_its_own() {
    let place = Studio::new();
    lab(&place, &["run", "nothing"]).must_fail(3, &["cannot read", "nothing"]);
    lab(&place, &["new", "scale"]);
    let task = fs::read_to_string(place.folder.path().join("scale/task.toml")).unwrap();
    place.write("scale/task.toml", task.replace("block = 256", "blok = 256").as_bytes());
    lab(&place, &["run", "scale"]).must_fail(3, &["task.toml:", "blok"]);
    place.write("scale/task.toml", task.replace("n = [1024, 1", "n = [1_000_000_000_000, 1").as_bytes());
    lab(&place, &["run", "scale"]).must_fail(3, &["TB"]);
    place.write("scale/task.toml", task.as_bytes());
    place.write("scale/scale.cu", b"__global__ void axpy() { mistake; }");
    let ran = lab(&place, &["run", "scale"]);
    if no_compiler(&ran) {
        return;
    }
    ran.must_fail(3, &["could not be run"]);
    assert!(ran.text().contains("scale.cu(1)") && ran.text().contains("mistake"), "{}", ran.text());
    let ran = lab(&place, &["run", "scale", "--json"]);
    assert_eq!((ran.code, ran.json()["problems"][0]["kind"].as_str()), (Some(3), Some("compile")));
    // Text from outside reaches no terminal as it is.
    place.write("scale/scale.cu", "__global__ void axpy() { \u{1b}[31m; }".as_bytes());
    assert!(!lab(&place, &["run", "scale"]).text().contains('\x1b'));
    lab(&place, &["run", "scale/scale.cu"]).must_fail(2, &["--grid"]);
    lab(&place, &["run", "scale", "--grid", "1"]).must_fail(2, &["without a task"]);
    lab(&place, &["run", "scale", "--gpu", "x"]).must_fail(2, &["none"]);
    lab(&place, &["run", "scale", "--device-profile", "abacus"]).must_fail(2, &["h200"]);
    lab(&place, &["compare", "scale.cu", "other.cu"]).must_fail(2, &["--task"]);
}

#[test]
fn two_kernels_are_shown_side_by_side() {
    let place = Studio::new();
    lab(&place, &["new", "scale", "--like", "elementwise"]);
    let source = fs::read_to_string(place.folder.path().join("scale/scale.cu")).unwrap();
    // Sixteen elements apart: a warp's loads take 32 sectors.
    let strided = source.replace(
        "int i = blockIdx.x * blockDim.x + threadIdx.x;",
        "int t = threadIdx.x, i = blockIdx.x * 256 + t % 16 * 16 + t / 16;",
    );
    assert_ne!(strided, source);
    place.write("scale/strided.cu", strided.as_bytes());
    let ran = lab(&place, &["compare", "scale/scale.cu", "scale/strided.cu"]);
    if no_compiler(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = ran.text();
    for words in ["scale.cu", "strided.cu", "predicted time", "global load sectors", "right"] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    let compared = lab(&place, &["compare", "scale/scale.cu", "scale/strided.cu", "--json"]).json();
    let sectors =
        compared["quantities"].as_array().unwrap().iter().find(|one| one["name"] == "global load sectors");
    let sectors = sectors.unwrap();
    assert!(sectors["second"].as_f64().unwrap() > 3.0 * sectors["first"].as_f64().unwrap(), "{sectors}");
    // One that is wrong is said to be.
    place.write("scale/wrong.cu", source.replace("a * x[i]", "x[i]").as_bytes());
    let ran = lab(&place, &["compare", "scale/scale.cu", "scale/wrong.cu"]);
    ran.must_fail(1, &["wrong"]);
    assert!(ran.text().contains("elements of out are wrong"), "{}", ran.text());
}

/// Results of a kernel as files, and files as a task.
#[test]
fn arrays_go_in_and_out() {
    let place = Studio::new();
    lab(&place, &["new", "scale"]);
    fs::create_dir(place.folder.path().join("out")).unwrap();
    let ran = lab(&place, &["run", "scale", "--results", "out", "--no-time"]);
    if no_compiler(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(place.read("out/out.npy").starts_with(b"\x93NUMPY"));
    lab(&place, &["run", "scale", "--results", "out", "--no-time"])
        .must_fail(3, &["exists already", "--force"]);
    // The result is what another kernel takes, and must give back.
    place.write(
        "copy.cu",
        b"__global__ void copy(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }",
    );
    let words = [
        "run",
        "copy.cu",
        "--grid",
        "1",
        "--block",
        "1024",
        "--argument",
        "x",
        "--argument",
        "y",
        "--no-time",
    ];
    let files = ["--input", "x=out/out.npy", "--output", "y=out/out.npy"];
    let ran = lab(&place, &[&words[..], &files].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.text().contains("y exact"), "{}", ran.text());
    lab(&place, &[&words[..], &["--input", "x", "--output", "y=out/out.npy"]].concat())
        .must_fail(2, &["NAME=FILE"]);
}

/// A save is answered, a broken one too, and the next one mends it.
#[test]
fn a_watched_task_runs_again_at_every_save() {
    let place = Studio::new();
    lab(&place, &["new", "scale"]);
    if no_compiler(&lab(&place, &["run", "scale", "--no-time"])) {
        return;
    }
    let source = fs::read_to_string(place.folder.path().join("scale/scale.cu")).unwrap();
    let said = place.folder.path().join("said.txt");
    let mut watch = command(&place)
        .args(["watch", "scale", "--runs", "4"])
        .stdout(fs::File::create(&said).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let runs =
        |path: &Path| fs::read_to_string(path).unwrap_or_default().matches("waiting for a save").count();
    let until = |count: usize| {
        let start = Instant::now();
        while runs(&said) < count && start.elapsed() < Duration::from_secs(120) {
            thread::sleep(Duration::from_millis(20));
        }
        assert!(runs(&said) >= count, "{}", fs::read_to_string(&said).unwrap());
    };
    until(1);
    place.write("scale/scale.cu", source.replace("a * x[i]", "x[i] * x[i]").as_bytes());
    until(2);
    place.write("scale/task.toml.new", b"");
    let task = fs::read_to_string(place.folder.path().join("scale/task.toml")).unwrap();
    place.write("scale/task.toml", b"[kernel");
    until(3);
    place.write("scale/task.toml", task.as_bytes());
    until(4);
    assert_eq!(watch.wait().unwrap().code(), Some(0));
    let text = fs::read_to_string(&said).unwrap();
    assert!(text.contains("right") && text.contains("wrong") && text.contains("task.toml:1"), "{text}");
}

/// A matrix that is generated, and one from a file: what it is like, the kernels checked and predicted, the answer as JSON.
#[test]
fn a_sparse_matrix_is_multiplied_by_every_kernel() {
    let place = Studio::new();
    let recipe = "power-law:rows=2000,nonzeros=20000,seed=1";
    let ran = lab(&place, &["spmv", "--generate", recipe, "--no-gpu", "--json", "--save", "found.json"]);
    if no_compiler(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(found["statistics"]["rows"], 2000);
    assert_eq!(found["measured"], false);
    let kernels = found["kernels"].as_array().unwrap();
    let named = |name: &str| kernels.iter().find(|kernel| kernel["kernel"] == name).unwrap();
    for name in [
        "scalar",
        "vector, 8 lanes",
        "merge",
        "adaptive, 4 a thread",
        "adaptive, 12 a thread",
        "sliced by 49152",
    ] {
        assert_eq!(named(name)["checked_rows"], 2000, "{name}");
        assert_eq!(named(name)["difference"]["wrong_rows"], 0, "{name}");
        assert!(named(name)["seconds"].as_f64().unwrap() > 1e-6, "{name}");
    }
    let saved: serde_json::Value =
        serde_json::from_slice(&fs::read(place.folder.path().join("found.json")).unwrap()).unwrap();
    assert_eq!(saved, found);

    let text = "%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n1 1 2\n2 1 -1\n3 3 4\n";
    fs::write(place.folder.path().join("small.mtx"), text).unwrap();
    let ran = lab(
        &place,
        &["spmv", "small.mtx", "--no-gpu", "--values", "f64", "--indices", "i64", "--beta", "0.5"],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for words in
        ["small.mtx: 3 × 3, 4 non-zeros, f64 values, i64 indices", "adaptive", "right", "the fastest is"]
    {
        assert!(ran.text().contains(words), "{words}: {}", ran.text());
    }

    fs::write(place.folder.path().join("broken.mtx"), text.replace("2 1 -1", "2 4 -1")).unwrap();
    let broken = lab(&place, &["spmv", "broken.mtx", "--no-gpu"]);
    assert_eq!(broken.code, Some(3), "{broken:?}");
    assert!(
        broken.stderr.contains("broken.mtx: line 4: the column is not a number from 1 to 3"),
        "{broken:?}"
    );
    assert_eq!(lab(&place, &["spmv", "absent.mtx", "--no-gpu"]).code, Some(3));
    for wrong in [
        &["spmv"][..],
        &["spmv", "--generate", "web:rows=3"],
        &["spmv", "small.mtx", "--suite"],
        &["spmv", "small.mtx", "--only", "uniform"],
        &["spmv", "--suite", "--only", "no such words"],
    ] {
        assert_eq!(lab(&place, wrong).code, Some(2), "{wrong:?}");
    }
}

/// Files beside the answer: a folder is made, nothing is replaced unasked, and a wrong kernel has a page too.
#[test]
fn files_are_written_whole_or_not_at_all() {
    let place = Studio::new();
    lab(&place, &["new", "axpy"]);
    let ran = lab(&place, &["run", "axpy", "--no-time", "--results", "out/deep", "--html", "axpy.html"]);
    if no_compiler(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(place.folder.path().join("out/deep/out.npy").is_file());
    let page = fs::read_to_string(place.folder.path().join("axpy.html")).unwrap();
    assert!(
        page.starts_with("<!doctype html>") && page.contains("right") && page.contains("id=L10"),
        "{page}"
    );
    // What exists is no wrong kernel: it has another exit code, and the kernel is not even run.
    for words in [["--html", "axpy.html"], ["--results", "out/deep"]] {
        let again = lab(&place, &[&["run", "axpy", "--no-time"][..], &words].concat());
        assert_eq!(again.code, Some(3), "{again:?}");
        assert!(again.stderr.contains("exists already") && again.text().is_empty(), "{again:?}");
    }
    let source = place.folder.path().join("axpy/axpy.cu");
    let wrong = fs::read_to_string(&source).unwrap().replace("i < n", "i <= n").replace("a * x[i]", "x[i]");
    fs::write(&source, wrong).unwrap();
    let ran = lab(&place, &["run", "axpy", "--html", "axpy.html", "--force", "--json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.text().contains("\"verdict\":\"wrong\""), "{}", ran.text());
    let page = fs::read_to_string(place.folder.path().join("axpy.html")).unwrap();
    assert!(page.contains("OutOfBounds") && page.contains("class=found"), "{page}");
    // What an earlier size had is not told at length again.
    let ran = lab(&place, &["run", "axpy", "--no-time"]);
    let text = ran.text();
    // Two reads and a write go astray at the line.
    assert_eq!(text.matches("check the index against the extent").count(), 3, "{text}");
    assert_eq!(text.matches("OutOfBounds at axpy/axpy.cu:10 in axpy, as before").count(), 2, "{text}");
    assert!(text.contains("> 10 |") && text.contains("as before") && text.contains("which has"), "{text}");
}

/// A reference that does not end is ended, with what it has started, also when the program is asked to end.
#[test]
#[cfg(unix)]
fn a_reference_does_not_outlive_the_program() {
    let place = Studio::new();
    lab(&place, &["new", "axpy"]);
    let task = fs::read_to_string(place.folder.path().join("axpy/task.toml")).unwrap();
    let task = task.replace("expression = \"a * x + y\"", "python = \"reference.py\"\nseconds = 1");
    fs::write(place.folder.path().join("axpy/task.toml"), &task).unwrap();
    let reference = "import os, time\nif os.fork() == 0:\n    time.sleep(3)\n    open('alive', 'w')\nelse:\n    time.sleep(3)\n";
    fs::write(place.folder.path().join("axpy/reference.py"), reference).unwrap();
    let started = Instant::now();
    let ran = lab(&place, &["run", "axpy", "--no-time"]);
    if no_compiler(&ran) || ran.text().contains("cannot be started") {
        return;
    }
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.text().contains("more than 1 seconds") && ran.text().contains("other sizes were not run"),
        "{ran:?}"
    );
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    fs::write(place.folder.path().join("axpy/task.toml"), task.replace("seconds = 1", "seconds = 60"))
        .unwrap();
    let mut running =
        command(&place).args(["run", "axpy"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    thread::sleep(Duration::from_millis(1200));
    let asked =
        std::process::Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap();
    assert!(asked.success());
    assert_eq!(running.wait().unwrap().code(), Some(130));
    thread::sleep(Duration::from_secs(3));
    assert!(!place.folder.path().join("alive").exists(), "what the reference has started goes on");
}

/// The processes that were started with this folder for temporary files, and what they have started.
#[cfg(target_os = "linux")]
fn processes(temporary: &Path) -> Vec<String> {
    let variable = format!("TMPDIR={}", temporary.display());
    let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let is_of = |process: &std::path::PathBuf| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|one| one.starts_with(variable.as_bytes()))
    };
    entries.filter(is_of).map(|process| process.display().to_string()).collect()
}

/// A Python that stays imports a library once. Neither a process nor a file of it is left when the program has ended, whatever ended it.
#[test]
#[cfg(target_os = "linux")]
fn a_python_that_stays_leaves_nothing() {
    let place = Studio::new();
    let at = |name: &str| place.folder.path().join(name);
    lab(&place, &["new", "axpy"]);
    let task = fs::read_to_string(at("axpy/task.toml")).unwrap();
    let described = |seconds: u32| {
        let task = task.replace("expression = \"a * x + y\"", "python = \"reference.py\"");
        task.replace("[reference]", &format!("[reference]\nseconds = {seconds}"))
    };
    fs::write(at("axpy/task.toml"), described(60)).unwrap();
    let reference = "import numpy\nimport library\ndef reference(a, x, y):\n    return a * x + y\n";
    fs::write(at("axpy/reference.py"), reference).unwrap();
    fs::create_dir(at("modules")).unwrap();
    fs::create_dir(at("temporary")).unwrap();
    let library =
        format!("with open({:?}, 'a') as file:\n    print('imported', file=file)\n", at("imports.txt"));
    fs::write(at("modules/library.py"), &library).unwrap();
    let lab = |words: &[&str]| {
        let mut command = command(&place);
        command.env("PYTHONPATH", at("modules")).env("TMPDIR", at("temporary")).args(words);
        command
    };
    let imports = || fs::read_to_string(at("imports.txt")).unwrap_or_default().lines().count();
    let left =
        || -> Vec<_> { fs::read_dir(at("temporary")).unwrap().map(|entry| entry.unwrap().path()).collect() };
    let nothing_is_left = |after: &str| {
        let started = Instant::now();
        // Processes and files go in the moments after the program.
        while !(processes(&at("temporary")).is_empty() && left().is_empty()) {
            let (processes, left) = (processes(&at("temporary")), left());
            assert!(started.elapsed() < Duration::from_secs(60), "after {after}: {processes:?}, {left:?}");
            thread::sleep(Duration::from_millis(5));
        }
    };

    // Two jobs for each of four sizes.
    let ran = answer(&mut lab(&["run", "axpy", "--no-time"]));
    let text = ran.text();
    if no_compiler(&ran) || ["cannot be started", "has no NumPy"].iter().any(|words| text.contains(words)) {
        assert!(std::env::var_os("KINORA_REQUIRE_NUMPY").is_none(), "{ran:?}");
        return;
    }
    assert_eq!((ran.code, imports()), (Some(0), 1), "{ran:?}");
    nothing_is_left("an ordinary end");
    let kernel = at("axpy/axpy.cu");
    let ran = answer(&mut lab(&["compare", "axpy/axpy.cu", kernel.to_str().unwrap(), "--no-time"]));
    assert_eq!((ran.code, imports()), (Some(0), 2), "{ran:?}");
    // A process with threads cannot be copied.
    let threads = format!(
        "{library}import threading, time\nthreading.Thread(target=time.sleep, args=[1e5], daemon=True).start()\n"
    );
    fs::write(at("modules/library.py"), threads).unwrap();
    let ran = answer(&mut lab(&["run", "axpy", "--no-time"]));
    assert_eq!((ran.code, imports()), (Some(0), 2 + 8), "{ran:?}");
    nothing_is_left("processes for single jobs");
    fs::write(at("modules/library.py"), library).unwrap();

    let until = |is: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !is() {
            assert!(started.elapsed() < Duration::from_secs(120));
            thread::sleep(Duration::from_millis(5));
        }
    };
    let signal = |running: &std::process::Child, name: &str| {
        let kill = std::process::Command::new("kill").args([name, &running.id().to_string()]).status();
        assert!(kill.unwrap().success());
    };
    // At rest.
    for (name, code) in [("-INT", Some(130)), ("-KILL", None)] {
        let said = fs::File::create(at("said.txt")).unwrap();
        let mut watch = lab(&["watch", "axpy"]).stdout(said).stderr(Stdio::null()).spawn().unwrap();
        until(&|| fs::read_to_string(at("said.txt")).unwrap().contains("waiting for a save"));
        assert!(!processes(&at("temporary")).is_empty(), "no Python stays");
        signal(&watch, name);
        assert_eq!(watch.wait().unwrap().code(), code);
        nothing_is_left("a watch");
    }
    // At work, with processes of every kind.
    let busy = "\
import subprocess, time
import numpy
def reference(a, x, y):
    subprocess.Popen(['sleep', '100000'])
    subprocess.Popen(['sleep', '100000'], start_new_session=True)
    subprocess.run(['sh', '-c', 'setsid sleep 100000 & touch STARTED'], check=True)
    time.sleep(100000)
";
    fs::write(at("axpy/reference.py"), busy.replace("STARTED", at("started").to_str().unwrap())).unwrap();
    for (name, code) in [("-INT", Some(130)), ("-TERM", Some(130)), ("-KILL", None)] {
        let mut running = lab(&["run", "axpy"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until(&|| at("started").exists());
        signal(&running, name);
        assert_eq!(running.wait().unwrap().code(), code);
        nothing_is_left(name);
        fs::remove_file(at("started")).unwrap();
    }
    // Too long.
    fs::write(at("axpy/task.toml"), described(2)).unwrap();
    let ran = answer(&mut lab(&["run", "axpy", "--no-time"]));
    assert!(ran.code == Some(3) && ran.text().contains("more than 2 seconds"), "{ran:?}");
    nothing_is_left("a reference that takes too long");
}

/// A search goes on where it was stopped, and says so.
#[test]
fn parameters_are_searched() {
    let place = Studio::new();
    lab(&place, &["new", "axpy"]);
    let ran = lab(&place, &["tune", "axpy"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("// tune: TILE = 64, 128"), "{ran:?}");
    let (source, task) =
        (place.folder.path().join("axpy/axpy.cu"), place.folder.path().join("axpy/task.toml"));
    let text = fs::read_to_string(&source).unwrap();
    fs::write(
        &source,
        format!("// tune: BLOCK = 64, 2048, 256\n#ifndef BLOCK\n#define BLOCK 256\n#endif\n{text}"),
    )
    .unwrap();
    let text = fs::read_to_string(&task).unwrap();
    let text = text.replace("ceil(n / 256)", "ceil(n / BLOCK)").replace("block = 256", "block = \"BLOCK\"");
    fs::write(&task, text.replace("[constants]", "[constants]\nBLOCK = 256")).unwrap();
    let ran = lab(&place, &["tune", "axpy", "--json"]);
    if no_compiler(&ran) {
        return;
    }
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let answer: serde_json::Value = serde_json::from_str(&ran.text()).unwrap();
    assert_eq!(answer["variants"].as_array().unwrap().len(), 3);
    assert_eq!(answer["variants"][0]["right"], true);
    assert_eq!(answer["best"], answer["variants"][0]);
    assert!(answer["variants"][2]["problem"].as_str().unwrap().contains("1024"), "{answer}");
    assert!(place.folder.path().join("axpy/tune.json").is_file());
    let again = lab(&place, &["tune", "axpy"]);
    assert!(again.text().contains("best, as predicted on H200: BLOCK="), "{again:?}");
}
