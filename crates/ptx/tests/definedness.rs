//! Memory and local variables that nobody wrote: what is copied, and what is used.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::FindingKind;
use support::planted::{self, PLANTED, Planted, clean, found};

fn uninitialised(source: &str) {
    found(&Planted { source, ..PLANTED }, FindingKind::Uninitialised);
}

/// A struct with three bytes of padding.
const PADDED: &str = "
struct Padded { char letter; int number; };
__shared__ Padded s[64];
";

#[test]
fn padding_that_is_copied() {
    // Through global and shared memory, back and forth; only the copy of a copy reads the fields.
    let source = format!(
        "{PADDED}
        KERNEL {{
            Padded *p = (Padded *)y + threadIdx.x, *q = p + 64;
            p->letter = 'a'; p->number = x[threadIdx.x];
            __syncthreads();
            *q = *p;
            __syncthreads();
            s[threadIdx.x] = *q;
            __syncthreads();
            *(q + 64) = s[threadIdx.x];
            z[threadIdx.x] = (q + 64)->letter + (q + 64)->number;
        }}"
    );
    let Some(ran) = clean(&Planted { source: &source, ..PLANTED }) else { return };
    assert_eq!(ran.z[..64], (0..64).map(|thread| 97 + thread).collect::<Vec<u32>>());
}

#[test]
fn padding_that_is_used_after_it_was_copied() {
    uninitialised(&format!(
        "{PADDED}
        KERNEL {{
            Padded *p = (Padded *)y + threadIdx.x;
            p->letter = 'a'; p->number = x[threadIdx.x];
            __syncthreads();
            s[threadIdx.x] = *p;
            __syncthreads();
            const unsigned char *bytes = (const unsigned char *)(s + (63 - threadIdx.x));
            z[threadIdx.x] = bytes[0] + bytes[BUG ? 2 : 4] + 1; // BUG
        }}"
    ));
}

#[test]
fn a_field_that_was_never_set_and_is_copied() {
    uninitialised(
        "struct Pair { int first, second; };
        KERNEL {
            Pair *p = (Pair *)y + threadIdx.x, *q = p + 64;
            p->first = 1;
            if (!BUG) p->second = 2;
            __syncthreads();
            *q = *p; // BUG
            __syncthreads();
            z[threadIdx.x] = q->first + q->second;
        }",
    );
}

#[test]
fn memory_that_nobody_wrote_and_that_decides() {
    uninitialised(
        "KERNEL {
            if (!BUG) y[threadIdx.x] = 1;
            __syncthreads();
            if (y[threadIdx.x] > 0) z[threadIdx.x] = 1; // BUG
        }",
    );
    uninitialised(
        "KERNEL {
            if (!BUG) y[threadIdx.x] = 3;
            __syncthreads();
            z[threadIdx.x] = x[y[threadIdx.x] & 7]; // BUG
        }",
    );
}

#[test]
fn a_place_that_is_written_after_padding_was_copied_there() {
    let source = format!(
        "{PADDED}
        KERNEL {{
            Padded *p = (Padded *)y + threadIdx.x;
            s[threadIdx.x].letter = 'a'; s[threadIdx.x].number = x[threadIdx.x];
            __syncthreads();
            *p = s[threadIdx.x];
            __syncthreads();
            *(int *)p = x[threadIdx.x];
            __syncthreads();
            z[threadIdx.x] = *(int *)p + p->number;
        }}"
    );
    clean(&Planted { source: &source, ..PLANTED });
}

