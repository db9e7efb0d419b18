//! What another machine needs to run the targets: the driver, the corpora, and a script that runs all of them at once.

use std::path::Path;

use super::DRIVER;
use crate::{
    files::{copy, make_folder, mebibytes, size, write_script},
    shell::{TaskError, command, root, step},
};

/// Fills a folder, which may be packed and carried to a machine without a toolchain.
pub fn package(driver: &Path, folder: &Path) -> Result<(), TaskError> {
    let folder = root().join(folder);
    make_folder(&folder)?;
    let mut strip = command("strip", &["-o"]);
    step("strip", strip.arg(folder.join(DRIVER)).arg(driver))?;
    for kind in ["corpus", "regressions"] {
        let from = root().join("fuzz").join(kind);
        if from.is_dir() {
            copy(&from, &folder.join(kind))?;
        }
    }
    write_script(&folder.join("run_fuzz.sh"), include_str!("run_fuzz.sh"))?;
    println!("{}: {:.1} MiB; there: ./run_fuzz.sh MINUTES OUT", folder.display(), mebibytes(size(&folder)?));
    Ok(())
}
