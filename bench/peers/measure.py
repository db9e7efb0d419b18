"""Times, memory and where they are written."""

import gc
import json
import os
import statistics
import time
import traceback

import torch

# Runs of a measurement: at least and at most so many, the latter unless the seconds are spent before.
LEAST, MOST, SECONDS = 3, 30, 10.0
WARM_UP = 2
# More than any GPU's second-level cache.
FLUSHED_BYTES = 256 << 20


def add(path, key, value):
    """Sets one entry of a JSON file at once: a run that is stopped keeps what it has written."""
    contents = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    contents[key] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")
    os.replace(beside, path)


def environment(device):
    """What the numbers were measured with."""
    import platform

    import diffusers
    import transformers

    found = {
        "torch": torch.__version__,
        "diffusers": diffusers.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "device": platform.processor() or platform.machine(),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "device": properties.name,
            "multiprocessors": properties.multi_processor_count,
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "driver": driver(),
        }
    return found


def driver():
    """The driver's version as its own tool says it; `None` where that is not there."""
    import subprocess

    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def attempt(function):
    """What the function gives, or `{"failed": why}`: one thing that does not fit must not end a run."""
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - libraries throw all kinds; the whole story goes to the log.
        text = f"{type(error).__name__}: {error}".splitlines()[0][:400]
        # A kernel that refuses a shape is no news; anything else may be.
        if "No viable backend" not in text:
            traceback.print_exc()
        return {"failed": text}


def synchronise(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device):
    """Gives memory that is no longer used back to the driver."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def once(function, device, before=lambda: None):
    """The milliseconds of one call, on the device's own clock where it has one. `before` is not counted."""
    if device.type != "cuda":
        before()
        start = time.perf_counter()
        function()
        return 1e3 * (time.perf_counter() - start)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    # `before` keeps the device busy while the call is prepared, so that the time is not that of its launch.
    before()
    start.record()
    function()
    end.record()
    torch.cuda.synchronize(device)
    return start.elapsed_time(end)


def times(function, device, before=lambda: None, warm_up=WARM_UP):
    """Milliseconds of repeated calls: their median, least and number."""
    for _ in range(warm_up):
        function()
    synchronise(device)
    measured, since = [], time.perf_counter()
    while len(measured) < LEAST or (len(measured) < MOST and time.perf_counter() - since < SECONDS):
        measured.append(once(function, device, before))
    return {"median_ms": statistics.median(measured), "least_ms": min(measured), "runs": len(measured)}


class Flush:
    """Empties the second-level cache: called before a run, so that it finds its operands in memory as in a network."""

    def __init__(self, device):
        self.buffer = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device=device) if device.type == "cuda" else None

    def __call__(self):
        if self.buffer is not None:
            self.buffer.zero_()


class Memory:
    """The most memory since it was made: PyTorch's own figures, and what the driver has given to all."""

    def __init__(self, device):
        self.device = device
        if device.type == "cuda":
            release(device)
            torch.cuda.reset_peak_memory_stats(device)

    def peak(self):
        if self.device.type != "cuda":
            import resource

            return {"peak_resident_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
        free, total = torch.cuda.mem_get_info(self.device)
        return {
            "peak_allocated_bytes": torch.cuda.max_memory_allocated(self.device),
            "peak_reserved_bytes": torch.cuda.max_memory_reserved(self.device),
            # PyTorch keeps what it has taken, so that this is the most as well, with the context and other programs.
            "driver_used_bytes": total - free,
        }
