//! What needs no GPU: which kernels are offered, that their blocks cover the result, and that their arguments are those of
//! the kernels' signatures.

use kinora_graph::{
    DType, Op, TensorType,
    op::{Activation, Affine, Conv, Linear, MatMul, Norm, NormKind, Stage},
};

use super::{boxes::Boxes, *};
use crate::{
    Architecture, CudaError,
    kernels::{Argument, DevicePointer, Launch, Places, Work, testing},
    launch::limits::BLOCK_THREADS,
};

const WORKSPACE: DevicePointer = DevicePointer::new(200 << 32);

/// A call with its own types.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub op: Op,
    pub inputs: Vec<TensorType>,
    pub result: TensorType,
}

impl Case {
    fn new(op: Op, inputs: &[(DType, &[usize])], result: (DType, &[usize])) -> Case {
        let inputs = inputs.iter().map(|&(dtype, shape)| TensorType::new(dtype, shape)).collect();
        Case { op, inputs, result: TensorType::new(result.0, result.1) }
    }

    /// Gives `f` the call, and places at made-up addresses.
    pub fn with<R>(&self, f: impl FnOnce(&Call<'_>, &Places) -> R) -> R {
        let inputs: Vec<&TensorType> = self.inputs.iter().collect();
        let call = Call { layer: "layer", op: &self.op, inputs: &inputs, outputs: &[&self.result] };
        let places = Places {
            outputs: vec![DevicePointer::new(100 << 32)],
            workspace: WORKSPACE,
            ..testing::places(inputs.len(), 1)
        };
        f(&call, &places)
    }

    fn launches(&self, architecture: Architecture, set: KernelSet) -> Vec<(String, Vec<Launch>)> {
        let chip = Chip::typical(architecture);
        self.with(|call, places| {
            implementations(call, &chip, set, &Libraries::default(), |_, _, _| Vec::new())
                .iter()
                .map(|offer| (offer.name(), offer.launches(places).expect("it was offered")))
                .collect()
        })
    }
}

/// The shapes that differ in how they are computed, in every element type.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let f32 = DType::F32;
        let linear = |gate: Option<Activation>, rows: usize, depth: usize, columns: usize| {
            let out = if gate.is_none() { columns } else { columns / 2 };
            let op = Linear {
                bias: true,
                gate,
                epilogue: vec![Stage::Scale(0.5), Stage::Add],
                ..Linear::default()
            };
            Case::new(
                Op::Linear(op),
                &[
                    (dtype, &[rows, depth]),
                    (dtype, &[columns, depth]),
                    (f32, &[columns]),
                    (dtype, &[rows, out]),
                ],
                (dtype, &[rows, out]),
            )
        };
        cases.push(linear(None, 4096, 320, 960));
        cases.push(linear(Some(Activation::Gelu), 1000, 320, 2560));
        cases.push(linear(Some(Activation::Gelu), 3, 1280, 20));
        cases.push(linear(None, 2, 1280, 1280));
        cases.push(linear(None, 7, 5, 3));
        cases.push(linear(None, 7, 0, 3));
        let conv = |op: Conv, x: [usize; 4], out: [usize; 4]| {
            let weight = [out[3], op.kernel[0], op.kernel[1], op.kernel[2], x[3] / op.groups];
            let blend = Stage::Blend { accumulator_first: true };
            let epilogue = vec![Stage::AddChannels, Stage::Activate(Activation::Silu), blend];
            let op = Conv { bias: true, epilogue, ..op };
            Case::new(
                Op::Conv(op),
                &[
                    (dtype, &x),
                    (dtype, &weight),
                    (dtype, &out[3..]),
                    (dtype, &[out[0], 1, 1, out[3]]),
                    (dtype, &out),
                    (f32, &[1]),
                ],
                (dtype, &out),
            )
        };
        let same = Conv::spatial([3, 3], 1, 1);
        cases.push(conv(same.clone(), [28, 72, 128, 320], [28, 72, 128, 320]));
        cases.push(conv(same.clone(), [28, 9, 16, 1280], [28, 9, 16, 1280]));
        cases.push(conv(same.clone(), [2, 16, 16, 4], [2, 16, 16, 320]));
        cases.push(conv(same.clone(), [2, 16, 16, 320], [2, 16, 16, 3]));
        cases.push(conv(Conv::spatial([3, 3], 2, 1), [2, 16, 16, 64], [2, 8, 8, 64]));
        cases.push(conv(Conv { groups: 2, ..same.clone() }, [2, 16, 16, 64], [2, 16, 16, 64]));
        cases.push(conv(Conv { groups: 64, ..same }, [2, 16, 16, 64], [2, 16, 16, 64]));
        cases.push(conv(Conv::temporal(3, 14), [28, 36, 64, 640], [28, 36, 64, 640]));
        for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
            let a = if transpose_a { [6, 64, 100] } else { [6, 100, 64] };
            let b = if transpose_b { [6, 48, 64] } else { [6, 64, 48] };
            let op = Op::MatMul(MatMul { transpose_a, transpose_b });
            cases.push(Case::new(op.clone(), &[(dtype, &a), (dtype, &b)], (dtype, &[6, 100, 48])));
            cases.push(Case::new(op, &[(dtype, &a), (f32, &b[1..])], (dtype, &[6, 100, 48])));
        }
    }
    cases
}

