"""Times and memory of each stage in PyTorch, eager and compiled.

Entries of `<out>/times.json` are `<mode>.<precision>.<stage>`.
"""

import json
import os
import signal
import subprocess
import sys
import time

import torch

import measure
import svd_stages

# Memory formats of the weights of 2D and 3D convolutions, by their rank; activations follow them.
LAYOUTS = {
    "contiguous": {},
    "channels_last": {4: torch.channels_last, 5: torch.channels_last_3d},
}


def lay_out(network, layout):
    """Lays out the weights of a network's convolutions."""
    for parameter in network.parameters():
        if parameter.dim() in LAYOUTS[layout]:
            parameter.data = parameter.data.contiguous(memory_format=LAYOUTS[layout][parameter.dim()])


def stage(model, name, compiled, layout):
    """The first call's seconds, the time of the later ones, and the memory of all."""
    device = model.device
    for network in model.networks(name):
        lay_out(network, layout)
    memory = measure.Memory(device)
    with torch.inference_mode():
        run = model.stage(name, torch.compile if compiled else lambda function: function)
        measure.synchronise(device)
        start = time.perf_counter()
        run()
        measure.synchronise(device)
        first = time.perf_counter() - start
        # A pipeline warms its networks up by itself.
        entry = measure.times(run, device, warm_up=0 if name == "pipeline" else measure.WARM_UP)
    return entry | {"first_call_s": first, "layout": layout} | memory.peak()


def key(mode, precision, name, layout):
    return f"{mode}.{precision}.{name}" + ("" if layout == "contiguous" else f".{layout}")


def say(entry_key, entry):
    if "failed" in entry:
        print(f"{entry_key}: {entry['failed']}", flush=True)
        return
    peak = entry.get("peak_allocated_bytes", entry.get("peak_resident_bytes", 0)) / 1e9
    first = entry["first_call_s"]
    print(f"{entry_key}: {entry['median_ms']:.2f} ms, first call {first:.1f} s, {peak:.2f} GB", flush=True)


def eager(out, folder, size, precision, stages, device, decode_chunk, layout):
    for name in stages:
        model = svd_stages.Model(folder, size, precision, device, decode_chunk)
        entry = measure.attempt(stage, model, name, False, layout)
        del model
        measure.release(device)
        entry_key = key("eager", precision, name, layout)
        measure.add(out / "times.json", entry_key, entry)
        say(entry_key, entry)


def compiled_alone(folder, size, precision, name, device, decode_chunk, layout):
    """One stage compiled, in this process: prints its entry as the last line."""
    model = svd_stages.Model(folder, size, precision, device, decode_chunk)
    print(json.dumps(measure.attempt(stage, model, name, True, layout)), flush=True)


def compiled(out, precision, stages, layout, arguments, limit):
    """Each stage compiled in a process of its own, which is ended after the limit: compiling can take minutes."""
    for name in stages:
        command = [sys.executable, *arguments, "--compiled-alone", name]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=limit)
            lines = output.strip().splitlines()
            if process.returncode == 0 and lines:
                entry = json.loads(lines[-1])
            else:
                entry = {"failed": f"the process ended with status {process.returncode}; its messages are above"}
        except subprocess.TimeoutExpired:
            # The compiler's workers belong to the same session.
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            entry = {"failed": f"did not finish in {limit} s", "limit_s": limit}
        entry_key = key("compile", precision, name, layout)
        measure.add(out / "times.json", entry_key, entry)
        say(entry_key, entry)
