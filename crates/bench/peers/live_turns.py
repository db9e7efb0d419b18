"""A frame of live video, its parts and a row of frames in diffusers, taking turns with a benchmark on a CPU or a GPU.

Speaks the protocol of turns.py. A request to prepare has a case of the suite `live` and a model, as in
`crates/models/presets`:

    {"do": "prepare", "stage": "frame, 1 step", "preset": {"unet": {…}, "tiny_vae": {…}, …, "frame": {…}}, …}

`KINORA_PEER_PACKAGES` is as for svd_turns.py.
"""

import os
import pathlib

import host_packages

host_packages.make_importable("missing", pathlib.Path(os.environ.get("KINORA_PEER_PACKAGES", "")))

import torch  # noqa: E402

import live_models  # noqa: E402
import measure  # noqa: E402
from turns import Peer, reason  # noqa: E402


def channels_last(x):
    """A result in Kinora's layout."""
    return x.permute(0, 2, 3, 1).contiguous()


class Networks(Peer):
    """The case that is prepared, in every way that PyTorch has."""

    def prepare(self, request):
        self.variants = []
        measure.release(self.device)
        ways = {
            "eager": (torch.contiguous_format, lambda function: function),
            "eager channels last": (torch.channels_last, lambda function: function),
        }
        if self.compile:
            # On a GPU one CUDA graph, as Kinora's.
            mode = "reduce-overhead" if self.device.type == "cuda" else "default"
            ways["torch.compile"] = (torch.channels_last, lambda function: torch.compile(function, mode=mode))
        answers = []
        for number, (name, (layout, wrap)) in enumerate(ways.items()):
            answers.append({"name": name})
            try:
                run = self.case(request["stage"], request["preset"], layout, wrap)
                self.write_result(request, number, run())
                self.variants.append([run])
            except Exception as error:  # noqa: BLE001 - a network that does not fit must not end the run.
                answers[-1]["failed"] = reason(error)
                self.variants.append([])
        return {"variants": answers}

    def case(self, name, preset, layout, wrap):
        """A function without arguments that runs a case once."""
        kind, _, number = name.partition(", ")
        number = int("".join(filter(str.isdigit, number)) or 1)
        if kind in ("frame", "stream"):
            return self.frame(preset, number, kind == "stream", layout, wrap)
        if kind == "unet":
            return self.unet(preset, number, layout, wrap)
        return {"encode": self.encode, "decode": self.decode}[kind](preset, layout, wrap)

    def frame(self, preset, steps, from_host, layout, wrap):
        frame = live_models.Frame(preset, steps, self.dtype, self.device).to(memory_format=layout)
        draw = wrap(frame)
        if not from_host:
            return lambda: channels_last(draw(frame.frame)[0])
        given = frame.frame.cpu()
        if self.device.type == "cuda":
            given = given.pin_memory()

        def drawn():
            return draw(given.to(self.device))[1].cpu()

        return drawn

    def unet(self, preset, batch, layout, wrap):
        unet = live_models.make_unet(preset, self.device).to(self.dtype).to(memory_format=layout)
        shape = (batch, *self.latents(preset), preset["unet"]["in_channels"])
        sample = live_models.images("sample", shape, self.device).to(self.dtype).to(memory_format=layout)
        shape = (batch, live_models.TOKENS, preset["unet"]["cross_attention_dim"])
        prompts = live_models.numbers("prompts", shape, self.device).to(self.dtype)
        timesteps = live_models.numbers("timesteps", (1,), self.device)
        predict = wrap(lambda: unet(sample, timesteps, prompts, return_dict=False)[0])
        return lambda: channels_last(predict())

    def encode(self, preset, layout, wrap):
        vae = live_models.make_vae(preset, "", self.device).to(self.dtype).to(memory_format=layout)
        height, width = preset["frame"]["height"], preset["frame"]["width"]
        image = live_models.picture("image", height, width, self.device)
        encode = wrap(lambda: vae.encode(live_models.signed(image, self.dtype)).latents)
        return lambda: channels_last(encode())

    def decode(self, preset, layout, wrap):
        vae = live_models.make_vae(preset, "", self.device).to(self.dtype).to(memory_format=layout)
        shape = (1, *self.latents(preset), preset["tiny_vae"]["latent_channels"])
        latents = live_models.images("latents", shape, self.device).to(self.dtype).to(memory_format=layout)
        decode = wrap(lambda: vae.decode(latents, return_dict=False)[0])
        return lambda: channels_last(decode())

    @staticmethod
    def latents(preset):
        factor = live_models.PIXELS_PER_LATENT
        return preset["frame"]["height"] // factor, preset["frame"]["width"] // factor


if __name__ == "__main__":
    Networks.serve()
