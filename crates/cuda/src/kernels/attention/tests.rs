//! What is offered, and the launches: without a device.

use kinora_graph::{
    DType, Op, TensorType,
    op::{Attention, AttentionBackward, Mask},
};

use super::implementations;
use crate::kernels::in_place;
use crate::{
    Architecture, Chip,
    kernels::{
        Argument, Call, DevicePointer, Implementation, Kernel, KernelSet, Launch, Places, TensorMap, testing,
    },
    launch::limits::SUMMED_EXTENT,
};

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
const Y: DevicePointer = DevicePointer::new(0x7700_0000_0000);
const HOPPER: Architecture = Architecture::HOPPER;

/// An attention and the types of its operands.
struct Case {
    op: Op,
    inputs: Vec<TensorType>,
}

impl Case {
    fn new(op: Attention, inputs: &[(DType, &[usize])]) -> Case {
        let inputs = inputs.iter().map(|&(dtype, shape)| TensorType::new(dtype, shape)).collect();
        Case { op: Op::Attention(op), inputs }
    }

    /// Self-attention over positions.
    fn positions(dtype: DType, [batch, sequence, heads, head_dim]: [usize; 4]) -> Case {
        let shape = [batch, sequence, heads * head_dim];
        Case::new(Attention::over_positions(heads, head_dim), &[(dtype, &shape[..]); 3])
    }

    /// Self-attention over frames.
    fn frames(dtype: DType, [batch, frames, positions, heads, head_dim]: [usize; 5]) -> Case {
        let shape = [batch * frames, positions, heads * head_dim];
        Case::new(Attention::over_frames(heads, head_dim, frames), &[(dtype, &shape[..]); 3])
    }

    fn with_call<R>(&self, run: impl FnOnce(&Call<'_>) -> R) -> R {
        let inputs: Vec<&TensorType> = self.inputs.iter().collect();
        let outputs = self.op.infer(&inputs).unwrap();
        let outputs: Vec<&TensorType> = outputs.iter().collect();
        run(&Call { layer: "attention", op: &self.op, inputs: &inputs, outputs: &outputs })
    }

    fn offered(&self, architecture: Architecture, set: KernelSet) -> Vec<Box<dyn Implementation>> {
        self.with_call(|call| implementations(call, &Chip::typical(architecture), set))
    }

    fn names(&self, architecture: Architecture) -> Vec<String> {
        self.offered(architecture, KernelSet::Fused).iter().map(|offered| offered.name()).collect()
    }

    /// The launch of the implementation whose name begins so.
    fn launch(&self, architecture: Architecture, name: &str) -> Launch {
        let offered = self.offered(architecture, KernelSet::Fused);
        let implementation = offered.iter().find(|offered| offered.name().starts_with(name)).unwrap();
        self.with_call(|call| {
            let mut launches = implementation.launches(&places(call)).unwrap();
            assert_eq!(launches.len(), 1);
            launches.remove(0)
        })
    }
}

fn places(call: &Call<'_>) -> Places {
    Places { outputs: vec![Y], ..testing::places(call.inputs.len(), 1) }
}

fn constant<'a>(launch: &'a Launch, name: &str) -> &'a str {
    &launch.kernel.constants.iter().find(|(constant, _)| *constant == name).unwrap().1
}

fn number(launch: &Launch, name: &str) -> usize {
    constant(launch, name).parse().unwrap()
}

/// The problem's 12 strides, 2 mask strides, the window's diagonal and the parts, and 7 counts.
fn problem(launch: &Launch) -> (Vec<i64>, Vec<i32>) {
    let bytes = testing::struct_bytes(launch, "Problem");
    assert_eq!(bytes.len(), 160);
    let strides = bytes[..128].chunks(8).map(|x| i64::from_le_bytes(x.try_into().unwrap())).collect();
    let counts = bytes[128..156].chunks(4).map(|x| i32::from_le_bytes(x.try_into().unwrap())).collect();
    (strides, counts)
}

#[test]
fn the_baseline_is_the_plain_kernel_alone() {
    for dtype in FLOATS {
        let offered = Case::positions(dtype, [2, 77, 8, 64]).offered(HOPPER, KernelSet::Baseline);
        assert_eq!(offered.iter().map(|offered| offered.name()).collect::<Vec<_>>(), ["plain"]);
    }
}

#[test]
fn no_operand_is_overwritten() {
    let op = Op::Attention(Attention::over_positions(1, 8));
    assert!((0..5).all(|operand| !in_place(&op, operand)));
}

#[test]
fn short_sequences_stay_in_registers_and_long_ones_go_by_blocks() {
    let ampere = Architecture::AMPERE;
    let names = Case::frames(DType::F16, [2, 14, 9216, 5, 64]).names(ampere);
    assert_eq!(names[0], "temporal");
    assert_eq!(names.last().unwrap(), "plain");
    let names = Case::positions(DType::F16, [28, 9216, 5, 64]).names(ampere);
    assert_eq!(names, ["flash 128x64", "flash 64x64", "flash 32x64", "plain"]);
    // Few tiles: smaller ones give every multiprocessor something to do.
    let names = Case::positions(DType::BF16, [2, 256, 8, 160]).names(ampere);
    assert_eq!(names, ["flash 32x64", "flash 128x64", "flash 64x64", "plain"]);
}

