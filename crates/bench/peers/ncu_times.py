"""The times of a profile's kernels beside Nsight Compute's times of the same kernels.

    kinora profile run PHOTO --steps 2 --save PROFILE.json
    python ncu_times.py --profile PROFILE.json --out FILE.json -- generate PHOTO --steps 2

The words after `--` are kinora's, for the clip that was profiled. Launches with the same name are added up, and
compared if both have the same number of them. Nsight Compute runs kernels one at a time with pauses between them.
Its clock is printed beside the times, because a GPU that computes without pauses may run at a lower one.

The exit code is 1 if a kernel with a relevant share of the time differs by more than 3 %, or if less than nine
tenths of the time could be compared.
"""

import argparse
import collections
import json
import pathlib
import sys
import tempfile

from ncu import ProfilerError, find_profiler, read_csv, run, version

HERE = pathlib.Path(__file__).resolve().parent
DURATION, CLOCK = "gpu__time_duration.sum", "sm__cycles_elapsed.avg.per_second"
SHARE = 0.03
# Kernels with a smaller share of the time are printed, but not judged.
LEAST_PART = 0.005
# The share of the profile's time that must be compared; with less it is not the same clip.
LEAST_COMPARED = 0.9


def measured(ncu, program, words):
    """Nanoseconds of each launch by the kernel's name, and the mean clock in hertz."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "table.csv"
        options = ["--csv", "--print-units", "base", "--print-kernel-base", "mangled", "--log-file", str(log)]
        options += ["--clock-control", "none", "--cache-control", "none", "--metrics", f"{DURATION},{CLOCK}"]
        run([ncu, *options, str(program), *words])
        kernels = read_csv(log.read_text(encoding="utf-8"))
    times, cycles, whole = collections.defaultdict(list), 0.0, 0.0
    for kernel in kernels:
        duration, clock = (kernel["metrics"].get(metric) for metric in (DURATION, CLOCK))
        if not duration:
            raise ProfilerError(f"the profiler measured no duration of {kernel['kernel']}")
        times[kernel["kernel"].split("(")[0]].append(duration)
        if clock is not None:
            cycles, whole = cycles + clock * duration, whole + duration
    return times, cycles / whole if whole else None


def traced(profile):
    """Nanoseconds of each launch by the kernel's name, from a profile with CUPTI."""
    times = collections.defaultdict(list)
    document = json.loads(profile.read_text(encoding="utf-8"))
    if not isinstance(document, dict):
        raise ProfilerError(f"{profile} is not a profile")
    for activity in document.get("activity", []):
        if activity["kind"] == "kernel":
            times[activity["name"].split("(")[0]].append(activity["end"] - activity["start"])
    if not times:
        raise ProfilerError(f"{profile} has no kernels traced by CUPTI; `kinora doctor` says why")
    return times


def compare(ours, theirs):
    """A row for each name, the longest first, and the kernels whose numbers of launches differ."""
    whole = sum(map(sum, ours.values()))
    rows, unequal = [], {}
    for name in sorted(ours.keys() | theirs.keys(), key=lambda name: (-sum(ours.get(name, [])), name)):
        counts = len(ours.get(name, [])), len(theirs.get(name, []))
        if counts[0] != counts[1]:
            unequal[name] = dict(zip(("profile", "ncu"), counts, strict=True))
            continue
        mine, other = sum(ours[name]), sum(theirs[name])
        part, difference = mine / whole, mine / other - 1
        rows.append(
            dict(
                kernel=name, launches=counts[0], part=part, profile_nanoseconds=mine, ncu_nanoseconds=other,
                difference=difference, agrees=abs(difference) <= SHARE if part >= LEAST_PART else None,
            )
        )  # fmt: skip
    return rows, unequal


def summary(rows):
    """How many of the judged kernels agree, and the difference of all together."""
    judged = [row for row in rows if row["agrees"] is not None]
    mine, other = (sum(row[name] for row in rows) for name in ("profile_nanoseconds", "ncu_nanoseconds"))
    return dict(
        compared=sum(row["part"] for row in rows), difference=mine / other - 1, judged=len(judged),
        agree=sum(row["agrees"] for row in judged),
    )  # fmt: skip


def show(document):
    for row in document["kernels"]:
        mark = {True: "", False: " ✗", None: " ·"}[row["agrees"]]
        microseconds = (row[name] / row["launches"] / 1e3 for name in ("profile_nanoseconds", "ncu_nanoseconds"))
        times = " ".join(f"{time:10.2f} µs" for time in microseconds)
        print(f"{row['kernel'][:60]:<60} {row['launches']:>6} {times} {100 * row['difference']:+7.2f} %{mark}")
    for name, counts in document["unequal"].items():
        print(f"{name[:60]:<60} not compared: {counts['profile']} launches in the profile, {counts['ncu']} by ncu")
    totals, clock = document["summary"], document["ncu_clock_hertz"]
    print(
        f"{100 * totals['compared']:.1f} % of the profile's time compared: {100 * totals['difference']:+.2f} % in all; "
        f"{totals['agree']} of {totals['judged']} kernels within {100 * SHARE:.0f} %"
        + (f"; the profiler's clock {clock / 1e6:.0f} MHz" if clock else "")
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--profile", type=pathlib.Path, required=True, help="a file that `kinora profile run --save` wrote"
    )
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parents[2] / "kinora")
    parser.add_argument("--ncu")
    parser.add_argument("words", nargs="+", help="the words of kinora, after --")
    arguments = parser.parse_args()
    ncu = arguments.ncu or find_profiler()
    if not arguments.program.is_file():
        raise ProfilerError(f"{arguments.program} does not exist; give the path of kinora with --program")
    ours = traced(arguments.profile)
    theirs, clock = measured(ncu, arguments.program.resolve(), arguments.words)
    rows, unequal = compare(ours, theirs)
    if not rows:
        raise ProfilerError("the profile and the profiler have no kernel in common: is it the same clip?")
    document = dict(profiler=version(ncu), ncu_clock_hertz=clock, summary=summary(rows), kernels=rows, unequal=unequal)
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    show(document)
    totals = document["summary"]
    if totals["compared"] < LEAST_COMPARED:
        raise ProfilerError("the profile and the profiler have too few launches in common: is it the same clip?")
    return 0 if totals["agree"] == totals["judged"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ProfilerError, OSError, ValueError, KeyError, TypeError) as failure:
        sys.exit(f"ncu_times: {failure}")
