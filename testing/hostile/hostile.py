#!/usr/bin/env python3
"""Drives the program with thousands of hostile cases, and counts what goes wrong.

    python3 testing/hostile/hostile.py --program target/release/kinora --cases 12000 --out result.json

Each case has a folder of its own, and is made from the seed and its number alone: `--only NUMBER` runs one again,
and keeps its folder. Needs Python 3.10 and nothing else; without the repository, give `--photos` and `--corpus`.
README.md says what is checked.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from cases import KINDS, by_number
from room import Room, Supplies
from run import execute
from verdict import FAULTS, judge

HERE = Path(__file__).resolve().parent
SHOWN = 40


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True, help="the program")
    parser.add_argument("--cases", type=int, default=12_000, help="how many cases [12000]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time [all cores]")
    parser.add_argument("--seed", type=int, default=19, help="another seed gives other cases [19]")
    parser.add_argument("--kind", help=f"only cases of one kind: {', '.join(KINDS)}")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one case; its folder is kept")
    parser.add_argument("--out", type=Path, help="write the counts and the failed cases as JSON")
    parser.add_argument("--photos", type=Path, default=HERE / "../../golden/photos", help="a folder of small photos")
    parser.add_argument("--corpus", type=Path, default=HERE / "../../fuzz/corpus", help="the fuzz targets' corpus")
    return parser.parse_args()


def one(work: tuple[Supplies, int, str | None, bool]) -> dict:
    """Runs a case and returns what is to be known of it."""
    supplies, number, kind, keep = work
    kind, make, random = by_number(supplies.seed, number, kind)
    with Room(supplies, number, keep) as room:
        run = make(room, random)
        room.remember()
        outcome = execute(run, room)
        faults = judge(run, outcome, room)
        return {
            "number": number,
            "kind": kind,
            "what": run.what,
            "command": [os.fsdecode(word) for word in run.words],
            "exit": outcome.exits[0],
            "seconds": round(outcome.seconds, 3),
            "peak_mb": outcome.peak_mb,
            "faults": faults,
            "stderr": outcome.stderr[-600:].decode(errors="backslashreplace") if faults else "",
        }


def table(results: list[dict]) -> str:
    """The counts for each kind of case."""
    names = "".join(f"{fault:>13}" for fault in FAULTS)
    lines = [f"{'kind':<14}{'cases':>7}{names}{'slowest':>10}{'peak MB':>9}"]
    for kind in [*KINDS, None]:
        of_kind = [result for result in results if kind in (None, result["kind"])]
        if not of_kind:
            continue
        counts = Counter(fault for result in of_kind for fault in {fault for fault, _ in result["faults"]})
        cells = "".join(f"{counts[fault]:>13}" for fault in FAULTS)
        slowest = max(result["seconds"] for result in of_kind)
        peak = max(result["peak_mb"] for result in of_kind)
        lines.append(f"{kind or 'all':<14}{len(of_kind):>7}{cells}{slowest:>9.1f}s{peak:>9}")
    return "\n".join(lines)


def report(results: list[dict], options: argparse.Namespace, seconds: float) -> dict:
    """What is written as JSON."""
    counts = Counter(fault for result in results for fault in {fault for fault, _ in result["faults"]})
    return {
        "cases": len(results),
        "seed": options.seed,
        "seconds": round(seconds, 1),
        "counts": {fault: counts[fault] for fault in FAULTS},
        "kinds": dict(Counter(result["kind"] for result in results)),
        "exits": dict(Counter(str(result["exit"]) for result in results)),
        "failed": [result for result in results if result["faults"]],
    }


def main() -> int:
    options = arguments()
    numbers = range(options.cases) if options.only is None else [options.only]
    root = Path(tempfile.mkdtemp(prefix="kinora-hostile-"))
    started = time.monotonic()
    try:
        supplies = Supplies.prepare(options.program, options.photos, options.corpus, root, options.seed)
        work = [(supplies, number, options.kind, options.only is not None) for number in numbers]
        with multiprocessing.Pool(options.jobs) as pool:
            results = []
            for result in pool.imap_unordered(one, work, chunksize=4):
                results.append(result)
                if result["faults"] and sum(bool(known["faults"]) for known in results) <= SHOWN:
                    print(f"case {result['number']} ({result['kind']}, {result['what']}): {result['faults']}")
                    print("   ", " ".join(result["command"])[:300])
        spoiled = supplies.spoiled()
    finally:
        if options.only is None:
            shutil.rmtree(root, ignore_errors=True)
        else:
            print("kept:", root)
    results.sort(key=lambda result: result["number"])
    print(table(results))
    summary = report(results, options, time.monotonic() - started)
    summary["spoiled_supplies"] = spoiled
    if options.out:
        options.out.write_text(json.dumps(summary, indent=1) + "\n")
    failed = len(summary["failed"])
    print(f"{len(results)} cases in {summary['seconds']:.0f} s: {failed} failed; supplies changed: {spoiled or 'none'}")
    return 1 if failed or spoiled else 0


if __name__ == "__main__":
    sys.exit(main())