#[test]
fn what_the_tensor_cores_cannot_take_is_left_to_the_plain_kernel() {
    let plain = |case: Case, architecture| assert_eq!(case.names(architecture), ["plain"]);
    plain(Case::positions(DType::F32, [1, 64, 2, 64]), Architecture::TURING);
    plain(Case::positions(DType::F32, [1, 64, 2, 62]), HOPPER);
    plain(Case::positions(DType::F32, [1, 64, 1, 516]), HOPPER);
    plain(Case::positions(DType::F16, [1, 64, 2, 12]), HOPPER);
    plain(Case::positions(DType::F16, [1, 64, 1, 520]), HOPPER);
    plain(Case::positions(DType::BF16, [1, 64, 2, 64]), Architecture::TURING);
    let shape: &[usize] = &[1, 64, 200];
    let packed = |offsets, scale| {
        let op = Attention { offsets, scale, ..Attention::over_positions(1, 64) };
        Case::new(op, &[(DType::F16, shape); 3])
    };
    assert!(packed([0, 64, 128], 1.0).names(HOPPER).len() > 1);
    plain(packed([0, 68, 132], 1.0), HOPPER);
    plain(packed([0, 64, 128], -1.0), HOPPER);
    plain(packed([0, 64, 128], 0.0), HOPPER);
    let mixed = [(DType::F16, shape), (DType::F16, shape), (DType::F32, shape)];
    plain(Case::new(Attention::over_positions(1, 64), &mixed), HOPPER);
}

#[test]
fn a_block_fits_every_chip() {
    for architecture in Architecture::TESTED {
        let chip = Chip::typical(architecture);
        for head_dim in (8..=512).step_by(8) {
            let case = Case::positions(DType::F16, [1, 300, 2, head_dim]);
            let names = case.names(architecture);
            assert!(names.len() > 1, "{head_dim} on {architecture}");
            let mut distinct = names.clone();
            distinct.sort();
            distinct.dedup();
            assert_eq!(distinct.len(), names.len(), "{names:?}");
            for name in names.iter().filter(|name| name.starts_with("flash")) {
                let launch = case.launch(architecture, name);
                assert!(launch.shared_bytes <= chip.shared_bytes, "{name}, {head_dim} on {architecture}");
                assert!(launch.block[0] <= 256);
                let (depth, slice) = (head_dim.next_multiple_of(16), number(&launch, "VALUE_SLICE"));
                assert!(slice.is_multiple_of(16) && slice <= depth.min(256), "{slice} of {depth}");
                // The last slice begins within the head, so that no block is for nothing.
                assert!((depth.div_ceil(slice) - 1) * slice < head_dim);
            }
        }
    }
}

#[test]
fn f32_goes_to_the_tensor_cores_in_two_parts() {
    for architecture in Architecture::TESTED.into_iter().filter(|&tested| tested >= Architecture::AMPERE) {
        let chip = Chip::typical(architecture);
        for head_dim in (4..=512).step_by(4) {
            let case = Case::positions(DType::F32, [1, 300, 2, head_dim]);
            let names = case.names(architecture);
            assert_eq!(names[0].starts_with("wide"), head_dim > 160, "{names:?}");
            assert_eq!(names.iter().any(|name| name.starts_with("flash")), head_dim <= 160, "{names:?}");
            for name in names.iter().filter(|name| *name != "plain") {
                let launch = case.launch(architecture, name);
                assert!(launch.shared_bytes <= chip.shared_bytes, "{name}, {head_dim} on {architecture}");
                // The last slice begins within the head, so that no block is for nothing.
                let (tile, slice) = (number(&launch, "QUERY_TILE"), number(&launch, "VALUE_SLICE"));
                let slices = head_dim.div_ceil(slice);
                assert_eq!(launch.grid, [(2 * 300usize.div_ceil(tile) * slices) as u32, 1, 1]);
                assert!(number(&launch, "STAGES") > usize::from(name.starts_with("wide")));
            }
        }
    }
    // All of the values at once where shared memory allows it.
    let case = Case::positions(DType::F32, [1, 900, 1, 512]);
    let cut = |architecture| {
        let launch = case.launch(architecture, "wide");
        ["QUERY_TILE", "VALUE_SLICE"].map(|name| number(&launch, name))
    };
    assert_eq!(cut(Architecture::HOPPER)[1], 512);
    assert_eq!(cut(Architecture::AMPERE), [32, 512]);
    assert_eq!(cut(Architecture(86)), [32, 256]);
}