/// The parameters of a kernel, as its source declares them.
fn parameters(launch: &Launch) -> Vec<String> {
    let text = launch.kernel.source.text;
    // The entry is the last function of its source.
    let head = format!(" {}(", launch.kernel.entry);
    let start = text.rfind(&head).expect("the source has the entry") + head.len();
    let end = start + text[start..].find(')').expect("the signature ends");
    text[start..end].split(',').map(|part| part.trim().to_owned()).collect()
}

#[test]
fn arguments_are_those_of_the_signature() {
    for case in cases() {
        for set in [KernelSet::Fused, KernelSet::Baseline] {
            for architecture in Architecture::TESTED {
                let offers = case.launches(architecture, set);
                assert!(!offers.is_empty(), "{case:?}");
                for launch in offers.iter().flat_map(|(_, launches)| launches) {
                    let declared = parameters(launch);
                    assert_eq!(declared.len(), launch.arguments.len(), "{declared:?}");
                    for (text, argument) in declared.iter().zip(&launch.arguments) {
                        let fits = match argument {
                            Argument::Pointer(_) => text.contains('*'),
                            Argument::I64(_) => text.starts_with("i64 "),
                            Argument::Struct(value) => {
                                text.starts_with(&format!("const {} ", value.layout().name))
                            }
                            Argument::TensorMap(_) => text.starts_with("const __grid_constant__ TensorMap "),
                            _ => false,
                        };
                        assert!(fits, "{text}: {argument:?}");
                    }
                    let chip = Chip::typical(architecture);
                    assert!(launch.shared_bytes <= chip.shared_bytes && launch.block[0] <= BLOCK_THREADS);
                    assert!(launch.grid[0] > 0);
                }
            }
        }
    }
}

/// As `place_of` in `common/product.cuh`.
fn place_of(block: usize, down: usize, across: usize) -> (usize, usize, usize) {
    let (plane, in_plane) = (block / (down * across), block % (down * across));
    let (band, in_band) = (in_plane / (8 * across), in_plane % (8 * across));
    let height = 8.min(down - 8 * band);
    (band * 8 + in_band % height, in_band / height, plane)
}

#[test]
fn blocks_cover_every_tile_once() {
    for (down, across, planes) in [(1, 1, 1), (1, 7, 2), (8, 3, 1), (9, 3, 2), (29, 5, 3), (16, 1, 1)] {
        let mut seen: Vec<_> =
            (0..down * across * planes).map(|block| place_of(block, down, across)).collect();
        assert!(seen.iter().all(|&(row, column, plane)| row < down && column < across && plane < planes));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), down * across * planes);
    }
}

