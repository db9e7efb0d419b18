//! A kernel to compile, and a launch of it.

use std::{
    cmp::Ordering,
    hash::{Hash, Hasher},
    ptr,
};

use super::{Argument, CType, Layout};

/// A CUDA source file, embedded in the binary.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its path under `kernels`, such as `norm/group.cu`.
    pub path: &'static str,
    /// Its text.
    pub text: &'static str,
}

// Every launch of a program looks for its kernel, and a text has ten thousand letters: it is read only if it is at another
// address than one of the same path.
impl Ord for Source {
    fn cmp(&self, other: &Source) -> Ordering {
        self.path.cmp(other.path).then_with(|| match ptr::eq(self.text, other.text) {
            true => Ordering::Equal,
            false => self.text.cmp(other.text),
        })
    }
}

impl PartialOrd for Source {
    fn partial_cmp(&self, other: &Source) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Source) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Source {}

impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.path.hash(state);
    }
}

/// A kernel: a source, specialised by constants and generated code. Two that are equal compile to the same code.
///
/// The compiler sees the constants as `#define NAME VALUE` and then the generated code, in a header that every source
/// includes as `specialisation.cuh`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kernel {
    /// The source.
    pub source: Source,
    /// The name of the `extern "C"` function in it.
    pub entry: &'static str,
    /// What the source is specialised with.
    pub constants: Vec<(&'static str, String)>,
    /// Code that the source uses after the constants: an epilogue.
    pub generated: String,
    /// The types of its arguments, which [`Launch::new`] fills in; `None` if they are not checked.
    pub parameters: Option<Vec<CType>>,
    /// Whether a spilled register is a defect.
    pub hot: bool,
}

/// How the types that a launcher passes are compared with those that a kernel takes.
const CHECKS: &str = "\
// ---- What the launcher passes, compared with what the kernel takes. ----
// NVRTC has no offsetof; this is the intrinsic that its front end makes one of. Enumerators, unlike static members, leave
// nothing in the code.
#define LAUNCH_CHECK_OFFSET(type, field) __INTADDR__(&((type *)0)->field)
namespace launch_check {
struct AnyPointer;
template <class Passed, class Taken>
struct IsSame {
    enum { value = false };
};
template <class T>
struct IsSame<T, T> {
    enum { value = true };
};
template <class Passed, class Taken>
struct Fits {
    enum { value = IsSame<Passed, Taken>::value };
};
template <class T>
struct Fits<AnyPointer, T *> {
    enum { value = true };
};
template <class Passed, class Taken, decltype(sizeof(0)) N>
struct Fits<Passed[N], Taken[N]> : Fits<Passed, Taken> {};
template <class... T>
struct Types {};
template <class... T>
Types<T...> taken_by(void (*)(T...));
template <class... Passed, class... Taken>
constexpr bool fit(Types<Passed...>, Types<Taken...>) {
    if constexpr (sizeof...(Passed) != sizeof...(Taken)) return false;
    else return (Fits<Passed, Taken>::value && ...);
}
}  // namespace launch_check
";

impl Kernel {
    /// A kernel without constants.
    pub fn new(source: Source, entry: &'static str) -> Kernel {
        let (constants, generated) = (Vec::new(), String::new());
        Kernel { source, entry, constants, generated, parameters: None, hot: false }
    }

    /// Defines a constant.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Kernel {
        self.constants.push((name, value.to_string()));
        self
    }

    /// Says what its launches pass.
    #[must_use]
    pub fn taking(mut self, parameters: Vec<CType>) -> Kernel {
        self.parameters = Some(parameters);
        self
    }

    /// What it is called in messages: its source and its entry.
    pub fn label(&self) -> String {
        format!("{}:{}", self.source.path, self.entry)
    }

    /// Whether it waits for the launch before it by itself, if it is compiled for Hopper: see `common/grid.cuh`.
    pub fn waits(&self) -> bool {
        self.source.text.contains("    wait_for_launch_before();\n")
    }

    /// The text of `specialisation.cuh`.
    pub fn specialisation(&self) -> String {
        let constants: String =
            self.constants.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
        constants + &self.generated
    }

    /// The text to compile: the source, and after it the assertions that the kernel takes what its launches pass.
    pub fn text(&self) -> String {
        let Some(parameters) = &self.parameters else { return self.source.text.to_owned() };
        let mut structs: Vec<&Layout> = Vec::new();
        parameters.iter().for_each(|ty| ty.structs(&mut structs));
        let layouts: String = structs.into_iter().map(Layout::assertions).collect();
        let passed = parameters.iter().map(CType::spelled).collect::<Vec<_>>().join(", ");
        let Kernel { source, entry, .. } = self;
        format!(
            "{}{CHECKS}{layouts}static_assert(launch_check::fit(launch_check::Types<{passed}>(), \
             decltype(launch_check::taken_by(&{entry}))()), \"the parameters of {entry}\");\n",
            source.text
        )
    }
}

/// A launch of a kernel, with everything in place.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// What runs.
    pub kernel: Kernel,
    /// Blocks on each axis.
    pub grid: [u32; 3],
    /// Threads of a block on each axis.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Blocks that run together with access to each other's shared memory.
    pub cluster: u32,
    /// The arguments, in order.
    pub arguments: Vec<Argument>,
}

