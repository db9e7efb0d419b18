//! Solutions: a Python module with `ModelNew`, or a CUDA source with a declaration of what it needs and launches.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::KernelBenchError;

macro_rules! shipped {
    ($name:literal) => {
        ($name, include_str!(concat!("../../kernelbench/", $name)))
    };
}

/// The solutions that the program has: the name of a file, and its text.
const SHIPPED: &[(&str, &str)] = &[
    shipped!("attention.cu"),
    shipped!("attention.toml"),
    shipped!("axis.cu"),
    shipped!("axis.toml"),
    shipped!("common.cuh"),
    shipped!("convolution.cu"),
    shipped!("convolution.toml"),
    shipped!("convolution_wide.cuh"),
    shipped!("depthwise.cu"),
    shipped!("depthwise.cuh"),
    shipped!("depthwise.toml"),
    shipped!("elementwise.cu"),
    shipped!("elementwise.toml"),
    shipped!("level1.toml"),
    shipped!("losses.cu"),
    shipped!("losses.toml"),
    shipped!("norms.cu"),
    shipped!("norms.toml"),
    shipped!("pooling.cu"),
    shipped!("pooling.toml"),
    shipped!("product.cuh"),
    shipped!("products.cu"),
    shipped!("products.toml"),
    shipped!("rows.cu"),
    shipped!("rows.toml"),
    shipped!("scans.cu"),
    shipped!("scans.toml"),
];

/// Writes the solutions that the program has into a folder.
///
/// # Errors
/// If it cannot be written.
pub fn unpack(folder: &Path) -> Result<(), KernelBenchError> {
    for (name, text) in SHIPPED {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|source| KernelBenchError::file("write", &file, source))?;
    }
    Ok(())
}

/// A solution of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// What the worker is told.
    pub request: Value,
    /// Where it comes from: `19.py`, or a template's name.
    pub name: String,
    /// Whether it is CUDA.
    pub is_cuda: bool,
    /// Whether it says that it multiplies in tf32, as PyTorch's convolutions do on a GPU.
    pub tf32: bool,
    /// Sizes with which it runs in seconds, if it has any.
    pub shrink: Option<Value>,
    /// What it was made of: it changes whenever the solution does.
    pub fingerprint: String,
}

/// The solution of a task in a folder, if there is one: `N.py`, `N.toml`, or the task's line in `levelL.toml`.
///
/// # Errors
/// If a file of it cannot be read.
pub fn solution(folder: &Path, level: u32, number: u32) -> Result<Option<Solution>, KernelBenchError> {
    let python = folder.join(format!("{number}.py"));
    if python.is_file() {
        let text = read(&python)?;
        let file = fs::canonicalize(&python).unwrap_or_else(|_| python.clone());
        return Ok(Some(Solution {
            request: json!({"kind": "python", "file": file}),
            name: format!("{number}.py"),
            is_cuda: false,
            tf32: false,
            shrink: None,
            fingerprint: fingerprint(&[&text]),
        }));
    }
    let own = folder.join(format!("{number}.toml"));
    if own.is_file() {
        let mut table = declaration(&own)?;
        if table.get("source").is_none() {
            table["source"] = json!(format!("{number}.cu"));
        }
        return cuda(folder, &table, json!({}), format!("{number}.cu")).map(Some);
    }
    let index = folder.join(format!("level{level}.toml"));
    if !index.is_file() {
        return Ok(None);
    }
    let index = declaration(&index)?;
    let Some(entry) = index.get(number.to_string()).and_then(Value::as_object) else { return Ok(None) };
    let mut entry = entry.clone();
    let Some(Value::String(family)) = entry.remove("family") else {
        return Err(KernelBenchError::Refused(format!(
            "level{level}.toml: task {number} has no family: name the template that solves it"
        )));
    };
    let table = declaration(&folder.join(format!("{family}.toml")))?;
    cuda(folder, &table, Value::Object(entry), family).map(Some)
}

