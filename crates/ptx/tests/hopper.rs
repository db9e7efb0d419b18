//! Hopper's own instructions, in every layout, against sums in f64.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod support;

use half::f16;
use kinora_ptx::{Argument, LaunchConfig, MapElement, Swizzle, TensorMap, TensorMapKind};
use support::{Bench, compile, random};

const HEAD: &str = "#include \"hopper.cuh\"\n";

/// A map of a matrix of f16, copied in boxes.
fn map(address: u64, width: u64, height: u64, tile: [u32; 2], swizzle: Swizzle) -> Argument {
    Argument::TensorMap(TensorMap {
        address,
        element: MapElement::F16,
        rank: 2,
        extents: [width, height, 1, 1, 1],
        strides: [2 * width, 0, 0, 0],
        element_strides: [1; 5],
        kind: TensorMapKind::Tiled { tile: [tile[0], tile[1], 1, 1, 1] },
        swizzle,
        nan_outside: false,
    })
}

/// One product m64n64k16 of operands that the TMA brings, in a swizzle of so many elements a row; b transposed or
/// not. The descriptors are written as CUTLASS writes them.
fn product(swizzle: Swizzle, transposed: bool, negative: bool) {
    let mode = match swizzle {
        Swizzle::Bytes128 => 1u64,
        Swizzle::Bytes64 => 2,
        Swizzle::Bytes32 => 3,
        Swizzle::None => 0,
    };
    let width = swizzle.bytes() / 2;
    // Rows along the depth are 16 elements or as wide as the swizzle; b transposed has its rows along the columns.
    let (depth, sign) = (width.max(16), if negative { -1 } else { 1 });
    let boxes = 64 / width;
    let source = format!(
        r#"{HEAD}
extern "C" __global__ void __launch_bounds__(128, 1)
    k(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float *y) {{
    extern __shared__ __align__(1024) u8 shared[];
    u32 at = shared_address(shared), bar = at + 32768;
    if (threadIdx.x == 0) {{
        mbarrier_init(bar, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(bar, {bytes});
        tma_load_2d(at, a, bar, 0, 0);
        if ({transposed}) for (int i = 0; i < {boxes}; i++) tma_load_2d(at + 16384 + i * {atom}, b, bar, i * {width}, 0);
        else tma_load_2d(at + 16384, b, bar, 0, 0);
    }}
    __syncthreads();
    mbarrier_wait_parity(bar, 0);
    auto descriptor = [](u32 address, u32 leading, u32 stride) {{
        return u64((address & 0x3ffff) >> 4) | u64(leading >> 4) << 16 | u64(stride >> 4) << 32 | {mode}ull << 62;
    }};
    u64 da = descriptor(at, 16, {stride});
    u64 db = {transposed} ? descriptor(at + 16384, {atom}, {stride}) : descriptor(at + 16384, 16, {stride});
    float sum[32];
    for (int i = 0; i < 32; i++) sum[i] = 1.0f;
    wgmma_fence();
    asm volatile("{{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {{" SUM_NAMES_32 "}}, %32, %33, add, {sign}, 1, 0, {transpose};\n}}\n"
        : SUM_32 : "l"(da), "l"(db));
    wgmma_commit_group();
    wgmma_wait_group<0>();
    pin_registers(sum);
    int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    for (int i = 0; i < 32; i++) y[(row + i / 2 % 2 * 8) * 64 + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = sum[i];
}}"#,
        bytes = 64 * 2 * depth + if transposed { 16 * 128 } else { 64 * 2 * depth },
        atom = 16 * swizzle.bytes(),
        stride = 8 * swizzle.bytes(),
        transpose = u32::from(transposed),
        transposed = u32::from(transposed),
    );
    let Some(ptx) = compile("product.cu", &source, "", "90a") else { return };
    let mut bench = Bench::new(&ptx, "90a");
    let a = random(64 * depth, 1);
    let b = random(64 * depth.max(64), 2);
    let (a_at, b_at) = (bench.halves(&a), bench.halves(&b));
    let y = bench.simulator.allocate(64 * 64 * 4).unwrap();
    let map_a = map(a_at, depth as u64, 64, [depth as u32, 64], swizzle);
    let map_b = if transposed {
        map(b_at, 64, 16, [width as u32, 16], swizzle)
    } else {
        map(b_at, depth as u64, 64, [depth as u32, 64], swizzle)
    };
    let mut config = LaunchConfig::new(1, 128, vec![map_a, map_b, Argument::U64(y)]);
    config.shared_bytes = 32768 + 16;
    bench.clean_launch(&config);
    let sums = bench.read_singles(y, 64 * 64);
    for row in 0..64 {
        for column in 0..64 {
            let term = |i: usize| {
                let b = if transposed { b[i * 64 + column] } else { b[column * depth + i] };
                f64::from(a[row * depth + i]) * f64::from(b)
            };
            let exact = 1.0 + f64::from(sign) * (0..16).map(term).sum::<f64>();
            let ours = f64::from(sums[row * 64 + column]);
            assert!(
                (ours - exact).abs() < 1e-5,
                "{swizzle:?} {transposed}: row {row}, column {column}: {ours}, {exact}"
            );
        }
    }
}

#[test]
fn products_of_a_warpgroup_in_every_swizzle() {
    for swizzle in [Swizzle::Bytes128, Swizzle::Bytes64, Swizzle::Bytes32] {
        product(swizzle, false, false);
        product(swizzle, true, false);
    }
    product(Swizzle::Bytes128, false, true);
}

#[test]
fn pixels_of_a_convolution() {
    // The 3×3 taps of an image of 6×5 pixels and 8 channels, padded by one: 16 pixels of output at a time.
    let source = format!(
        r#"{HEAD}
extern "C" __global__ void k(const __grid_constant__ TensorMap x, u16 *y) {{
    __shared__ __align__(128) u16 s[9][16 * 8];
    __shared__ u64 bar;
    u32 b = shared_address(&bar);
    if (threadIdx.x == 0) {{
        mbarrier_init(b, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(b, 9 * 256);
        // Pixel 7 of the output on: the second row, second column.
        for (int tap = 0; tap < 9; tap++)
            asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                "[%0], [%1, {{%3, %4, %5, %6}}], [%2], {{%7, %8}};" ::"r"(shared_address(s[tap])), "l"(&x), "r"(b),
                "r"(0), "r"(0), "r"(0), "r"(0), "h"(u16(tap % 3)), "h"(u16(tap / 3)) : "memory");
    }}
    __syncthreads();
    mbarrier_wait_parity(b, 0);
    for (int i = threadIdx.x; i < 9 * 128; i += 32) y[i] = (&s[0][0])[i];
}}"#
    );
    let Some(ptx) = compile("im2col.cu", &source, "", "90a") else { return };
    let mut bench = Bench::new(&ptx, "90a");
    let (width, height, channels, images) = (6usize, 5usize, 8usize, 2usize);
    let x = random(images * height * width * channels, 3);
    let x_at = bench.halves(&x);
    let y_at = bench.simulator.allocate(9 * 256).unwrap();
    let map = Argument::TensorMap(TensorMap {
        address: x_at,
        element: MapElement::F16,
        rank: 4,
        extents: [8, 6, 5, 2, 1],
        strides: [16, 96, 480, 0],
        element_strides: [1; 5],
        kind: TensorMapKind::Im2col { lower: [-1, -1, 0], upper: [-1, -1, 0], channels: 8, pixels: 16 },
        swizzle: Swizzle::None,
        nan_outside: false,
    });
    bench.clean_launch(&LaunchConfig::new(1, 32, vec![map, Argument::U64(y_at)]));
    let ours = bench.read_halves(y_at, 9 * 128);
    // The box of corners goes from -1 to 4 in width and to 3 in height; the copies begin at (0, 0).
    let mut corners = Vec::new();
    let (mut w, mut h, mut n) = (0i64, 0i64, 0i64);
    for _ in 0..16 {
        corners.push((w, h, n));
        w += 1;
        if w >= 5 {
            (w, h) = (-1, h + 1);
        }
        if h >= 4 {
            (h, n) = (-1, n + 1);
        }
    }
    for tap in 0..9 {
        for (pixel, &(w, h, n)) in corners.iter().enumerate() {
            let (w, h) = (w + tap as i64 % 3, h + tap as i64 / 3);
            for channel in 0..8 {
                let inside = (0..6).contains(&w) && (0..5).contains(&h);
                let at = || ((n as usize * height + h as usize) * width + w as usize) * channels + channel;
                let exact = if inside { x[at()] } else { 0.0 };
                assert_eq!(
                    ours[(tap * 16 + pixel) * 8 + channel],
                    f16::from_f32(exact).to_f32(),
                    "{tap} {pixel} {channel}"
                );
            }
        }
    }
}

#[test]
fn boxes_go_back_to_the_tensor_and_stop_at_its_edge() {
    let source = format!(
        r#"{HEAD}
extern "C" __global__ void k(const __grid_constant__ TensorMap y) {{
    __shared__ __align__(128) u16 s[16 * 16];
    for (int i = threadIdx.x; i < 256; i += 32) s[i] = 0x3c00 + i;
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {{
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {{%2, %3}}], [%1];" ::"l"(&y),
            "r"(shared_address(s)), "r"(16), "r"(8) : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }}
}}"#
    );
    let Some(ptx) = compile("store.cu", &source, "", "90a") else { return };
    let mut bench = Bench::new(&ptx, "90a");
    let y = bench.simulator.upload(&vec![0; 24 * 20 * 2]).unwrap();
    bench.clean_launch(&LaunchConfig::new(1, 32, vec![map(y, 24, 20, [16, 16], Swizzle::None)]));
    let mut bytes = vec![0; 24 * 20 * 2];
    bench.simulator.copy_out(y, &mut bytes).unwrap();
    for row in 0..20usize {
        for column in 0..24usize {
            let at = 2 * (row * 24 + column);
            let ours = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let inside = row >= 8 && column >= 16;
            let expected = if inside { 0x3c00 + ((row - 8) * 16 + column - 16) as u16 } else { 0 };
            assert_eq!(ours, expected, "row {row}, column {column}");
        }
    }
}

#[test]
fn a_cluster_adds_up_in_the_memory_of_its_first_block() {
    let source = format!(
        r#"{HEAD}
extern "C" __global__ void __cluster_dims__(4, 1, 1) k(int *y) {{
    __shared__ int sum[32];
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    sum[threadIdx.x] = 0;
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
    u32 first;
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(first) : "r"(shared_address(sum + threadIdx.x)));
    asm volatile("red.shared::cluster.add.u32 [%0], %1;" ::"r"(first), "r"(rank * 100 + threadIdx.x) : "memory");
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
    if (rank == 0) y[blockIdx.x / 4 * 32 + threadIdx.x] = sum[threadIdx.x];
}}"#
    );
    let Some(ptx) = compile("cluster.cu", &source, "", "90a") else { return };
    let mut bench = Bench::new(&ptx, "90a");
    let y = bench.simulator.allocate(3 * 128).unwrap();
    bench.clean_launch(&LaunchConfig {
        cluster: [4, 1, 1],
        ..LaunchConfig::new(12, 32, vec![Argument::U64(y)])
    });
    let expected: Vec<u32> = (0..96).map(|i| 600 + 4 * (i % 32)).collect();
    assert_eq!(bench.read_words(y, 96), expected);
}
