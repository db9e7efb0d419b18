"""The simulator's counters of a kernel beside Nsight Compute's on a GPU.

    python ncu_counters.py --out FILE.json [--program PROGRAM] [--ncu NCU] [CALL…]

PROGRAM is the benchmark `simulator_on_gpu`, which is `bench/bench/simulator_on_gpu` in the bundle. For each call
that it knows, or each CALL, Nsight Compute profiles it once and the simulator counts the same launches. The file
has both with the difference, launch by launch and in all. The call `probes` launches single warps with one access
pattern each, which show if a definition differs. The file is written after every call, so that an interrupted run
keeps what it has.

A count agrees if it is within 5 %, and bank conflicts also if they differ by at most 1 % of the shared-memory
wavefronts. The exit code is 1 if a call failed or one of its counts does not agree. The calls of `probes` are
expected to differ, and do not count.
"""

import argparse
import json
import pathlib
import sys
import typing

from ncu import ProfilerError, find_profiler, read_csv, run, version

HERE = pathlib.Path(__file__).resolve().parent
SHARE, SHARE_OF_WHOLE = 0.05, 0.01

LSU = "l1tex__{}_pipe_lsu_mem_global_op_{}.sum"
WAVEFRONTS = "{}l1tex_{}data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
CONFLICTS = "{}l1tex_{}data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"


def wavefronts(ops):
    """The counts that are attributed to instructions if there are any, else those of the unit, which include the
    cycles of other traffic."""
    return [_attributed(WAVEFRONTS, ops), [WAVEFRONTS.format("", "_", ops[0])]]


def conflicts(ops):
    """The same for bank conflicts. The unit's own counts have the cycles of other traffic (TMA copies, wgmma
    operands) among both wavefronts and conflicts. So the wavefronts that no instruction accounts for are
    subtracted. If they exceed the conflicts, not all of them were such traffic, and the count is unknown."""
    unit, wavefronts_of_unit = (pattern.format("", "_", ops[0]) for pattern in (CONFLICTS, WAVEFRONTS))
    own = [unit, f"-{wavefronts_of_unit}", *_attributed(WAVEFRONTS, ops)]
    return [_attributed(CONFLICTS, ops), own, [unit]]


def _attributed(pattern, ops):
    return [pattern.format("smsp__sass_", "", op) for op in ops]


def asynchronous(what):
    """Asynchronous copies to shared memory, through the L1 cache or past it."""
    ways = [f"sm__sass_l1tex_t_{what}_pipe_lsu_mem_global_op_ldgsts_cache_{way}.sum" for way in ("access", "bypass")]
    return [[LSU.format(f"t_{what}", "ldgsts")], ways]


def traffic(name, field):
    return lambda counters: counters[name][field]


class Comparison(typing.NamedTuple):
    """A count of ours, and lists of the profiler's metrics that add up to the same; a minus subtracts. The first
    list that was collected counts."""

    name: str
    metrics: list
    ours: typing.Callable
    # Of which launches the metrics mean the same, by our counters; of others they say nothing.
    of: typing.Callable = lambda counters: True
    # The comparison, before this one, that this count is a part of: by a share of that it may differ as well.
    part_of: str | None = None


# One of the metrics that is optional may be absent.
COMPARED = [
    # Copies to shared memory are loads as well.
    Comparison("global load requests", [[LSU.format("t_requests", "ld")]], traffic("global_loads", "requests")),
    Comparison("global load sectors", [[LSU.format("t_sectors", "ld")]], traffic("global_loads", "transactions")),
    Comparison("async load sectors", asynchronous("sectors"), traffic("async_loads", "transactions")),
    Comparison("global store requests", [[LSU.format("t_requests", "st")]], traffic("global_stores", "requests")),
    Comparison("global store sectors", [[LSU.format("t_sectors", "st")]], traffic("global_stores", "transactions")),
    Comparison("shared load wavefronts", wavefronts(["ld", "ldsm"]), traffic("shared_loads", "transactions")),
    Comparison("shared store wavefronts", wavefronts(["st", "stsm"]), traffic("shared_stores", "transactions")),
    Comparison(
        "shared load conflicts",
        conflicts(["ld", "ldsm"]),
        traffic("shared_loads", "conflicts"),
        part_of="shared load wavefronts",
    ),
    Comparison(
        "shared store conflicts",
        conflicts(["st", "stsm"]),
        traffic("shared_stores", "conflicts"),
        part_of="shared store wavefronts",
    ),
    # The profiler's count includes wgmma. It also includes constants that the assembler moves through this unit, so
    # that it means nothing for a kernel without matrix instructions.
    Comparison(
        "tensor instructions",
        [["sm__inst_executed_pipe_tensor_op_hmma.sum"]],
        lambda counters: counters["matrix_instructions"],
        of=lambda counters: counters["matrix_instructions"] > 0,
    ),
]
OPTIONAL = ("_op_ldsm", "_op_stsm")