#[test]
fn offers_are_named_apart_and_fit_the_work() {
    for case in cases() {
        for architecture in Architecture::TESTED {
            let mut names: Vec<String> =
                case.launches(architecture, KernelSet::Fused).into_iter().map(|(name, _)| name).collect();
            let offered = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), offered, "{names:?}");
        }
    }
    let first = |case: &Case, architecture| case.launches(architecture, KernelSet::Fused)[0].0.clone();
    let case_names = |case: &Case| -> Vec<String> {
        case.launches(Architecture::HOPPER, KernelSet::Fused).into_iter().map(|(name, _)| name).collect()
    };
    let cases = cases();
    // Cases come in the same order for each of f32, f16 and bf16.
    let of = |dtype: usize, case: usize| &cases[dtype * cases.len() / 3 + case];
    // The tensor cores of data centres' chips are far ahead of the ordinary units in f32, those of graphics cards are not.
    for (architecture, kernel) in [(75, "simt"), (80, "mma"), (86, "simt"), (89, "simt"), (90, "mma")] {
        for case in [0, 6, 13] {
            let first = first(of(0, case), Architecture(architecture));
            assert!(first.starts_with(kernel), "{first} on {architecture}");
        }
    }
    // Too shallow to be worth two parts.
    assert!(case_names(of(0, 4)).iter().all(|name| name.starts_with("simt")));
    assert!(first(of(1, 0), Architecture::TURING).starts_with("mma"));
    assert!(first(of(2, 0), Architecture::TURING).starts_with("simt"));
    assert!(first(of(2, 0), Architecture::AMPERE).starts_with("mma"));
    assert_eq!(first(of(1, 6), Architecture::HOPPER), "wgmma 128x160 in turns");
    assert!(first(of(2, 1), Architecture::HOPPER).starts_with("wgmma"));
    // Few rows and a large depth: the depth is split to fill the chip.
    assert!(first(of(1, 3), Architecture::AMPERE).contains("split"));
    // Depthwise.
    assert_eq!(first(of(1, 12), Architecture::AMPERE), "naive");
    // Operands of two types.
    assert!(first(of(1, 15), Architecture::AMPERE).starts_with("simt"));
}

#[test]
fn a_librarys_way_is_offered_again_by_name_without_the_library() {
    let libraries = Libraries::default();
    let mut products = 0;
    let mut convolutions = 0;
    for case in cases() {
        case.with(|call, places| {
            let again = |name: &str, workspace| offered_before(call, &libraries, name, workspace);
            const ROOM: usize = 1 << 30;
            let (product, convolution) = (again("cublaslt 3", ROOM), again("cudnn", ROOM));
            // A call is one or the other, or none that a library knows.
            assert!(product.is_none() || convolution.is_none());
            products += usize::from(product.is_some());
            convolutions += usize::from(convolution.is_some());
            assert!(convolution.is_none_or(|way| way.name() == "cudnn" && way.workspace() == ROOM));
            for other in ["cublaslt", "cublaslt x", "mma 128x128", ""] {
                assert!(again(other, ROOM).is_none(), "{other}");
            }
            // The library is asked when there is work, and is not there.
            if let Some(way) = product {
                assert_eq!(way.name(), "cublaslt 3");
                assert!(matches!(way.work(places), Err(CudaError::Library { .. })));
            }
        });
    }
    assert!(products > 10 && convolutions > 10, "{products} products, {convolutions} convolutions");
}

#[test]
fn a_split_product_leaves_room_for_its_partial_sums() {
    let case = &cases()[cases().len() / 3 + 3];
    for (architecture, kernel) in [(Architecture::AMPERE, "mma"), (Architecture::HOPPER, "wgmma")] {
        let chip = Chip::typical(architecture);
        case.with(|call, places| {
            let offers =
                implementations(call, &chip, KernelSet::Fused, &Libraries::default(), |_, _, _| Vec::new());
            let is_split = |name: &str| name.starts_with(kernel) && name.contains("split");
            assert!(offers.iter().any(|offer| is_split(&offer.name())), "{kernel} splits nothing");
            for offer in offers {
                let launches = offer.launches(places).expect("it was offered");
                let splits =
                    offer.name().rsplit_once("split ").and_then(|(_, n)| n.parse().ok()).unwrap_or(0);
                assert_eq!(offer.workspace(), splits * 2 * 1280 * 4, "{}", offer.name());
                assert_eq!(launches.len(), if splits > 0 { 2 } else { 1 });
            }
        });
    }
}

