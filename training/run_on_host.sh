#!/usr/bin/env bash
# Trains on a GPU host that may lack packages and may end a run early: give the same command again to resume.
#
#     training/run_on_host.sh RESULTS [options of train.py]
#
# RESULTS receives the model, its evaluation and pictures as a tar file in parts of PART bytes, small enough to be sent
# anywhere: `cat training.tar.* | tar x` unpacks them. PACKAGES is the folder that crates/bench/peers/pack_packages.py wrote,
# STATE is where checkpoints are kept between runs.
set -euo pipefail
cd "$(dirname "$0")/.."
results=$1
shift
packages=${PACKAGES:-target/training-packages}
state=${STATE:-/tmp/kinora-training}
mkdir -p "$results" "$state/out"
results=$(cd "$results" && pwd)

collect() {
    rm -f "$results"/training.tar.*
    tar cf - -C "$state/out" . | split -b "${PART:-15M}" -d - "$results/training.tar."
}
trap collect EXIT

options=()
if [ -f "$packages/packages.json" ]; then options=(--packages "$packages"); fi
PYTHONUNBUFFERED=1 PYTHONPATH=training:crates/bench/peers \
    python3 -m kinora_training.train --out "$state/out" --work "$state/work" "${options[@]}" "$@" 2>&1 \
    | tee -a "$state/out/console.txt"
