//! Kernels with a planted bug, and the same kernels without it.

use kinora_ptx::{Checks, Finding, FindingKind, LaunchConfig, Module, Simulator};

use super::{compile, pointer, profile};

/// A kernel in CUDA C++. `BUG` is 1 with the bug and 0 without; the bug's lines end in `// BUG`.
pub struct Planted<'a> {
    pub source: &'a str,
    pub grid: u32,
    pub block: u32,
    pub shared: usize,
}

pub const PLANTED: Planted<'static> = Planted { source: "", grid: 1, block: 64, shared: 0 };

/// What every kernel has: the integers 0 to 1023 to read, 1024 that nobody wrote, and 1024 zeros.
const HEAD: &str = r#"
#define KERNEL extern "C" __global__ void __launch_bounds__(256, 1) k(const int *x, int *y, int *z)
#define LANE (threadIdx.x % 32)
"#;

/// A launch: its findings, the lines of the bug, and what the kernel wrote.
pub struct Ran {
    pub findings: Vec<Finding>,
    pub lines: Vec<u32>,
    pub y: Vec<u32>,
    pub z: Vec<u32>,
}

impl Ran {
    pub fn texts(&self) -> String {
        self.findings.iter().map(|finding| format!("{finding}\n")).collect()
    }

    /// Whether a finding is at one of the bug's lines.
    pub fn is_at_bug(&self, finding: &Finding) -> bool {
        finding.source.as_ref().is_some_and(|place| self.lines.contains(&place.line))
    }
}

/// Runs a kernel; `None` on a machine without NVRTC.
pub fn run(planted: &Planted<'_>, bug: bool) -> Option<Ran> {
    let source = format!("#define BUG {}\n{HEAD}{}", u32::from(bug), planted.source);
    let ptx = compile("planted.cu", &source, "", "80")?;
    let lines =
        source.lines().zip(1..).filter(|(line, _)| line.ends_with("// BUG")).map(|(_, number)| number);
    Some(Ran { lines: lines.collect(), ..run_ptx(planted, &ptx) })
}

/// Runs a kernel in PTX.
pub fn run_ptx(planted: &Planted<'_>, ptx: &str) -> Ran {
    let checks = Checks { steps: 100_000, ..Checks::default() };
    let mut simulator = Simulator::new(profile("80")).with_checks(checks);
    let module = Module::load(&mut simulator, ptx).unwrap_or_else(|error| panic!("{error}"));
    let numbers: Vec<u8> = (0..1024u32).flat_map(u32::to_le_bytes).collect();
    let x = simulator.upload(&numbers).unwrap();
    let y = simulator.allocate(4096).unwrap();
    let z = simulator.upload(&[0; 4096]).unwrap();
    let mut config = LaunchConfig::new(planted.grid, planted.block, vec![pointer(x), pointer(y), pointer(z)]);
    config.shared_bytes = planted.shared;
    let report = simulator.launch(&module, "k", &config).unwrap_or_else(|error| panic!("{error}"));
    let read = |address: u64| {
        let mut bytes = [0; 4096];
        simulator.copy_out(address, &mut bytes).unwrap();
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    Ran { findings: report.findings, lines: Vec::new(), y: read(y), z: read(z) }
}

/// That the bug is found at its line, as the only kind of finding, and that without it there is no finding. Returns the run with the
/// bug.
pub fn found(planted: &Planted<'_>, kind: FindingKind) -> Option<Ran> {
    clean(planted)?;
    let ran = run(planted, true)?;
    assert!(!ran.findings.is_empty(), "{kind:?} was not found");
    for finding in &ran.findings {
        assert!(finding.kind == kind, "more than was expected: {}", ran.texts());
    }
    assert!(ran.findings.iter().any(|finding| ran.is_at_bug(finding)), "not at its line: {}", ran.texts());
    Some(ran)
}

/// Runs a kernel without its bug, and expects no finding.
pub fn clean(planted: &Planted<'_>) -> Option<Ran> {
    let ran = run(planted, false)?;
    assert!(ran.findings.is_empty(), "without the bug: {}", ran.texts());
    Some(ran)
}
