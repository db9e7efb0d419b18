//! `malloc`, `free`, `new` and `delete` in kernels, and what can go wrong with them.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use kinora_ptx::{Argument, DeviceLimits, Finding, FindingKind, LaunchConfig, Module, Simulator};
use support::{compile, pointer, profile};

/// Runs kernels `k(int *y, int **kept, int n)` of a source one after the other, with two blocks of 32 threads each; returns what is
/// found in each, and `y`.
fn run(
    source: &str,
    kernels: &[&str],
    n: u32,
    limits: DeviceLimits,
) -> Option<(Vec<Vec<Finding>>, Vec<i32>)> {
    let ptx = compile("heap.cu", source, "", "80")?;
    let mut simulator = Simulator::new(profile("80")).with_limits(limits);
    let module = Module::load(&mut simulator, &ptx).unwrap_or_else(|error| panic!("{error}"));
    let y = simulator.upload(&[0; 256]).unwrap();
    let kept = simulator.upload(&[0; 512]).unwrap();
    let mut found = Vec::new();
    for kernel in kernels {
        let config = LaunchConfig::new(2, 32, vec![pointer(y), pointer(kept), Argument::U32(n)]);
        let report = simulator.launch(&module, kernel, &config).unwrap_or_else(|error| panic!("{error}"));
        found.push(report.findings);
    }
    let mut bytes = vec![0; 256];
    simulator.copy_out(y, &mut bytes).unwrap();
    let words = bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    Some((found, words))
}

const HEAD: &str = "#define KERNEL(name) extern \"C\" __global__ void name(int *y, int **kept, int n)\n\
                    #define I (blockIdx.x * 32 + threadIdx.x)\n";

/// That a kernel with `BUG` does one thing wrong, at the line that ends in `// BUG`, and without it nothing.
fn found(kind: FindingKind, body: &str, words: &str) {
    for bug in [false, true] {
        let source = format!("#define BUG {}\n{HEAD}KERNEL(k) {{\n{body}\n}}\n", u32::from(bug));
        let Some((findings, _)) = run(&source, &["k"], 10, DeviceLimits::default()) else { return };
        let findings = &findings[0];
        if !bug {
            assert!(findings.is_empty(), "without the bug: {findings:?}");
            continue;
        }
        let line = source.lines().position(|line| line.ends_with("// BUG")).unwrap() as u32 + 1;
        let [finding] = &findings[..] else { panic!("{kind:?}: {findings:?}") };
        assert_eq!(
            (finding.kind, finding.source.as_ref().map(|at| at.line)),
            (kind, Some(line)),
            "{finding}"
        );
        assert!(finding.message.contains(words), "{finding}");
    }
}

#[test]
fn lists_trees_and_objects() {
    let source = r#"
        struct Node { int value; Node *next; };
        struct Counter { int *all; __device__ Counter(int n) : all(new int[n]) {} __device__ ~Counter() { delete[] all; } };
        KERNEL(k) {
            Node *list = nullptr;
            for (int j = 0; j < I % 7; ++j) {
                Node *node = new Node;
                node->value = j * j;
                node->next = list;
                list = node;
            }
            int sum = 0;
            while (list) {
                Node *next = list->next;
                sum = sum * 3 + list->value;
                delete list;
                list = next;
            }
            Counter counter(n);
            for (int j = 0; j < n; ++j) counter.all[j] = I + j;
            char *bytes = (char *)malloc(5);
            bytes[4] = 7;
            y[I] = sum + counter.all[n - 1] * 1000 + bytes[4];
            free(bytes);
            free(nullptr);
        }"#;
    let Some((findings, y)) = run(&format!("{HEAD}{source}"), &["k"], 10, DeviceLimits::default()) else {
        return;
    };
    assert!(findings[0].is_empty(), "{:?}", findings[0]);
    for (i, &y) in (0..64).zip(&y) {
        let sum = (0..i % 7).rev().fold(0, |sum, j| sum * 3 + j * j);
        assert_eq!(y, sum + (i + 9) * 1000 + 7, "thread {i}");
    }
}