impl Launch {
    /// A launch over one axis, without dynamic shared memory. When the kernel is compiled, the arguments' types are compared
    /// with its parameters'.
    pub fn new(kernel: Kernel, grid: u32, block: u32, arguments: Vec<Argument>) -> Launch {
        let kernel = kernel.taking(arguments.iter().map(Argument::c_type).collect());
        Launch { kernel, grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes: 0, cluster: 1, arguments }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, fs, path::Path};

    use super::*;
    use crate::{
        Architecture, CodeForm, CudaError,
        compiler::CompileTarget,
        launch::{DevicePointer, StructValue, arguments, c_struct},
        testing,
    };

    c_struct! {
        struct Extents {
            rows: i64,
            columns: i32,
            depth: i32,
        }
    }

    const RIGHT: &str = r#"
struct Extents { long long rows; int columns, depth; };
struct Operands { const float *at[2]; long long stride[2][3]; };
extern "C" __global__ void k(float *y, Extents extents, const Operands operands, int number, float factor) {
    y[0] = operands.at[1][operands.stride[1][2]] * extents.depth * number * factor;
}
"#;
    const PARAMETERS: &str = "the parameters of k";

    fn kernel(text: &'static str) -> Kernel {
        let at = DevicePointer::new(256);
        let operands = StructValue::named("Operands")
            .with_array("at", &[at; 2])
            .with_table("stride", &[vec![1i64, 2, 3], vec![4, 5, 6]])
            .unwrap();
        let extents = Extents { rows: 1, columns: 2, depth: 3 };
        let kernel = Kernel::new(Source { path: "test/k.cu", text }, "k");
        Launch::new(kernel, 1, 32, arguments![at, extents, operands, 7, 0.5f32]).kernel
    }

    /// The texts of all CUDA sources under a folder.
    fn sources(folder: &Path, texts: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, texts);
            } else if path.extension().is_some_and(|extension| extension == "cu") {
                texts.push(fs::read_to_string(path).unwrap());
            }
        }
    }

    #[test]
    fn sources_are_equal_by_path_and_text_wherever_they_lie() {
        let source = |path, text: &str| Source { path, text: text.to_owned().leak() };
        let one = source("a.cu", "one");
        assert_eq!(one, source("a.cu", "one"));
        assert_ne!(one, source("a.cu", "two"));
        assert_ne!(one, source("b.cu", "one"));
        assert!(one < source("a.cu", "two") && source("a.cu", "two") < source("b.cu", "one"));
        let kernel = |source| Kernel::new(source, "k");
        let known = HashSet::from([kernel(one), kernel(source("a.cu", "two"))]);
        assert!(known.contains(&kernel(source("a.cu", "one"))));
        assert!(!known.contains(&kernel(source("a.cu", "three"))));
    }

    #[test]
    fn every_kernel_waits_for_the_launch_before_it() {
        let mut texts = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut texts);
        assert!(texts.len() > 20);
        for text in texts {
            let count = |part: &str| text.matches(part).count();
            assert_eq!(count("__global__ void"), count("    wait_for_launch_before();\n"), "{text}");
        }
    }

    #[test]
    fn a_kernel_that_takes_anything_else_does_not_compile() {
        let target = CompileTarget { architecture: Architecture::AMPERE, form: CodeForm::Ptx };
        let Some(compiler) = testing::compiler(target) else { return };
        assert!(compiler.compile(&kernel(RIGHT)).is_ok());
        for (right, wrong, blamed) in [
            ("columns, depth", "depth, columns", "Extents::columns"),
            ("long long rows", "double rows", "Extents::rows"),
            ("stride[2][3]", "stride[3][2]", "Operands::stride"),
            (
                "Extents extents, const Operands operands",
                "const Operands operands, Extents extents",
                PARAMETERS,
            ),
            ("int number", "long long number", PARAMETERS),
            ("float factor", "float factor, int more", PARAMETERS),
        ] {
            assert_eq!(RIGHT.matches(right).count(), 1, "{right}");
            let text = RIGHT.replace(right, wrong).leak();
            let Err(CudaError::Compile { log, .. }) = compiler.compile(&kernel(text)) else {
                panic!("{blamed} is not checked")
            };
            assert!(log.contains(&format!("static assertion failed with \"{blamed}\"")), "{log}");
        }
    }

    #[test]
    fn assertions_come_after_the_source_and_leave_nothing_in_the_code() {
        let target = CompileTarget { architecture: Architecture::AMPERE, form: CodeForm::Ptx };
        let Some(compiler) = testing::compiler(target) else { return };
        let checked = kernel(RIGHT);
        assert!(checked.text().starts_with(RIGHT));
        let unchecked = Kernel { parameters: None, ..checked.clone() };
        assert_eq!(unchecked.text(), RIGHT);
        let code = |kernel: &Kernel| {
            let bytes = compiler.compile(kernel).unwrap().bytes;
            String::from_utf8(bytes).unwrap().split(".section").next().map(str::to_owned)
        };
        assert_eq!(code(&checked), code(&unchecked));
    }
}
