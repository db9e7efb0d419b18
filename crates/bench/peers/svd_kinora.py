"""`kinora generate` as a person starts it, at full size on a GPU: seconds from the start of the process, and the
driver's memory.

    python svd_kinora.py --out FOLDER --kinora PROGRAM [--cases cold,warm,tune,tuned,limited] [--limit 14GB]

The model and the photo are those that `svd_gpu.py --parts model,reference` wrote into the same folder. The cases,
in this order:

    cold      with an empty cache of kernels, which are chosen by shape alone
    warm      the same again, with the kernels that the first one compiled
    tune      measures kernels first, and saves the choice
    tuned     with the saved choice
    limited   the same within `--limit` of memory

`<out>/kinora.json` has, by case, the seconds until the first denoising step was done and until the clip was
written; the seconds of reading weights before that step; the peak of the driver's memory, less what other programs
had before; and Kinora's own report.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time

import measure

CASES = ("cold", "warm", "tune", "tuned", "limited")
STEPS, SEED = 10, 20


class DriverMemory:
    """Polls the memory that the driver has given to all programs, while a block runs."""

    def __enter__(self):
        self.bytes = []
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--loop-ms=50"]
        self.process = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
        first = threading.Event()
        self.reader = threading.Thread(target=self.read, args=(first,))
        self.reader.start()
        if not first.wait(20):
            raise SystemExit("nvidia-smi does not answer")
        return self

    def read(self, first):
        for line in self.process.stdout:
            self.bytes.append(int(line) * 2**20)
            first.set()

    def __exit__(self, *_):
        self.process.terminate()
        self.reader.join()

    def most(self):
        """The peak, less the memory at the beginning."""
        return max(self.bytes) - self.bytes[0]


def run(command, environment):
    """Runs a program; returns its standard output, and the lines of standard error with their times."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    lines = []

    def read():
        for line in process.stderr:
            lines.append((time.perf_counter() - start, line.rstrip()))

    reader = threading.Thread(target=read)
    reader.start()
    output = process.stdout.read()
    code = process.wait()
    seconds = time.perf_counter() - start
    reader.join()
    return code, seconds, output, lines


def weights_seconds(report):
    """Seconds of reading weights before the first step."""
    loads = [load for load in report["loads"] if "decoder" not in load["part"]]
    return sum(load["gpu"]["weights_seconds"] for load in loads)


def case(arguments, name):
    out, cache = arguments.out, arguments.out / "kinora-cache"
    if name == "cold":
        shutil.rmtree(cache, ignore_errors=True)
    options = {
        "cold": ["--tuning", "off"],
        "warm": ["--tuning", "off"],
        "tune": ["--tuning", "all"],
        "tuned": [],
        "limited": ["--memory-limit", arguments.limit],
    }[name]
    model, photo = out / f"model-{arguments.size}", out / "reference" / "photo.png"
    command = [str(arguments.kinora), "generate", str(photo), "-o", str(out / f"{name}.y4m"), "--force", "--json", "-v"]
    command += ["--model", str(model), "--steps", str(STEPS), "--seed", str(SEED), "--device", "cuda", *options]
    with DriverMemory() as memory:
        code, seconds, output, lines = run(command, os.environ | {"KINORA_CACHE_DIR": str(cache)})
    if code != 0:
        return {"failed": "\n".join(line for _, line in lines), "command": command}
    report = json.loads(output)["report"]
    first = next(at for at, line in lines if re.search(r"step 1/", line))
    reading = weights_seconds(report)
    return {
        "command": command,
        "first_step_s": first,
        "first_step_beyond_weights_s": first - reading,
        "weights_s": reading,
        "written_s": seconds,
        "driver_peak_bytes": memory.most(),
        "report": report,
        "lines": [f"{at:.3f} {line}" for at, line in lines],
    }


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = arguments.add_argument
    add("--out", type=pathlib.Path, required=True, help="the folder that svd_gpu.py wrote")
    add("--kinora", type=pathlib.Path, required=True, help="the program")
    add("--cases", default=",".join(CASES))
    add("--size", choices=("tiny", "small", "full"), default="full")
    add("--limit", default="14GB", help="the memory of the case `limited`")
    arguments = arguments.parse_args()
    for name in arguments.cases.split(","):
        if name not in CASES:
            raise SystemExit(f"there is no case {name!r}: choose from {', '.join(CASES)}")
        found = case(arguments, name)
        measure.add(arguments.out / "kinora.json", name, found)
        if "failed" in found:
            print(f"{name}: failed: {found['failed']}", flush=True)
            continue
        steps = found["report"]["step_seconds"]
        print(
            f"{name}: first step after {found['first_step_s']:.2f} s"
            f" ({found['first_step_beyond_weights_s']:.2f} s beyond weights), clip after {found['written_s']:.2f} s,"
            f" steps of {min(steps):.3f} to {max(steps):.3f} s, {found['driver_peak_bytes'] / 1e9:.2f} GB on the GPU",
            flush=True,
        )


if __name__ == "__main__":
    main()