#[test]
fn keys_are_split_to_fill_whole_waves() {
    // The autoencoder's: 144 blocks on 132 multiprocessors would be two waves.
    let case = Case::positions(DType::F32, [1, 9216, 1, 512]);
    let offered = case.offered(HOPPER, KernelSet::Fused);
    let names: Vec<String> = offered.iter().map(|offered| offered.name()).collect();
    assert_eq!(names[0], "wide 64x64 split 6");
    assert!(names.iter().any(|name| name == "wide 64x64"));
    case.with_call(|call| {
        let launches = offered[0].launches(&places(call)).unwrap();
        let [wide, merge] = &launches[..] else { panic!("{launches:?}") };
        assert_eq!((wide.grid[0], merge.grid[0]), (6 * 144, 9216 / 8));
        // The sums of each part, and for each query two numbers.
        assert_eq!(offered[0].workspace(), 6 * 9216 * (512 + 2) * 4);
        assert_eq!(wide.arguments[9], Argument::Pointer(testing::WORKSPACE));
    });
    // A part of so few keys would not be worth a block.
    let names = Case::positions(DType::F32, [1, 900, 1, 512]).names(HOPPER);
    assert!(!names.iter().any(|name| name.contains("split")), "{names:?}");
}

#[test]
fn every_query_has_one_place_in_the_grid() {
    for (queries, heads) in [(1, 1), (63, 3), (64, 2), (65, 5), (1000, 2)] {
        let case = Case::positions(DType::F16, [3, queries, heads, 320]);
        for name in case.names(HOPPER).iter().filter(|name| name.starts_with("flash")) {
            let launch = case.launch(HOPPER, name);
            let tile = number(&launch, "QUERY_TILE");
            assert_eq!(number(&launch, "VALUE_SLICE"), 160);
            assert_eq!(launch.grid, [(3 * heads * queries.div_ceil(tile) * 2) as u32, 1, 1]);
            assert_eq!(launch.block[0] as usize, 32 * tile / number(&launch, "WARP_ROWS"));
        }
        let launch = case.launch(HOPPER, "plain");
        assert_eq!(launch.grid[0] as usize, (3 * heads * queries).div_ceil(8));
    }
    let launch = Case::frames(DType::F16, [2, 25, 35, 5, 64]).launch(HOPPER, "temporal");
    assert_eq!(launch.grid[0] as usize, (2 * 35 * 5usize).div_ceil(4));
    assert_eq!((constant(&launch, "QUERY_TILES"), constant(&launch, "KEY_TILES")), ("2", "2"));
}

#[test]
fn arguments_come_in_the_order_of_the_signature() {
    let op = Attention {
        mask: Mask::Additive,
        key_lengths: true,
        offsets: [0, 128, 256],
        scale: 0.5,
        ..Attention::over_positions(2, 64)
    };
    let (packed, mask): (&[usize], &[usize]) = (&[4, 10, 384], &[4, 1, 10, 10]);
    let f16 = (DType::F16, packed);
    let case = Case::new(op, &[f16, f16, f16, (DType::F32, mask), (DType::I32, &[4])]);
    for name in ["flash", "plain", "temporal", "hopper"] {
        let launch = case.launch(HOPPER, name);
        let place = testing::place;
        let none = DevicePointer::NULL;
        let expected =
            [place(0), place(1).offset(256), place(2).offset(512), place(3), place(4), none, none, Y];
        // Behind Hopper's three tensor maps.
        let first = if name == "hopper" { 3 } else { 0 };
        assert_eq!(launch.arguments[first..first + 8], expected.map(Argument::Pointer), "{name}");
        let (strides, counts) = problem(&launch);
        let row = [384, 384, 3840];
        assert_eq!(strides, [&row[..], &row, &row, &[128, 128, 1280], &[100, 0, 0, 1]].concat());
        assert_eq!(counts, [4, 10, 10, 2, 1, 1, 0]);
        assert_eq!((constant(&launch, "MASK"), constant(&launch, "MASK_TYPE")), ("3", "f32"));
        assert_eq!((constant(&launch, "KEY_LENGTHS"), constant(&launch, "LOG_SUM_EXP")), ("1", "0"));
    }
}

#[test]
fn boundaries_come_before_the_result() {
    let op = Attention { boundaries: true, key_lengths: true, ..Attention::over_positions(1, 64) };
    let (f16, boundaries): ((DType, &[usize]), &[usize]) = ((DType::F16, &[1, 640, 64]), &[4]);
    let lengths: (DType, &[usize]) = (DType::I32, &[1]);
    let case = Case::new(op, &[f16, f16, f16, lengths, (DType::I32, boundaries), (DType::I32, boundaries)]);
    for (name, first) in [("flash", 0), ("plain", 0), ("hopper", 3)] {
        let launch = case.launch(HOPPER, name);
        let expected = [testing::place(3), testing::place(4), testing::place(5), Y].map(Argument::Pointer);
        assert_eq!(launch.arguments[first + 4..first + 8], expected, "{name}");
        assert_eq!((constant(&launch, "BOUNDARIES"), problem(&launch).0[15]), ("1", 3));
    }
}

