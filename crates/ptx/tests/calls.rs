//! Calls that are not inlined: function pointers, virtual functions, recursion, `alloca`. What they compute is compared with the same
//! functions in Rust.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::{Checks, DeviceLimits, FindingKind, LaunchConfig, Module, PtxError, Report, Simulator};
use support::{Bench, compile, pointer, profile};

/// Runs a kernel `k(int *y, int n)` with one block, and returns what is in `y`.
fn words(source: &str, threads: u32, n: u32) -> Option<Vec<i32>> {
    let ptx = compile("calls.cu", source, "", "80")?;
    Some(run(&ptx, threads, n).1)
}

fn run(ptx: &str, threads: u32, n: u32) -> (Report, Vec<i32>) {
    let mut bench = Bench::new(ptx, "80");
    let y = bench.words(&vec![0; threads as usize]);
    let config = LaunchConfig::new(1, threads, vec![pointer(y), kinora_ptx::Argument::U32(n)]);
    let report = bench.clean_launch(&config);
    let words = bench.read_words(y, threads as usize);
    (report, words.into_iter().map(|word| word as i32).collect())
}

/// PTX with a kernel `k(y, n)` that has `y`'s element of its thread in `%rd1`, `n` in `%r1` and its thread in `%r2`.
fn text(functions: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{functions}\n.visible .entry k(.param .u64 y, .param .u32 n) {{\n\
         .reg .pred %p<9>;\n.reg .b32 %r<20>;\n.reg .b64 %rd<20>;\nld.param.u64 %rd1, [y];\nld.param.u32 %r1, [n];\n\
         mov.u32 %r2, %tid.x;\nmul.wide.u32 %rd2, %r2, 4;\nadd.s64 %rd1, %rd1, %rd2;\n{body}\nst.global.u32 [%rd1], %r10;\nret;\n}}\n"
    )
}

#[test]
fn lanes_call_different_functions_through_pointers() {
    let source = r#"
        struct Pair { float a; int b[3]; };
        typedef Pair (*Function)(Pair, double);
        __device__ __noinline__ Pair add(Pair x, double d) { x.a += d; x.b[1] += 10; return x; }
        __device__ __noinline__ Pair scale(Pair x, double d) {
            for (int i = 0; i < x.b[2]; ++i) x.a *= d;
            return x;
        }
        __device__ __noinline__ Pair clear(Pair x, double) { x.a = -1; x.b[0] = x.b[2]; return x; }
        __device__ Function table[3] = { add, scale, clear };
        extern "C" __global__ void k(int *y, int n) {
            int i = threadIdx.x;
            Pair p;
            p.a = i; p.b[0] = 1; p.b[1] = 2; p.b[2] = i % 5;
            int kept = i * 1000;
            p = table[(i + n) % 3](p, 3.0);
            int lanes = __popc(__activemask());
            y[i] = kept + (int)p.a + 100 * p.b[0] + p.b[1] + 100000 * (lanes == 32);
        }"#;
    let Some(y) = words(source, 64, 1) else { return };
    for (i, &y) in (0..64).zip(&y) {
        let (mut a, mut b) = (i as f32, [1, 2, i % 5]);
        match (i + 1) % 3 {
            0 => (a, b[1]) = (a + 3.0, 12),
            1 => a *= 3f32.powi(i % 5),
            _ => (a, b[0]) = (-1.0, i % 5),
        }
        // All lanes are together again after the call.
        assert_eq!(y, i * 1000 + a as i32 + 100 * b[0] + b[1] + 100_000, "thread {i}");
    }
}

