//! `wmma` and the exact matrix products, against plain loops over the matrices in memory.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use half::{bf16, f16};
use kinora_ptx::{Argument, FindingKind, LaunchConfig};
use support::{Bench, random};

/// How numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    S8,
    U8,
    S4,
    U4,
    B1,
    S32,
}

use Kind::*;

impl Kind {
    fn name(self) -> &'static str {
        match self {
            F16 => "f16",
            Bf16 => "bf16",
            Tf32 => "tf32",
            F32 => "f32",
            F64 => "f64",
            S8 => "s8",
            U8 => "u8",
            S4 => "s4",
            U4 => "u4",
            B1 => "b1",
            S32 => "s32",
        }
    }

    fn bits(self) -> usize {
        match self {
            F64 => 64,
            Tf32 | F32 | S32 => 32,
            F16 | Bf16 => 16,
            S8 | U8 => 8,
            S4 | U4 => 4,
            B1 => 1,
        }
    }

    /// A number of the kind from one between -1 and 1. Products and sums of these are exact in every accumulator.
    fn pick(self, uniform: f32) -> f64 {
        let of = |scale: f32| f64::from((uniform * scale).round());
        match self {
            F16 | Bf16 | Tf32 | F32 => of(4.0) / 4.0,
            F64 => of(1e6) / 64.0,
            S8 => of(100.0),
            U8 => of(100.0).abs(),
            S4 => of(7.0),
            U4 => of(15.0).abs(),
            B1 => f64::from(u8::from(uniform > 0.0)),
            S32 => of(1000.0),
        }
    }

    fn encode(self, value: f64) -> u64 {
        match self {
            F16 => u64::from(f16::from_f64(value).to_bits()),
            Bf16 => u64::from(bf16::from_f64(value).to_bits()),
            Tf32 | F32 => u64::from((value as f32).to_bits()),
            F64 => value.to_bits(),
            _ => value as i64 as u64 & (u64::MAX >> (64 - self.bits())),
        }
    }

    fn decode(self, bits: u64) -> f64 {
        match self {
            F16 => f16::from_bits(bits as u16).to_f64(),
            F32 => f64::from(f32::from_bits(bits as u32)),
            F64 => f64::from_bits(bits),
            S32 => f64::from(bits as u32 as i32),
            _ => unreachable!("no accumulator"),
        }
    }

    fn registers(self) -> &'static str {
        if self == F64 { "%fd" } else { "%r" }
    }
}

/// A matrix in memory.
struct Stored {
    rows: usize,
    columns: usize,
    kind: Kind,
    column_major: bool,
    stride: usize,
}

impl Stored {
    fn new(rows: usize, columns: usize, kind: Kind, column_major: bool) -> Stored {
        // Rows or columns that are further apart than they are long, by 16 bytes.
        let length = if column_major { rows } else { columns };
        Stored { rows, columns, kind, column_major, stride: length + 256 / kind.bits() }
    }

    fn bit(&self, row: usize, column: usize) -> usize {
        let (line, along) = if self.column_major { (column, row) } else { (row, column) };
        (line * self.stride + along) * self.kind.bits()
    }

    fn bytes(&self, values: &[f64]) -> Vec<u8> {
        let lines = if self.column_major { self.columns } else { self.rows };
        let mut bytes = vec![0; lines * self.stride * self.kind.bits() / 8];
        for row in 0..self.rows {
            for column in 0..self.columns {
                let (bit, value) =
                    (self.bit(row, column), self.kind.encode(values[row * self.columns + column]));
                match self.kind.bits() {
                    bits @ ..8 => bytes[bit / 8] |= (value as u8) << (bit % 8 / bits * bits),
                    bits => bytes[bit / 8..][..bits / 8].copy_from_slice(&value.to_le_bytes()[..bits / 8]),
                }
            }
        }
        bytes
    }