#[test]
fn every_kernel_leaves_the_logarithms_of_its_sums() {
    let logarithms = |op| Attention { log_sum_exp: true, ..op };
    let shape: &[usize] = &[1, 900, 512];
    let cases = [
        Case::new(logarithms(Attention::over_positions(8, 64)), &[(DType::F16, shape); 3]),
        Case::new(logarithms(Attention::over_positions(1, 512)), &[(DType::F32, shape); 3]),
        Case::new(logarithms(Attention::over_frames(8, 64, 14)), &[(DType::BF16, &[28, 9, 512][..]); 3]),
    ];
    let mut names = Vec::new();
    for case in cases {
        for implementation in case.offered(HOPPER, KernelSet::Fused) {
            let launches = case.with_call(|call| {
                let places = Places { outputs: vec![Y, testing::place(9)], ..places(call) };
                implementation.launches(&places).unwrap()
            });
            for launch in launches {
                assert_eq!(constant(&launch, "LOG_SUM_EXP"), "1");
                let at =
                    launch.arguments.iter().position(|argument| *argument == Argument::Pointer(Y)).unwrap();
                assert_eq!(launch.arguments[at + 1], Argument::Pointer(testing::place(9)));
            }
            names.push(implementation.name());
        }
    }
    for family in ["hopper", "flash", "plain", "wide", "temporal"] {
        assert!(names.iter().any(|name| name.starts_with(family)), "{family} of {names:?}");
    }
}

#[test]
fn frames_are_read_with_a_stride_and_contexts_are_shared() {
    let launch = Case::frames(DType::BF16, [2, 14, 9, 5, 64]).launch(HOPPER, "temporal");
    let (strides, counts) = problem(&launch);
    assert_eq!(strides[..3], [9 * 320, 320, 14 * 9 * 320]);
    assert_eq!(counts, [2, 14, 14, 5, 9, 1, 0]);

    let (q, k): (&[usize], &[usize]) = (&[28, 50, 64], &[2, 77, 64]);
    let types = [(DType::F16, q), (DType::F16, k), (DType::F16, k)];
    let launch = Case::new(Attention::over_positions(1, 64), &types).launch(HOPPER, "plain");
    assert_eq!(problem(&launch).1, [28, 50, 77, 1, 1, 14, 0]);
}

#[test]
fn windows_and_diagonals_of_any_size_stay_within_32_bits() {
    let far = SUMMED_EXTENT as i64;
    for (diagonal, window, expected) in [
        (3, 5, (3, -2)),
        (-3, usize::MAX, (-3, -far)),
        (i64::MAX, 1, (far, far)),
        (i64::MIN, 1, (-far, -far)),
        (i64::MAX, usize::MAX, (far, -far)),
        (i64::MAX, i64::MAX as usize + 8, (far, -8)),
    ] {
        let mask = Mask::SlidingWindow { diagonal, window };
        let op = Attention { mask, ..Attention::over_positions(1, 64) };
        let launch = Case::new(op, &[(DType::F16, &[1, 70, 64][..]); 3]).launch(HOPPER, "flash");
        let (strides, counts) = problem(&launch);
        assert_eq!((i64::from(counts[6]), strides[14]), expected);
        assert_eq!(constant(&launch, "MASK"), "4");
    }

    for (diagonal, expected) in
        [(-3, -3), (i64::MAX, SUMMED_EXTENT as i32), (i64::MIN, -(SUMMED_EXTENT as i32))]
    {
        let op = Attention { mask: Mask::Causal { diagonal }, ..Attention::over_positions(1, 64) };
        let launch = Case::new(op, &[(DType::F16, &[1, 70, 64][..]); 3]).launch(HOPPER, "flash");
        assert_eq!(problem(&launch).1[6], expected);
        assert_eq!(constant(&launch, "MASK"), "1");
    }
}

#[test]
fn hopper_takes_whole_heads_over_positions() {
    let names = Case::positions(DType::F16, [28, 9216, 5, 64]).names(HOPPER);
    assert_eq!(names[1], "hopper 192x128 in turns");
    // Few tiles: smaller ones first.
    assert_eq!(Case::positions(DType::BF16, [2, 1024, 8, 64]).names(HOPPER)[1], "hopper 128x128 in turns");
    let offers = |case: &Case| case.names(HOPPER).iter().any(|name| name.starts_with("hopper"));
    assert!(!offers(&Case::frames(DType::F16, [1, 40, 64, 2, 64])));
    let shape: &[usize] = &[1, 640, 64];
    for mask in [Mask::Causal { diagonal: 0 }, Mask::SlidingWindow { diagonal: 3, window: 100 }] {
        let op = Attention { mask, ..Attention::over_positions(1, 64) };
        let names = Case::new(op, &[(DType::F16, shape); 3]).names(HOPPER);
        assert_eq!(names[0], "hopper 128x128 in turns");
    }
    // A mask takes registers of the longest tiles.
    let op = Attention { mask: Mask::Boolean, ..Attention::over_positions(1, 64) };
    let f16 = (DType::F16, shape);
    let case = Case::new(op, &[f16, f16, f16, (DType::U8, &[1, 1, 640, 640])]);
    let hopper: Vec<String> =
        case.names(HOPPER).into_iter().filter(|name| name.starts_with("hopper")).collect();
    assert_eq!(hopper.len(), 4);
    assert!(
        hopper.iter().all(|name| name.starts_with("hopper 128x128") || name.starts_with("hopper 192x64"))
    );
    // 200 channels are no multiple of a head's.
    let odd: &[usize] = &[1, 640, 200];
    assert!(!offers(&Case::new(Attention::over_positions(1, 64), &[(DType::F16, odd); 3])));
    for head_dim in (8..=256).step_by(8) {
        let case = Case::positions(DType::BF16, [3, 1000, 2, head_dim]);
        assert!(offers(&case), "{head_dim}");
        for name in case.names(HOPPER).iter().filter(|name| name.starts_with("hopper")) {
            let launch = case.launch(HOPPER, name);
            let warpgroups = number(&launch, "WARPGROUPS");
            let tiles = (6 * 1000usize.div_ceil(64 * warpgroups)) as u32;
            assert_eq!(launch.grid, [tiles, 1, 1]);
            assert_eq!(launch.block[0] as usize, 128 * (warpgroups + 1));
            assert!(launch.shared_bytes <= Chip::typical(HOPPER).shared_bytes, "{name} of {head_dim}");
            assert!(number(&launch, "STAGES") >= 2);
        }
    }
}

