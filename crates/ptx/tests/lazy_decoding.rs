//! What the simulator does not support matters only if it is reached.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::{Argument, ChipSpec, LaunchConfig, Module, PredictOptions, PtxError, Simulator};
use support::{Bench, pointer};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// A kernel that stores its thread's number, and does `body` if `n` is not zero.
fn text(module: &str, body: &str) -> String {
    format!(
        "{HEAD}.file 1 \"odd.cu\"\n{module}\n.visible .entry k(.param .u64 y, .param .u32 n) {{\n.reg .pred %p<9>;\n\
         .reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n.reg .b128 %q<4>;\nld.param.u64 %rd1, [y];\nld.param.u32 %r1, [n];\n\
         mov.u32 %r2, %tid.x;\nmul.wide.u32 %rd2, %r2, 4;\nadd.s64 %rd1, %rd1, %rd2;\nst.global.u32 [%rd1], %r2;\n\
         setp.eq.u32 %p1, %r1, 0;\n@%p1 bra done;\n.loc 1 17 3\n{body}\ndone:\nret;\n}}\n"
    )
}

/// Launches the kernel with `n`, and returns what is in `y`.
fn launch(ptx: &str, n: u32) -> Result<Vec<u32>, PtxError> {
    let mut bench = Bench::new(ptx, "80");
    let y = bench.words(&[0; 64]);
    let config = LaunchConfig::new(1, 32, vec![pointer(y), Argument::U32(n)]);
    let report = bench.simulator.launch(&bench.module, "k", &config)?;
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    Ok(bench.read_words(y, 32))
}

/// That the kernel runs if it does not reach the instruction, and that the error names it if it does.
fn lazy(module: &str, body: &str, names: &[&str]) {
    let ptx = text(module, body);
    assert_eq!(launch(&ptx, 0), Ok((0..32).collect()), "{body}");
    let error = launch(&ptx, 1).unwrap_err();
    assert_eq!(Bench::new(&ptx, "80").module.unsupported("k"), Ok(vec![error.clone()]));
    let PtxError::Unsupported { place, source_line, .. } = &error else { panic!("{error}") };
    let line = ptx.lines().position(|line| !body.is_empty() && line.starts_with(body)).unwrap() as u32 + 1;
    assert_eq!(place.line, line, "{error}");
    assert_eq!(source_line.as_ref().map(|at| (at.file.as_str(), at.line)), Some(("odd.cu", 17)), "{error}");
    for name in names {
        assert!(error.to_string().contains(name), "{error} does not contain {name}");
    }
}

#[test]
fn instructions_modifiers_registers_and_functions() {
    lazy(
        "",
        "frobnicate.sync.b32 %r3, %r4;",
        &["the instruction frobnicate", "frobnicate.sync.b32 %r3, %r4"],
    );
    lazy("", "add.funny.s32 %r3, %r4, %r5;", &["the modifier .funny"]);
    lazy("", "@%p2 bra done; add.funny.s32 %r3, %r4, %r5;", &["the modifier .funny"]);
    lazy("", "mov.b128 %q1, {%rd1, %rd2};", &[]);
    lazy("", "mov.u32 %r3, %reserved_smem_offset_cap;", &["the special register %reserved_smem_offset_cap"]);
    lazy("", "call elsewhere;", &["elsewhere"]);
    lazy(".extern .func elsewhere;", "call elsewhere;", &["elsewhere"]);
    lazy(".extern .global .u32 theirs;", "ld.global.u32 %r3, [theirs];", &["theirs", "another module"]);
    lazy(".extern .global .u32 theirs;", "mov.u64 %rd3, theirs;", &["theirs", "another module"]);
    lazy(".extern .const .b8 table[];", "ld.const.u8 %r3, [table+3];", &["table"]);
    // A function that could not be decoded is like a call of none.
    lazy(".func f() { .reg .b32 %a; add.s32 %a, %b, 1; ret; }", "call f;", &["%b is not a register"]);
}

#[test]
fn a_guard_decides_whether_an_instruction_is_reached() {
    let ptx = text("", "setp.eq.u32 %p2, %r1, 2;\n@%p2 frobnicate.b32 %r3, %r4;");
    assert!(launch(&ptx, 1).is_ok());
    assert!(launch(&ptx, 2).is_err());
}

#[test]
fn a_module_loads_if_another_kernel_is_wrong() {
    let wrong = ".visible .entry wrong(.param .u64 y) { .reg .b32 %r<3>; add.s32 %r1, %r2, %r7; ret; }";
    let ptx = text(wrong, "trap;");
    assert!(launch(&ptx, 0).is_ok());
    let mut simulator = Simulator::new(ChipSpec::a100());
    let module = Module::load(&mut simulator, &ptx).unwrap();
    let config = LaunchConfig::new(1, 1, vec![Argument::U64(0)]);
    let error = simulator.launch(&module, "wrong", &config).unwrap_err();
    assert!(matches!(error, PtxError::Meaning { .. }) && error.to_string().contains("%r7"), "{error}");
    assert!(module.rounding_latitude("k").is_ok());
    // What is not PTX at all is an error at once.
    let broken = text(".visible .entry wrong() { add.s32 %r1 %r2; }", "");
    assert!(matches!(Module::load(&mut simulator, &broken), Err(PtxError::Syntax { .. })));
}