#[test]
fn bytes_of_a_loaded_word() {
    // The compiler may load a whole word for one byte of it.
    for (extract, used) in [
        ("and.b32 %w, %t, 255;", 0),
        ("shr.u32 %a, %t, 8;\nand.b32 %w, %a, 255;", 1),
        ("bfe.u32 %w, %t, 16, 8;", 2),
        ("prmt.b32 %w, %t, 0, 0x4443;", 3),
        ("cvt.u32.u8 %w, %t;", 0),
        ("shl.b32 %a, %t, 16;\nshr.u32 %w, %a, 24;", 1),
    ] {
        for written in 0..4 {
            let ptx = format!(
                ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 z) {{\n\
                 .reg .b32 %o, %t, %a, %w;\n.reg .b64 %y, %z;\n.reg .pred %p;\nld.param.u64 %y, [y];\nld.param.u64 %z, [z];\n\
                 mov.u32 %o, 5;\nst.global.u8 [%y+{written}], %o;\nld.global.u32 %t, [%y];\n{extract}\nsetp.ne.u32 %p, %w, 5;\n\
                 @%p st.global.u32 [%z], %w;\nret;\n}}\n"
            );
            let ran = planted::run_ptx(&Planted { block: 1, ..PLANTED }, &ptx);
            let kinds: Vec<FindingKind> = ran.findings.iter().map(|finding| finding.kind).collect();
            let wanted: &[FindingKind] = if written == used { &[] } else { &[FindingKind::Uninitialised] };
            assert_eq!(kinds, wanted, "{extract} with byte {written} written");
        }
    }
}

#[test]
fn an_array_of_a_thread_that_it_did_not_fill() {
    uninitialised(
        "KERNEL {
            int v[8];
            for (int i = 0; i < x[BUG ? 7 : 8]; i++) v[x[i] & 7] = i;
            z[threadIdx.x] = v[x[threadIdx.x] & 7]; // BUG
        }",
    );
}

#[test]
fn an_array_of_a_thread_that_only_some_threads_fill() {
    uninitialised(
        "KERNEL {
            int v[4];
            if (!BUG || threadIdx.x != 40)
                for (int i = 0; i < 4; i++) v[x[threadIdx.x + i] & 3] = i;
            z[threadIdx.x] = v[x[threadIdx.x] & 3] * 2; // BUG
        }",
    );
}

#[test]
fn a_variable_without_a_value() {
    // It is added to, and the sum is stored.
    uninitialised(
        "KERNEL {
            int sum;
            if (!BUG) sum = x[0];
            for (int i = 0; i < x[64]; i++) sum += x[i];
            z[threadIdx.x] = sum; // BUG
        }",
    );
    // It decides about a branch.
    uninitialised(
        r#"KERNEL {
            int found;
            if (!BUG) found = x[0];
            for (int i = 0; i < x[threadIdx.x]; i++) {
                if (found == i) z[threadIdx.x] = 1; // BUG
                asm volatile("" ::: "memory");
                found += x[i] * 2;
            }
        }"#,
    );
}

/// A kernel in which `%u` has no value in lanes from 4 on.
fn undefined_from_lane_4(body: &str) -> Vec<(FindingKind, [u32; 3])> {
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 z) {{\n\
         .reg .b32 %t, %u, %v, %w;\n.reg .b64 %z, %a;\n.reg .pred %p, %q;\nld.param.u64 %z, [z];\nmov.u32 %t, %tid.x;\n\
         mad.wide.u32 %z, %t, 4, %z;\nsetp.lt.u32 %p, %t, 4;\n@%p mov.u32 %u, 0;\n{body}\nret;\n}}\n"
    );
    let ran = planted::run_ptx(&Planted { block: 32, ..PLANTED }, &ptx);
    ran.findings.iter().map(|finding| (finding.kind, finding.thread)).collect()
}