#[test]
fn two_warpgroups_share_the_channels_of_a_wide_head() {
    let case = Case::positions(DType::F16, [14, 9216, 1, 512]);
    assert_eq!(case.names(HOPPER)[0], "hopper wide 64x64");
    let launch = case.launch(HOPPER, "hopper wide");
    assert_eq!((launch.grid, launch.cluster), ([14 * 144, 1, 1], 2));
    assert_eq!(number(&launch, "STAGES"), 4);
    let rows = |argument: &Argument| match argument {
        Argument::TensorMap(map) => map.tile[2],
        other => panic!("{other:?}"),
    };
    // Each block of a pair loads half of the keys and values.
    assert_eq!(launch.arguments[..3].iter().map(rows).collect::<Vec<_>>(), [64, 32, 32]);
    // An odd number of tiles is filled up: no pair has two sequences.
    let launch = Case::positions(DType::BF16, [3, 130, 2, 320]).launch(HOPPER, "hopper wide");
    assert_eq!((launch.grid, launch.cluster), ([6 * 4, 1, 1], 2));
    // One tile of queries has no other to share keys with.
    let launch = Case::new(
        Attention::over_positions(1, 320),
        &[(DType::F16, &[2, 64, 320]), (DType::F16, &[2, 99, 320]), (DType::F16, &[2, 99, 320])],
    )
    .launch(HOPPER, "hopper wide");
    assert_eq!((launch.grid, launch.cluster), ([2, 1, 1], 1));
    let offers = |case: &Case| case.names(HOPPER).iter().any(|name| name.starts_with("hopper wide"));
    assert!(!offers(&Case::positions(DType::F16, [1, 64, 1, 512])), "one tile of keys");
    assert!(!offers(&Case::positions(DType::F16, [1, 640, 1, 256])));
    assert!(!offers(&Case::positions(DType::F16, [1, 640, 1, 520])));
    assert!(!offers(&Case::positions(DType::F32, [1, 640, 1, 512])));
    for head_dim in (264..=512).step_by(8) {
        let case = Case::positions(DType::BF16, [1, 200, 1, head_dim]);
        let launch = case.launch(HOPPER, "hopper wide");
        assert!(launch.shared_bytes <= Chip::typical(HOPPER).shared_bytes, "{head_dim}");
    }
}

#[test]
fn wide_heads_spill_no_registers_on_hopper() {
    let mut kernels = Vec::new();
    for dtype in [DType::F16, DType::BF16] {
        for head_dim in [264, 320, 392, 512] {
            for queries in [64, 200] {
                let q: &[usize] = &[1, queries, head_dim];
                let k: &[usize] = &[1, 200, head_dim];
                let operands = [(dtype, q), (dtype, k), (dtype, k)];
                let case = Case::new(Attention::over_positions(1, head_dim), &operands);
                kernels.push(case.launch(HOPPER, "hopper wide").kernel);
            }
        }
    }
    crate::testing::compile(HOPPER, &kernels);
}

#[test]
fn the_heads_are_an_axis_of_hoppers_maps() {
    let op = Attention { offsets: [0, 80, 160], ..Attention::over_positions(2, 40) };
    let (q, k): (&[usize], &[usize]) = (&[4, 300, 240], &[2, 77, 240]);
    let case = Case::new(op, &[(DType::BF16, q), (DType::BF16, k), (DType::BF16, k)]);
    let launch = case.launch(HOPPER, "hopper 128x128");
    let map = |address, extents, batch, rows| {
        Argument::TensorMap(TensorMap {
            address,
            dtype: DType::BF16,
            rank: 4,
            extents,
            strides: [80, 480, batch, 0],
            tile: [64, 1, rows, 1, 1],
            swizzle: 128,
        })
    };
    let expected = [
        map(testing::place(0), [40, 2, 300, 4, 1], 300 * 480, 128),
        map(testing::place(1).offset(160), [40, 2, 77, 2, 1], 77 * 480, 128),
        map(testing::place(2).offset(320), [40, 2, 77, 2, 1], 77 * 480, 128),
    ];
    assert_eq!(launch.arguments[..3], expected);
    assert_eq!(problem(&launch).1, [4, 300, 77, 2, 1, 2, 0]);
}

#[test]
fn no_keys_are_a_problem_like_any_other() {
    let (q, none): (&[usize], &[usize]) = (&[2, 5, 64], &[2, 0, 64]);
    let case = Case::new(
        Attention::over_positions(1, 64),
        &[(DType::F16, q), (DType::F16, none), (DType::F16, none)],
    );
    for name in case.names(HOPPER) {
        assert_eq!(problem(&case.launch(HOPPER, &name)).1[..3], [2, 5, 0]);
    }
}

