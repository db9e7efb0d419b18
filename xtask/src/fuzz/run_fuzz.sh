#!/bin/sh
# Runs every fuzz target at the same time for some minutes, each on a core of its own, and packs what they found:
#   ./run_fuzz.sh MINUTES OUT
# OUT/found.tar.xz has new inputs (reduced to those that cover something new), crashes, and the end of every log.
set -eu
minutes=$1
out=$2
here=$(cd "$(dirname "$0")" && pwd)
driver=$here/kinora-fuzz-driver
mkdir -p "$out"
out=$(cd "$out" && pwd)

"$driver" > "$out/targets"
while read -r target max; do
    new=$out/corpus/$target
    crashes=$out/crashes/$target
    mkdir -p "$new" "$crashes"
    if [ -d "$here/regressions/$target" ]; then cp -r "$here/regressions/$target/." "$new/"; fi
    (
        cd "$out"
        KINORA_FUZZ_TARGET=$target "$driver" -fork=1 -ignore_crashes=1 -ignore_timeouts=1 -ignore_ooms=1 -timeout=10 \
            -rss_limit_mb=2048 -max_len="$max" -max_total_time=$((minutes * 60)) -artifact_prefix="$crashes/" \
            "$new" "$here/corpus/$target" > "$out/$target.log" 2>&1 || true
        mkdir -p "$out/found/corpus/$target"
        KINORA_FUZZ_TARGET=$target timeout 300 "$driver" -set_cover_merge=1 -timeout=20 -max_len="$max" -rss_limit_mb=4096 \
            "$out/found/corpus/$target" "$here/corpus/$target" "$new" > "$out/$target.merge.log" 2>&1 || true
    ) &
done < "$out/targets"
wait

mkdir -p "$out/found/logs" "$out/found/crashes"
cp -r "$out/crashes/." "$out/found/crashes/"
printf '%-16s %s\n' target 'last line of the log' > "$out/found/table.txt"
while read -r target _; do
    tail -n 300 "$out/$target.log" > "$out/found/logs/$target.log"
    printf '%-16s %s\n' "$target" "$(grep '^#.*cov:' "$out/$target.log" | tail -n 1)" >> "$out/found/table.txt"
done < "$out/targets"
cat "$out/found/table.txt"
find "$out/found/crashes" -type f | sort
tar -C "$out" -cJf "$out/found.tar.xz" found
ls -l "$out/found.tar.xz"
