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
from diffusers import AutoencoderTiny, UNet2DConditionModel  # noqa: E402

import synthetic  # noqa: E402

SIDE = 512
TOKENS = 77
UNET = {
    "sample_size": SIDE // 8,
    "cross_attention_dim": 1024,
    "attention_head_dim": [5, 10, 20, 20],
    "use_linear_projection": True,
}


def numbers(name, shape, device):
    """The benchmark's input of this name."""
    return synthetic.uniform(name, torch.Size(shape).numel(), device).float().reshape(shape)


def latents_of(name, device):
    """The same for latents, which Kinora has channels last."""
    return numbers(name, (1, SIDE // 8, SIDE // 8, 4), device).permute(0, 3, 1, 2).contiguous()


def fill(network, prefix, device):
    """Gives every weight the value that Kinora has under its name, which begins with that of the network."""
    for name, value in network.state_dict().items():
        if value.dtype.is_floating_point:
            value.copy_(synthetic.tensor(prefix + name, value.shape, device))


class Frame(torch.nn.Module):
    """Everything that the graph of a frame of one step does."""

    def __init__(self, dtype, device):
        super().__init__()
        with torch.device(device):
            self.unet = UNet2DConditionModel(**UNET)
            self.vae = AutoencoderTiny()
        fill(self.unet, "unet.", device)
        fill(self.vae, "vae.", device)
        self.dtype = dtype
        self.to(device=device, dtype=dtype).eval()
        self.to(memory_format=torch.channels_last)
        self.prompts = numbers("prompts", (1, TOKENS, 1024), device).to(dtype)
        self.timesteps = numbers("timesteps", (1,), device)
        self.noise, self.previous = (latents_of(name, device) for name in ("noise", "previous"))
        self.scale = numbers("input_scales", (1,), device)
        self.mix = numbers("mix", (2,), device)
        self.table = numbers("table", (1, 8), device)[0]
        self.blend = numbers("blend", (1,), device)
        values = synthetic.uniform("frame", SIDE * SIDE * 3, device)
        self.frame = (127.5 + 127.5 * values).to(torch.uint8).reshape(1, SIDE, SIDE, 3)

    def forward(self, frame):
        x = frame.permute(0, 3, 1, 2).to(self.dtype) / 127.5 - 1.0
        picture = self.vae.encode(x).latents.float()
        latents = picture * self.mix[0] + self.noise * self.mix[1]
        sample = (latents * self.scale).to(self.dtype)
        prediction = self.unet(sample, self.timesteps, self.prompts, return_dict=False)[0].float()
        row = self.table
        denoised = row[0] * latents + row[1] * prediction
        latents = row[2] * latents + row[3] * denoised + row[7] * prediction
        latents = latents + self.blend * (self.previous - latents)
        picture = self.vae.decode(latents.to(self.dtype), return_dict=False)[0].float()
        shown = ((picture + 1.0) * 127.5).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
        return latents, shown.contiguous()


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
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}

    def save():
        arguments.out.write_text(json.dumps(report, indent=1))
        print(json.dumps(report), flush=True)

    with torch.inference_mode():
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        exact = Frame(torch.float32, device)
        # The weights that f16 has, in the arithmetic of f32: only that differs.
        for parameter in exact.parameters():
            parameter.data = parameter.data.half().float()
        exact.prompts = exact.prompts.half().float()
        reference = [part.cpu() for part in exact(exact.frame)]
        del exact
        torch.cuda.empty_cache()
        torch.backends.cudnn.benchmark = True
        frame = Frame(torch.float16, device)
        results = [part.cpu() for part in frame(frame.frame)]
        report["error_of_f16"] = {"latents": relative_rms(results[0], reference[0])}
        report["bytes_off_by_more_than_1"] = {
            "torch": ((results[1].int() - reference[1].int()).abs() > 1).double().mean().item()
        }
        if arguments.results:
            latents = np.fromfile(arguments.results / "latents.f32", dtype=np.float32)
            latents = torch.from_numpy(latents.reshape(1, SIDE // 8, SIDE // 8, 4)).permute(0, 3, 1, 2)
            shown = np.fromfile(arguments.results / "frame.u8", dtype=np.uint8).reshape(1, SIDE, SIDE, 3)
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