#[test]
fn more_than_a_launch_can_count_is_an_error() {
    let case = Case::positions(DType::F32, [1 << 20, 1 << 20, 1, 1]);
    let offered = case.offered(HOPPER, KernelSet::Fused);
    let error = case.with_call(|call| call.blame(offered[0].launches(&places(call)).unwrap_err()));
    assert!(
        error.to_string().starts_with("attention: a grid of 137438953472 blocks is too large"),
        "{error}"
    );
}

#[test]
fn attention_in_two_parts_spills_no_registers() {
    for architecture in Architecture::TESTED.into_iter().filter(|&tested| tested >= Architecture::AMPERE) {
        let mut kernels = Vec::new();
        for head_dim in [8, 40, 64, 80, 128, 160, 192, 256, 320, 512] {
            let case = Case::positions(DType::F32, [1, 2304, 2, head_dim]);
            for way in case.offered(architecture, KernelSet::Fused) {
                let launches = case.with_call(|call| way.launches(&places(call)).unwrap());
                kernels.extend(launches.into_iter().map(|launch| launch.kernel));
            }
        }
        crate::testing::compile(architecture, &kernels);
    }
}

#[test]
fn hopper_spills_no_registers_whatever_hides_keys() {
    let mut kernels = Vec::new();
    let window = Mask::SlidingWindow { diagonal: 0, window: 100 };
    for mask in [Mask::None, window, Mask::Boolean, Mask::Additive] {
        for head_dim in [64, 128, 192, 256] {
            let op = Attention {
                mask,
                key_lengths: true,
                boundaries: true,
                log_sum_exp: true,
                ..Attention::over_positions(1, head_dim)
            };
            let sequence: &[usize] = &[1, 641, head_dim];
            let mut inputs = vec![(DType::F16, sequence); 3];
            let dtype = if mask == Mask::Boolean { DType::U8 } else { DType::F32 };
            inputs.extend(op.mask_operand().map(|_| (dtype, &[1, 1, 641, 641][..])));
            inputs.extend([&[1][..], &[3], &[3]].map(|shape| (DType::I32, shape)));
            let case = Case::new(op, &inputs);
            for way in case.offered(HOPPER, KernelSet::Fused) {
                // Turns are a barrier more or less.
                if way.name().starts_with("hopper") && way.name().ends_with("in turns") {
                    let launches = case.with_call(|call| way.launches(&places(call)).unwrap());
                    kernels.extend(launches.into_iter().map(|launch| launch.kernel));
                }
            }
        }
    }
    assert_eq!(kernels.len(), 2 * (3 + 2 + 1 + 1) + 2 * (2 + 1 + 1 + 1));
    crate::testing::compile(HOPPER, &kernels);
}

/// What was the fastest on an H200, of all ways to do each of these.
#[test]
fn shape_alone_chooses_what_was_fastest() {
    for (batch, heads, queries, keys, head_dim, fastest) in [
        (28, 5, 9216, 9216, 64, "hopper 192x128 in turns persistent skipping"),
        (28, 10, 2304, 2304, 64, "hopper 192x128 in turns persistent skipping"),
        (28, 20, 576, 576, 64, "hopper 192x96 in turns persistent skipping"),
        (28, 20, 144, 144, 64, "hopper 192x128 in turns persistent skipping"),
        (2, 8, 4096, 4096, 40, "hopper 192x128 in turns persistent skipping"),
        (2, 8, 4096, 77, 40, "hopper 192x80 in turns persistent skipping"),
        (2, 8, 64, 64, 64, "hopper 64x64 skipping"),
        (4, 12, 128, 128, 64, "hopper 64x128 skipping"),
    ] {
        let (q, k): (&[usize], &[usize]) =
            (&[batch, queries, heads * head_dim], &[batch, keys, heads * head_dim]);
        let types = [(DType::F16, q), (DType::F16, k), (DType::F16, k)];
        let names = Case::new(Attention::over_positions(heads, head_dim), &types).names(HOPPER);
        assert_eq!(names[0], fastest);
        // Each way is offered once.
        assert_eq!(names.iter().filter(|name| *name == fastest).count(), 1, "{names:?}");
    }
    let is_variant = |name: &String| name.contains("skipping");
    let names = Case::positions(DType::F16, [2, 300, 2, 160]).names(HOPPER);
    assert!(!names.iter().any(is_variant), "{names:?}");
    // What hides keys was not measured.
    let causal = Attention { mask: Mask::Causal { diagonal: 0 }, ..Attention::over_positions(1, 64) };
    let names = Case::new(causal, &[(DType::F16, &[1, 640, 64][..]); 3]).names(HOPPER);
    assert!(!is_variant(&names[0]) && names.iter().any(is_variant), "{names:?}");
}

