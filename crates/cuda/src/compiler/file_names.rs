//! The names of source files in PTX, which become those of a finding.

use std::path::Path;

/// The PTX with files below a folder called by the rest of their path. The compiler writes the folder that it runs in before
/// each path that was given without one.
pub(super) fn relative_to(folder: &Path, ptx: &str) -> String {
    let prefix = format!("\"{}/", written(folder));
    let relative = |line: &str| match line.trim_start().starts_with(".file") {
        true => line.replacen(&prefix, "\"", 1),
        false => line.to_owned(),
    };
    ptx.split_inclusive('\n').map(relative).collect()
}

/// A path as the compiler writes it between quotation marks.
fn written(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text += &format!("\\{byte:03o}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_taken_from_the_names_of_files_alone() {
        let ptx = "\t.file\t1 \"/project/k.cu\"\n\t.file\t2 \"/opt/h.cuh\", 3, 4\n\t.file\t3 \"/project/./sub/../h.cuh\"\n\
                   .global .align 1 .b8 text[12] = \"/project/k.cu\";\n\t.loc\t1 2 3\n";
        let expected = "\t.file\t1 \"k.cu\"\n\t.file\t2 \"/opt/h.cuh\", 3, 4\n\t.file\t3 \"./sub/../h.cuh\"\n\
                        .global .align 1 .b8 text[12] = \"/project/k.cu\";\n\t.loc\t1 2 3\n";
        assert_eq!(relative_to(Path::new("/project"), ptx), expected);
        assert_eq!(relative_to(Path::new("/proj"), ptx), ptx);
    }

    /// As NVRTC 13.0 writes them.
    #[test]
    fn a_folder_is_known_however_its_name_is_written() {
        let ptx = "\t.file\t1 \"/tmp/\\303\\274 \\\"x\\\"/k.cu\"\n";
        assert_eq!(relative_to(Path::new("/tmp/ü \"x\""), ptx), "\t.file\t1 \"k.cu\"\n");
    }
}
