//! What the compiler is given: sources, headers, options, and the keys that stand for all of them.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::{Architecture, CodeForm, launch::Kernel};

// `HEADERS`: those in `kernels/common`.
include!(concat!(env!("OUT_DIR"), "/headers.rs"));

/// The header that a kernel's constants and generated code are in.
pub(crate) const SPECIALISATION: &str = "specialisation.cuh";

/// Changed when the meaning of a key or of what is kept by it changes.
const FORMAT: u32 = 1;

/// What code is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CompileTarget {
    /// The architecture.
    pub architecture: Architecture,
    /// Machine code or virtual code.
    pub form: CodeForm,
}

impl CompileTarget {
    /// The compiler's options.
    pub(crate) fn options(self) -> Vec<String> {
        let kind = match self.form {
            CodeForm::Cubin => "sm",
            CodeForm::Ptx => "compute",
        };
        vec![
            format!("--gpu-architecture={kind}_{}", self.architecture.suffix()),
            "-std=c++17".to_owned(),
            "-default-device".to_owned(),
            // For profilers, at no cost to the code.
            "-lineinfo".to_owned(),
            // The log then tells registers and spills.
            "--ptxas-options=-v".to_owned(),
        ]
    }
}

impl fmt::Display for CompileTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            CodeForm::Cubin => self.architecture.fmt(f),
            CodeForm::Ptx => write!(f, "compute_{}", self.architecture.suffix()),
        }
    }
}

/// Stands for everything that decides what the compiler makes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub(crate) [u8; 32]);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The key of a kernel, whichever compiler makes it: that of a bundle.
pub(crate) fn key(kernel: &Kernel, target: CompileTarget, headers: &[(&str, &str)]) -> Key {
    let (text, specialisation) = (kernel.text(), kernel.specialisation());
    let options = target.options();
    let form = match target.form {
        CodeForm::Cubin => "cubin",
        CodeForm::Ptx => "ptx",
    };
    let mut parts = vec![kernel.source.path, &text, kernel.entry, specialisation.as_str(), form];
    parts.extend(headers.iter().flat_map(|&(name, text)| [name, text]));
    parts.extend(options.iter().map(String::as_str));
    digest(&parts)
}

/// The key of a kernel as one version of the compiler makes it: that of the cache.
pub(crate) fn versioned_key(key: Key, compiler: (u32, u32)) -> Key {
    digest(&[&key.to_string(), &format!("NVRTC {}.{}", compiler.0, compiler.1)])
}

/// The lengths are part of it, so that no two lists run together into the same text.
fn digest(parts: &[&str]) -> Key {
    let mut hash = Sha256::new();
    hash.update(FORMAT.to_le_bytes());
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    Key(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::launch::Source;

    #[test]
    fn everything_that_changes_the_code_changes_the_key() {
        let source = Source { path: "test/a.cu", text: "one" };
        let kernel = Kernel::new(source, "a");
        let target = CompileTarget { architecture: Architecture::AMPERE, form: CodeForm::Cubin };
        let of = |kernel: &Kernel, target| key(kernel, target, HEADERS);
        let first = of(&kernel, target);
        assert_eq!(first, of(&kernel.clone(), target));
        let changed_header: Vec<(&str, &str)> = HEADERS
            .iter()
            .map(|&(name, text)| if name == "reduce.cuh" { (name, "changed") } else { (name, text) })
            .collect();
        let all: HashSet<Key> = [
            first,
            of(&Kernel::new(Source { text: "two", ..source }, "a"), target),
            of(&Kernel::new(source, "b"), target),
            of(&kernel.clone().with("N", 1), target),
            of(&kernel.clone().with("N", 2), target),
            of(&Kernel { generated: "code".into(), ..kernel.clone() }, target),
            of(&kernel, CompileTarget { architecture: Architecture::TURING, ..target }),
            of(&kernel, CompileTarget { form: CodeForm::Ptx, ..target }),
            key(&kernel, target, &changed_header),
            versioned_key(first, (13, 0)),
            versioned_key(first, (12, 9)),
        ]
        .into();
        assert_eq!(all.len(), 11);
        // Whether a spill is a defect does not change the code.
        assert_eq!(first, of(&Kernel { hot: true, ..kernel }, target));
    }

    #[test]
    fn a_kernel_with_every_header_compiles() {
        let text = "#include \"specialisation.cuh\"\n#include \"activations.cuh\"\n#include \"epilogue.cuh\"\n\
                    #include \"matrix.cuh\"\n#include \"reduce.cuh\"\n\
                    extern \"C\" __global__ void a(float *x) { *x = silu(*x); }";
        let kernel = Kernel { hot: true, ..Kernel::new(Source { path: "test/a.cu", text }, "a") };
        for architecture in Architecture::TESTED {
            crate::testing::compile(architecture, std::slice::from_ref(&kernel));
        }
    }

    #[test]
    fn hopper_is_compiled_for_its_own_instructions() {
        let target = |architecture, form| CompileTarget { architecture, form };
        let options = target(Architecture::HOPPER, CodeForm::Cubin).options();
        assert!(options.contains(&"--gpu-architecture=sm_90a".to_owned()));
        let options = target(Architecture::TURING, CodeForm::Ptx).options();
        assert!(options.contains(&"--gpu-architecture=compute_75".to_owned()));
    }
}
