//! Folders as one compressed file, written whole or not at all.

use std::{fs, path::Path};

use crate::{
    files::{io_error, mebibytes, size},
    shell::{TaskError, command, step, succeeds},
};

/// With every core. Level 6, xz's default, makes 46 MiB of a folder of 95 in 25 s on two cores; level 3 makes 50 in 19 s.
const COMPRESSED: &[&str] = &["--use-compress-program=xz -T0"];
/// The same bytes from the same files on any machine: in the order of names, without times, owners and groups, and by one
/// thread, since xz divides the work among several into blocks. GNU tar.
const REPRODUCIBLE: &[&str] = &[
    "--use-compress-program=xz -T1",
    "--sort=name",
    "--mtime=@0",
    "--owner=0",
    "--group=0",
    "--numeric-owner",
    "--mode=u=rwX,go=rX",
];

/// Fails if a program that packs is missing: before anything is built, which takes minutes.
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
    let remedy = "the archive is packed with it; install it with your system's package manager";
    Err(TaskError::Missing { what: program, remedy })
}

/// Packs a folder, under its own name, into an archive. A file of the archive's name is always whole.
pub fn pack(folder: &Path, archive: &Path) -> Result<(), TaskError> {
    pack_with(COMPRESSED, folder, archive)
}

/// The same, with an archive that depends on nothing but names, contents and permissions.
pub fn pack_reproducibly(folder: &Path, archive: &Path) -> Result<(), TaskError> {
    pack_with(REPRODUCIBLE, folder, archive)
}

fn pack_with(options: &[&str], folder: &Path, archive: &Path) -> Result<(), TaskError> {
    let partial = archive.with_added_extension("partial");
    let mut tar = command("tar", &["--create"]);
    tar.args(options).arg("--file").arg(&partial).arg("--directory").arg(folder.parent().unwrap_or(folder));
    let packed = step("archive", tar.arg(folder.file_name().unwrap_or_default()))
        .and_then(|()| fs::rename(&partial, archive).map_err(io_error(archive)));
    if packed.is_err() {
        // It may not exist; what matters is why packing failed.
        let _ = fs::remove_file(&partial);
    }
    packed
}

/// Prints the size of a file or a folder, and refuses one that is over a limit. It stays, so that one can see what is large.
pub fn check_size(path: &Path, what: &'static str, limit: u64) -> Result<(), TaskError> {
    let bytes = size(path)?;
    println!("\n{what:42} {:7.2} MiB of {:.0}", mebibytes(bytes), mebibytes(limit));
    if bytes <= limit { Ok(()) } else { Err(TaskError::TooLarge { what, bytes, limit }) }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, path::PathBuf};

    use super::*;
    use crate::files::{entries, make_folder, write_script};

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

    /// Without xz, which the tests do not need.
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

    /// Elsewhere tar may be another one than GNU's.
    #[cfg(target_os = "linux")]
    #[test]
    fn equal_files_make_equal_archives_whenever_and_in_whatever_order_they_were_written() {
        let pack = |name: &str, files: [&str; 2]| {
            let place = Place::new(name);
            let (folder, archive) = (place.0.join("kinora"), place.0.join("kinora.tar"));
            for (number, file) in files.into_iter().enumerate() {
                let path = folder.join(file);
                write_script(&path, file).unwrap();
                let day = std::time::Duration::from_secs(86_400 * (number as u64 + 1));
                fs::File::options()
                    .append(true)
                    .open(&path)
                    .unwrap()
                    .set_modified(std::time::UNIX_EPOCH + day)
                    .unwrap();
            }
            pack_with(&REPRODUCIBLE[1..], &folder, &archive).unwrap();
            fs::read(&archive).unwrap()
        };
        let archive = pack("first", ["man/a.1", "kinora"]);
        assert_eq!(archive, pack("second", ["kinora", "man/a.1"]));
        assert_ne!(archive, pack("third", ["kinora", "man/b.1"]));
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
    fn an_archive_that_is_too_large_is_refused_and_stays() {
        let place = Place::new("large");
        let archive = place.0.join("bundle.tar.xz");
        // A hole takes no room.
        fs::File::create(&archive).unwrap().set_len(64 * 1024 * 1024).unwrap();
        check_size(&archive, "the archive", 64 << 20).unwrap();
        fs::File::create(&archive).unwrap().set_len(64 * 1024 * 1024 + 1).unwrap();
        let refused = check_size(&archive, "the archive", 64 << 20).unwrap_err().to_string();
        assert!(refused.contains("the archive has 67108865 bytes; the limit is 67108864"), "{refused}");
        assert_eq!(place.names(), ["bundle.tar.xz"]);
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        check_program("tar").unwrap();
        let missing = check_program("kinora-has-no-such-program").unwrap_err().to_string();
        assert!(
            missing.starts_with("kinora-has-no-such-program is missing: the archive is packed with it"),
            "{missing}"
        );
    }
}
