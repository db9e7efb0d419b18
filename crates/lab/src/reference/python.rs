//! References in Python: a function over arrays, run by a worker in a process of its own, which may take only so long.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::worker::{Job, MAX_FILE};
use crate::{
    Element,
    expression::Scope,
    inputs::npy::Array,
    task::{Sizes, Task, TaskError},
};

/// How long a file may take to declare its task.
const DECLARE_SECONDS: f64 = 60.0;

/// How long PyTorch may take to be timed: `torch.compile` alone takes a minute.
#[cfg(feature = "cuda")]
const TIMED_SECONDS: f64 = 300.0;

/// The results of a reference, by buffer.
pub(super) fn results(
    task: &Task,
    sizes: &Sizes,
    scope: &Scope,
    given: &[Vec<u8>],
    (file, function, seconds): (&Path, &str, f64),
) -> Result<Vec<Option<Vec<f64>>>, String> {
    let system = |error: std::io::Error| format!("a temporary file cannot be written: {error}");
    let mut asked = Job::of(file).map_err(|what| format!("{}: {what}", file.display()))?;
    let mut inputs = Vec::new();
    let mut wanted = Vec::new();
    for (number, buffer) in task.buffers.iter().enumerate() {
        let shape = buffer.extents(scope).map_err(|error| error.to_string())?;
        if buffer.is_given() {
            let path = asked.folder().join(format!("given{number}.npy"));
            let array = Array { element: buffer.element, shape: shape.clone(), bytes: given[number].clone() };
            fs::write(&path, widened(array).to_bytes()).map_err(system)?;
            inputs.push(json!({"name": buffer.name, "file": path}));
        }
        if buffer.is_result() {
            let path = asked.folder().join(format!("result{number}.npy"));
            wanted.push((number, shape.clone(), path.clone()));
        }
    }
    // Results in the order of their kinds in the description: outputs are what a function gives first.
    wanted.sort_by_key(|(number, ..)| (task.buffers[*number].is_given(), *number));
    let numbers = numbers(sizes, scope);
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
    asked.answer(job, seconds).map_err(|what| format!("{}: {what}", file.display()))?;
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

/// Sizes and constants by their names: sizes are whole numbers.
fn numbers<'a>(sizes: &Sizes, scope: &'a Scope) -> BTreeMap<&'a str, Value> {
    let number = |(name, value)| match sizes.0.get(name) {
        Some(size) => (name, json!(size)),
        None => (name, json!(value)),
    };
    scope.iter().map(number).collect()
}

/// Whether a file is written for PyTorch: it imports torch.
pub(crate) fn imports_torch(file: &Path) -> bool {
    let text = kinora_outside::read_text(file, MAX_FILE).unwrap_or_default();
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        let imports = matches!(words.next(), Some("import" | "from"));
        let module = words.next().unwrap_or_default();
        imports && module.split(['.', ',', ';']).next() == Some("torch")
    })
}

/// How long PyTorch takes for a reference on a GPU: one answer for each way to run it.
#[cfg(feature = "cuda")]
#[derive(Debug, serde::Deserialize)]
pub(crate) struct Timed {
    /// PyTorch's version.
    pub version: String,
    /// `eager`, and `torch.compile` if that was asked for.
    pub ways: Vec<TimedWay>,
}

/// One way to run a reference.
#[cfg(feature = "cuda")]
#[derive(Debug, serde::Deserialize)]
pub(crate) struct TimedWay {
    pub name: String,
    #[serde(default)]
    pub milliseconds: Vec<f64>,
    /// Why there are no times.
    pub error: Option<String>,
}

/// Times a reference on a GPU as the kernel is timed, on the same sets of inputs, in the elements that the kernel has.
#[cfg(feature = "cuda")]
pub(crate) fn time_on_gpu(
    task: &Task,
    scope: &Scope,
    (file, function): (&Path, &str),
    sets: &[Vec<Vec<u8>>],
    job: &Value,
) -> Result<Timed, String> {
    let system = |error: std::io::Error| format!("a temporary file cannot be written: {error}");
    let mut asked = Job::of(file)?;
    let mut all = Vec::new();
    for (set, given) in sets.iter().enumerate() {
        let mut inputs = Vec::new();
        for (number, buffer) in task.buffers.iter().enumerate().filter(|(_, buffer)| buffer.is_given()) {
            let shape = buffer.extents(scope).map_err(|error| error.to_string())?;
            let path = asked.folder().join(format!("given{set}-{number}.npy"));
            let array = Array { element: buffer.element, shape, bytes: given[number].clone() };
            // NumPy has no bf16: the worker makes it of f64.
            let array = if buffer.element == Element::Bf16 { widened(array) } else { array };
            fs::write(&path, array.to_bytes()).map_err(system)?;
            inputs.push(json!({"name": buffer.name, "file": path, "element": buffer.element.name()}));
        }
        all.push(inputs);
    }
    let mut job = job.clone();
    job["what"] = json!("time");
    job["file"] = json!(absolute(file)?);
    job["function"] = json!(function);
    job["numbers"] = json!(numbers(&task.time, scope));
    job["sets"] = json!(all);
    let answer = asked.answer(job, TIMED_SECONDS)?;
    serde_json::from_value(answer).map_err(|error| format!("the worker's answer: {error}"))
}