#[test]
fn a_persistent_block_takes_tile_after_tile() {
    for (shape, name, blocks) in [
        ([28, 2304, 10, 64], "hopper 192x128 in turns persistent", 132),
        ([28, 576, 20, 64], "hopper 192x96 in turns persistent", 132),
        ([1, 300, 2, 64], "hopper 128x128 in turns persistent", 6),
        ([1, 300, 2, 64], "hopper 64x128 persistent", 10),
    ] {
        let launch = Case::positions(DType::F16, shape).launch(HOPPER, name);
        assert_eq!((launch.grid[0], constant(&launch, "PERSISTENT")), (blocks, "1"), "{name} of {shape:?}");
        assert!(launch.shared_bytes <= Chip::typical(HOPPER).shared_bytes);
    }
    // Which keys are seen is the same for every tile.
    let op = Attention { key_lengths: true, ..Attention::over_positions(1, 64) };
    let f16: (DType, &[usize]) = (DType::F16, &[1, 640, 64]);
    let names = Case::new(op, &[f16, f16, f16, (DType::I32, &[1])]).names(HOPPER);
    assert!(!names.iter().any(|name| name.contains("persistent")), "{names:?}");
}

#[test]
fn tiles_of_keys_may_fit_them() {
    let (q, k): (&[usize], &[usize]) = (&[2, 4096, 320], &[2, 77, 320]);
    let types = [(DType::F16, q), (DType::F16, k), (DType::F16, k)];
    let launch =
        Case::new(Attention::over_positions(8, 40), &types).launch(HOPPER, "hopper 192x80 in turns skipping");
    assert_eq!((number(&launch, "KEY_TILE"), launch.grid[0]), (80, 16 * 22));
    let launch = Case::positions(DType::F16, [2, 64, 8, 64]).launch(HOPPER, "hopper 64x64 skipping");
    assert_eq!((launch.grid[0], launch.block[0], constant(&launch, "TURNS")), (16, 256, "0"));
}

#[test]
fn variants_spill_no_registers() {
    let window = Mask::SlidingWindow { diagonal: 0, window: 100 };
    let mut kernels = Vec::new();
    for (dtype, head_dim, hides) in
        [(DType::F16, 64, false), (DType::F16, 64, true), (DType::BF16, 128, false)]
    {
        let op = Attention {
            mask: if hides { window } else { Mask::None },
            key_lengths: hides,
            boundaries: hides,
            log_sum_exp: true,
            ..Attention::over_positions(1, head_dim)
        };
        let sequence: &[usize] = &[1, 576, head_dim];
        let mut inputs = vec![(dtype, sequence); 3];
        if hides {
            inputs.extend([&[1][..], &[3], &[3]].map(|shape| (DType::I32, shape)));
        }
        let case = Case::new(op, &inputs);
        for way in case.offered(HOPPER, KernelSet::Fused) {
            if ["overlapped", "skipping"].iter().any(|word| way.name().contains(word)) {
                let launches = case.with_call(|call| way.launches(&places(call)).unwrap());
                kernels.extend(launches.into_iter().map(|launch| launch.kernel));
            }
        }
    }
    assert!(kernels.len() > 25, "{}", kernels.len());
    crate::testing::compile(HOPPER, &kernels);
}

/// The gradients of self-attention over positions.
fn gradients(dtype: DType, [batch, sequence, heads, head_dim]: [usize; 4], change: Attention) -> Case {
    let forward = Attention { log_sum_exp: true, heads, head_dim, ..change };
    let shape = TensorType::new(dtype, [batch, sequence, heads * head_dim]);
    let mut inputs = vec![shape.clone(); 3];
    if forward.mask_operand().is_some() {
        let dtype = if forward.mask == Mask::Boolean { DType::U8 } else { dtype };
        inputs.push(TensorType::new(dtype, [1, 1, sequence, sequence]));
    }
    inputs.extend(forward.key_lengths.then(|| TensorType::new(DType::I32, [batch])));
    if forward.boundaries {
        inputs.extend(vec![TensorType::new(DType::I32, [3]); 2]);
    }
    let logarithms = TensorType::new(DType::F32, [batch, sequence, heads]);
    inputs.extend([shape.clone(), logarithms, shape]);
    Case { op: Op::AttentionBackward(AttentionBackward { forward }), inputs }
}

fn gradients_of_all(dtype: DType, extents: [usize; 4]) -> Case {
    gradients(dtype, extents, Attention::over_positions(extents[2], extents[3]))
}

fn launches_of(case: &Case, way: &dyn Implementation) -> Vec<Launch> {
    case.with_call(|call| way.launches(&testing::places(call.inputs.len(), 3)).unwrap())
}

#[test]
fn gradients_go_to_the_tensor_cores_where_they_can() {
    let case = gradients_of_all(DType::F16, [1, 4096, 16, 64]);
    for architecture in Architecture::TESTED {
        let names = case.names(architecture);
        let first = if architecture == HOPPER { "backward hopper 128x64" } else { "backward 128x" };
        assert!(names[0].starts_with(first), "{names:?}");
        assert_eq!(names.last().unwrap(), "backward plain");
    }
    let baseline = case.offered(HOPPER, KernelSet::Baseline);
    assert_eq!(baseline.iter().map(|offered| offered.name()).collect::<Vec<_>>(), ["backward plain"]);
    // Few tiles: smaller ones give every multiprocessor something to do.
    assert!(
        gradients_of_all(DType::BF16, [1, 300, 4, 128]).names(Architecture::AMPERE)[0]
            .starts_with("backward 32x")
    );
    let plain = |case: Case, architecture| assert_eq!(case.names(architecture), ["backward plain"]);
    plain(gradients_of_all(DType::F32, [1, 64, 2, 64]), Architecture::TURING);
    plain(gradients_of_all(DType::BF16, [1, 64, 2, 64]), Architecture::TURING);
    plain(gradients_of_all(DType::F16, [1, 64, 2, 12]), HOPPER);
    plain(gradients_of_all(DType::F16, [1, 64, 1, 264]), HOPPER);
    plain(gradients_of_all(DType::F32, [1, 64, 1, 164]), HOPPER);
}