#[test]
fn clusters_share_the_depth_of_few_tiles() {
    let f16 = DType::F16;
    let linear = |rows: usize, depth: usize, columns: usize, gate: Option<Activation>| {
        let out = if gate.is_some() { columns / 2 } else { columns };
        let op = Op::Linear(Linear { gate, ..Linear::default() });
        Case::new(op, &[(f16, &[rows, depth]), (f16, &[columns, depth])], (f16, &[rows, out]))
    };
    let conv = |side: usize, channels: usize, columns: usize| {
        let (x, y) = ([1, side, side, channels], [1, side, side, columns]);
        let op = Op::Conv(Conv::spatial([3, 3], 1, 1));
        Case::new(op, &[(f16, &x), (f16, &[columns, 1, 3, 3, channels])], (f16, &y))
    };
    let gelu = Some(Activation::Gelu);
    for (case, expected) in [
        (conv(64, 320, 320), Some("wgmma 128x160 cluster 2")),
        (linear(64, 1280, 1280, None), Some("wgmma 128x64 cluster 5")),
        (linear(64, 1280, 10240, gelu), Some("wgmma 128x160 cluster 2")),
        // Several tiles high, and of more than two blocks: those are for the tuner.
        (conv(32, 640, 640), None),
        (conv(16, 1280, 1280), None),
        // The tiles alone fill the chip.
        (linear(4096, 320, 960, None), None),
        // There is nothing to share.
        (linear(256, 64, 320, None), None),
    ] {
        let offers = case.launches(Architecture::HOPPER, KernelSet::Fused);
        let first = Some(offers[0].0.as_str()).filter(|name| name.contains("cluster"));
        assert_eq!(first, expected);
        for (name, launches) in offers {
            if name.contains("in turns") {
                continue;
            }
            let size = name.split_once("cluster ").map_or(1, |(_, size)| size.parse().expect("a size"));
            assert!(launches.iter().all(|launch| launch.cluster == size), "{name}");
            if size > 1 {
                // One launch, of whole clusters, that all run at once.
                let multiprocessors = Chip::typical(Architecture::HOPPER).multiprocessors;
                assert_eq!(launches.len(), 1, "{name}");
                assert!(launches[0].grid[0] % size == 0 && launches[0].grid[0] <= multiprocessors, "{name}");
            }
        }
    }
}

#[test]
fn warpgroups_take_turns_if_there_is_room_for_the_operands() {
    let f16 = DType::F16;
    let linear = |gate: Option<Activation>, epilogue: Vec<Stage>, dtype: DType| {
        let out = if gate.is_some() { 1280 } else { 2560 };
        let mut inputs = vec![(f16, vec![9216, 320]), (f16, vec![2560, 320]), (f16, vec![2560])];
        for stage in &epilogue {
            inputs.push((dtype, vec![9216, out]));
            inputs.extend((stage.operands() > 1).then(|| (f16, vec![1])));
        }
        let inputs: Vec<(DType, &[usize])> = inputs.iter().map(|(ty, shape)| (*ty, &shape[..])).collect();
        let op = Op::Linear(Linear { bias: true, gate, epilogue, ..Linear::default() });
        Case::new(op, &inputs, (f16, &[9216, out]))
    };
    let gelu = Some(Activation::Gelu);
    let blend = Stage::Blend { accumulator_first: false };
    // The steps in the ring, and the strips whose operands come ahead: for 160 columns and for 128.
    for (case, expected) in [
        (linear(None, vec![], f16), [Some((5, 0)), Some((6, 0))]),
        (linear(gelu, vec![], f16), [Some((5, 0)), Some((6, 0))]),
        // All of 128 columns, and seven tenths of 160, beside the bias.
        (linear(None, vec![Stage::Add], f16), [Some((4, 7)), Some((4, 8))]),
        (linear(None, vec![Stage::Add, blend], f16), [Some((4, 3)), Some((4, 4))]),
        (linear(None, vec![Stage::Add, blend], DType::F32), [Some((4, 1)), Some((4, 2))]),
        // Sums, gates and operands of 160 columns have no room in registers.
        (linear(gelu, vec![Stage::Add], f16), [None, Some((4, 4))]),
    ] {
        let offers = case.launches(Architecture::HOPPER, KernelSet::Fused);
        let number = |launch: &Launch, name: &str| -> usize {
            let constant = launch.kernel.constants.iter().find(|(constant, _)| *constant == name);
            constant.expect("it is a constant").1.parse().expect("it is a number")
        };
        for (columns, expected) in [160, 128].into_iter().zip(expected) {
            let name = format!("wgmma 128x{columns} in turns");
            let offer = offers.iter().find(|(offered, _)| *offered == name);
            let got = offer
                .map(|(_, launches)| (number(&launches[0], "STAGES"), number(&launches[0], "STRIPS_AHEAD")));
            assert_eq!(got, expected, "{name} {:?}", case.op);
        }
        let chosen = if expected[0].is_some() { "wgmma 128x160 in turns" } else { "wgmma 128x128 in turns" };
        assert!(offers[0].0.starts_with(chosen), "{} for {:?}", offers[0].0, case.op);
    }
}

