//! Descriptions that are wrong are refused by field, with the line; those that are right say what they mean.
#![allow(clippy::unwrap_used, missing_docs)]

mod support;

use kinora_lab::{Element, Task, TaskError};
use support::Bench;

const TASK: &str = r#"name = "scale"
[kernel]
source = "kernel.cu"
grid = "ceil(n / 256)"
block = 256
arguments = ["x", "y", "n", "a", "f64: half / 3"]
[sizes]
n = [1000, 4096]
m = 3
[constants]
a = 0.5
half = "quarter * 2"
quarter = "n / 4"
[[input]]
name = "x"
element = "f32"
shape = ["n", "m"]
values = "normal(0, quarter)"
[[output]]
name = "y"
element = "f16"
shape = "n * m"
[reference]
expression = "x"
[tolerance]
relative = 1e-3
[work]
flops = "n"
[time]
n = 100000
"#;

fn open(text: &str) -> Result<Task, TaskError> {
    Bench::new(&[("task.toml", text), ("kernel.cu", "")]).open()
}

#[test]
fn a_task_is_what_it_says() {
    let task = open(TASK).unwrap();
    assert_eq!(task.name, "scale");
    let sizes: Vec<String> = task.sizes.iter().map(ToString::to_string).collect();
    assert_eq!(sizes, ["m = 3, n = 1000", "m = 3, n = 4096"]);
    assert_eq!(task.time.to_string(), "m = 3, n = 100000");
    let scope = task.scope(&task.sizes[0]).unwrap();
    assert_eq!((scope.get("half"), scope.get("a"), scope.get("nothing")), (Some(500.0), Some(0.5), None));
    assert_eq!(task.buffers[0].extents(&scope).unwrap(), [1000, 3]);
    assert_eq!((task.buffers[1].element, task.buffers[1].elements(&scope).unwrap()), (Element::F16, 3000));
    assert_eq!(task.bytes(&scope).unwrap(), 3000 * 6);
    // Without a name, it has that of its folder.
    let bench =
        Bench::new(&[("task.toml", TASK.strip_prefix("name = \"scale\"").unwrap()), ("kernel.cu", "")]);
    assert_eq!(bench.open().unwrap().name, bench.folder.path().file_name().unwrap().to_str().unwrap());
}

