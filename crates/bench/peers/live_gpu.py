"""A frame of live video in PyTorch, from bytes to bytes on a GPU: its times, eager and compiled, and its error.

The networks are diffusers' own, with the weights and inputs of the benchmark `live_on_gpu`, which are made from their
names. That benchmark, run with `--results FOLDER`, leaves its results there; given the same folder, this script
compares both with PyTorch in f32.

    ONLY=live_on_gpu bundle/run bench 'frame, 1 step' --results /tmp/live
    bundle/run live --results /tmp/live --out /tmp/live.json
"""

import argparse
import json
import os
import pathlib
import time

import host_packages

host_packages.make_importable("missing", pathlib.Path(os.environ.get("KINORA_PEER_PACKAGES", "")))

import numpy as np  # noqa: E402
import torch  # noqa: E402

import live_models  # noqa: E402

PRESET = pathlib.Path(__file__).resolve().parents[2] / "models" / "presets" / "sd-turbo.json"


def one_step(preset, dtype, device):
    """A frame of one step, laid out as is fastest."""
    return live_models.Frame(preset, 1, dtype, device).to(memory_format=torch.channels_last)


def milliseconds(run, replays):
    """The time of each call by the GPU's clock, sorted."""
    for _ in range(20):
        run()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(replays)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) for start, end in events)


def percentiles(times):
    return {"p50_ms": times[len(times) // 2], "p99_ms": times[len(times) * 99 // 100]}


def relative_rms(result, reference):
    """The root mean square of the difference over that of the reference."""
    difference = (result.double() - reference.double()).square().mean().sqrt()
    return (difference / reference.double().square().mean().sqrt()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, help="the folder with the benchmark's own results")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--replays", type=int, default=200)
    parser.add_argument("--no-compile", action="store_true")
    arguments = parser.parse_args()
    device = "cuda"
    preset = json.loads(PRESET.read_text(encoding="utf-8"))
    height, width = preset["frame"]["height"], preset["frame"]["width"]
    rows, columns = (side // live_models.PIXELS_PER_LATENT for side in (height, width))
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}

    def save():
        arguments.out.write_text(json.dumps(report, indent=1))
        print(json.dumps(report), flush=True)

    with torch.inference_mode():
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        exact = one_step(preset, torch.float32, device)
        # The weights that f16 has, in the arithmetic of f32: only that differs.
        for parameter in exact.parameters():
            parameter.data = parameter.data.half().float()
        exact.prompts = exact.prompts.half().float()
        reference = [part.cpu() for part in exact(exact.frame)]
        del exact
        torch.cuda.empty_cache()
        torch.backends.cudnn.benchmark = True
        frame = one_step(preset, torch.float16, device)
        results = [part.cpu() for part in frame(frame.frame)]
        report["error_of_f16"] = {"latents": relative_rms(results[0], reference[0])}
        report["bytes_off_by_more_than_1"] = {
            "torch": ((results[1].int() - reference[1].int()).abs() > 1).double().mean().item()
        }
        if arguments.results:
            latents = np.fromfile(arguments.results / "latents.f32", dtype=np.float32)
            latents = torch.from_numpy(latents.reshape(1, rows, columns, 4)).permute(0, 3, 1, 2)
            shown = np.fromfile(arguments.results / "frame.u8", dtype=np.uint8).reshape(1, height, width, 3)
            off = (torch.from_numpy(shown).int() - reference[1].int()).abs() > 1
            report["error_of_kinora"] = {"latents": relative_rms(latents, reference[0])}
            report["bytes_off_by_more_than_1"]["kinora"] = off.double().mean().item()
        save()
        report["eager"] = percentiles(milliseconds(lambda: frame(frame.frame), arguments.replays))
        save()
        if not arguments.no_compile:
            start = time.perf_counter()
            compiled = torch.compile(frame, mode="reduce-overhead")
            compiled(frame.frame)
            torch.cuda.synchronize()
            first = time.perf_counter() - start
            report["compiled"] = percentiles(milliseconds(lambda: compiled(frame.frame), arguments.replays))
            report["compiled"]["first_call_s"] = first
            save()


if __name__ == "__main__":
    main()
