//! The bundle as one file, which is what is carried to the GPU host.

use std::{fs, path::Path};

use super::files::{io_error, mebibytes, size};
use crate::shell::{TaskError, command, step, succeeds};

/// What may be carried to a GPU host.
const LIMIT: u64 = 64 << 20;
/// With every core. Level 6, which xz takes of itself, makes 46 MiB of a folder of 95 in 25 s on two cores; level 3 makes 50 in 19 s.
const COMPRESSED: &[&str] = &["--use-compress-program=xz -T0"];

/// Says so if a program that packs is not there: before anything is built, which takes minutes.
pub fn check_programs() -> Result<(), TaskError> {
    for program in ["tar", "xz"] {
        check_program(program)?;
    }
    Ok(())
}

fn check_program(program: &'static str) -> Result<(), TaskError> {
    if succeeds(&mut command(program, &["--version"])) {
        return Ok(());
    }
    let remedy = "the bundle is packed with it; install it with your system's package manager";
    Err(TaskError::Missing { what: program, remedy })
}

/// Packs a folder, under its own name, into an archive. What is there under the archive's name is always whole.
pub fn pack(folder: &Path, archive: &Path) -> Result<(), TaskError> {
    pack_with(COMPRESSED, folder, archive)
}

fn pack_with(options: &[&str], folder: &Path, archive: &Path) -> Result<(), TaskError> {
    let partial = archive.with_added_extension("partial");
    let mut tar = command("tar", &["--create"]);
    tar.args(options).arg("--file").arg(&partial).arg("--directory").arg(folder.parent().unwrap_or(folder));
    let packed = step("archive", tar.arg(folder.file_name().unwrap_or_default()))
        .and_then(|()| fs::rename(&partial, archive).map_err(io_error(archive)));
    if packed.is_err() {
        // It may not have come to be; why the packing failed is what has to be said.
        let _ = fs::remove_file(&partial);
    }
    packed
}

/// Says how large an archive is, and refuses one that cannot be carried. It stays, so that one can see what takes the room.
pub fn report(archive: &Path, name: &'static str) -> Result<(), TaskError> {
    let bytes = size(archive)?;
    println!("\n{name:42} {:7.2} MiB of {}", mebibytes(bytes), LIMIT >> 20);
    if bytes <= LIMIT {
        return Ok(());
    }
    let remedy = "leave out one of the larger parts that are listed above; xtask/src/bundle/mod.rs says what goes into it";
    Err(TaskError::TooLarge { what: name, bytes, limit: LIMIT, remedy })
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, path::PathBuf};

    use super::*;
    use crate::bundle::files::{entries, make_folder, write_script};

    /// A folder for a test, which is gone after it.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let place = std::env::temp_dir().join(format!("kinora-archive-{name}-{}", std::process::id()));
            make_folder(&place).unwrap();
            Place(place)
        }

        fn names(&self) -> Vec<String> {
            let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
            entries(&self.0).unwrap().iter().map(name).collect()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Of these tests, as far as tar goes: xz is needed for a bundle, and not to test.
    const PLAIN: &[&str] = &[];

    #[test]
    fn what_was_packed_comes_out_below_its_folder_and_can_be_run() {
        let place = Place::new("whole");
        let (folder, archive) = (place.0.join("bundle"), place.0.join("bundle.tar.xz"));
        write_script(&folder.join("run"), "#!/bin/sh\n").unwrap();
        write_script(&folder.join(".python/bin/python"), "hidden").unwrap();
        fs::write(&archive, "of an earlier bundle").unwrap();
        pack_with(PLAIN, &folder, &archive).unwrap();
        assert_eq!(place.names(), ["bundle", "bundle.tar.xz"]);

        // As a person unpacks it on the host.
        let there = place.0.join("there");
        make_folder(&there).unwrap();
        let mut tar = command("tar", &["xf"]);
        assert!(succeeds(tar.arg(&archive).current_dir(&there)));
        let run = there.join("bundle/run");
        assert_eq!(fs::read_to_string(&run).unwrap(), "#!/bin/sh\n");
        assert_eq!(fs::metadata(&run).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_to_string(there.join("bundle/.python/bin/python")).unwrap(), "hidden");
    }

    #[test]
    fn a_folder_that_cannot_be_packed_leaves_no_part_of_an_archive() {
        let place = Place::new("none");
        let archive = place.0.join("bundle.tar.xz");
        fs::write(&archive, "of an earlier bundle").unwrap();
        let failed = pack_with(PLAIN, &place.0.join("bundle"), &archive);
        assert!(matches!(failed, Err(TaskError::Failed { .. })), "{failed:?}");
        assert_eq!(place.names(), ["bundle.tar.xz"]);
        assert_eq!(fs::read_to_string(&archive).unwrap(), "of an earlier bundle");
    }

    #[test]
    fn an_archive_that_cannot_be_carried_is_refused_and_stays() {
        let place = Place::new("large");
        let archive = place.0.join("bundle.tar.xz");
        // A hole takes no room.
        fs::File::create(&archive).unwrap().set_len(64 * 1024 * 1024).unwrap();
        report(&archive, "the archive").unwrap();
        fs::File::create(&archive).unwrap().set_len(64 * 1024 * 1024 + 1).unwrap();
        let refused = report(&archive, "the archive").unwrap_err().to_string();
        assert!(
            refused.contains("the archive has 67108865 bytes, and may have 67108864: leave out"),
            "{refused}"
        );
        assert_eq!(place.names(), ["bundle.tar.xz"]);
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        check_program("tar").unwrap();
        let missing = check_program("kinora-has-no-such-program").unwrap_err().to_string();
        assert!(
            missing.starts_with("kinora-has-no-such-program is missing: the bundle is packed with it"),
            "{missing}"
        );
    }
}
