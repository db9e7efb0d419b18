//! Texts that are not PTX, or no longer: each is an error with a place, or runs; none ends the process.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use kinora_ptx::{Argument, Checks, ChipSpec, LaunchConfig, Module, PtxError, Simulator};
use proptest::prelude::*;

const KERNEL: &str = r#"
.version 9.0
.target sm_90a
.address_size 64
.file 1 "a.cu"
.global .align 4 .u32 table[4] = {1, 2, 3, 4};
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(
    .param .u64 k_param_0,
    .param .align 8 .b8 k_param_1[16]
)
.maxntid 128, 1, 1
{
    .reg .pred %p<4>;
    .reg .b16 %rs<4>;
    .reg .b32 %r<20>;
    .reg .f32 %f<8>;
    .reg .b64 %rd<8>;
    .shared .align 4 .b8 fixed[512];
    .loc 1 3 5
    ld.param.u64 %rd1, [k_param_0];
    ld.param.v2.u32 {%r1, %r2}, [k_param_1+8];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r3, %tid.x;
    mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.L1::no_allocate.u32 %r4, [%rd4];
    mov.u32 %r5, fixed;
    mad.lo.s32 %r6, %r3, 4, %r5;
    st.shared.u32 [%r6], %r4;
    bar.sync 0;
    .loc 1 4 9, function_name $L__info_string0, inlined_at 1 9 3
    xor.b32 %r7, %r6, 64;
    ld.shared.u32 %r8, [%r7];
    cvt.rn.f32.s32 %f1, %r8;
    fma.rn.f32 %f2, %f1, 0f3F800000, 0f40000000;
    cvt.rn.f16.f32 %rs1, %f2;
    setp.gt.s32 %p1, %r8, 5;
    @%p1 bra $L__BB0_2;
    {
    .reg .pred done;
again:
    setp.ge.s32 done, %r8, 0;
    @done bra over;
    bra again;
over:
    }
    shfl.sync.bfly.b32 %r9|%p2, %r8, 1, 31, -1;
    selp.b32 %r8, %r9, %r8, %p2;
$L__BB0_2:
    prmt.b32 %r10, %r8, %r4, 30212;
    mov.u64 %rd5, table;
    ld.global.nc.u32 %r11, [%rd5+4];
    add.s32 %r12, %r10, %r11;
    st.global.u32 [%rd4], %r12;
    ret;
}
.section .debug_str
{
.b8 95,95
}
"#;

/// Calls of every kind, and the device's run-time library.
const CALLS: &str = r#"
.version 8.0
.target sm_90a
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.func (.param .b32 r) deep(.param .b32 a);
.func (.param .align 8 .b8 r[16]) pair(.param .align 8 .b8 x[16], .param .b32 n)
{
    .reg .b64 %a, %b;
    ld.param.v2.b64 {%a, %b}, [x];
    st.param.b64 [r+0], %b;
    st.param.b64 [r+8], %a;
    ret;
}
.alias other, pair;
.global .align 8 .u64 table[3] = {deep, generic(pair), 0xFF00(deep)};
.global .b8 text[16] = {37, 100, 32, 37, 53, 46, 50, 102, 32, 37, 115, 32, 37, 42, 120, 0};
.func (.param .b32 r) deep(.param .b32 a)
{
    .reg .pred %p;
    .reg .b32 %x<4>;
    .local .align 4 .b8 own[32];
    ld.param.u32 %x0, [a];
    st.local.u32 [own+4], %x0;
    setp.eq.u32 %p, %x0, 0;
    mov.u32 %x1, 1;
    @%p bra out;
    sub.u32 %x1, %x0, 1;
    {
    .param .b32 p0;
    .param .b32 r0;
    st.param.b32 [p0+0], %x1;
    call.uni (r0), deep, (p0);
    ld.param.b32 %x1, [r0+0];
    }
    ld.local.u32 %x2, [own+4];
    add.u32 %x1, %x1, %x2;
out:
    st.param.b32 [r], %x1;
    ret;
}
.func (.reg .b32 r) quick(.reg .b32 a) { add.u32 r, a, 1; ret; }
.visible .entry k(.param .u64 y, .param .align 8 .b8 s[16])
{
    .reg .pred %p<4>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<12>;
    .local .align 8 .b8 packed[40];
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 7;
    ld.global.u64 %rd2, [table];
    {
    .param .b32 p0;
    .param .b32 r0;
    st.param.b32 [p0], %r2;
    proto: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (r0), %rd2, (p0), proto;
    ld.param.b32 %r3, [r0];
    }
    {
    .param .align 8 .b8 p0[16];
    .param .b32 p1;
    .param .align 8 .b8 r0[16];
    st.param.b64 [p0], %rd1;
    st.param.b64 [p0+8], 5;
    call (r0), other, (p0, 7);
    ld.param.b64 %rd3, [r0+8];
    }
    call (%r4), quick, (%r3);
    alloca.u64 %rd4, 64, 16;
    stacksave.u64 %rd5;
    st.local.u32 [%rd4+60], %r4;
    stackrestore.u64 %rd5;
    st.local.u32 [packed], %r4;
    mov.b64 %rd6, 0d3FF8000000000000;
    st.local.b64 [packed+8], %rd6;
    cvta.global.u64 %rd7, text;
    st.local.b64 [packed+16], %rd7;
    st.local.b32 [packed+24], %r2;
    st.local.b32 [packed+28], %r3;
    cvta.local.u64 %rd8, packed;
    call (%r5), vprintf, (%rd7, %rd8);
    call (%rd9), malloc, (24);
    st.u32 [%rd9+20], %r4;
    ld.u32 %r6, [%rd9+20];
    call free, (%rd9);
    setp.eq.u32 %p1, %r6, 0;
    @%p1 call __assertfail, (%rd7, %rd7, 12, %rd7, 1);
    @%p1 frobnicate.b32 %r6, %r5;
    mul.wide.u32 %rd10, %r1, 4;
    add.s64 %rd10, %rd3, %rd10;
    st.global.u32 [%rd10], %r6;
    ret;
}
"#;