#[test]
fn uses_of_a_register_without_a_value() {
    for used in [
        "st.global.u32 [%z], %u;",
        "add.u32 %v, %u, %t;\nmul.lo.u32 %v, %v, 3;\nst.global.u32 [%z], %v;",
        "setp.eq.u32 %q, %u, 1;\n@%q bra OUT;\nst.global.u32 [%z], %t;\nOUT:",
        "mad.wide.u32 %a, %u, 4, %z;\nst.global.u32 [%a], %t;",
        "red.global.add.u32 [%z], %u;",
        "selp.b32 %v, %t, %u, %p;\nst.global.u32 [%z], %v;",
    ] {
        assert_eq!(undefined_from_lane_4(used), [(FindingKind::Uninitialised, [4, 0, 0])], "{used}");
    }
    // The value is chosen, stored or branched on only where there is one, or is written over, or never used.
    for harmless in [
        "@%p st.global.u32 [%z], %u;",
        "add.u32 %v, %u, %t;\nselp.b32 %v, %v, %t, %p;\nst.global.u32 [%z], %v;",
        "selp.b32 %v, %u, 7, %p;\nst.global.u32 [%z], %v;",
        "@!%p bra OUT;\nsetp.eq.u32 %q, %u, 1;\n@%q bra OUT;\nst.global.u32 [%z], %t;\nOUT:",
        "@!%p mov.u32 %u, %t;\nst.global.u32 [%z], %u;",
        "mul.lo.u32 %v, %u, 3;\nst.global.u32 [%z], %t;",
        "mov.u32 %v, 1;\nsetp.eq.u32 %q, %u, 1;\n@%q bra OUT;\nmov.u32 %v, 2;\nOUT:\n@%p st.global.u32 [%z], %v;",
    ] {
        assert_eq!(undefined_from_lane_4(harmless), [], "{harmless}");
    }
}

#[test]
fn a_variable_without_a_value_that_goes_through_shared_memory() {
    // The last tile of many kernels: what was not loaded is exchanged, and not stored. With the bug it decides what is stored.
    uninitialised(
        "__shared__ int exchanged[64];
        KERNEL {
            int item;
            if (threadIdx.x < x[50]) item = x[threadIdx.x];
            exchanged[63 - threadIdx.x] = item;
            __syncthreads();
            item = exchanged[threadIdx.x]; // BUG
            if (threadIdx.x >= 14 + BUG * x[8]) z[threadIdx.x] = BUG ? 0 : item;
            if (BUG && item > 5) z[threadIdx.x] = 1;
        }",
    );
}

#[test]
fn a_variable_that_a_function_sets_if_there_is_a_value() {
    // It is loaded before it is known whether it has a value.
    let ptx = |value: &str| {
        format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n\
             .visible .entry k(.param .u64 x, .param .u64 y, .param .u64 z) {{\n.local .align 4 .b8 v[4];\n\
             .reg .b32 %t, %u, %v;\n.reg .b64 %z;\n.reg .pred %p;\nld.param.u64 %z, [z];\nmov.u32 %t, %tid.x;\n\
             mad.wide.u32 %z, %t, 4, %z;\nsetp.lt.u32 %p, %t, 4;\n@%p st.local.u32 [v], %t;\nld.local.u32 %u, [v];\n\
             {value}\nst.global.u32 [%z], %v;\nret;\n}}\n"
        )
    };
    let found = |value: &str| {
        let ran = planted::run_ptx(&Planted { block: 32, ..PLANTED }, &ptx(value));
        ran.findings.iter().map(|finding| (finding.kind, finding.thread)).collect::<Vec<_>>()
    };
    let undefined = [(FindingKind::Uninitialised, [4, 0, 0])];
    assert_eq!(found("selp.b32 %v, %u, -1, %p;"), []);
    assert_eq!(found("selp.b32 %v, %u, -1, %p;\nadd.u32 %v, %v, 3;"), []);
    assert_eq!(found("selp.b32 %v, -1, %u, %p;"), undefined);
    assert_eq!(found("selp.b32 %v, -1, %u, %p;\nadd.u32 %v, %v, 3;"), undefined);
    assert_eq!(found("add.u32 %v, %u, 3;"), undefined);
    assert_eq!(found("mov.u32 %v, %u;"), undefined);
}