    fn read(&self, bytes: &[u8], row: usize, column: usize) -> f64 {
        let at = self.bit(row, column) / 8;
        let mut value = [0; 8];
        value[..self.kind.bits() / 8].copy_from_slice(&bytes[at..][..self.kind.bits() / 8]);
        self.kind.decode(u64::from_le_bytes(value))
    }

    fn order(&self) -> &'static str {
        if self.column_major { "col" } else { "row" }
    }
}

fn list(prefix: &str, first: usize, count: usize) -> String {
    (first..first + count).map(|i| format!("{prefix}{i}")).collect::<Vec<_>>().join(", ")
}

struct Case {
    shape: (usize, usize, usize),
    operands: [Kind; 2],
    sums: [Kind; 2],
    registers: [usize; 4],
    modifiers: &'static str,
}

/// D = A · B + C with every order of the matrices, from global or shared memory or with generic addresses.
fn check(case: &Case) {
    let &Case { shape: (m, n, k), operands: [a_kind, b_kind], sums: [d_kind, c_kind], registers, modifiers } =
        case;
    let sub_byte = a_kind.bits() < 8;
    for orders in 0..8u32 {
        let (a_column, b_column) = (orders & 1 == 1, orders & 2 == 2);
        if sub_byte && (a_column || !b_column) {
            continue;
        }
        let a = Stored::new(m, k, a_kind, a_column);
        let b = Stored::new(k, n, b_kind, b_column);
        let c = Stored::new(m, n, c_kind, orders & 4 == 4);
        let d = Stored::new(m, n, d_kind, orders & 4 == 0);
        let values = |stored: &Stored, seed: u64| -> Vec<f64> {
            random(stored.rows * stored.columns, seed).into_iter().map(|x| stored.kind.pick(x)).collect()
        };
        let (a_values, b_values, c_values) = (values(&a, 1), values(&b, 2), values(&c, 3));
        let names = match (a_kind, d_kind, c_kind) {
            (F16, _, _) => format!("{}.{}", d_kind.name(), c_kind.name()),
            _ => [d_kind, a_kind, b_kind, c_kind].map(Kind::name).join("."),
        };
        let [d_count, a_count, b_count, c_count] = registers;
        let (before, after) = match modifiers {
            "xor.popc" | "and.popc" => (format!(".{modifiers}"), String::new()),
            "" => (String::new(), String::new()),
            _ => (String::new(), format!(".{modifiers}")),
        };
        let space = [".global", "", ".shared"][orders as usize % 3];
        let a_bytes = a.bytes(&a_values);
        let copy = if space == ".shared" {
            // Each lane copies words of A.
            format!(
                "mov.u32 %r91, tile; mul.lo.u32 %r92, %r90, 4;
                 again: setp.ge.u32 %p1, %r92, {}; @%p1 bra over;
                 cvt.u64.u32 %rd9, %r92; add.s64 %rd9, %rd1, %rd9; ld.global.u32 %r93, [%rd9];
                 add.u32 %r94, %r91, %r92; st.shared.u32 [%r94], %r93; add.u32 %r92, %r92, 128; bra again;
                 over: bar.warp.sync -1; cvt.u64.u32 %rd1, %r91;",
                a_bytes.len()
            )
        } else {
            String::new()
        };
        let shape = format!("m{m}n{n}k{k}");
        let mut text = format!(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.shared .align 32 .b8 tile[4096];
            .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{
            .reg .pred %p<2>; .reg .b32 %r<100>; .reg .b64 %rd<10>; .reg .f64 %fd<60>;
            ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [d];
            mov.u32 %r90, %tid.x; mov.u32 %r95, {}; {copy}\n",
            a.stride
        );
        let load = |matrix: &str,
                    stored: &Stored,
                    space: &str,
                    at: usize,
                    count: usize,
                    pointer: &str,
                    stride: &str| {
            format!(
                "wmma.load.{matrix}.sync.aligned.{}.{shape}{space}.{} {{{}}}, [{pointer}], {stride};\n",
                stored.order(),
                stored.kind.name(),
                list(stored.kind.registers(), at, count),
            )
        };
        text += &load("a", &a, space, 0, a_count, "%rd1", "%r95");
        text += &load("b", &b, ".global", 10, b_count, "%rd2", &b.stride.to_string());
        text += &load("c", &c, "", 20, c_count, "%rd3", &c.stride.to_string());
        text += &format!(
            "wmma.mma{before}.sync.aligned.{}.{}.{shape}.{names}{after} {{{}}}, {{{}}}, {{{}}}, {{{}}};
            wmma.store.d.sync.aligned.{}.{shape}.global.{} [%rd4], {{{}}}, {};
            ret; }}",
            a.order(),
            b.order(),
            list(d_kind.registers(), 30, d_count),
            list(a_kind.registers(), 0, a_count),
            list(b_kind.registers(), 10, b_count),
            list(c_kind.registers(), 20, c_count),
            d.order(),
            d_kind.name(),
            list(d_kind.registers(), 30, d_count),
            d.stride,
        );
        let mut bench = Bench::new(&text, "90a");
        let d_bytes = d.bytes(&vec![0.0; m * n]);
        let addresses = [a_bytes, b.bytes(&b_values), c.bytes(&c_values), d_bytes.clone()]
            .map(|bytes| bench.simulator.upload(&bytes).unwrap());
        let report = bench.clean_launch(&LaunchConfig::new(1, 32, addresses.map(Argument::U64).to_vec()));
        let tiles = if m * n == 256 { 2 } else { 1 };
        assert_eq!(report.counters.matrix_instructions, tiles);
        assert_eq!(report.counters.matrix_flops, 2 * (m * n * k) as u64);
        let mut out = vec![0; d_bytes.len()];
        bench.simulator.copy_out(addresses[3], &mut out).unwrap();
        for row in 0..m {
            for column in 0..n {
                let products = (0..k).map(|i| {
                    let (x, y) = (a_values[row * k + i], b_values[i * n + column]);
                    if modifiers == "xor.popc" { f64::from(u8::from(x != y)) } else { x * y }
                });
                let exact = products.sum::<f64>() + c_values[row * n + column];
                let ours = d.read(&out, row, column);
                assert_eq!(ours, exact, "{shape} {names} {orders}: row {row}, column {column}");
            }
        }
    }
}

