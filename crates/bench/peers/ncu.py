"""Nsight Compute on the command line: where it is, its version, and the tables that it prints."""

import csv
import io
import os
import pathlib
import shutil
import subprocess


class ProfilerError(Exception):
    """A failure that the message explains."""


def find_profiler():
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    places = [pathlib.Path(home) / "bin/ncu" for home in homes if home]
    places += sorted(pathlib.Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    for place in [shutil.which("ncu"), *places]:
        if place and pathlib.Path(place).is_file():
            return str(place)
    raise ProfilerError("ncu was not found; give its path with --ncu")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = (done.stdout + done.stderr).strip().splitlines()
        raise ProfilerError(f"{' '.join(map(str, command[:6]))} … failed: " + " / ".join(words[-4:]))
    return done.stdout


def version(ncu):
    return run([ncu, "--version"]).strip().splitlines()[-1]


def number(text):
    """A number as the profiler prints it, with commas; `None` if it is not a number."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def read_csv(text):
    """The kernels of the profiler's table in order, each with its metrics."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise ProfilerError("the profiler printed no table: " + " / ".join(lines[-4:]))
    kernels = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        if not (row.get("ID") or "").isdigit():
            continue
        kernel = kernels.setdefault(int(row["ID"]), {"kernel": row["Kernel Name"], "metrics": {}})
        kernel["metrics"][row["Metric Name"]] = number(row["Metric Value"] or "")
    return [kernels[i] for i in sorted(kernels)]
