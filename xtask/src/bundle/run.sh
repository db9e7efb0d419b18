#!/usr/bin/env bash
# Runs what this folder holds on a GPU host without a Rust toolchain. `cargo xtask bundle` made it.
set -u
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

usage() {
    cat <<'TEXT'
run kinora WORDS…            the command line; `run kinora bench` measures, with the host's PyTorch as the peer
run tests [WORDS…]           every test executable; the words go to each: a filter, --nocapture, --test-threads=1, …
run sanitizer TOOL [WORDS…]  the same under compute-sanitizer; TOOL is memcheck, racecheck, initcheck or synccheck;
                             SHARES processes divide the kernels among them, as many as there are cores unless given
run bench [WORDS…]           every benchmark; the words go to each
run peers WORDS…             crates/bench/peers/svd_gpu.py; --help lists its options
run live WORDS…              crates/bench/peers/live_gpu.py: a frame of live video in PyTorch; --help lists its options
run simulator [WORDS…]       every kernel in the simulator and on the GPU, compared bit by bit; a table's name, --json FILE, …
run counters WORDS…          what the simulator counts beside Nsight Compute: crates/bench/peers/ncu_counters.py
run times WORDS…             what a profile's kernels took beside Nsight Compute: crates/bench/peers/ncu_times.py
run check                    says what of the host's libraries and Python is found

PYTHON names another interpreter than python3, CUDA_HOME another CUDA than /usr/local/cuda, ONLY a pattern that the names
of executables must match, as in `ONLY='gpu_g*' run tests` or `ONLY=svd_accuracy run bench --peers FOLDER`.
TEXT
}

python="${PYTHON:-python3}"
cuda="${CUDA_HOME:-/usr/local/cuda}"

# The host's CUDA first; then the libraries that came with PyTorch, where cuDNN often is.
wheels="$("$python" -c '
import importlib.util, pathlib
spec = importlib.util.find_spec("nvidia")
folders = [pathlib.Path(p) for p in (spec.submodule_search_locations if spec else [])]
print(":".join(sorted(str(lib) for folder in folders for lib in folder.glob("*/lib"))))
' 2>/dev/null)"
hosts_libraries="${LD_LIBRARY_PATH-}"
export LD_LIBRARY_PATH="$cuda/lib64:$cuda/extras/CUPTI/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}${wheels:+:$wheels}"
export PATH="$cuda/bin:$PATH"
export PYTHONUNBUFFERED=1
export RUST_BACKTRACE="${RUST_BACKTRACE:-1}"
# For the wrapper that benchmarks start their peers with. A peer loads the libraries that its PyTorch was built with, as it
# would without us.
export KINORA_PEER_PYTHON="$python" KINORA_PEER_LIBRARIES="$hosts_libraries" KINORA_PEER_PACKAGES="$here/crates/bench/peers"

# Tests look for their fixtures where the repository was when they were compiled: a link there leads here.
link_repository() {
    local built_at
    built_at="$(cat "$here/built-at")"
    if [ -L "$built_at" ] || [ ! -e "$built_at" ]; then
        if ! { mkdir -p "$(dirname "$built_at")" && ln -sfn "$here" "$built_at"; }; then
            echo "run: $built_at cannot be made a link to $here; tests will not find their fixtures" >&2
        fi
    elif [ ! -d "$built_at/testing/fixtures" ]; then
        echo "run: $built_at is there but has no fixtures, and tests look for theirs in it" >&2
    fi
}

