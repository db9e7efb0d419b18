//! `cargo xtask dist`: the program as an archive to download, with completions, manual pages and licences.

mod licences;

use std::{
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{
    archive, executables,
    files::{copy, entries, io_error, make_folder, mebibytes, size},
    shell::{TaskError, command, output, root},
    workspace,
};

/// Where the archive goes, beside what cargo builds with the profile of this name.
const FOLDER: &str = "target/dist";
/// How large it may be when it is unpacked.
const LIMIT: u64 = 70_000_000;
/// The crate that has the program.
const PACKAGE: &str = "kinora-cli";
/// Files of the repository that go with it.
const DOCUMENTS: [&str; 4] = ["README.md", "LICENSE", "LICENSE-MIT", "LICENSE-APACHE"];
/// The shells that it completes commands for, with the file that each looks for.
const COMPLETIONS: [(&str, &str); 3] = [("bash", "kinora.bash"), ("zsh", "_kinora"), ("fish", "kinora.fish")];

/// Builds the program, gathers what goes with it, and packs it.
pub fn dist() -> Result<(), TaskError> {
    archive::check_programs()?;
    let target = host()?;
    let packages = workspace::packages()?;
    let version =
        packages.iter().find(|package| package.name == PACKAGE).map(|package| package.version.as_str());
    let name = format!("kinora-{}-{target}", version.unwrap_or_default());
    let (folder, archive) =
        (root().join(FOLDER).join(&name), root().join(FOLDER).join(format!("{name}.tar.xz")));
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(io_error(&folder))?;
    }
    make_folder(&folder)?;
    let build = ["build", "--profile", "dist", "--locked", "--package", PACKAGE];
    for program in executables::build("program", &build)? {
        copy(&program.path, &folder.join(&program.name))?;
        completions(&program.path, &folder.join("completions"))?;
        let manual = folder.join("man");
        make_folder(&manual)?;
        output(command(&program.path, &["man"]).arg(&manual))?;
    }
    for document in DOCUMENTS {
        copy(&root().join(document), &folder.join(document))?;
    }
    let notices = folder.join("THIRD-PARTY-LICENSES.txt");
    let metadata = workspace::metadata(&["--locked", "--filter-platform", &target])?;
    fs::write(&notices, licences::notices(&metadata, PACKAGE)?).map_err(io_error(&notices))?;
    report(&folder)?;
    archive::check_size(&folder, "unpacked", LIMIT)?;
    archive::pack_reproducibly(&folder, &archive)?;
    println!("\n{}: {:.2} MiB", archive.display(), mebibytes(size(&archive)?));
    write_checksum(&archive)
}

/// The platform that rustc compiles for, which is the one that the program can be run on.
fn host() -> Result<String, TaskError> {
    let version = output(&mut command("rustc", &["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let remedy = "`rustc -vV` should print a line `host: …`; is this rustc the toolchain's own?";
    host.map(str::to_owned).ok_or(TaskError::Missing { what: "the name of the platform", remedy })
}

/// Writes what each shell needs to complete commands and options.
fn completions(program: &Path, folder: &Path) -> Result<(), TaskError> {
    make_folder(folder)?;
    for (shell, name) in COMPLETIONS {
        let path = folder.join(name);
        let script = output(&mut command(program, &["completions", shell]))?;
        fs::write(&path, script).map_err(io_error(&path))?;
    }
    Ok(())
}

/// Prints how large each part is.
fn report(folder: &Path) -> Result<(), TaskError> {
    println!("\n{}", folder.display());
    for path in entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        println!("  {name:40} {:7.2} MiB", mebibytes(size(&path)?));
    }
    Ok(())
}

/// Writes the checksum of a file beside it, as `sha256sum --check` reads it.
fn write_checksum(path: &Path) -> Result<(), TaskError> {
    let bytes = fs::read(path).map_err(io_error(path))?;
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let checksum = path.with_added_extension("sha256");
    let partial: PathBuf = checksum.with_added_extension("partial");
    fs::write(&partial, format!("{digest}  {name}\n")).map_err(io_error(&partial))?;
    fs::rename(&partial, &checksum).map_err(io_error(&checksum))?;
    println!("{}: {digest}", checksum.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_as_sha256sum_writes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc.tar.xz");
        fs::write(&path, "abc").unwrap();
        write_checksum(&path).unwrap();
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  abc.tar.xz\n";
        assert_eq!(fs::read_to_string(folder.path().join("abc.tar.xz.sha256")).unwrap(), expected);
        assert_eq!(entries(folder.path()).unwrap().len(), 2);
    }
}