#[test]
fn virtual_functions() {
    let source = r#"
        struct Shape { __device__ virtual int area(int) const = 0; __device__ virtual int sides() const { return 4; } };
        struct Square : Shape {
            int a;
            __device__ Square(int a) : a(a) {}
            __device__ int area(int k) const override { return a * a * k; }
        };
        struct Disk : Shape {
            int r;
            __device__ Disk(int r) : r(r) {}
            __device__ int area(int k) const override { return 3 * r * r + k; }
            __device__ int sides() const override { return 0; }
        };
        extern "C" __global__ void k(int *y, int n) {
            int i = threadIdx.x;
            Square square(i);
            Disk disk(i + 1);
            const Shape *all[2] = { &square, &disk };
            const Shape *shape = all[(i / 3) & 1];
            y[i] = shape->area(n) * 10 + shape->sides();
        }"#;
    let Some(y) = words(source, 40, 7) else { return };
    for (i, &y) in (0..40).zip(&y) {
        let expected = if i / 3 % 2 == 0 { i * i * 7 * 10 + 4 } else { (3 * (i + 1) * (i + 1) + 7) * 10 };
        assert_eq!(y, expected, "thread {i}");
    }
}

fn ackermann(m: i32, n: i32) -> i32 {
    match (m, n) {
        (0, n) => n + 1,
        (m, 0) => ackermann(m - 1, 1),
        (m, n) => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

fn fibonacci(n: i32) -> i32 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

#[test]
fn recursion_to_another_depth_in_every_lane() {
    let source = r#"
        __device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
        __device__ __noinline__ int ackermann(int m, int n) {
            if (m == 0) return n + 1;
            if (n == 0) return ackermann(m - 1, 1);
            return ackermann(m - 1, ackermann(m, n - 1));
        }
        __device__ bool odd(int n);
        __device__ __noinline__ bool even(int n) { return n == 0 ? true : odd(n - 1); }
        __device__ __noinline__ bool odd(int n) { return n == 0 ? false : even(n - 1); }
        extern "C" __global__ void k(int *y, int n) {
            int i = threadIdx.x;
            y[i] = fibonacci(i % 13) * 1000 + ackermann(i % 3, i % 4) * 10 + even(i) + 2 * (__activemask() == ~0u);
        }"#;
    let Some(y) = words(source, 32, 0) else { return };
    for (i, &y) in (0..32).zip(&y) {
        assert_eq!(
            y,
            fibonacci(i % 13) * 1000 + ackermann(i % 3, i % 4) * 10 + (1 - i % 2) + 2,
            "thread {i}"
        );
    }
}

/// Local arrays of each depth are apart, and pointers to them work.
#[test]
fn every_depth_has_its_own_variables() {
    let source = r#"
        __device__ __noinline__ int sum(int *above, int n) {
            int own[4];
            for (int j = 0; j < 4; ++j) own[j] = above[j] + n;
            int deeper = n > 0 ? sum(own, n - 1) : 0;
            above[n & 3] += 1;
            int all = deeper;
            for (int j = 0; j < 4; ++j) all += own[j];
            return all;
        }
        extern "C" __global__ void k(int *y, int n) {
            int first[4] = { (int)threadIdx.x, 1, 2, 3 };
            y[threadIdx.x] = sum(first, n + threadIdx.x % 3) + first[1] * 100000;
        }"#;
    fn sum(above: &mut [i32; 4], n: i32) -> i32 {
        let mut own = above.map(|value| value + n);
        let deeper = if n > 0 { sum(&mut own, n - 1) } else { 0 };
        above[n as usize & 3] += 1;
        deeper + own.iter().sum::<i32>()
    }
    let Some(y) = words(source, 32, 5) else { return };
    for (i, &y) in (0..32).zip(&y) {
        let mut first = [i, 1, 2, 3];
        let all = sum(&mut first, 5 + i % 3);
        assert_eq!(y, all + first[1] * 100_000, "thread {i}");
    }
}

/// Lanes that exit within a call, and a barrier that the others reach in different functions.
#[test]
fn exits_and_barriers_within_calls() {
    let exit = text(
        ".func (.param .b32 r) f(.param .b32 a) {\n.reg .pred %p; .reg .b32 %a;\nld.param.u32 %a, [a];\n\
         setp.gt.u32 %p, %a, 18; @%p exit;\nadd.u32 %a, %a, 5; st.param.b32 [r], %a; ret; }\n\
         .func (.param .b32 r) g(.param .b32 a) {\n.reg .pred %p; .reg .b32 %a;\nld.param.u32 %a, [a];\n\
         bar.warp.sync 0x1fffff; mul.lo.u32 %a, %a, 3; st.param.b32 [r], %a; ret; }\n\
         .global .u64 table[2] = {f, g};",
        "and.b32 %r3, %r2, 1; \n\
         mul.wide.u32 %rd3, %r3, 8; mov.u64 %rd4, table; add.s64 %rd4, %rd4, %rd3; ld.global.u64 %rd5, [%rd4];\n\
         setp.eq.u32 %p2, %r3, 0; setp.gt.u32 %p3, %r2, 20; @%p3 exit;\n\
         @!%p2 bra over; bar.warp.sync 0x1fffff;\nover:\n\
         { .param .b32 a; .param .b32 r; st.param.b32 [a], %r2;\n\
         proto: .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (r), %rd5, (a), proto;\nld.param.b32 %r10, [r]; }\n\
         vote.sync.ballot.b32 %r4, %p2, 0x0fffff;\nadd.u32 %r10, %r10, %r4;",
    );
    let (_, y) = run(&exit, 32, 0);
    let even = (0..19).filter(|i| i % 2 == 0).fold(0, |all, i| all | 1 << i);
    for i in 0..32 {
        let own = if i % 2 == 0 { i + 5 } else { i * 3 };
        // Lane 20 leaves within its call, the others beyond before it.
        assert_eq!(y[i as usize], if i > 19 { 0 } else { own + even }, "thread {i}");
    }
}

/// The result of a call under a guard, in a loop, with registers that live across it.
#[test]
fn guarded_calls() {
    let ptx = text(
        ".func (.param .b32 r) down(.param .b32 a) {\n.reg .pred %p; .reg .b32 %a, %b;\nld.param.u32 %a, [a];\n\
         setp.eq.u32 %p, %a, 0; st.param.b32 [r], 1; @%p ret; sub.u32 %b, %a, 1;\n\
         { .param .b32 x; .param .b32 y; st.param.b32 [x], %b; call (y), down, (x); ld.param.b32 %b, [y]; }\n\
         mad.lo.u32 %b, %b, 2, %a; st.param.b32 [r], %b; ret; }",
        "mov.u32 %r10, 0; and.b32 %r3, %r2, 3; setp.ne.u32 %p1, %r3, 3; mov.u32 %r5, 0;\nagain:\n\
         { .param .b32 x; .param .b32 y; st.param.b32 [x], %r3; st.param.b32 [y], 7; @%p1 call (y), down, (x);\n\
         ld.param.b32 %r4, [y]; }\nmad.lo.u32 %r10, %r10, 3, %r4; add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 3; @%p2 bra again;",
    );
    fn down(a: i32) -> i32 {
        if a == 0 { 1 } else { down(a - 1) * 2 + a }
    }
    let (_, y) = run(&ptx, 32, 0);
    for (i, &y) in (0..32).zip(&y) {
        let once = if i % 4 == 3 { 7 } else { down(i % 4) };
        assert_eq!(y, (once * 3 + once) * 3 + once, "thread {i}");
    }
}

/// Parameters in registers, arguments that are constants, and a function with another name.
#[test]
fn old_and_odd_forms_of_calls() {
    let functions = ".func (.reg .b32 r) poly (.reg .b32 a, .reg .f32 f) .noreturn\n{ .reg .f32 t; cvt.rn.f32.s32 t, a;\n\
                     fma.rn.f32 t, t, f, 0f3F800000; cvt.rzi.s32.f32 r, t; ret.uni; }\n.alias other, poly;\n\
                     .func nothing;\n.extern .func (.param .b32 r) elsewhere(.param .b32 a);\n.func nothing { ret; }";
    let ptx = text(
        functions,
        "call.uni (%r10), other, (%r2, 0f40200000);\ncall nothing;\ncall (_), poly, (3, 1.5);\n\
         { .reg.b16 h; .reg .v2.f32 pair; mov.b16 h, 3; cvt.u32.u16 %r3, h; add.u32 %r10, %r10, %r3; }\n\
         .pragma \"nounroll\";\nmov.u64 %rd3, poly;\ntargets: .calltargets poly, nothing;\n\
         call (%r4), %rd3, (%r2, 0f3F800000), targets;\nadd.u32 %r10, %r10, %r4;",
    );
    let (_, y) = run(&ptx, 32, 0);
    for (i, &y) in (0..32).zip(&y) {
        assert_eq!(y, (i as f32 * 2.5 + 1.0) as i32 + 3 + i + 1, "thread {i}");
    }
}

#[test]
fn alloca_in_a_loop_and_with_a_saved_stack() {
    // Each call frees what it allocated; so 1000 calls with 4000 bytes each fit into the stack.
    let ptx = text(
        ".func (.param .b32 r) f(.param .b32 a) {\n.reg .b32 %a, %b; .reg .b64 %n, %l, %g, %s;\nld.param.u32 %a, [a];\n\
         mov.u64 %n, 4000; alloca.u64 %l, %n, 16; cvta.local.u64 %g, %l; st.u32 [%g+3996], %a; st.local.u32 [%l], 5;\n\
         stacksave.u64 %s; alloca.u64 %n, 64; st.local.u32 [%n], 9; stackrestore.u64 %s;\n\
         ld.local.u32 %b, [%l+3996]; add.u32 %b, %b, 5; st.param.b32 [r], %b; ret; }",
        "mov.u32 %r10, 0; mov.u32 %r5, 0;\nagain:\n{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r2;\n\
         call (y), f, (x); ld.param.b32 %r4, [y]; }\nadd.u32 %r10, %r10, %r4; add.u32 %r5, %r5, 1;\n\
         setp.lt.u32 %p2, %r5, 1000; @%p2 bra again;",
    );
    let (_, y) = run(&ptx, 32, 0);
    assert_eq!(y, (0..32).map(|i| (i + 5) * 1000).collect::<Vec<_>>());
}

/// What a launch of `k(y, n)` with 32 threads finds.
fn findings(ptx: &str, limits: DeviceLimits, n: u32) -> Vec<(FindingKind, String)> {
    let checks = Checks { steps: 10_000_000, ..Checks::default() };
    let mut simulator = Simulator::new(profile("80")).with_checks(checks).with_limits(limits);
    let module = Module::load(&mut simulator, ptx).unwrap_or_else(|error| panic!("{error}"));
    let y = simulator.allocate(128).unwrap();
    let config = LaunchConfig::new(1, 32, vec![pointer(y), kinora_ptx::Argument::U32(n)]);
    let report = simulator.launch(&module, "k", &config).unwrap_or_else(|error| panic!("{error}"));
    report.findings.into_iter().map(|finding| (finding.kind, finding.message)).collect()
}

#[test]
fn recursion_without_an_end_overflows_the_stack() {
    let source = r#"
        __device__ int down(int n) { return n == 0 ? 1 : down(n - 1) * 3 + n; }
        extern "C" __global__ void k(int *y, int n) { y[threadIdx.x] = down(n); }"#;
    let Some(ptx) = compile("endless.cu", source, "", "80") else { return };
    assert_eq!(findings(&ptx, DeviceLimits::default(), 100), []);
    let found = findings(&ptx, DeviceLimits::default(), u32::MAX);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].0 == FindingKind::StackOverflow && found[0].1.contains("down"), "{found:?}");
    // A depth that fits only if the limit is raised.
    let raised = DeviceLimits { stack_bytes: 4 << 20, ..DeviceLimits::default() };
    assert_eq!(findings(&ptx, DeviceLimits::default(), 20_000)[0].0, FindingKind::StackOverflow);
    assert_eq!(findings(&ptx, raised, 20_000), []);
    let alloca =
        text("", "cvt.u64.u32 %rd3, %r1; alloca.u64 %rd4, %rd3; st.local.u8 [%rd4], 1; mov.u32 %r10, 1;");
    assert_eq!(findings(&alloca, DeviceLimits::default(), 60_000), []);
    assert_eq!(findings(&alloca, DeviceLimits::default(), 70_000)[0].0, FindingKind::StackOverflow);
    assert_eq!(findings(&alloca, DeviceLimits::default(), u32::MAX)[0].0, FindingKind::StackOverflow);
}

