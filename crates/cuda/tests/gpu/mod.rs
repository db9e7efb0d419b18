//! What the tests on a GPU share.

use std::io::Write;

use kinora_cuda::driver::Device;

/// A GPU to test on. `None`, and a line that says so, where there is none; with `KINORA_REQUIRE_GPU=1` that is a failure.
pub fn open() -> Option<Device> {
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os("KINORA_REQUIRE_GPU").is_some_and(|value| value == "1") => {
            panic!("{error}")
        }
        Err(error) => {
            // Not by `println`, which a passing test keeps to itself.
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            let _ = writeln!(std::io::stderr(), "{test} not run: no GPU ({error})");
            None
        }
    }
}