/// Few tiles, or columns that do not fill theirs, are left to the other kernels.
#[test]
fn warpgroups_take_turns_by_shape_if_each_has_a_tile() {
    let f16 = DType::F16;
    for (rows, columns, in_turns) in
        [(9216, 1280, true), (9216, 2560, true), (4224, 1280, true), (4096, 1280, false), (9216, 1288, false)]
    {
        let op = Op::Linear(Linear::default());
        let case = Case::new(op, &[(f16, &[rows, 320]), (f16, &[columns, 320])], (f16, &[rows, columns]));
        let offers = case.launches(Architecture::HOPPER, KernelSet::Fused);
        let first = &offers[0].0;
        assert_eq!(first.starts_with("wgmma 128x160 in turns"), in_turns, "{rows} × {columns}: {first}");
    }
}

/// As they were measured for an autoencoder's frames of 1024×576 and for a UNet's projections.
#[test]
fn weights_that_stay_and_short_depths_with_operands_take_turns() {
    let f16 = DType::F16;
    let (spatial, temporal) = (Conv::spatial([3, 3], 1, 1), Conv::temporal(3, 14));
    let dot = Conv::spatial([1, 1], 1, 0);
    for (conv, side, channels, columns, add, expected) in [
        (&temporal, [576, 1024], 128, 128, false, "wgmma 128x128 in turns, resident"),
        (&temporal, [576, 1024], 128, 128, true, "wgmma 128x128 in turns, resident"),
        (&dot, [288, 512], 512, 256, false, "wgmma 128x128 in turns, resident"),
        (&temporal, [288, 512], 256, 256, true, "wgmma 128x128 in turns"),
        (&temporal, [144, 256], 512, 512, false, "wgmma 256x128"),
        (&spatial, [288, 512], 256, 256, true, "wgmma 256x128"),
    ] {
        let epilogue = if add { vec![Stage::Add] } else { vec![] };
        let op = Op::Conv(Conv { epilogue, ..conv.clone() });
        let [x, y] = [channels, columns].map(|width| [14, side[0], side[1], width]);
        let weight = [columns, conv.kernel[0], conv.kernel[1], conv.kernel[2], channels];
        let mut inputs = vec![(f16, &x[..]), (f16, &weight[..])];
        inputs.extend(add.then_some((f16, &y[..])));
        let case = Case::new(op, &inputs, (f16, &y));
        let offers = case.launches(Architecture::HOPPER, KernelSet::Fused);
        assert_eq!(offers[0].0, expected, "{conv:?} {channels} to {columns}");
    }
    // A block for each of so many tiles across would leave multiprocessors idle.
    let (rows, columns) = (9216, 80 * 160);
    let case = Case::new(
        Op::Linear(Linear::default()),
        &[(f16, &[rows, 320]), (f16, &[columns, 320])],
        (f16, &[rows, columns]),
    );
    assert_eq!(case.launches(Architecture::HOPPER, KernelSet::Fused)[0].0, "wgmma 128x160 in turns");
}