#[test]
fn predictions_reach_them_too() {
    let ptx = text("", "frobnicate.b32 %r3, %r4;");
    let mut simulator = Simulator::new(ChipSpec::a100());
    let module = Module::load(&mut simulator, &ptx).unwrap();
    let y = simulator.reserve(128);
    let predict = |n: u32| {
        let config = LaunchConfig::new(1, 32, vec![Argument::U64(y), Argument::U32(n)]);
        simulator.predict(&module, "k", &config, &PredictOptions::default())
    };
    assert!(predict(0).is_ok());
    assert!(matches!(predict(1), Err(PtxError::Unsupported { .. })));
}

/// What other compilers and people write.
#[test]
fn oddities_of_the_text() {
    let module = ".weak .global .align 4 .u32 weak = 7;\n.common .global .u32 common;\n\
                  .global .align 8 .u64 pointers[2] = {generic(numbers)+4, numbers};\n\
                  .global .align 8 .b8 packed[10] = {1, 0xFF(generic(numbers)+4), 0xFF00(generic(numbers)+4), \
                  0xFF0000(generic(numbers)+4), 0xFF000000(generic(numbers)+4), 0xFF00000000(generic(numbers)+4), \
                  0xFF0000000000(generic(numbers)+4), 0xFF000000000000(generic(numbers)+4), \
                  0xFF00000000000000(generic(numbers)+4), 2};\n\
                  .visible.global.align 4 .u32 numbers[3] = {5, 6, 8};\n\
                  .weak .func f(.param .align 8 .b8 x[16]) ;\n.pragma \"nounroll\";\n\
                  .weak .func f(.param .align 8 .b8 x[16]) .noreturn .abi_preserve 4 { ret; }\n\
                  .section .debug_abbrev { .b8 1 .b8 17 label: .b64 .debug_info .b32 over-under }\n\
                  .section .debug_str\n{\ninfo: .b8 95,95\n}\n";
    let body = "{ .reg.b32 a, b; .reg.u64 p<3>; .param .align 8 .b8 x[16]; ld.global.u64 p0, [pointers];\n\
                ld.u32 a, [p0+0]; ld.global.u64 p1, [pointers+8]; ld.global.u32 b, [p1 + -0]; add.u32 a, a, b;\n\
                mov.b64 p2, 0; ld.global.u32 b, [weak]; add.u32 a, a, b; ld.global.u32 b, [common]; add.u32 a, a, b;\n\
                ld.global.u8 b, [packed+2]; shl.b32 b, b, 8; ld.global.u8 %r3, [packed+1]; or.b32 b, b, %r3;\n\
                cvt.u32.u64 %r4, p0; and.b32 %r4, %r4, 0xffff; sub.u32 b, b, %r4; add.u32 a, a, b;\n\
                st.param.v2.b64 [x], {p0, p1}; call.uni f, (x);\n\
                bra.uni go;\ntargets: .branchtargets go, back;\nback: add.u32 a, a, 1000;\ngo: st.global.u32 [%rd1], a;\n\
                setp.lt.u32 %p2|%p3, a, 1000; selp.u32 %r5, 1, 0, %p3; @!%p2 bra done; brx.idx.uni 1, targets;\n}";
    let ptx = text(module, body).replace("brx.idx.uni 1", "mov.u32 %r6, 1; brx.idx.uni %r6");
    assert_eq!(launch(&ptx, 1), Ok(vec![6 + 5 + 7 + 1000; 32]));
}

/// Templates leave their shared variables to the module, so that one module may have more of them than a block.
#[test]
fn a_kernel_has_the_shared_variables_that_it_names() {
    let ptx = format!(
        "{HEAD}.weak .shared .align 4 .b8 first[40000];\n.weak .shared .align 4 .b8 second[120000];\n\
         .weak .shared .align 4 .b8 third[120000];\n\
         .func (.reg .b32 %got) deep(.reg .b32 %at) {{\n.reg .b32 %s<4>;\n.shared .align 4 .b8 own[64];\n\
         mov.u32 %s1, second;\nadd.u32 %s1, %s1, %at;\nst.shared.u32 [%s1], %at;\nst.shared.u32 [own], 5;\n\
         ld.shared.u32 %got, [%s1];\nret;\n}}\n\
         .visible .entry one(.param .u64 y) {{\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\nld.param.u64 %rd1, [y];\n\
         st.shared.u32 [first+39996], 7;\nld.shared.u32 %r1, [first+39996];\nst.global.u32 [%rd1], %r1;\n\
         mov.u32 %r2, %total_smem_size;\nst.global.u32 [%rd1+4], %r2;\nret;\n}}\n\
         .visible .entry two(.param .u64 y) {{\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\nld.param.u64 %rd1, [y];\n\
         call (%r1), deep, (119996);\nst.global.u32 [%rd1], %r1;\nmov.u32 %r2, %total_smem_size;\n\
         st.global.u32 [%rd1+4], %r2;\nret;\n}}\n\
         .visible .entry three(.param .u64 y) {{\n.reg .b32 %r<4>;\nst.shared.u32 [third], 1;\n\
         st.shared.u32 [second], 1;\nret;\n}}\n"
    );
    let mut bench = Bench::new(&ptx, "80");
    let y = bench.words(&[0; 2]);
    let mut run = |kernel: &str| {
        let config = LaunchConfig::new(1, 1, vec![pointer(y)]);
        let report = bench.simulator.launch(&bench.module, kernel, &config)?;
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        Ok::<_, PtxError>(bench.read_words(y, 2))
    };
    assert_eq!(run("one"), Ok(vec![7, 40000]));
    assert_eq!(run("two"), Ok(vec![119_996, 120_064]));
    let refused = run("three").unwrap_err().to_string();
    assert!(refused.contains("third does not fit into shared memory"), "{refused}");
}
