//! References in Python: a function over arrays, run by a worker in a process of its own, which may take only so long.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    Element,
    expression::Scope,
    inputs::npy::Array,
    task::{Sizes, Task, TaskError},
};

const WORKER: &str = include_str!("worker.py");

/// The environment variable that names the Python.
const VARIABLE: &str = "KINORA_LAB_PYTHON";

/// How long a file may take to declare its task.
const DECLARE_SECONDS: f64 = 60.0;

/// How much is said of what a worker printed before it died.
const MAX_SAID: u64 = 2000;
/// The longest answer: a task that is declared.
const MAX_ANSWER: u64 = 4 << 20;

/// The results of a reference, by buffer.
pub(super) fn results(
    task: &Task,
    sizes: &Sizes,
    scope: &Scope,
    given: &[Vec<u8>],
    (file, function, seconds): (&Path, &str, f64),
) -> Result<Vec<Option<Vec<f64>>>, String> {
    let system = |error: std::io::Error| format!("a temporary file cannot be written: {error}");
    let folder = tempfile::tempdir().map_err(system)?;
    let mut inputs = Vec::new();
    let mut wanted = Vec::new();
    for (number, buffer) in task.buffers.iter().enumerate() {
        let shape = buffer.extents(scope).map_err(|error| error.to_string())?;
        if buffer.is_given() {
            let path = folder.path().join(format!("given{number}.npy"));
            let array = Array { element: buffer.element, shape: shape.clone(), bytes: given[number].clone() };
            fs::write(&path, widened(array).to_bytes()).map_err(system)?;
            inputs.push(json!({"name": buffer.name, "file": path}));
        }
        if buffer.is_result() {
            let path = folder.path().join(format!("result{number}.npy"));
            wanted.push((number, shape.clone(), path.clone()));
        }
    }
    // Results in the order of their kinds in the description: outputs are what a function gives first.
    wanted.sort_by_key(|(number, ..)| (task.buffers[*number].is_given(), *number));
    let numbers: BTreeMap<&str, Value> = scope
        .iter()
        .map(|(name, value)| match sizes.0.get(name) {
            Some(size) => (name, json!(size)),
            None => (name, json!(value)),
        })
        .collect();
    let job = json!({
        "what": "compute",
        "file": absolute(file)?,
        "function": function,
        "numbers": numbers,
        "given": inputs,
        "results": wanted
            .iter()
            .map(|(number, shape, file)| json!({"name": task.buffers[*number].name, "shape": shape, "file": file}))
            .collect::<Vec<_>>(),
    });
    run(folder.path(), job, seconds).map_err(|what| format!("{}: {what}", file.display()))?;
    let mut results = vec![None; task.buffers.len()];
    for (number, shape, path) in wanted {
        let array = Array::read(&path).map_err(|error| format!("the worker's answer: {error}"))?;
        if array.shape != shape {
            return Err("the worker's answer has another shape".to_owned());
        }
        results[number] = Some(array.element.load(&array.bytes));
    }
    Ok(results)
}

/// The task that a Python file declares as `TASK`, as the text of a description, and the file.
pub(crate) fn declared(file: &Path) -> Result<(String, PathBuf), TaskError> {
    let wrong = |what: String| TaskError::Python(format!("{}: {what}", file.display()));
    // Refused like any other file that is read, before Python opens it.
    kinora_outside::read_text(file, 16 << 20)
        .map_err(|source| TaskError::Unreadable { path: file.to_owned(), source })?;
    let folder = tempfile::tempdir().map_err(|error| wrong(error.to_string()))?;
    let job = json!({"what": "describe", "file": absolute(file).map_err(wrong)?});
    let answer = run(folder.path(), job, DECLARE_SECONDS).map_err(wrong)?;
    let task: toml::Value = serde_json::from_value(answer["task"].clone())
        .map_err(|error| wrong(format!("TASK has something that a task cannot have: {error}")))?;
    let text = toml::to_string(&task).map_err(|error| wrong(format!("TASK cannot be read: {error}")))?;
    Ok((text, file.to_owned()))
}

fn absolute(file: &Path) -> Result<PathBuf, String> {
    std::path::absolute(file).map_err(|error| error.to_string())
}

/// Floating-point elements in f64: a reference computes in it.
fn widened(array: Array) -> Array {
    if array.element.is_whole() || array.element == Element::F64 {
        return array;
    }
    let bytes = array.element.load(&array.bytes).into_iter().flat_map(|x| Element::F64.store(x)).collect();
    Array { element: Element::F64, bytes, ..array }
}

/// Runs a worker; gives its answer.
fn run(folder: &Path, mut job: Value, seconds: f64) -> Result<Value, String> {
    let system = |error: std::io::Error| format!("a temporary file cannot be written: {error}");
    let (worker, task, answer) =
        (folder.join("worker.py"), folder.join("job.json"), folder.join("answer.json"));
    job["answer"] = json!(answer);
    fs::write(&worker, WORKER).map_err(system)?;
    fs::write(&task, job.to_string()).map_err(system)?;
    let said = folder.join("said.txt");
    let output = File::create(&said).map_err(system)?;
    let errors = output.try_clone().map_err(system)?;
    let python = python();
    let mut child = Command::new(&python)
        .arg(&worker)
        .arg(&task)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(|error| {
            format!("Python cannot be started ({}: {error}); set {VARIABLE} to one, or use a reference without Python", python.display())
        })?;
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "it took more than {seconds} seconds and was ended; `seconds` under [reference] allows more"
                ));
            }
            Err(error) => return Err(format!("Python cannot be waited for: {error}")),
        }
    };
    let answered = kinora_outside::read_text(&answer, MAX_ANSWER).ok();
    let answered = answered.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    match answered {
        Some(answer) => match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        },
        None => {
            let mut text = Vec::new();
            if let Ok(file) = File::open(&said) {
                let _ = file.take(MAX_SAID).read_to_end(&mut text);
            }
            let text = String::from_utf8_lossy(&text);
            Err(format!("Python ended without an answer ({status}): {}", text.trim()))
        }
    }
}

/// The Python to use: the one that was named, the active environment's, or the first on the path.
fn python() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(named) = variable(VARIABLE) {
        return named;
    }
    let in_environment = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
    let active = active.map(|environment| environment.join(in_environment)).find(|python| python.is_file());
    active.unwrap_or_else(|| PathBuf::from(if cfg!(windows) { "python" } else { "python3" }))
}