/// The task that a Python file declares as `TASK`, as the text of a description, and the file.
pub(crate) fn declared(file: &Path) -> Result<(String, PathBuf), TaskError> {
    let wrong = |what: String| TaskError::Python(format!("{}: {what}", file.display()));
    // Refused like any other file that is read, before Python opens it.
    kinora_outside::read_text(file, MAX_FILE)
        .map_err(|source| TaskError::Unreadable { path: file.to_owned(), source })?;
    let job = json!({"what": "describe", "file": absolute(file).map_err(wrong)?});
    let answer = Job::of(file).and_then(|mut asked| asked.answer(job, DECLARE_SECONDS)).map_err(wrong)?;
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn files_for_pytorch_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reference.py");
        for (text, is_for) in [
            ("import torch", true),
            ("x = 1\nfrom torch.nn import functional as F", true),
            ("    import torch.nn", true),
            ("# import torch", false),
            ("import torchvision", false),
            ("import numpy as torch_like", false),
            ("", false),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(imports_torch(&file), is_for, "{text}");
        }
        assert!(!imports_torch(&folder.path().join("missing.py")));
    }

    /// What times PyTorch gets its inputs in the kernel's elements. Without a GPU there are no times.
    #[test]
    #[cfg(feature = "cuda")]
    fn pytorch_runs_on_the_kernels_elements() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "task.toml",
            "[kernel]\nsource = \"k.cu\"\ngrid = 1\nblock = 32\narguments = [\"x\", \"b\", \"i\", \"y\"]\n\
             [sizes]\nn = 4\n[constants]\na = 2.0\n\
             [[input]]\nname = \"x\"\nelement = \"f16\"\nshape = \"n\"\n\
             [[input]]\nname = \"b\"\nelement = \"bf16\"\nshape = \"n\"\n\
             [[input]]\nname = \"i\"\nelement = \"u8\"\nshape = \"n\"\n\
             [[output]]\nname = \"y\"\nelement = \"f32\"\nshape = \"n\"\n\
             [reference]\npython = \"r.py\"\n",
        );
        write("k.cu", "__global__ void k() {}");
        write(
            "r.py",
            "import torch\n\
             def reference(x, b, i, a, n):\n    \
             assert (x.dtype, b.dtype, i.dtype) == (torch.float16, torch.bfloat16, torch.uint8), (x.dtype, b.dtype, i.dtype)\n    \
             assert (x[1].item(), b[1].item(), i[1].item(), a, n) == (1.5, 1.5, 3, 2.0, 4)\n    \
             return x * a\n",
        );
        let task = Task::open(folder.path()).unwrap();
        let scope = task.scope(&task.time).unwrap();
        let set = vec![
            [1.0, 1.5, 2.0, 3.0].into_iter().flat_map(|x| Element::F16.store(x)).collect(),
            [1.0, 1.5, 2.0, 3.0].into_iter().flat_map(|x| Element::Bf16.store(x)).collect(),
            vec![1, 3, 5, 7],
            Vec::new(),
        ];
        let job = json!({"device": "cpu", "gpu": 0, "compile": false, "flush": 1, "warm_up": 1, "runs": 1});
        let file = folder.path().join("r.py");
        match time_on_gpu(&task, &scope, (&file, "reference"), &[set.clone(), set.clone()], &job) {
            // No Python, or none with PyTorch.
            Err(why) => assert!(
                ["No module named", "has no NumPy", "cannot be started"]
                    .iter()
                    .any(|words| why.contains(words)),
                "{why}"
            ),
            Ok(timed) => {
                assert!(!timed.version.is_empty());
                assert_eq!((timed.ways.len(), timed.ways[0].error.as_deref()), (1, None));
            }
        }
        // A machine without a GPU says so.
        let job = json!({"device": "cuda", "gpu": 99, "compile": false, "flush": 1, "warm_up": 1, "runs": 1});
        assert!(time_on_gpu(&task, &scope, (&file, "reference"), &[set], &job).is_err());
    }
}
