//! What is offered, and the launches: without a device.

use kinora_graph::{
    DType, Op, TensorType,
    op::{Attention, Mask},
};

use super::implementations;
use crate::kernels::in_place;
use crate::{
    Architecture, Chip,
    kernels::{Argument, Call, DevicePointer, Implementation, KernelSet, Launch, Places, TensorMap, testing},
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

/// The problem's 12 strides, 2 mask strides and 7 counts.
fn problem(launch: &Launch) -> (Vec<i64>, Vec<i32>) {
    let bytes = testing::struct_bytes(launch, "Problem");
    assert_eq!(bytes.len(), 144);
    let strides = bytes[..112].chunks(8).map(|x| i64::from_le_bytes(x.try_into().unwrap())).collect();
    let counts = bytes[112..140].chunks(4).map(|x| i32::from_le_bytes(x.try_into().unwrap())).collect();
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
        assert_eq!(wide.arguments[6], Argument::Pointer(testing::WORKSPACE));
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
    for name in ["flash", "plain", "temporal"] {
        let launch = case.launch(HOPPER, name);
        let place = testing::place;
        let expected = [place(0), place(1).offset(256), place(2).offset(512), place(3), place(4), Y];
        assert_eq!(launch.arguments[..6], expected.map(Argument::Pointer), "{name}");
        let (strides, counts) = problem(&launch);
        let row = [384, 384, 3840];
        assert_eq!(strides, [&row[..], &row, &row, &[128, 128, 1280], &[100, 0]].concat());
        assert_eq!(counts, [4, 10, 10, 2, 1, 1, 0]);
        assert_eq!((constant(&launch, "MASK"), constant(&launch, "MASK_TYPE")), ("3", "f32"));
        assert_eq!(constant(&launch, "KEY_LENGTHS"), "1");
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
fn diagonals_of_any_size_stay_within_32_bits() {
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
fn hopper_takes_what_has_no_mask() {
    let names = Case::positions(DType::F16, [28, 9216, 5, 64]).names(HOPPER);
    assert_eq!(names[0], "hopper 192x128 in turns");
    // Few tiles: smaller ones first.
    assert_eq!(Case::positions(DType::BF16, [2, 1024, 8, 64]).names(HOPPER)[0], "hopper 128x128 in turns");
    let offers = |case: &Case| case.names(HOPPER).iter().any(|name| name.starts_with("hopper"));
    assert!(!offers(&Case::frames(DType::F16, [1, 40, 64, 2, 64])));
    let shape: &[usize] = &[1, 640, 64];
    let causal = Attention { mask: Mask::Causal { diagonal: 0 }, ..Attention::over_positions(1, 64) };
    assert!(!offers(&Case::new(causal, &[(DType::F16, shape); 3])));
    // 200 channels are no multiple of a head's.
    let odd: &[usize] = &[1, 640, 200];
    assert!(!offers(&Case::new(Attention::over_positions(1, 64), &[(DType::F16, odd); 3])));
    for head_dim in (8..=256).step_by(8) {
        let case = Case::positions(DType::BF16, [3, 1000, 2, head_dim]);
        assert!(offers(&case), "{head_dim}");
        for name in case.names(HOPPER).iter().filter(|name| name.starts_with("hopper")) {
            let launch = case.launch(HOPPER, name);
            let warpgroups = number(&launch, "WARPGROUPS");
            assert_eq!(launch.grid, [(6 * 1000usize.div_ceil(64 * warpgroups)) as u32, 1, 1]);
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
        Argument::Pointer(Y),
    ];
    assert_eq!(launch.arguments[..4], expected);
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
