"""The networks of Stable Video Diffusion in PyTorch, taking turns with a benchmark on a CPU or a GPU.

Speaks as `torch_layers.py` does, but that a request to prepare names a stage of `svd_stages.py` and a size of `svd_models.py`:

    {"do": "prepare", "stage": "unet", "size": "small", "window": n, "result": path}

Weights are made from their names in memory, so that nothing is written or downloaded. `KINORA_PEER_PACKAGES` is the folder of an
archive of packages for a host that lacks diffusers; a bundle has one.
"""

import gc
import os
import pathlib

import host_packages

host_packages.make_importable("missing", pathlib.Path(os.environ.get("KINORA_PEER_PACKAGES", "")))

import torch  # noqa: E402

import svd_models  # noqa: E402
import svd_stages  # noqa: E402
import svd_times  # noqa: E402
from torch_layers import Peer, reason, windows  # noqa: E402


class Model(svd_stages.Model):
    """A model whose networks are made when a stage asks for them."""

    def network(self, name):
        if name not in self.loaded:
            dtype = svd_models.PRECISIONS[self.precision]
            network = svd_models.fill(svd_models.build(name, self.size, self.device), self.device)
            # Some numbers, such as the factors of a blend, are made on the CPU whatever the device.
            self.loaded[name] = network.to(self.device, dtype).eval()
        return self.loaded[name]


class Networks(Peer):
    """The stage that is ready, in every way there is."""

    def prepare(self, request):
        self.ways = []
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        ways = {
            "eager": ("contiguous", lambda function: function),
            "eager channels last": ("channels_last", lambda function: function),
        }
        if self.compile:
            ways["torch.compile"] = ("contiguous", torch.compile)
        variants = []
        for name, (layout, wrap) in ways.items():
            variants.append({"name": name})
            try:
                self.ways.append([self.stage(request, layout, wrap)])
                result = next(iter(self.ways[-1][0]().values()))
                result = windows(result, request["window"]).float().cpu().contiguous()
                result.numpy().tofile(f"{request['result']}.{len(self.ways) - 1}")
            except Exception as error:  # noqa: BLE001 - one that does not fit must not end a run.
                variants[-1]["failed"] = reason(error)
                self.ways[len(variants) - 1 :] = [[]]
        return {"variants": variants}

    def stage(self, request, layout, wrap):
        size = svd_models.SIZES[request["size"]]
        model = Model(pathlib.Path(), size, self.precision, self.device)
        for network in model.networks(request["stage"]):
            svd_times.lay_out(network, layout)
        return model.stage(request["stage"], wrap)


if __name__ == "__main__":
    Networks.serve()