#[test]
fn every_query_and_every_key_has_one_place_in_the_grids_of_gradients() {
    let case = gradients_of_all(DType::F16, [3, 1000, 2, 256]);
    let offered = case.offered(HOPPER, KernelSet::Fused);
    for way in &offered {
        let launches = launches_of(&case, &**way);
        // For each query of each head a row of 16 bytes.
        assert_eq!(way.workspace(), 3 * 2 * 1000 * 16);
        for launch in &launches {
            let bytes = testing::struct_bytes(launch, "Problem");
            assert_eq!(i32::from_le_bytes(bytes[132..136].try_into().unwrap()), 1000);
        }
        let [rows, queries, keys] = &launches[..] else {
            assert_eq!((way.name().as_str(), launches.len()), ("backward plain", 2));
            assert_eq!(launches[1].grid[0], 2 * 6000 / 8);
            continue;
        };
        assert_eq!(rows.grid[0], 6000 / 8);
        let tile = number(queries, "QUERY_TILE");
        assert_eq!(queries.grid[0] as usize, 6 * 1000usize.div_ceil(tile));
        let (tile, slices) = (number(keys, "KEY_TILE"), number(keys, "SLICES"));
        assert_eq!((keys.grid[0] as usize, slices), (6 * 1000usize.div_ceil(tile) * 2, 2));
        let pointers = |launch: &Launch, range: std::ops::Range<usize>| launch.arguments[range].to_vec();
        let [q, k, v, dy] = [0, 1, 2, 5].map(|i| Argument::Pointer(testing::place(i)));
        let (none, room) = (DevicePointer::NULL.into(), Argument::Pointer(testing::WORKSPACE));
        assert_eq!(pointers(keys, 0..6), [q, k, v, none, dy, room]);
        let [dq, dk, dv] = [6, 7, 8].map(|i| Argument::Pointer(testing::place(i)));
        assert_eq!(pointers(queries, 6..7), [dq]);
        assert_eq!(pointers(keys, 6..8), [dk, dv]);
    }
    assert_eq!(offered.len(), 4);
}

#[test]
fn without_queries_the_gradients_of_keys_are_still_written() {
    let forward = Attention { log_sum_exp: true, ..Attention::over_positions(1, 64) };
    let ty = |dtype, shape: [usize; 3]| TensorType::new(dtype, shape);
    let (q, k) = (ty(DType::F16, [2, 0, 64]), ty(DType::F16, [2, 70, 64]));
    let inputs = vec![q.clone(), k.clone(), k, q.clone(), ty(DType::F32, [2, 0, 1]), q];
    let case = Case { op: Op::AttentionBackward(AttentionBackward { forward }), inputs };
    for way in case.offered(HOPPER, KernelSet::Fused) {
        assert_eq!(launches_of(&case, &*way).len(), 1);
    }
}

#[test]
fn gradients_spill_no_registers() {
    for architecture in [Architecture::TURING, Architecture::AMPERE, HOPPER] {
        let mut kernels = Vec::new();
        for (dtype, heads) in [(DType::F16, &[64, 128, 160, 256][..]), (DType::F32, &[40, 64, 160])] {
            for &head_dim in heads {
                let case = gradients_of_all(dtype, [1, 2304, 2, head_dim]);
                // Blocks of fewer rows have the same registers.
                let offered = case.offered(architecture, KernelSet::Fused);
                let kept = ["backward hopper", "backward 128x"];
                for way in offered.iter().filter(|way| kept.iter().any(|name| way.name().starts_with(name))) {
                    kernels.extend(launches_of(&case, &**way).into_iter().map(|launch| launch.kernel));
                }
            }
        }
        crate::testing::compile(architecture, &kernels);
    }
}

/// What hides keys may take registers as well.
#[test]
fn gradients_with_masks_spill_no_registers_on_hopper() {
    let mut kernels = Vec::new();
    for mask in [Mask::Causal { diagonal: 0 }, Mask::Boolean, Mask::Additive] {
        for head_dim in [64, 128] {
            let op = Attention { mask, boundaries: true, ..Attention::over_positions(1, head_dim) };
            let case = gradients(DType::BF16, [1, 641, 1, head_dim], op);
            let offered = case.offered(HOPPER, KernelSet::Fused);
            let launches = launches_of(&case, &*offered[0]);
            kernels.extend(launches.into_iter().map(|launch| Kernel { hot: true, ..launch.kernel }));
        }
    }
    crate::testing::compile(HOPPER, &kernels);
}