fn cuda(folder: &Path, table: &Value, mut own: Value, name: String) -> Result<Solution, KernelBenchError> {
    let source = folder.join(table.get("source").and_then(Value::as_str).unwrap_or("kernel.cu"));
    let text = read(&source)?;
    let shrink =
        own.as_object_mut().and_then(|own| own.remove("shrink")).or_else(|| table.get("shrink").cloned());
    let headers = headers(folder, &text)?;
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let (declared, given) = (table.to_string(), own.to_string());
    Ok(Solution {
        request: json!({"kind": "cuda", "table": table, "folder": folder, "own": own}),
        tf32: table.get("precision").and_then(Value::as_str) == Some("tf32"),
        name,
        is_cuda: true,
        shrink,
        fingerprint: fingerprint(&[&text, &declared, &given, &headers]),
    })
}

/// The texts of the files beside a source that it includes, or that these include. What is not there is the system's, or the compiler's to
/// miss.
fn headers(folder: &Path, source: &str) -> Result<String, KernelBenchError> {
    let (mut seen, mut waiting, mut all) = (HashSet::new(), vec![source.to_owned()], String::new());
    while let Some(text) = waiting.pop() {
        for line in text.lines() {
            let quoted = line.trim_start().strip_prefix("#include").map(str::trim_start);
            let name = quoted.and_then(|rest| rest.strip_prefix('"')?.split('"').next());
            let Some(name) = name.filter(|name| seen.insert((*name).to_owned())) else { continue };
            let file = folder.join(name);
            if file.is_file() {
                let text = read(&file)?;
                all += &text;
                all.push('\0');
                waiting.push(text);
            }
        }
    }
    Ok(all)
}

fn read(file: &PathBuf) -> Result<String, KernelBenchError> {
    fs::read_to_string(file).map_err(|source| KernelBenchError::file("read", file, source))
}

fn declaration(file: &PathBuf) -> Result<Value, KernelBenchError> {
    toml::from_str(&read(file)?)
        .map_err(|error| KernelBenchError::Refused(format!("{}: {error}", file.display())))
}

/// FNV-1a of all texts, each ended by a byte that no text has.
fn fingerprint(texts: &[&str]) -> String {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0xff]));
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_shipped() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernelbench");
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(name == "README.md" || SHIPPED.iter().any(|(shipped, _)| *shipped == name), "{name}");
        }
    }

    #[test]
    fn every_task_of_level_1_has_a_solution_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        unpack(folder.path()).unwrap();
        for number in 1..=100 {
            let solution = solution(folder.path(), 1, number).unwrap();
            let solution = solution.unwrap_or_else(|| panic!("task {number} has no solution"));
            assert!(solution.is_cuda);
            assert!(
                solution.shrink.is_some() || solution.name == "elementwise",
                "task {number} has no small sizes"
            );
        }
        assert_eq!(solution(folder.path(), 1, 101).unwrap(), None);
    }

    #[test]
    fn a_folder_of_ones_own_has_modules_and_kernels() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("3.py", "class ModelNew: pass");
        write("4.toml", "[define]\nN = \"x.count\"\n");
        write("4.cu", "// first");
        let found = |number| solution(folder.path(), 1, number).unwrap();
        assert!(!found(3).unwrap().is_cuda);
        let first = found(4).unwrap();
        assert_eq!(first.request["table"]["source"], "4.cu");
        // A kernel that was changed is another solution.
        write("4.cu", "// second");
        assert_ne!(first.fingerprint, found(4).unwrap().fingerprint);
        // So is one whose header was changed, or a header of that.
        write("4.cu", "#include \"outer.cuh\"\n");
        write("outer.cuh", "#include \"inner.cuh\"\n#include \"outer.cuh\"\n");
        write("inner.cuh", "#define TILE 1");
        let before = found(4).unwrap().fingerprint;
        write("inner.cuh", "#define TILE 2");
        assert_ne!(before, found(4).unwrap().fingerprint);
        assert_eq!(found(5), None);
        fs::remove_file(folder.path().join("4.cu")).unwrap();
        assert!(solution(folder.path(), 1, 4).unwrap_err().to_string().contains("cannot read"));
    }
}