/// What is changed, and what the refusal says: the field and the line.
#[test]
fn hostile_descriptions_are_refused() {
    let deep = format!("grid = \"{}n\"", "(".repeat(500));
    let long = format!("grid = \"n{}\"", "+1".repeat(5000));
    let many = format!("n = [{}]", "1,".repeat(1000));
    let circle = "half = \"quarter * 2\"\nquarter = \"half / 2\"";
    for (from, to, line, words) in [
        ("name = \"scale\"", "name = ", 1, ""),
        ("name = \"scale\"", "nmae = \"scale\"", 1, "nmae"),
        ("block = 256", "blok = 256", 5, "blok"),
        ("block = 256", "block = true", 5, "a number"),
        ("block = 256", "block = 2048", 5, "from 1 to 1024"),
        ("block = 256", "block = 0", 5, "from 1 to 1024"),
        ("block = 256", "block = [1, 1, 1, 1]", 5, "at most 3"),
        ("block = 256", "block = 256\nsteps = -1", 6, ""),
        ("grid = \"ceil(n / 256)\"", "grid = \"n / 256\"", 4, "3.90625"),
        ("grid = \"ceil(n / 256)\"", "grid = \"n / 0\"", 4, "inf"),
        ("grid = \"ceil(n / 256)\"", "grid = \"0 / 0\"", 4, "NaN"),
        ("grid = \"ceil(n / 256)\"", "grid = \"ceil(k)\"", 4, "names k"),
        ("grid = \"ceil(n / 256)\"", "grid = \"system(n)\"", 4, "no function system"),
        ("grid = \"ceil(n / 256)\"", "grid = \"ceil(n / 256\"", 4, "`)` is missing"),
        ("grid = \"ceil(n / 256)\"", &deep, 4, "deep"),
        ("grid = \"ceil(n / 256)\"", &long, 4, "characters"),
        ("grid = \"ceil(n / 256)\"", "", 2, "`grid`"),
        ("source = \"kernel.cu\"", "source = \"../kernel.cu\"", 3, "leaves the task's folder"),
        ("source = \"kernel.cu\"", "source = \"/etc/passwd\"", 3, "leaves the task's folder"),
        ("source = \"kernel.cu\"", "source = \"\"", 3, "leaves the task's folder"),
        ("source = \"kernel.cu\"", "source = 5", 3, ""),
        ("\"a\", ", "\"b\", ", 6, "\"b\" is neither a buffer"),
        ("\"a\", ", "\"half\", ", 6, "\"half\" is neither"),
        ("\"a\", ", "\"f31: 1\", ", 6, "\"f31\" is not a type"),
        ("\"a\", ", "1, ", 6, "with its type"),
        ("n = [1000, 4096]", "n = [1000, 4096, 1e99]", 8, ""),
        ("n = [1000, 4096]", "n = nan", 8, ""),
        ("n = [1000, 4096]", "n = [-1]", 8, "-1 is not a size"),
        ("n = [1000, 4096]", "n = []", 8, "0 values"),
        ("n = [1000, 4096]", "n = [9223372036854775807]", 8, "is not a size"),
        ("n = [1000, 4096]", "n = [1, 2]\nk = [1, 2, 3]", 0, "row by row"),
        ("n = [1000, 4096]", &many, 8, "1000 values"),
        ("n = [1000, 4096]", "n = [1000000000000]", 17, "TB"),
        ("n = [1000, 4096]", "n = [100000000000]", 17, "GB"),
        ("m = 3", "x = 3\nm = 3", 16, "same name"),
        ("a = 0.5", "a = inf", 11, "finite"),
        ("half = \"quarter * 2\"\nquarter = \"n / 4\"", circle, 12, "circle"),
        ("quarter = \"n / 4\"", "quarter = \"quarter\"", 0, "circle"),
        ("quarter = \"n / 4\"", "quarter = \"k\"", 0, "names k"),
        ("name = \"x\"", "name = \"a b\"", 15, "not a name"),
        ("name = \"x\"", "name = \"y\"", 0, "same name"),
        ("element = \"f32\"", "element = \"f33\"", 16, "\"f33\" is not an element"),
        ("shape = [\"n\", \"m\"]", "shape = [\"n\", \"-m\"]", 17, "-3"),
        ("shape = [\"n\", \"m\"]", "shape = [\"n * n * n * n\"]", 17, ""),
        ("shape = [\"n\", \"m\"]", "shape = []\nfile = \"x.npy\"", 18, "`values`"),
        ("values = \"normal(0, quarter)\"", "values = \"gauss\"", 18, "no distribution \"gauss\""),
        ("values = \"normal(0, quarter)\"", "values = \"normal(0)\"", 18, "2 parameters"),
        ("values = \"normal(0, quarter)\"", "values = \"normal(0, 1 / 0)\"", 18, "finite"),
        ("values = \"normal(0, quarter)\"", "values = \"uniform(2, 1)\"", 18, "nothing between"),
        ("values = \"normal(0, quarter)\"", "values = \"normal(0, z)\"", 18, "names z"),
        ("values = \"normal(0, quarter)\"", "file = \"../../secret.npy\"", 18, "leaves the task's folder"),
        ("shape = \"n * m\"", "shape = \"n * m\"\nvalues = \"ones\"", 23, "[[inout]]"),
        ("shape = \"n * m\"", "shape = \"n * m\"\nmay_alias = \"x\"", 23, "other elements"),
        ("shape = \"n * m\"", "shape = \"n * m\"\nmay_alias = \"z\"", 23, "only an output"),
        ("expression = \"x\"", "expression = \"z\"", 24, "z is neither"),
        ("expression = \"x\"", "expression = \"y\"", 24, "holds nothing"),
        ("expression = \"x\"", "python = \"/tmp/reference.py\"", 24, "leaves the task's folder"),
        ("expression = \"x\"", "expression = \"x\"\nkernel = \"k\"", 23, "one of"),
        ("expression = \"x\"", "", 23, "one of"),
        ("expression = \"x\"", "[reference.expressions]\nz = \"x\"", 25, "no [[output]]"),
        ("expression = \"x\"", "python = \"r.py\"\nseconds = 1e9", 25, "a day"),
        ("expression = \"x\"", "[reference.files]\ny = \"y.npy\"", 0, "several"),
        ("relative = 1e-3", "relative = -1.0", 25, "not a tolerance"),
        ("relative = 1e-3", "relative = nan", 25, "not a tolerance"),
        ("flops = \"n\"", "flops = \"-n\"", 28, "-1000"),
        ("n = 100000", "k = 100000", 30, "no such size"),
    ] {
        let text = TASK.replacen(from, to, 1);
        assert_ne!(text, TASK, "{from}");
        let error = match open(&text) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{to} is taken"),
        };
        assert!(error.contains(words), "{to}: {error}");
        assert!(error.len() < 1000, "{error}");
        if line > 0 {
            assert!(error.contains(&format!("task.toml:{line}: ")), "{to}, line {line}: {error}");
        }
    }
}

#[test]
fn what_is_no_description_is_refused() {
    for text in [
        "",
        "kernel",
        "[kernel]",
        "\0",
        "[[input]]",
        "= 1",
        "[kernel]\nsource = \"kernel.cu\"\ngrid = 1\nblock = 1\narguments = []",
    ] {
        assert!(open(text).is_err(), "{text:?}");
    }
    let nested = format!("a = {}{}", "[".repeat(20_000), "]".repeat(20_000));
    assert!(open(&nested).is_err());
    let bench = Bench::new(&[]);
    assert!(matches!(bench.open(), Err(TaskError::Unreadable { .. })));
    bench.write("task.toml", b"name = \"\xff\"");
    assert!(matches!(bench.open(), Err(TaskError::Unreadable { .. })));
}

#[test]
#[cfg(unix)]
fn a_link_out_of_the_folder_is_refused() {
    let outside = Bench::new(&[("secret.cu", "")]);
    let bench = Bench::new(&[("task.toml", TASK)]);
    std::os::unix::fs::symlink(
        outside.folder.path().join("secret.cu"),
        bench.folder.path().join("kernel.cu"),
    )
    .unwrap();
    let error = bench.open().unwrap_err().to_string();
    assert!(error.contains("link that leaves"), "{error}");
}
