//! All fuzz targets in one program. The environment variable `KINORA_FUZZ_TARGET` names the one that runs; the arguments are
//! libFuzzer's.
#![no_main]

use std::{process, sync::OnceLock};

use kinora_fuzz::{TARGETS, Target};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

/// What AddressSanitizer does unless the environment says otherwise. The video encoder's C++ defines a table twice, with the same
/// content; leaks are no errors of memory, and finding them needs rights that a container may lack.
// SAFETY: AddressSanitizer asks for a function of this name and type, and nothing else has the name.
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const std::ffi::c_char {
    c"detect_odr_violation=0:detect_leaks=0".as_ptr()
}

static TARGET: OnceLock<&'static Target> = OnceLock::new();

/// The target that the environment names. Without one, the names of all are printed, one a line.
fn target() -> &'static Target {
    TARGET.get_or_init(|| {
        let name = std::env::var("KINORA_FUZZ_TARGET").unwrap_or_default();
        Target::named(&name).unwrap_or_else(|| {
            TARGETS.iter().for_each(|target| println!("{} {}", target.name, target.max_bytes));
            process::exit(i32::from(!name.is_empty()));
        })
    })
}

fuzz_target!(init: target(), |data: &[u8]| (target().run)(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let anything = |data: &mut [u8], size| fuzzer_mutate(data, size, max_size);
    kinora_fuzz::mutate(target().shape, data, size, seed, anything)
});
