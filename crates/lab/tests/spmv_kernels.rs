//! Every kernel, for every type, on matrices of every kind, in the simulator with all checks: no finding, and results within the
//! bound of the reference in f64.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

use std::{collections::HashMap, io::Write};

use kinora_lab::{
    compile::{CompileError, Compiled, Form},
    execute::{Device, SimulatedDevice},
    spmv::{
        Algorithm, Csr, Index, Job, Placed, Statistics, Value, Variant,
        cpu::{self, Scalars},
        generate::{Kind, Recipe, vector},
    },
};
use kinora_ptx::{Checks, ChipSpec};

const CHIP: (u32, u32) = (9, 0);

/// The kernels' code; `None` if there is no compiler, which is said.
fn compiled<V: Value, I: Index>(variants: &[Variant]) -> Option<HashMap<Variant, Compiled>> {
    let mut codes = HashMap::new();
    for &variant in variants {
        match variant.compile::<V, I>(CHIP, Form::Ptx) {
            Err(CompileError::NoCompiler(_)) if std::env::var_os("KINORA_REQUIRE_NVRTC").is_none() => {
                let _ = writeln!(std::io::stderr(), "kernels not run: no NVRTC");
                return None;
            }
            code => drop(codes.insert(variant, code.unwrap())),
        }
    }
    Some(codes)
}

/// Runs a kernel on fresh, unwritten memory, twice; the results of both runs.
fn product<V: Value, I: Index>(
    variant: Variant,
    code: &Compiled,
    matrix: &Csr<V, I>,
    (x, y): (&[V], &[V]),
    scalars: Scalars,
) -> [Vec<V>; 2] {
    let mut device = SimulatedDevice::new(ChipSpec::h200(), Checks { nonfinite: true, ..Checks::default() });
    let placed = Placed::new(&mut device, matrix, x).unwrap();
    let job = Job::new(&mut device, (variant, code), matrix, &placed, scalars).unwrap();
    let launch = |device: &mut SimulatedDevice, launches: &[kinora_lab::execute::Launch]| {
        for launch in launches {
            let launched = device.launch(launch).unwrap();
            assert!(launched.findings.is_empty(), "{variant}: {}", launched.findings[0]);
        }
    };
    launch(&mut device, &job.preparation);
    let results = [0, 1].map(|run| {
        // The first run reads a `y` that was never written, if it reads it against the rule.
        if scalars.beta != 0.0 {
            device.write(placed.y, bytemuck::cast_slice(y)).unwrap();
        } else if run == 1 && matrix.rows() > 0 {
            let poison = vec![V::from_f64(f64::NAN); matrix.rows()];
            device.write(placed.y, bytemuck::cast_slice(&poison)).unwrap();
        }
        launch(&mut device, &job.launches);
        let mut result = vec![V::from_f64(0.0); y.len()];
        if !y.is_empty() {
            let written = device.written(placed.y, size_of_val(y)).unwrap().unwrap();
            assert!(written.iter().all(|&written| written), "{variant}: y is not whole");
            device.read(placed.y, bytemuck::cast_slice_mut(&mut result)).unwrap();
        }
        result
    });
    job.free(&mut device).unwrap();
    placed.free(&mut device).unwrap();
    results
}

/// Rows whose columns descend, every second one being that of the one before.
fn disordered<V: Value, I: Index>() -> Csr<V, I> {
    let recipe = Recipe { kind: Kind::PowerLaw, rows: 500, columns: 3000, nonzeros: 20_000, seed: 7 };
    let matrix: Csr<V, I> = recipe.generate().unwrap();
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    for row in 0..matrix.rows() {
        let range = matrix.row(row);
        let columns = matrix.indices()[range.clone()].iter().rev();
        indices.extend(columns.map(|index| I::from_usize(index.at() / 2 * 2)));
        values.extend(matrix.values()[range].iter().rev());
    }
    Csr::new(matrix.rows(), matrix.columns(), matrix.offsets().to_vec(), indices, values).unwrap()
}