# Shown, but not judged: machine instructions are not PTX instructions, and the units' counts include more than the
# threads' accesses.
BESIDE = [
    ("instructions", "smsp__inst_executed.sum", lambda counters: sum(counters["instructions"].values())),
    ("instructions of the matrix unit", "sm__inst_executed_pipe_tensor.sum", None),
    ("warpgroups' instructions", "sm__inst_executed_pipe_tensor_op_gmma.sum", None),
    ("bulk copies", "sm__inst_executed_pipe_tma.sum", lambda counters: counters["bulk_copies"]),
    (
        "shared atomic wavefronts",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
        traffic("shared_atomics", "transactions"),
    ),
    ("shared load wavefronts of the unit", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", None),
    ("shared store wavefronts of the unit", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", None),
    ("shared load conflicts of the unit", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", None),
    ("shared store conflicts of the unit", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", None),
    ("shared wavefronts of the source view", "memory_l1_wavefronts_shared", None),
    ("shared wavefronts without conflicts of the source view", "memory_l1_wavefronts_shared_ideal", None),
    ("sectors read from the second level", "lts__t_sectors_srcunit_tex_op_read.sum", None),
]
# On every chip that the profiler knows.
CERTAIN = {LSU.format(f"t_{what}", op) for what in ("requests", "sectors") for op in ("ld", "st")} | {
    "smsp__inst_executed.sum",
    *(pattern.format("", "_", op) for pattern in (WAVEFRONTS, CONFLICTS) for op in ("ld", "st")),
}


def known_metrics(ncu):
    """The metrics that the profiler knows on this GPU, without the suffix after the dot; empty if it lists none."""
    names = set()
    for words in (["--query-metrics"], ["--query-metrics", "--query-metrics-collection", "launch"]):
        try:
            lines = run([ncu, *words]).splitlines()
        except ProfilerError:
            continue
        names |= {line.split()[0] for line in lines if "__" in line or line.startswith("memory_")}
    return names


def wanted_metrics(known):
    """The metrics of all comparisons that the profiler knows here."""
    wanted = {
        metric.removeprefix("-") for comparison in COMPARED for metrics in comparison.metrics for metric in metrics
    }
    wanted |= {metric for _, metric, _ in BESIDE}
    return sorted(metric for metric in wanted if metric in CERTAIN or metric.split(".")[0] in known)


def profile(ncu, program, call, metrics):
    words = [ncu, "--csv", "--print-units", "base", "--clock-control", "none", "--metrics", ",".join(metrics)]
    return read_csv(run([*words, str(program), "--launch", call]))


def compare(theirs, ours, whole=None):
    """Two counts side by side. A part of a whole also agrees if it differs little compared with the whole."""
    if theirs is None:
        return {"ncu": None, "simulator": ours, "difference": None, "agrees": None}
    apart = ours - theirs
    difference = 0.0 if apart == 0 else apart / theirs if theirs else None
    agrees = difference is not None and abs(difference) <= SHARE
    if whole:
        agrees = agrees or abs(apart) <= SHARE_OF_WHOLE * whole
    return {"ncu": theirs, "simulator": ours, "difference": difference, "agrees": agrees}


def total(metrics, lists):
    """The sum of the first list whose metrics were all collected, except optional ones; `None` if there is none."""
    for terms in lists:
        signs = {term.removeprefix("-"): -1 if term.startswith("-") else 1 for term in terms}
        signs = {
            name: sign for name, sign in signs.items() if name in metrics or not any(part in name for part in OPTIONAL)
        }
        values = {name: metrics.get(name) for name in signs}
        if None not in values.values():
            count = sum(sign * values[name] for name, sign in signs.items())
            return count if count >= 0 else None
    return None


def compare_launch(metrics, counters):
    found = {}
    for comparison in COMPARED:
        theirs = total(metrics, comparison.metrics) if comparison.of(counters) else None
        whole = found[comparison.part_of]["ncu"] if comparison.part_of else None
        found[comparison.name] = compare(theirs, comparison.ours(counters), whole)
    beside = {
        name: {"ncu": metrics[metric], "simulator": ours(counters) if ours else None}
        for name, metric, ours in BESIDE
        if metric in metrics
    }
    return {"compared": found, "beside": beside}


def compare_together(launches, counters):
    """The launches of a call together; each count over the launches that it applies to."""
    found = {}
    for comparison in COMPARED:
        parts = [
            launch["compared"][comparison.name]
            for launch, own in zip(launches, counters, strict=True)
            if comparison.of(own)
        ]
        theirs = add_up([part["ncu"] for part in parts]) if parts else None
        whole = found[comparison.part_of]["ncu"] if comparison.part_of else None
        found[comparison.name] = compare(theirs, sum(part["simulator"] for part in parts), whole)
    return {"compared": found, "beside": add_up([launch["beside"] for launch in launches])}


def add_up(launches):
    """The sums of nested dictionaries of numbers; a number that one of them lacks is `None`."""
    first = launches[0]
    if isinstance(first, dict):
        return {key: add_up([launch.get(key) for launch in launches]) for key in first}
    if isinstance(first, list):
        return [sum(values) for values in zip(*launches, strict=True)]
    return None if None in launches else sum(launches)


def compare_call(ncu, program, call, metrics):
    counted = json.loads(run([str(program), "--counters", call]))
    try:
        kernels = profile(ncu, program, call, metrics)
    except ProfilerError as failure:
        # A metric that cannot be collected here after all must not cost the others.
        print(f"{call}: {failure}; trying again with fewer metrics", file=sys.stderr)
        kernels = profile(ncu, program, call, sorted(CERTAIN))
    # The driver's own launches do not belong to the call.
    entries = {launch["entry"] for launch in counted["launches"]}
    kernels = [kernel for kernel in kernels if kernel["kernel"].split("(")[0] in entries]
    if len(kernels) != len(counted["launches"]):
        raise ProfilerError(f"the profiler saw {len(kernels)} launches, and the simulator {len(counted['launches'])}")
    launches = [
        {"kernel": ours["kernel"], **compare_launch(theirs["metrics"], ours["counters"])}
        for theirs, ours in zip(kernels, counted["launches"], strict=True)
    ]
    metrics = add_up([theirs["metrics"] for theirs in kernels])
    whole = compare_together(launches, [ours["counters"] for ours in counted["launches"]])
    return {"way": counted["way"], "chip": counted["chip"], **whole, "metrics": metrics, "launches": launches}


def summary(calls):
    """For each comparison, in how many calls both count something, in how many they agree, and those that differ."""
    totals = {}
    for name in (comparison.name for comparison in COMPARED):
        counts = {
            call: result["compared"][name]
            for call, result in calls.items()
            if call != "probes" and "compared" in result
        }
        counts = {call: c for call, c in counts.items() if c["agrees"] is not None and (c["ncu"] or c["simulator"])}
        apart = {call: c["difference"] for call, c in counts.items() if not c["agrees"]}
        totals[name] = {"calls": len(counts), "agree": len(counts) - len(apart), "apart": apart}
    return totals


def show(call, result):
    if "failed" in result:
        return f"{call}: {result['failed']}"
    lines = [f"{call} ({result['way']})"]
    for name, counts in result["compared"].items():
        if counts["ncu"] or counts["simulator"]:
            theirs = "unknown" if counts["ncu"] is None else f"{counts['ncu']:.0f}"
            difference = "" if counts["difference"] is None else f"{100 * counts['difference']:+.1f} %"
            mark = "" if counts["agrees"] is not False else " ✗"
            lines.append(f"  {name:<26} {theirs:>12} {counts['simulator']:>12} {difference:>9}{mark}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parents[2] / "bench/bench/simulator_on_gpu")
    parser.add_argument("--ncu")
    parser.add_argument("calls", nargs="*")
    arguments = parser.parse_args()
    ncu = arguments.ncu or find_profiler()
    program = arguments.program.resolve()
    if not program.is_file():
        raise ProfilerError(f"{program} does not exist; give the path of the benchmark simulator_on_gpu with --program")
    metrics = wanted_metrics(known_metrics(ncu))
    profiler, calls = version(ncu), {}
    names = arguments.calls or json.loads(run([str(program), "--counters", "list"]))
    for call in names:
        try:
            calls[call] = compare_call(ncu, program, call, metrics)
        except ProfilerError as failure:
            calls[call] = {"failed": str(failure)}
        print(show(call, calls[call]), flush=True)
        document = {"profiler": profiler, "metrics": metrics, "summary": summary(calls), "calls": calls}
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")
    totals = summary(calls)
    for name, counts in totals.items():
        print(f"{name:<26} {counts['agree']} of {counts['calls']} calls agree")
    if not any(counts["calls"] for counts in totals.values()):
        raise ProfilerError("nothing was compared")
    failed = any("failed" in result for result in calls.values())
    return 1 if failed or any(counts["apart"] for counts in totals.values()) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ProfilerError as failure:
        sys.exit(f"ncu_counters: {failure}")