#[test]
fn pointers_to_nothing_and_to_other_functions() {
    let functions = ".func (.param .b32 r) f(.param .b32 a) { st.param.b32 [r], 4; ret; }\n\
                     .func g(.param .b64 a) { ret; }\n.global .u64 table[4] = {f, g, 0, f+4};";
    let ptx = text(
        functions,
        "mul.wide.u32 %rd3, %r1, 8; mov.u64 %rd4, table; add.s64 %rd4, %rd4, %rd3; ld.global.u64 %rd5, [%rd4];\n\
         { .param .b32 a; .param .b32 r; st.param.b32 [a], %r2;\n\
         proto: .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (r), %rd5, (a), proto;\nld.param.b32 %r10, [r]; }",
    );
    assert_eq!(findings(&ptx, DeviceLimits::default(), 0), []);
    for (n, words) in [(1, "other parameters"), (2, "0x0,"), (3, "no function")] {
        let found = findings(&ptx, DeviceLimits::default(), n);
        assert_eq!(found[0].0, FindingKind::InvalidCall, "{found:?}");
        assert!(found[0].1.contains(words), "{found:?}");
    }
}

#[test]
fn accesses_beyond_a_frame_are_found() {
    let functions = ".func (.param .b32 r) f(.param .b32 a) {\n.local .b32 v[4]; .reg .pred %p; .reg .b32 %a; .reg .b64 %l;\n\
                     ld.param.u32 %a, [a]; setp.eq.u32 %p, %a, 99; st.param.b32 [r], 1;\n\
                     mul.wide.u32 %l, %a, 4; mov.u64 %l, v; mad.wide.u32 %l, %a, 4, %l; st.local.u32 [%l], 3; @!%p ret;\n\
                     { .param .b32 x, y; call (y), f, (x); } ret; }";
    let ptx = text(
        functions,
        "{ .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call (y), f, (x); ld.param.b32 %r10, [y]; }",
    );
    assert_eq!(findings(&ptx, DeviceLimits::default(), 3), []);
    let found = findings(&ptx, DeviceLimits::default(), 1000);
    assert_eq!(found[0].0, FindingKind::OutOfBounds, "{found:?}");
}

