"""Times, memory, and the JSON files that they are written to."""

import gc
import json
import statistics
import time
import traceback

import torch

# Runs of a measurement: at least and at most; and the seconds after which it ends.
LEAST, MOST, SECONDS = 3, 30, 10.0
WARM_UP = 2
# More than any GPU's L2 cache.
FLUSHED_BYTES = 256 << 20


def add(path, key, value):
    """Sets one entry of a JSON file immediately, so that an interrupted run keeps it."""
    contents = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    contents[key] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def environment(device):
    """The versions and the device."""
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
    """The driver's version by nvidia-smi; `None` if that does not run."""
    import subprocess

    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def attempt(function, *arguments):
    """The function's result, or `{"failed": why}`: one failure must not end the run."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - libraries raise anything; the log has the traceback.
        text = f"{type(error).__name__}: {error}".splitlines()[0][:400]
        # That a kernel refuses a shape is expected; anything else is not.
        if "No viable backend" not in text:
            traceback.print_exc()
        return {"failed": text}


def synchronise(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device):
    """Returns unused memory to the driver."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def once(function, device, before=lambda: None):
    """The milliseconds of one call, by events on a GPU. `before` is not counted."""
    if device.type != "cuda":
        before()
        start = time.perf_counter()
        function()
        return 1e3 * (time.perf_counter() - start)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    # `before` keeps the device busy while the call is launched, so that the time does not include the launch.
    before()
    start.record()
    function()
    end.record()
    torch.cuda.synchronize(device)
    return start.elapsed_time(end)


def times(function, device, before=lambda: None, warm_up=WARM_UP):
    """Milliseconds of repeated calls: the median, the least, and how many there were."""
    for _ in range(warm_up):
        function()
    synchronise(device)
    measured, since = [], time.perf_counter()
    while len(measured) < LEAST or (len(measured) < MOST and time.perf_counter() - since < SECONDS):
        measured.append(once(function, device, before))
    return {"median_ms": statistics.median(measured), "least_ms": min(measured), "runs": len(measured)}


class Flush:
    """Flushes the L2 cache. Called before a run, so that its operands come from memory, as in a network."""

    def __init__(self, device):
        self.buffer = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device=device) if device.type == "cuda" else None

    def __call__(self):
        if self.buffer is not None:
            self.buffer.zero_()


class Memory:
    """The peak of memory since it was made: PyTorch's own figures, and the driver's for all programs."""

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
            # PyTorch keeps its memory, so that this is a peak as well, with the context and other programs.
            "driver_used_bytes": total - free,
        }