const SIXTEENS: [(usize, usize, usize); 3] = [(16, 16, 16), (32, 8, 16), (8, 32, 16)];

#[test]
fn products_of_fragments() {
    for shape in SIXTEENS {
        let (m, n, _) = shape;
        for (d, c) in [(F32, F32), (F16, F16), (F32, F16), (F16, F32)] {
            let count = |kind| if kind == F32 { 8 } else { 4 };
            let registers = [count(d), 8, 8, count(c)];
            check(&Case { shape, operands: [F16; 2], sums: [d, c], registers, modifiers: "" });
        }
        let registers = [8, m / 4, n / 4, 8];
        check(&Case { shape, operands: [Bf16; 2], sums: [F32; 2], registers, modifiers: "" });
        for operands in [[S8, S8], [U8, U8], [S8, U8]] {
            let registers = [8, m / 8, n / 8, 8];
            check(&Case { shape, operands, sums: [S32; 2], registers, modifiers: "satfinite" });
        }
    }
    let registers = [8, 4, 4, 8];
    check(&Case { shape: (16, 16, 8), operands: [Tf32; 2], sums: [F32; 2], registers, modifiers: "" });
    let registers = [2, 1, 1, 2];
    check(&Case { shape: (8, 8, 4), operands: [F64; 2], sums: [F64; 2], registers, modifiers: "rn" });
    for operands in [[S4, S4], [U4, U4]] {
        check(&Case { shape: (8, 8, 32), operands, sums: [S32; 2], registers, modifiers: "" });
    }
    for modifiers in ["xor.popc", "and.popc"] {
        check(&Case { shape: (8, 8, 128), operands: [B1; 2], sums: [S32; 2], registers, modifiers });
    }
}