/// A weight that stays is of so few steps that it fits beside the rows, and its columns have as many blocks each.
#[test]
fn blocks_keep_a_weight_that_fits() {
    let f16 = DType::F16;
    for (rows, depth, columns, expected) in [
        // 22 blocks for each of six tiles across.
        (258_048, 320, 960, &[("", 132), (", resident", 132)][..]),
        // 16 tiles across have 8 blocks each.
        (258_048, 320, 2560, &[("", 132), (", resident", 128)]),
        // 200 KB of ten steps leave no room for rows.
        (64_512, 640, 1920, &[("", 132)]),
        // Three rows of tiles.
        (300, 320, 320, &[("", 6), (", resident", 6)]),
    ] {
        let op = Op::Linear(Linear::default());
        let case = Case::new(op, &[(f16, &[rows, depth]), (f16, &[columns, depth])], (f16, &[rows, columns]));
        let offers = case.launches(Architecture::HOPPER, KernelSet::Fused);
        let of = |way: &str| {
            let name = format!("wgmma 128x160 in turns{way}");
            offers.iter().find(|(offered, _)| *offered == name).map(|(_, launches)| &launches[0])
        };
        for way in ["", ", resident"] {
            let blocks = expected.iter().find(|(expected, _)| *expected == way).map(|(_, blocks)| *blocks);
            assert_eq!(of(way).map(|launch| launch.grid[0]), blocks, "{rows}×{depth}×{columns}{way}");
        }
    }
}

#[test]
fn convolutions_of_an_autoencoder_have_kernels_of_their_own() {
    let f16 = DType::F16;
    for (side, channels, columns, expected) in [
        (512, 3, 64, "gathered"),
        (512, 64, 64, "stationary"),
        (256, 64, 64, "stationary"),
        (512, 64, 3, "resident 8"),
        // The weight does not fit into shared memory.
        (512, 128, 128, "wgmma 256x128"),
    ] {
        let op = Op::Conv(Conv::spatial([3, 3], 1, 1));
        let (x, y) = ([1, side, side, channels], [1, side, side, columns]);
        let case = Case::new(op, &[(f16, &x), (f16, &[columns, 1, 3, 3, channels])], (f16, &y));
        let offers = case.launches(Architecture::HOPPER, KernelSet::Fused);
        assert_eq!(offers[0].0, expected);
    }
}

#[test]
fn a_prologue_runs_first_into_scratch_memory() {
    let norm = Norm {
        kind: NormKind::Layer,
        epsilon: 1e-5,
        affine: Affine::ScaleShift,
        activation: None,
        quantise: None,
        measured: false,
    };
    let op = Linear { bias: true, prologue: Some(norm), epilogue: vec![Stage::Add], ..Linear::default() };
    let f16 = DType::F16;
    let case = Case::new(
        Op::Linear(op.clone()),
        &[(f16, &[9, 40]), (f16, &[8, 40]), (f16, &[8]), (f16, &[40]), (f16, &[40]), (f16, &[9, 8])],
        (f16, &[9, 8]),
    );
    let chip = Chip::typical(Architecture::AMPERE);
    case.with(|call, places| {
        // Any implementation stands for the norm's here: it shows what it was given.
        #[derive(Debug)]
        struct Shown;
        // SAFETY: it launches nothing.
        unsafe impl Implementation for Shown {
            fn name(&self) -> String {
                "norm".to_owned()
            }
            fn launches(&self, places: &Places) -> Result<Vec<Launch>, CudaError> {
                assert_eq!(places.inputs, [0, 3, 4].map(testing::place));
                assert_eq!(places.outputs, [WORKSPACE]);
                Ok(Vec::new())
            }
        }
        let offers = implementations(call, &chip, KernelSet::Fused, &Libraries::default(), |norm, _, _| {
            assert_eq!(norm.inputs.len(), 3);
            vec![Box::new(Shown)]
        });
        let offer = &offers[0];
        assert!(offer.name().starts_with("norm, mma"), "{}", offer.name());
        // 9 · 40 · 2 bytes, rounded up to 256.
        assert!(offer.workspace() >= 768);
        let work = offer.work(places).expect("it was offered");
        let [Work::Launch(launch), ..] = &work[..] else { panic!("{work:?}") };
        assert_eq!(launch.arguments[0], Argument::Pointer(WORKSPACE));
        assert_eq!(launch.arguments[1], Argument::Pointer(testing::place(1)));
    });
    assert!(in_place(&Op::Linear(op.clone()), 5) && !in_place(&Op::Linear(op), 0));
}