/// Loads a text, and runs what it has where it can be run.
fn attempt(text: &str) -> Result<usize, PtxError> {
    let checks = Checks { steps: 50_000, ..Checks::default() };
    let mut simulator = Simulator::new(ChipSpec::h200()).with_checks(checks);
    let module = Module::load(&mut simulator, text)?;
    let name = module.kernels().next().unwrap_or("none").to_owned();
    let x = simulator.upload(&7u32.to_le_bytes().repeat(128))?;
    let arguments = vec![Argument::U64(x), Argument::Bytes(vec![1; 16])];
    let report = simulator.launch(&module, &name, &LaunchConfig::new(1, 128, arguments))?;
    Ok(report.findings.len())
}

#[test]
fn the_texts_themselves_run() {
    assert_eq!(attempt(KERNEL), Ok(0));
    assert_eq!(attempt(CALLS), Ok(0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_texts_are_errors_or_run(
        calls: bool,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..4),
    ) {
        let mut bytes = if calls { CALLS } else { KERNEL }.as_bytes().to_vec();
        for (at, byte, kind) in edits {
            let place = at.index(bytes.len());
            match kind {
                0 => bytes[place] = byte & 0x7f,
                1 => bytes.insert(place, byte & 0x7f),
                2 => drop(bytes.remove(place)),
                _ => {
                    let end = (place + usize::from(byte)).min(bytes.len());
                    bytes.copy_within(place..end, 0);
                }
            }
        }
        let _ = attempt(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn words_in_another_order_are_errors_or_run(
        calls: bool,
        swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..6),
    ) {
        let mut words: Vec<&str> = if calls { CALLS } else { KERNEL }.split_inclusive([' ', '\n', ',']).collect();
        for (a, b) in swaps {
            let (a, b) = (a.index(words.len()), b.index(words.len()));
            words.swap(a, b);
        }
        let _ = attempt(&words.concat());
    }

    #[test]
    fn anything_at_all_is_an_error(text in "\\PC*") {
        prop_assert!(attempt(&text).is_err());
    }
}

fn with(body: &str) -> String {
    format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a, .param .align 8 .b8 b[16]) {{\n{body}\n}}"
    )
}

#[test]
fn errors_have_a_line_and_a_column() {
    let error = attempt(&with(".reg .b32 %r<3>;\n  add.s32 %r1, %r2, %r7;")).unwrap_err();
    let place = error.place().unwrap();
    assert_eq!((place.line, place.column), (6, 3));
    assert!(error.to_string().contains("%r7"), "{error}");
    let error = attempt(&with(".reg .b32 %r<3>;\n  frobnicate.s32 %r1, %r2;")).unwrap_err();
    assert!(
        matches!(error, PtxError::Unsupported { .. }) && error.to_string().contains("frobnicate"),
        "{error}"
    );
    let error = attempt(&with(".reg .b32 %r<3>;\n  add.funny.s32 %r1, %r2, %r2;")).unwrap_err();
    assert!(error.to_string().contains(".funny"), "{error}");
}

#[test]
fn sizes_beyond_reason_are_refused() {
    for body in [
        ".reg .b32 %r<99999999999999999999>;",
        ".shared .b8 s[18446744073709551615];",
        ".shared .b8 s[1000000];",
        ".local .align 3 .b8 s[16];",
        ".local .b8 s[100000000];",
        ".reg .b32 %r<3>; bra nowhere;",
        ".reg .b32 %r<3>; ld.shared.u32 %r1, [;",
    ] {
        assert!(attempt(&with(body)).is_err(), "{body}");
    }
    // Names alone cost nothing.
    assert!(attempt(&with(".reg .b32 %r<4000000000>; mov.u32 %r3999999999, 1; ret;")).is_ok());
    let nested = format!("{}{}", "{".repeat(100_000), "}".repeat(100_000));
    assert!(attempt(&with(&nested)).is_ok());
    // More threads than can be counted: any number of them that a launch has is fewer.
    let bound = |directive: &str| {
        with("ret;").replace(" {", &format!(" {directive} 4294967295, 4294967295, 4294967295 {{"))
    };
    assert_eq!(attempt(&bound(".maxntid")), Ok(0));
    assert!(attempt(&bound(".reqntid")).is_err());
    // Functions that call each other twice would be written out two to the power of their number.
    let mut module = String::from(".version 9.0\n.target sm_90a\n.address_size 64\n.func f0() { ret; }\n");
    for i in 1..40 {
        let before = i - 1;
        module += &format!(".func f{i}() {{ call f{before}, (); call f{before}, (); ret; }}\n");
    }
    module += ".visible .entry k(.param .u64 a, .param .align 8 .b8 b[16]) { call f39, (); ret; }";
    // They are called instead, until the launch has used up its instructions.
    assert_eq!(attempt(&module), Ok(1));
}