/// A kernel over one matrix of 16 × 16 f32, which starts at `x`.
fn accumulators(body: &str) -> Bench {
    let sums = list("%f", 0, 8);
    let body = body.replace("SUMS", &format!("{{{sums}}}"));
    Bench::new(
        &format!(
            ".version 9.0\n.target sm_80\n.address_size 64\n.shared .align 32 .b8 tile[1024];
            .visible .entry k(.param .u64 x) {{
            .reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .f32 %f<20>;
            ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile;
            {body}
            ret; }}"
        ),
        "80",
    )
}

const LOAD: &str = "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 SUMS, [%rd1], 16;";
const STORE: &str = "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], SUMS, 16;";

/// Two tiles of 16 × 8, each as the manual draws the accumulators of `mma`.
#[test]
fn a_thread_holds_the_accumulators_of_two_tiles() {
    let mut bench = accumulators(&format!(
        "{LOAD} mul.wide.u32 %rd2, %r1, 32; add.s64 %rd3, %rd1, %rd2; bar.warp.sync -1;
         st.global.v4.f32 [%rd3], {{%f0, %f1, %f2, %f3}}; st.global.v4.f32 [%rd3+16], {{%f4, %f5, %f6, %f7}};"
    ));
    let x = bench.singles(&(0..256).map(|i| i as f32).collect::<Vec<_>>());
    bench.clean_launch(&LaunchConfig::new(1, 32, vec![Argument::U64(x)]));
    for (i, value) in bench.read_singles(x, 256).into_iter().enumerate() {
        let (lane, i) = (i / 8, i % 8);
        let (row, column) = (lane / 4 + 8 * (i / 2 % 2), 2 * (lane % 4) + i % 2 + 8 * (i / 4));
        assert_eq!(value, (16 * row + column) as f32);
    }
}

#[test]
fn results_may_replace_operands() {
    // D overlaps B and C in another order.
    let text = ".version 9.0\n.target sm_80\n.address_size 64
        .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 d) {
        .reg .b32 %r<40>; .reg .b64 %rd<9>;
        ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [d];
        wmma.load.a.sync.aligned.row.m16n16k8.global.tf32 {%r0, %r1, %r2, %r3}, [%rd1], 8;
        wmma.load.b.sync.aligned.row.m16n16k8.global.tf32 {%r4, %r5, %r6, %r7}, [%rd2], 16;
        wmma.load.c.sync.aligned.row.m16n16k8.global.f32 {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [%rd2], 8;
        wmma.mma.sync.aligned.row.row.m16n16k8.f32.tf32.tf32.f32 {%r6, %r7, %r14, %r15, %r0, %r1, %r2, %r3},
            {%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17};
        wmma.store.d.sync.aligned.row.m16n16k8.global.f32 [%rd3], {%r6, %r7, %r14, %r15, %r0, %r1, %r2, %r3}, 16;
        ret; }";
    let mut bench = Bench::new(text, "80");
    let round = |values: Vec<f32>| -> Vec<f32> { values.iter().map(|v| (v * 8.0).round()).collect() };
    let (a, b) = (round(random(128, 1)), round(random(256, 2)));
    let (x, y) = (bench.singles(&a), bench.singles(&b));
    let d = bench.simulator.allocate(1024).unwrap();
    bench.clean_launch(&LaunchConfig::new(1, 32, [x, y, d].map(Argument::U64).to_vec()));
    for (i, ours) in bench.read_singles(d, 256).into_iter().enumerate() {
        let (row, column) = (i / 16, i % 16);
        let dot: f32 = (0..8).map(|k| a[row * 8 + k] * b[k * 16 + column]).sum();
        // Rows of C start eight elements apart.
        assert_eq!(ours, dot + b[row * 8 + column]);
    }
}