/// Functions that call each other twice would be written out two to the power of their number; they are called instead.
#[test]
fn calls_too_many_to_inline() {
    let mut functions = String::from(".func (.reg .b32 r) f0(.reg .b32 a) { add.u32 r, a, 1; ret; }\n");
    for i in 1..12 {
        let before = i - 1;
        functions += &format!(
            ".func (.reg .b32 r) f{i}(.reg .b32 a) {{ .reg .b32 t; call (t), f{before}, (a); call (r), f{before}, (t); ret; }}\n"
        );
    }
    let ptx = text(&functions, "call (%r10), f11, (%r2);");
    let (_, y) = run(&ptx, 32, 0);
    assert_eq!(y, (0..32).map(|i| i + 2048).collect::<Vec<_>>());
}

#[test]
fn functions_of_other_modules_end_the_launch() {
    let ptx = text(
        ".extern .func elsewhere(.param .b32 a);\n.global .u64 table[1] = {elsewhere};",
        "setp.eq.u32 %p1, %r1, 0; mov.u32 %r10, 1; @%p1 bra done;\nld.global.u64 %rd5, [table];\n\
         { .param .b32 a; st.param.b32 [a], %r2; proto: .callprototype () _ (.param .b32 _); call %rd5, (a), proto; }\ndone:",
    );
    assert_eq!(findings(&ptx, DeviceLimits::default(), 0), []);
    let mut bench = Bench::new(&ptx, "80");
    let y = bench.words(&[0; 32]);
    let config = LaunchConfig::new(1, 32, vec![pointer(y), kinora_ptx::Argument::U32(1)]);
    let error = bench.simulator.launch(&bench.module, "k", &config).unwrap_err();
    assert!(
        matches!(error, PtxError::Unsupported { .. }) && error.to_string().contains("elsewhere"),
        "{error}"
    );
}