# Runs every executable of a kind, each in its crate's folder as cargo does, and counts those that fail.
# A launcher, such as compute-sanitizer with its options, is given before `--`.
run_each() {
    local kind="$1" launcher=() failed=() ran=0 executable crate name
    shift
    while [ "$1" != -- ]; do launcher+=("$1"); shift; done
    shift
    link_repository
    for executable in "$here/$kind"/*/*; do
        [ -x "$executable" ] || continue
        name="$(basename "$executable")"
        # shellcheck disable=SC2053 # A pattern is what is meant.
        [[ "$name" == ${ONLY:-*} ]] || continue
        crate="$(basename "$(dirname "$executable")")"
        echo "── $crate/$name"
        ran=$((ran + 1))
        (cd "$here/crates/$crate" && ${launcher[@]+"${launcher[@]}"} "$executable" "$@") || failed+=("$crate/$name")
    done
    echo "── $ran executables, ${#failed[@]} failed${failed[*]:+: ${failed[*]}}"
    [ "$ran" -gt 0 ] && [ "${#failed[@]}" -eq 0 ]
}

# Runs the tests under a tool of compute-sanitizer. Launches from several threads make it fail of itself, so that each of its
# processes has a core to itself; they divide the kernels of gpu_ops, and the first runs everything else as well.
sanitize() {
    local tool="$1" shares="${SHARES:-$(nproc)}" only="${ONLY:-*}" share logs failed=0 process processes=()
    shift
    logs="$(mktemp -d)"
    for ((share = 0; share < shares; share++)); do
        # shellcheck disable=SC2053 # A pattern is what is meant.
        [ "$share" -eq 0 ] || [[ gpu_ops == $only ]] || break
        (
            [ "$share" -eq 0 ] || ONLY=gpu_ops
            export KINORA_TEST_SHARE="$share/$shares"
            run_each tests taskset -c "$share" compute-sanitizer --tool "$tool" --error-exitcode 86 \
                -- "$@" --test-threads=1
        ) >"$logs/$share" 2>&1 &
        processes+=($!)
    done
    for ((share = 0; share < ${#processes[@]}; share++)); do
        process="${processes[$share]}"
        wait "$process" && continue
        failed=$((failed + 1))
        cat "$logs/$share"
    done
    echo "── $tool, ${#processes[@]} processes, $failed failed"
    grep -h SUMMARY "$logs"/* | sort | uniq -c
    rm -r "$logs"
    [ "$failed" -eq 0 ]
}

check() {
    local library
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || echo "nvidia-smi does not run"
    for library in libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13 libcudnn.so.9 libcupti.so.13; do
        "$python" -c "
import ctypes, sys
try:
    ctypes.CDLL('$library')
    print('$library: found')
except OSError as error:
    print('$library: not found:', error)"
    done
    LD_LIBRARY_PATH="$hosts_libraries" "$python" "$here/crates/bench/peers/host_packages.py"
    "$here/kinora" --version
}

task="${1:-help}"
[ $# -gt 0 ] && shift
case "$task" in
kinora) exec "$here/kinora" "$@" ;;
tests)
    # Here the compiler and the GPU are there: a test that finds none has failed.
    export KINORA_REQUIRE_NVRTC=1 KINORA_REQUIRE_GPU=1
    run_each tests -- "$@"
    ;;
sanitizer)
    tool="${1:?run: which tool: memcheck, racecheck, initcheck or synccheck}"
    shift
    export KINORA_REQUIRE_NVRTC=1 KINORA_REQUIRE_GPU=1
    sanitize "$tool" "$@"
    ;;
bench)
    export KINORA_REQUIRE_GPU=1
    run_each bench -- --bench "$@"
    ;;
simulator)
    export KINORA_REQUIRE_GPU=1 ONLY=simulator_on_gpu
    run_each bench -- "$@"
    ;;
counters)
    export KINORA_REQUIRE_GPU=1
    exec "$python" "$here/crates/bench/peers/ncu_counters.py" \
        --program "$here/bench/bench/simulator_on_gpu" "$@"
    ;;
times) exec "$python" "$here/crates/bench/peers/ncu_times.py" --program "$here/kinora" "$@" ;;
live) exec "$here/.python/bin/python" "$here/crates/bench/peers/live_gpu.py" "$@" ;;
peers) exec "$here/.python/bin/python" "$here/crates/bench/peers/svd_gpu.py" "$@" ;;
check) check ;;
help | --help | -h) usage ;;
*)
    echo "run: there is no task \`$task\`" >&2
    usage >&2
    exit 2
    ;;
esac