#[test]
fn memory_that_outlives_its_launch() {
    let source = r#"
        KERNEL(make) { kept[I] = (int *)malloc(8); kept[I][0] = I; kept[I][1] = 5; }
        KERNEL(use) { y[I] = kept[63 - I][0] * kept[I][1]; }
        KERNEL(end) { free(kept[I]); kept[I] = nullptr; }"#;
    let source = format!("{HEAD}{source}");
    let Some((findings, y)) = run(&source, &["make", "use", "end"], 0, DeviceLimits::default()) else {
        return;
    };
    assert!(findings.iter().all(Vec::is_empty), "{findings:?}");
    assert_eq!(y, (0..64).map(|i| (63 - i) * 5).collect::<Vec<_>>());
    // After the last free, it is gone.
    let again =
        run(&source.replace("kept[I] = nullptr;", ""), &["make", "end", "use"], 0, DeviceLimits::default());
    let findings = again.unwrap().0;
    assert!(findings[1].is_empty() && findings[2][0].kind == FindingKind::UseAfterFree, "{findings:?}");
}

#[test]
fn a_full_heap_gives_null() {
    let source = r#"
        KERNEL(k) {
            void *block = malloc(1000);
            y[I] = block != nullptr;
            void *huge = malloc((size_t)-1), *none = malloc(0);
            if (huge || none) y[I] = 99;
            kept[I] = (int *)block;
        }"#;
    let limits = DeviceLimits { heap_bytes: 20_000, ..DeviceLimits::default() };
    let Some((findings, y)) = run(&format!("{HEAD}{source}"), &["k"], 0, limits) else { return };
    assert!(findings[0].is_empty(), "{:?}", findings[0]);
    assert_eq!(y.iter().sum::<i32>(), 19);
    // What is freed can be used again, as often as one likes.
    let source = r#"
        KERNEL(k) {
            int sum = 0;
            for (int j = 0; j < 100; ++j) {
                int *block = (int *)malloc(200);
                if (block) { block[49] = 1; sum += block[49]; }
                free(block);
            }
            y[I] = sum;
        }"#;
    let Some((findings, y)) = run(&format!("{HEAD}{source}"), &["k"], 0, limits) else { return };
    assert!(findings[0].is_empty(), "{:?}", findings[0]);
    assert_eq!(y, [100; 64]);
}

#[test]
fn beyond_the_end_of_a_block() {
    found(
        FindingKind::OutOfBounds,
        "int *block = (int *)malloc(40);\nfor (int j = 0; j < 10; ++j) block[j] = j;\n\
         block[9 + BUG] = 3; // BUG\ny[I] = block[9];\nfree(block);",
        "offset 40 of a 40-byte block of the heap",
    );
}

#[test]
fn after_the_block_was_freed() {
    found(
        FindingKind::UseAfterFree,
        "int *block = (int *)malloc(40);\nblock[3] = I;\nif (BUG) free(block);\n\
         int value = block[3]; // BUG\nif (!BUG) free(block);\ny[I] = value;",
        "40-byte block of the heap that was freed",
    );
}

#[test]
fn freed_twice() {
    found(
        FindingKind::InvalidFree,
        "int *block = (int *)malloc(40);\nkept[I] = block;\nfree(block);\n\
         if (BUG) free(kept[I]); // BUG\nkept[I] = 0;",
        "freed before",
    );
}

#[test]
fn freed_at_another_address() {
    found(
        FindingKind::InvalidFree,
        "int *block = (int *)malloc(40);\nkept[I] = block + 2;\n\
         free(kept[I] - 2 + BUG); // BUG\nkept[I] = BUG ? block : 0;",
        "offset 4 of a 40-byte block",
    );
    found(
        FindingKind::InvalidFree,
        "int *block = (int *)malloc(4);\nfree(block);\nfree(BUG ? y : 0); // BUG",
        "malloc did not return",
    );
}

#[test]
fn never_freed() {
    found(
        FindingKind::Leak,
        "int *block = (int *)malloc(44); // BUG\nblock[0] = I;\ny[I] = block[0];\nif (!BUG) free(block);",
        "44 bytes",
    );
    // A block that another one points to is lost with it.
    found(
        FindingKind::Leak,
        "int **outer = (int **)malloc(8); kept[I] = (int *)outer;\nint *inner = (int *)malloc(12); // BUG\n\
         inner[0] = 1;\n*outer = inner;\nif (BUG) *outer = 0;",
        "12 bytes",
    );
}

#[test]
fn never_written() {
    found(
        FindingKind::Uninitialised,
        "int *block = (int *)malloc(40);\nblock[0] = 1;\ny[I] = block[BUG]; // BUG\nfree(block);",
        "never written",
    );
}
