"""diffusers' StableVideoDiffusionPipeline as the peer of a CPU benchmark, in f32, eager.

Reads one request a line from standard input and answers each with one line on standard output:

    {"do": "hello", "threads": n}
        answers {"diffusers": version, "torch": version}
    {"do": "load", "model": folder, "photo": file, "settings": {…}}
        loads a model's folder; answers {"seconds": s}
    {"do": "clip"}
        makes a clip; answers {"seconds": s, "stages": {stage: s}}
    {"do": "results", "latents": file, "frames": file}
        writes the last clip's latents as f32 and its frames as bytes, both channels last
    {"do": "choose"}
        makes clips with the weights as loaded and with channels-last weights, and stays with what is faster;
        answers {"layout": name}

A stage ends where the pipeline calls the next one, so that all of a clip's time is in one of them.
"""

import json
import os
import sys
import time

# Everything comes from a folder: nothing is looked for on the network.
os.environ["HF_HUB_OFFLINE"] = "1"

import diffusers
import numpy as np
import torch
import transformers
from diffusers import StableVideoDiffusionPipeline
from PIL import Image

# Memory formats of the weights of convolutions over two and three axes, by their rank.
LAYOUTS = {
    "contiguous": {4: torch.contiguous_format, 5: torch.contiguous_format},
    "channels last": {4: torch.channels_last, 5: torch.channels_last_3d},
}
# Clips of each layout, of which the faster counts.
TRIES = 2


class Peer:
    """A loaded pipeline and what it is asked for."""

    def __init__(self, request):
        settings = request["settings"]
        self.photo = Image.open(request["photo"]).convert("RGB")
        self.seed = settings["seed"]
        self.arguments = dict(
            height=settings["height"],
            width=settings["width"],
            num_frames=settings["frames"],
            num_inference_steps=settings["steps"],
            min_guidance_scale=settings["min_guidance"],
            max_guidance_scale=settings["max_guidance"],
            fps=settings["fps"],
            motion_bucket_id=settings["motion_bucket"],
            noise_aug_strength=settings["noise_augmentation"],
            decode_chunk_size=settings["decode_chunk"],
        )
        start = time.perf_counter()
        self.pipeline = StableVideoDiffusionPipeline.from_pretrained(request["model"], dtype=torch.float32)
        self.load_seconds = time.perf_counter() - start
        self.pipeline.set_progress_bar_config(disable=True)
        self.latents = self.frames = None
        self.marks = {}
        self.watch("_encode_image", after="encode_image")
        self.watch("_encode_vae_image", after="encode_latents")
        self.watch("decode_latents", before="denoise")

    def watch(self, method, before=None, after=None):
        """Notes when a method of the pipeline is entered or left, as the end of a stage."""
        original = getattr(self.pipeline, method)

        def watched(*arguments, **named):
            if before:
                self.marks[before] = time.perf_counter()
                self.latents = arguments[0]
            result = original(*arguments, **named)
            if after:
                self.marks[after] = time.perf_counter()
            return result

        setattr(self.pipeline, method, watched)

    def clip(self):
        self.marks = {}
        generator = torch.Generator().manual_seed(self.seed)
        start = time.perf_counter()
        self.frames = self.pipeline(self.photo, generator=generator, **self.arguments).frames[0]
        end = self.marks["decode"] = time.perf_counter()
        stages, since = {}, start
        for stage in ("encode_image", "encode_latents", "denoise", "decode"):
            stages[stage] = self.marks[stage] - since
            since = self.marks[stage]
        return {"seconds": end - start, "stages": stages}

    def use(self, layout):
        """Lays out the convolutions' weights; activations follow them."""
        for network in (self.pipeline.unet, self.pipeline.vae, self.pipeline.image_encoder):
            for parameter in network.parameters():
                if parameter.dim() in LAYOUTS[layout]:
                    memory_format = LAYOUTS[layout][parameter.dim()]
                    parameter.data = parameter.data.contiguous(memory_format=memory_format)

    def choose(self):
        seconds = {}
        for layout in LAYOUTS:
            self.use(layout)
            seconds[layout] = min(self.clip()["seconds"] for _ in range(TRIES))
        fastest = min(seconds, key=seconds.get)
        self.use(fastest)
        return {"layout": fastest}

    def results(self, request):
        latents = self.latents[0].permute(0, 2, 3, 1).contiguous()
        latents.numpy().astype(np.float32).tofile(request["latents"])
        np.stack([np.asarray(frame) for frame in self.frames]).tofile(request["frames"])
        return {}


def main():
    torch.set_grad_enabled(False)
    diffusers.utils.logging.disable_progress_bar()
    transformers.utils.logging.disable_progress_bar()
    peer = None
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "hello":
            torch.set_num_threads(request["threads"])
            answer = {"diffusers": diffusers.__version__, "torch": torch.__version__}
        elif request["do"] == "load":
            peer = Peer(request)
            answer = {"seconds": peer.load_seconds}
        elif request["do"] == "clip":
            answer = peer.clip()
        elif request["do"] == "choose":
            answer = peer.choose()
        else:
            answer = peer.results(request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