/// Matrices of every kind, and the edges: nothing at all, one element, wide, tall, one huge row between empty ones.
fn matrices<V: Value, I: Index>() -> Vec<(String, Csr<V, I>)> {
    let mut all = Vec::new();
    for (name, kind) in Kind::ALL {
        let recipe = Recipe { kind, rows: 700, columns: 700, nonzeros: 7000, seed: 11 };
        all.push((name.to_owned(), recipe.generate().unwrap()));
    }
    let mut add = |rows: usize, columns: usize, nonzeros: usize, kind: Kind| {
        let recipe = Recipe { kind, rows, columns, nonzeros, seed: 5 };
        all.push((recipe.to_string(), recipe.generate().unwrap()));
    };
    add(0, 0, 0, Kind::Uniform);
    add(0, 3, 0, Kind::Uniform);
    add(3, 0, 0, Kind::Uniform);
    add(1, 1, 1, Kind::Uniform);
    add(5, 4000, 3000, Kind::Uniform);
    add(3000, 5, 3000, Kind::Uniform);
    add(4500, 10, 0, Kind::Uniform);
    // Longer than many tiles, and than 32 of the merge kernel's.
    add(3, 70_000, 70_050, Kind::DenseRow);
    add(40, 2500, 60_000, Kind::PowerLaw);
    // Columns that take more than 16 bits, though those of a row lie near each other.
    add(2000, 150_000, 20_000, Kind::Banded);
    all.push(("columns in no order, and several times".to_owned(), disordered()));
    all
}

/// The sliced kernel with slices and blocks so small that small matrices have many of them.
fn small_slices() -> [Variant; 2] {
    [(64, 5000), (1000, 20_000)].map(|(columns, block_bytes)| Variant {
        algorithm: Algorithm::Sliced { columns, block_bytes },
        ..Variant::sliced::<f64>(false)
    })
}

fn check<V: Value, I: Index>(variants: &[Variant]) {
    let Some(codes) = compiled::<V, I>(variants) else { return };
    let scalars = [Scalars::default(), Scalars { alpha: -1.5, beta: 0.5 }];
    for (place, (name, matrix)) in matrices::<V, I>().into_iter().enumerate() {
        let x: Vec<V> = vector(matrix.columns(), 21);
        let y: Vec<V> = vector(matrix.rows(), 22);
        for (number, &variant) in variants.iter().enumerate() {
            let slow = matches!(variant.algorithm, Algorithm::Scalar | Algorithm::Vector { lanes: 2 | 4 });
            if slow && matrix.nonzeros() > 60_000 {
                continue;
            }
            // Narrow columns are for rows whose columns they can tell apart.
            let narrow = matches!(variant.algorithm, Algorithm::Narrow | Algorithm::NarrowVector { .. });
            if narrow && Statistics::new(&matrix).reach >= 1 << 16 {
                continue;
            }
            let scalars = scalars[(place + number) % 2];
            let reference = cpu::reference(&matrix, &x, &y, scalars);
            let [first, second] = product(variant, &codes[&variant], &matrix, (&x, &y), scalars);
            let difference = reference.compare(&first);
            let types = format!("{} {}", V::NAME, I::NAME);
            assert_eq!(difference.wrong_rows, 0, "{variant}, {types}, {name}: {difference:?}");
            assert!(first == second, "{variant}, {types}, {name}: two runs differ");
        }
    }
}

#[test]
fn f32_with_i32() {
    let mut variants = Variant::all::<f32>(ChipSpec::h200().shared_bytes);
    variants.extend(small_slices());
    check::<f32, i32>(&variants);
}

#[test]
fn f64_with_i32() {
    check::<f64, i32>(&[
        Variant::SCALAR,
        Variant::vector(8),
        Variant::merge::<f64>(),
        Variant::adaptive::<f64>(true),
        Variant::narrow::<f64>(),
        Variant::narrow_vector(4),
        Variant::sliced::<f64>(false),
        small_slices()[0],
    ]);
}

#[test]
fn f32_with_i64() {
    check::<f32, i64>(&[
        Variant::SCALAR,
        Variant::vector(4),
        Variant::merge::<f32>(),
        Variant::adaptive::<f32>(true),
        Variant::narrow::<f32>(),
        Variant::narrow_vector(8),
        Variant::sliced::<f32>(true),
        small_slices()[1],
    ]);
}

#[test]
fn f64_with_i64() {
    check::<f64, i64>(&[
        Variant::SCALAR,
        Variant::vector(32),
        Variant::merge::<f64>(),
        Variant::adaptive::<f64>(false),
        Variant::sliced::<f64>(true),
        small_slices()[1],
    ]);
}