fn kinds(bench: &mut Bench, threads: u32, x: u64) -> Vec<FindingKind> {
    let report = bench.launch(&LaunchConfig::new(1, threads, vec![Argument::U64(x)]));
    report.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn what_accesses_of_matrices_do_wrong_is_found() {
    let ones = vec![1.0; 256];
    let whole = |bench: &mut Bench| bench.singles(&ones);
    let mut right = accumulators(&format!("{LOAD} {STORE}"));
    let x = whole(&mut right);
    assert_eq!(kinds(&mut right, 32, x), []);
    // A matrix that is longer than its memory.
    let mut beyond = accumulators(&LOAD.replace("16;", "20;"));
    let x = whole(&mut beyond);
    assert_eq!(kinds(&mut beyond, 32, x), [FindingKind::OutOfBounds]);
    let mut beyond = accumulators(&STORE.replace(", 16;", ", 20;"));
    let x = whole(&mut beyond);
    assert_eq!(kinds(&mut beyond, 32, x), [FindingKind::OutOfBounds]);
    // Memory that nobody wrote.
    let mut unwritten = accumulators(LOAD);
    let x = unwritten.simulator.allocate(1024).unwrap();
    assert_eq!(kinds(&mut unwritten, 32, x), [FindingKind::Uninitialised]);
    // Addresses and strides that are not aligned.
    let mut odd = accumulators(&LOAD.replace("[%rd1]", "[%rd1+16]").replace("16;", "12;"));
    let x = whole(&mut odd);
    assert_eq!(kinds(&mut odd, 32, x), [FindingKind::Misaligned]);
    let mut odd = accumulators(&LOAD.replace("16;", "14;"));
    let x = whole(&mut odd);
    assert_eq!(kinds(&mut odd, 32, x), [FindingKind::Misaligned]);
    // Half a warp.
    let mut half = accumulators(&format!("setp.lt.u32 %p1, %r1, 16; @%p1 {LOAD}"));
    let x = whole(&mut half);
    assert_eq!(kinds(&mut half, 32, x), [FindingKind::WarpSyncMismatch]);
    // Lanes with addresses of their own.
    let mut own = accumulators(&format!(
        "and.b32 %r3, %r1, 1; mul.wide.u32 %rd2, %r3, 32; add.s64 %rd1, %rd1, %rd2; {LOAD}"
    ));
    let x = own.singles(&vec![1.0; 300]);
    assert_eq!(kinds(&mut own, 32, x), [FindingKind::WarpSyncMismatch]);
    // Local memory.
    let local = ".local .align 32 .b8 own[1024]; mov.u64 %rd2, own; cvta.local.u64 %rd1, %rd2;";
    let mut local = accumulators(&format!("{local} {}", LOAD.replace(".global", "")));
    let x = whole(&mut local);
    assert_eq!(kinds(&mut local, 32, x), [FindingKind::OutOfBounds]);
}

/// The first warp writes a tile that the second reads, in shared and in global memory.
#[test]
fn races_with_matrices_are_found() {
    for (space, pointer) in [(".shared", "%r2"), (".global", "%rd1")] {
        let access = |text: &str| text.replace(".global", space).replace("%rd1", pointer);
        let (load, store) = (access(LOAD), access(STORE));
        let between = |barrier: &str| {
            let mut bench = accumulators(&format!(
                "setp.lt.u32 %p1, %r1, 32; mov.f32 %f0, 0f3F800000; @!%p1 bra wait; {store} wait: {barrier} @%p1 bra over; {load} over:"
            ));
            let x = bench.singles(&[0.0; 256]);
            kinds(&mut bench, 64, x)
        };
        assert_eq!(between("bar.sync 0;"), []);
        assert_eq!(between(""), [FindingKind::Race], "{space}");
    }
}

/// Memory is accessed in pieces as wide as neighbouring elements of a thread are.
#[test]
fn matrices_count_as_memory_traffic() {
    let traffic = |body: &str| {
        let mut bench = accumulators(body);
        let x = bench.singles(&vec![0.0; 256]);
        bench.clean_launch(&LaunchConfig::new(1, 32, vec![Argument::U64(x)])).counters
    };
    // Four loads of 8 bytes by 32 lanes; each touches 32 bytes of eight rows.
    let rows = traffic(LOAD).global_loads;
    assert_eq!((rows.requests, rows.transactions, rows.bytes), (4, 32, 1024));
    // By columns every element is an access of its own, to eight rows of four columns.
    let columns = traffic(&LOAD.replace("row", "col")).global_loads;
    assert_eq!((columns.requests, columns.transactions, columns.bytes), (8, 32, 1024));
    // An operand of f16 in shared memory is read as `ldmatrix` reads it: eight rows of 16 bytes a wavefront.
    let fill = "shl.b32 %r3, %r1, 5; add.u32 %r3, %r2, %r3; st.shared.v4.u32 [%r3], {%r1, %r1, %r1, %r1};
                st.shared.v4.u32 [%r3+16], {%r1, %r1, %r1, %r1}; bar.warp.sync -1;";
    let load = |stride: u32| {
        format!(
            "{fill} wmma.load.a.sync.aligned.row.m16n16k16.shared.f16
             {{%r4, %r5, %r6, %r7, %r8, %r9, %r10, %r11}}, [%r2], {stride};"
        )
    };
    let packed = traffic(&load(16)).shared_loads;
    assert_eq!((packed.requests, packed.transactions, packed.bytes), (1, 8, 512));
    assert_eq!(traffic(&load(24)).shared_loads.transactions, 4);
}

#[test]
fn forms_that_do_not_exist_are_refused() {
    let load = |text: &str| {
        let text = format!(
            ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry k() {{
            .reg .b32 %r<20>; .reg .b64 %rd<20>; {text} ret; }}"
        );
        let mut simulator = kinora_ptx::Simulator::new(kinora_ptx::ChipSpec::t4());
        let module = kinora_ptx::Module::load(&mut simulator, &text)?;
        // What is not supported is an error once it is reached.
        module.unsupported("k")?.pop().map_or(Ok(()), Err)
    };
    let wrong = [
        "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r0, %r1, %r2, %r3}, [%rd0], 16;",
        "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%rd0, %rd1, %rd2, %rd3, %rd4, %rd5, %rd6, %rd7}, [%rd0], 16;",
        "wmma.load.a.sync.aligned.row.m16n8k16.f16 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%rd0], 16;",
        "wmma.load.b.sync.aligned.row.m8n8k32.s4 {%r0}, [%rd0], 32;",
        "wmma.load.a.sync.aligned.row.m16n16k16.bf16 {%r0, %r1, %r2, %r3}, [%rd0], 16;",
        "wmma.load.a.sync.aligned.row.m16n16k16 {%r0}, [%rd0], 16;",
        "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%r0}, {%r1}, {%r2}, {%r3, %r4};",
        "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s8.s32 {%r0, %r1}, {%r1}, {%r2}, {%r3, %r4};",
        "wmma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%r0, %r1}, {%r1}, {%r2}, {%r3, %r4};",
        "wmma.store.a.sync.aligned.row.m8n8k32.s32 [%rd0], {%r0, %r1}, 8;",
    ];
    for text in wrong {
        assert!(load(text).is_err(), "{text}");
    }
    assert!(
        load("wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%r0, %r1}, {%r1}, {%r2}, {%r3, %r4};")
            .is_ok()
    );
}

/// `mma` of f64, 4-bit integers and bits, with the fragments where the manual draws them.
#[test]
fn exact_products_of_a_warp() {
    let shapes = [
        (F64, 8, 4),
        (F64, 16, 4),
        (F64, 16, 8),
        (F64, 16, 16),
        (S4, 8, 32),
        (U4, 16, 32),
        (S4, 16, 64),
        (B1, 8, 128),
        (B1, 16, 128),
        (B1, 16, 256),
    ];
    for (kind, m, k) in shapes {
        let per = if kind == F64 { 1 } else { 32 / kind.bits() };
        let sum_kind = if kind == F64 { F64 } else { S32 };
        let values = |count: usize, kind: Kind, seed: u64| -> Vec<f64> {
            random(count, seed).into_iter().map(|x| kind.pick(x)).collect()
        };
        let (a, b, c) = (values(m * k, kind, 1), values(8 * k, kind, 2), values(m * 8, sum_kind, 3));
        let pack = |line: &[f64], first: usize| {
            (0..per).fold(0, |all, i| all | kind.encode(line[first + i]) << (i * kind.bits() % 64))
        };
        let (a_count, b_count, c_count) = (m * k / per / 32, k / per / 4, m / 4);
        let mut fragments = vec![[0u64; 32]; a_count + b_count + c_count];
        for lane in 0..32 {
            let (group, thread) = (lane / 4, lane % 4);
            let (a_words, others) = fragments.split_at_mut(a_count);
            let (b_words, c_words) = others.split_at_mut(b_count);
            for (r, word) in a_words.iter_mut().enumerate() {
                let (row, block) = if m == 16 { (group + 8 * (r % 2), r / 2) } else { (group, r) };
                word[lane] = pack(&a[row * k..][..k], per * (thread + 4 * block));
            }
            for (r, word) in b_words.iter_mut().enumerate() {
                word[lane] = pack(&b[group * k..][..k], per * (thread + 4 * r));
            }
            for (r, word) in c_words.iter_mut().enumerate() {
                let (row, column) = (group + 8 * (r / 2), 2 * thread + r % 2);
                word[lane] = sum_kind.encode(c[row * 8 + column]);
            }
        }
        let (prefix, size) = if kind == F64 { ("%fd", "f64") } else { ("%r", "u32") };
        let loads: String = (0..fragments.len())
            .map(|i| format!("ld.global.{size} {prefix}{i}, [%rd1+{}];\n", 256 * i))
            .collect();
        let stores: String = (0..c_count)
            .map(|i| format!("st.global.{size} [%rd2+{}], {prefix}{};\n", 256 * i, 50 + i))
            .collect();
        let after = if kind == B1 { ".and.popc" } else { "" };
        let name = kind.name();
        let sums = sum_kind.name();
        let text = format!(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y) {{
            .reg .b32 %r<80>; .reg .f64 %fd<80>; .reg .b64 %rd<9>;
            ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mov.u32 %r70, %tid.x; mul.wide.u32 %rd3, %r70, 8;
            add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
            {loads}
            mma.sync.aligned.m{m}n8k{k}.row.col.{sums}.{name}.{name}.{sums}{after} {{{}}}, {{{}}}, {{{}}}, {{{}}};
            {stores} ret; }}",
            list(prefix, 50, c_count),
            list(prefix, 0, a_count),
            list(prefix, a_count, b_count),
            list(prefix, a_count + b_count, c_count),
        );
        let mut bench = Bench::new(&text, "90a");
        let bytes: Vec<u8> = fragments.as_flattened().iter().flat_map(|value| value.to_le_bytes()).collect();
        let x = bench.simulator.upload(&bytes).unwrap();
        let y = bench.simulator.upload(&vec![0; 256 * c_count]).unwrap();
        bench.clean_launch(&LaunchConfig::new(1, 32, vec![Argument::U64(x), Argument::U64(y)]));
        let mut out = vec![0; 256 * c_count];
        bench.simulator.copy_out(y, &mut out).unwrap();
        for (i, value) in out.chunks_exact(8).enumerate() {
            let (r, lane) = (i / 32, i % 32);
            let (row, column) = (lane / 4 + 8 * (r / 2), 2 * (lane % 4) + r % 2);
            let dot: f64 = (0..k).map(|i| a[row * k + i] * b[column * k + i]).sum();
            let ours = sum_kind.decode(u64::from_le_bytes(value.try_into().unwrap()));
            assert_eq!(ours, dot + c[row * 8 + column], "{name} m{m}k{k}: row {row}, column {column}");
        }
    }
}
