//! `cargo xtask crates`: the table of this workspace's crates, drawn from `cargo metadata`.

use std::{fmt::Write, fs};

use crate::{
    files::io_error,
    shell::{TaskError, root},
    workspace::{self, Package},
};

/// The file that has the table, and the lines around it.
const DOCUMENT: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- crates:begin -->\n";
const END: &str = "<!-- crates:end -->";

/// Prints the table, or with `--write` puts it into the document.
pub fn crates(arguments: &[String]) -> Result<(), TaskError> {
    let table = table(&workspace::packages()?);
    match arguments {
        [] => print!("{table}"),
        [word] if word == "--write" => {
            let path = root().join(DOCUMENT);
            fs::write(&path, with_table(&read()?, &table)?).map_err(io_error(&path))?;
        }
        _ => return Err(TaskError::Usage("cargo xtask crates [--write]")),
    }
    Ok(())
}

/// Checks that the document has the table as it is now.
pub fn check() -> Result<(), TaskError> {
    let document = read()?;
    if with_table(&document, &table(&workspace::packages()?))? == document {
        return Ok(());
    }
    Err(TaskError::OutOfDate {
        what: "the table of crates in ARCHITECTURE.md",
        remedy: "cargo xtask crates --write",
    })
}

fn read() -> Result<String, TaskError> {
    let path = root().join(DOCUMENT);
    fs::read_to_string(&path).map_err(io_error(&path))
}

/// The document with the table between its two marks.
fn with_table(document: &str, table: &str) -> Result<String, TaskError> {
    let parts = document.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or(TaskError::Missing {
        what: "the place for the table of crates in ARCHITECTURE.md",
        remedy: "add the lines `<!-- crates:begin -->` and `<!-- crates:end -->`",
    })?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// A row for each crate, below all that it depends on.
fn table(packages: &[Package]) -> String {
    let mut table = String::from("| crate | folder | subject | uses |\n|---|---|---|---|\n");
    for package in from_the_bottom(packages) {
        let uses = package.dependencies.iter().filter(|on| !on.development);
        let uses: Vec<String> =
            uses.map(|on| format!("`{}`{}", on.name, if on.optional { " (optional)" } else { "" })).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| `{}` | `{}` | {} | {} |",
            package.name,
            package.folder.display(),
            package.description,
            uses.join(", ")
        );
    }
    table
}

/// The crates in topological order, by name if either could come first. Dev-dependencies may form circles and do not count.
fn from_the_bottom(packages: &[Package]) -> Vec<&Package> {
    let mut rest: Vec<&Package> = packages.iter().collect();
    let mut ordered = Vec::<&Package>::new();
    loop {
        let next = rest.iter().position(|package| {
            let mut needed = package.dependencies.iter().filter(|on| !on.development);
            needed.all(|on| rest.iter().all(|other| other.name != on.name))
        });
        match next {
            Some(next) => ordered.push(rest.remove(next)),
            None => return ordered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::package;

    #[test]
    fn the_table_lists_every_crate_below_what_it_uses() {
        let packages = [
            package("app", &["cuda?", "graph", "testing*"]),
            package("cuda", &["graph"]),
            package("graph", &["app*"]),
        ];
        let expected = "\
| crate | folder | subject | uses |
|---|---|---|---|
| `graph` | `crates/graph` | What graph is |  |
| `cuda` | `crates/cuda` | What cuda is | `graph` |
| `app` | `crates/app` | What app is | `cuda` (optional), `graph` |
";
        assert_eq!(table(&packages), expected);
    }

    #[test]
    fn the_table_replaces_the_one_that_was_there() {
        let document = "above\n<!-- crates:begin -->\nold\n<!-- crates:end -->\nbelow\n";
        let replaced = with_table(document, "new\n").unwrap();
        assert_eq!(replaced, "above\n<!-- crates:begin -->\nnew\n<!-- crates:end -->\nbelow\n");
        assert_eq!(with_table(&replaced, "new\n").unwrap(), replaced);
        let refused = with_table("no marks", "new\n").unwrap_err().to_string();
        assert!(refused.contains("add the lines"), "{refused}");
    }
}
