//! The version of NVIDIA's driver.

/// The version of NVIDIA's driver, if the system knows it, and of the CUDA that it supports.
pub fn driver(cuda: &str) -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    match driver_version(&text) {
        Some(version) => format!("{version} (CUDA {cuda})"),
        None => format!("CUDA {cuda}"),
    }
}

/// The first word of the driver's version file that is numbers with points between them.
fn driver_version(text: &str) -> Option<&str> {
    let numbers = |word: &&str| {
        let parts: Vec<&str> = word.split('.').collect();
        parts.len() >= 2 && parts.iter().all(|part| part.parse::<u32>().is_ok())
    };
    text.split_whitespace().find(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_the_drivers_file() {
        for text in [
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.54.03  Release Build  (builder@x)",
        ] {
            assert_eq!(driver_version(text), Some("535.54.03"));
        }
        assert_eq!(driver_version(""), None);
    }
}
