//! Launches of one warp with one access pattern each, to find out why the counters of a larger kernel differ.

use kinora_cuda::{
    CudaError,
    kernels::{Argument, Implementation, Kernel, Launch, Places, Source},
};

const SOURCE: Source = Source { path: "simulator_on_gpu/probe.cu", text: include_str!("probe.cu") };

/// Words of the operand and the result.
pub const WORDS: usize = 4096;

/// The instruction that accesses memory.
#[derive(Clone, Copy)]
enum Access {
    SharedLoad(u32),
    SharedStore(u32),
    LoadMatrix,
    StoreMatrix,
    GlobalLoad(u32),
    GlobalStore(u32),
    Copy,
    Reduce,
    SharedReduce,
}

impl Access {
    fn assembly(self) -> String {
        let vector = |bytes: u32| match bytes {
            4 => ("", "%0", "%1"),
            8 => (".v2", "{%0, %1}", "%2"),
            _ => (".v4", "{%0, %1, %2, %3}", "%4"),
        };
        let results = |bytes: u32| match bytes {
            4 => r#""=r"(a)"#,
            8 => r#""=r"(a), "=r"(b)"#,
            _ => r#""=r"(a), "=r"(b), "=r"(c), "=r"(d)"#,
        };
        let values = |bytes: u32| results(bytes).replace('=', "");
        let load = |space: &str, bytes: u32, address: &str| {
            let (lanes, registers, place) = vector(bytes);
            let results = results(bytes);
            format!(r#"asm volatile("ld{space}{lanes}.u32 {registers}, [{place}];" : {results} : {address})"#)
        };
        let store = |space: &str, bytes: u32, address: &str| {
            let (lanes, registers, place) = vector(bytes);
            let values = values(bytes);
            format!(r#"asm volatile("st{space}{lanes}.u32 [{place}], {registers};" :: {values}, {address})"#)
        };
        match self {
            Access::SharedLoad(bytes) => load(".shared", bytes, r#""r"(at)"#),
            Access::SharedStore(bytes) => store(".shared", bytes, r#""r"(at)"#),
            Access::GlobalLoad(bytes) => load(".global", bytes, r#""l"(from)"#),
            Access::GlobalStore(bytes) => store(".global", bytes, r#""l"(to)"#),
            Access::LoadMatrix => {
                let results = results(16);
                format!(
                    r#"asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0, %1, %2, %3}}, [%4];" : {results} : "r"(at))"#
                )
            }
            Access::StoreMatrix => {
                let values = values(16);
                format!(
                    r#"asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4], {{%0, %1, %2, %3}};" :: {values}, "r"(at))"#
                )
            }
            Access::Copy => concat!(
                r#"asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(from)); "#,
                r#"asm volatile("cp.async.wait_all;")"#
            )
            .to_owned(),
            Access::Reduce => r#"asm volatile("red.global.add.u32 [%0], %1;" :: "l"(to), "r"(a))"#.to_owned(),
            Access::SharedReduce => {
                r#"asm volatile("red.shared.add.u32 [%0], %1;" :: "r"(at), "r"(a))"#.to_owned()
            }
        }
    }
}

/// A pattern: its name, the instruction, each lane's offset in bytes, and which lanes are active.
struct Probe {
    name: &'static str,
    access: Access,
    offset: &'static str,
    active: &'static str,
}

const fn probe(name: &'static str, access: Access, offset: &'static str) -> Probe {
    Probe { name, access, offset, active: "true" }
}

const PROBES: [Probe; 36] = [
    probe("global load 4, contiguous", Access::GlobalLoad(4), "4 * lane"),
    probe("global load 4, every second word", Access::GlobalLoad(4), "8 * lane"),
    probe("global load 4, a sector each", Access::GlobalLoad(4), "32 * lane"),
    probe("global load 4, one word for all", Access::GlobalLoad(4), "0 * lane"),
    probe("global load 16, contiguous", Access::GlobalLoad(16), "16 * lane"),
    probe("global load 16, one piece for all", Access::GlobalLoad(16), "0 * lane"),
    probe(
        "global load 16, the same eight pieces for each quarter",
        Access::GlobalLoad(16),
        "16 * (lane % 8)",
    ),
    probe("global load 16, half a sector of every second", Access::GlobalLoad(16), "64 * lane"),
    probe("global load 8, contiguous", Access::GlobalLoad(8), "8 * lane"),
    Probe { active: "lane < 5", ..probe("global load 4, five lanes", Access::GlobalLoad(4), "4 * lane") },
    probe("global store 4, contiguous", Access::GlobalStore(4), "4 * lane"),
    probe("global store 4, a sector each", Access::GlobalStore(4), "32 * lane"),
    probe("global store 16, contiguous", Access::GlobalStore(16), "16 * lane"),
    probe("shared load 4, contiguous", Access::SharedLoad(4), "4 * lane"),
    probe("shared load 4, two words a bank", Access::SharedLoad(4), "8 * lane"),
    probe("shared load 4, one bank", Access::SharedLoad(4), "128 * lane"),
    probe("shared load 8, contiguous", Access::SharedLoad(8), "8 * lane"),
    probe("shared load 8, equal neighbours", Access::SharedLoad(8), "8 * (lane / 2)"),
    probe("shared load 8, two words a bank", Access::SharedLoad(8), "16 * lane"),
    probe("shared load 16, contiguous", Access::SharedLoad(16), "16 * lane"),
    probe("shared load 16, equal neighbours", Access::SharedLoad(16), "16 * (lane / 2)"),
    probe(
        "shared load 16, the same eight pieces for each quarter",
        Access::SharedLoad(16),
        "16 * (lane % 8)",
    ),
    probe("shared load 16, one piece for all", Access::SharedLoad(16), "0 * lane"),
    probe("shared load 16, rows of 128 bytes", Access::SharedLoad(16), "128 * lane"),
    Probe {
        active: "lane % 8 == 0",
        ..probe("shared load 16, a lane a quarter", Access::SharedLoad(16), "16 * lane")
    },
    probe("shared store 8, contiguous", Access::SharedStore(8), "8 * lane"),
    probe("shared store 16, contiguous", Access::SharedStore(16), "16 * lane"),
    probe("shared store 16, two words a bank", Access::SharedStore(16), "32 * lane"),
    probe("ldmatrix, rows of 144 bytes", Access::LoadMatrix, "144 * lane"),
    probe("ldmatrix, rows of 128 bytes", Access::LoadMatrix, "128 * lane"),
    probe("cp.async 16, contiguous", Access::Copy, "16 * lane"),
    probe("stmatrix, rows of 128 bytes", Access::StoreMatrix, "128 * lane"),
    probe("red.add, contiguous", Access::Reduce, "4 * lane"),
    probe("shared red.add, contiguous", Access::SharedReduce, "4 * lane"),
    probe("shared red.add, one bank", Access::SharedReduce, "128 * lane"),
    probe("shared red.add, one word for all", Access::SharedReduce, "0 * lane"),
];

/// The name of a launch.
pub fn name(number: usize) -> String {
    PROBES.get(number).map_or("", |probe| probe.name).to_owned()
}

/// All probes, one launch each.
#[derive(Debug)]
pub struct Probes;

// SAFETY: each probe takes these two pointers, and its offsets lie within the operand and the result.
unsafe impl Implementation for Probes {
    fn name(&self) -> String {
        "probes".to_owned()
    }

    fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
        let pointers = vec![Argument::Pointer(places.inputs[0]), Argument::Pointer(places.outputs[0])];
        let launch = |probe: &Probe| {
            let kernel = Kernel::new(SOURCE, "probe")
                .with("OFFSET(lane)", format!("({})", probe.offset))
                .with("ACTIVE(lane)", format!("({})", probe.active))
                .with("ACCESS", probe.access.assembly());
            Launch::new(kernel, 1, 32, pointers.clone())
        };
        Ok(PROBES.iter().map(launch).collect())
    }
}