#[test]
fn boxes_cover_every_result_and_waste_little() {
    // Of 256 results: rows of images, images of a batch, frames of clips.
    let cases = cases();
    let of = |case: usize| &cases[cases.len() / 3 + case];
    for (case, shift, number) in [
        // 72 × 128: two lines.
        (6, [7, 1, 0, 0], 1008),
        // 9 × 16, 28 images: one line of sixteen images.
        (7, [4, 0, 0, 4], 18),
        // 36 × 64, frames of a clip alike.
        (13, [6, 2, 0, 0], 252),
        // A linear layer is one line.
        (0, [8, 0, 0, 0], 16),
    ] {
        of(case).with(|call, _| {
            let problem = Problem::of(call).expect("it is a product");
            let boxes = Boxes::of(&problem, 256);
            assert_eq!((boxes.shift, boxes.number()), (shift, number), "{}", call.op);
            let covered: usize = (0..4).map(|axis| boxes.counts()[axis] << boxes.shift[axis]).product();
            assert_eq!(boxes.out_extents.iter().product::<usize>(), problem.rows);
            assert!((0..4).all(|axis| boxes.counts()[axis] << boxes.shift[axis] >= boxes.out_extents[axis]));
            assert_eq!(covered, number * 256);
        });
    }
}

/// Two parts of each operand take registers: every tile of f32 compiles without a spill, whatever the product and its epilogue.
#[test]
fn products_in_two_parts_spill_no_registers() {
    for architecture in Architecture::TESTED.into_iter().filter(|&tested| tested >= Architecture::AMPERE) {
        let mut kernels: Vec<crate::kernels::Kernel> = Vec::new();
        for case in cases().into_iter().filter(|case| case.result.dtype == DType::F32) {
            let products = case.launches(architecture, KernelSet::Fused).into_iter();
            for (_, launches) in products.filter(|(name, _)| name.starts_with("mma")) {
                kernels.extend(launches.into_iter().map(|launch| launch.kernel));
            }
        }
        assert!(kernels.len() > 50, "{}", kernels.len());
        crate::testing::compile(architecture, &kernels);
    }
}

/// What takes a scale for each column: on Hopper its own tensor cores, on Ada those of a warp, elsewhere neither.
#[test]
fn few_kernels_take_e4m3() {
    let e4m3 = DType::F8E4M3;
    let op = Op::Linear(Linear { quantised: Some(DType::F16), ..Linear::default() });
    let inputs: [(DType, &[usize]); 3] = [(e4m3, &[4096, 640]), (e4m3, &[640, 640]), (DType::F32, &[640])];
    let linear = Case::new(op, &inputs, (DType::F16, &[4096, 640]));
    let op = Op::Conv(Conv { quantised: Some(DType::F16), ..Conv::spatial([3, 3], 2, 1) });
    let inputs: [(DType, &[usize]); 3] =
        [(e4m3, &[2, 32, 32, 320]), (e4m3, &[320, 1, 3, 3, 320]), (DType::F32, &[320])];
    let strided = Case::new(op, &inputs, (DType::F16, &[2, 16, 16, 320]));
    for (architecture, case, expected) in [
        (Architecture::HOPPER, &linear, &["naive", "turns", "wgmma"][..]),
        (Architecture::HOPPER, &strided, &["naive"]),
        (Architecture::ADA, &linear, &["mma", "naive"]),
        (Architecture::ADA, &strided, &["mma", "naive"]),
        (Architecture::AMPERE, &linear, &["naive"]),
    ] {
        let mut kernels: Vec<String> = Vec::new();
        for (name, _) in case.launches(architecture, KernelSet::Fused) {
            // Its name begins as that of `wgmma.cu`.
            let first =
                if name.contains("turns") { "turns" } else { name.split(' ').next().unwrap_or_default() };
            kernels.push(first.to_owned());
        }
        kernels.sort_unstable();
        kernels.dedup();
        assert_eq!(kernels, expected, "{architecture}");
    }
}
