"""The networks and the pipeline of Stable Video Diffusion in diffusers, taking turns with a benchmark on a CPU or a
GPU.

Speaks the protocol of turns.py. A request to prepare has a stage of svd_stages.py and a model, as in
`crates/models/presets`:

    {"do": "prepare", "stage": "unet", "preset": {"unet": {…}, …, "clip": {…}}, …}

Weights are made from their names in memory, so that nothing is written or downloaded. `KINORA_PEER_PACKAGES` is a
folder with an archive of packages for a host that lacks diffusers; a bundle has one.
"""

import os
import pathlib

import host_packages

host_packages.make_importable("missing", pathlib.Path(os.environ.get("KINORA_PEER_PACKAGES", "")))

import torch  # noqa: E402

import measure  # noqa: E402
import svd_models  # noqa: E402
import svd_stages  # noqa: E402
import svd_times  # noqa: E402
import synthetic  # noqa: E402
from turns import PRECISIONS, Peer, reason  # noqa: E402


class Model(svd_stages.Model):
    """A model whose networks are made in memory when a stage needs them."""

    def load(self, name):
        if name == "pipeline":
            parts = ("unet", "vae", "image_encoder")
            return svd_models.make_pipeline({part: self.network(part) for part in parts}, self.size)
        network = synthetic.fill(svd_models.build(name, self.size, self.device), self.device)
        # Some tensors, such as the factors of a blend, are made on the CPU whatever the device.
        return network.to(self.device, PRECISIONS[self.precision]).eval()

    def noise(self):
        """The pipeline draws its own, in its precision, as Kinora does."""
        return None


class Networks(Peer):
    """The stage that is prepared, in every way that PyTorch has."""

    def prepare(self, request):
        self.variants = []
        measure.release(self.device)
        ways = {
            "eager": ("contiguous", lambda function: function),
            "eager channels last": ("channels_last", lambda function: function),
        }
        if self.compile:
            ways["torch.compile"] = ("contiguous", torch.compile)
        answers = []
        for number, (name, (layout, wrap)) in enumerate(ways.items()):
            answers.append({"name": name})
            try:
                run = self.stage(request, layout, wrap)
                self.write_result(request, number, next(iter(run().values())))
                self.variants.append([run])
            except Exception as error:  # noqa: BLE001 - a network that does not fit must not end the run.
                answers[-1]["failed"] = reason(error)
                self.variants.append([])
        return {"variants": answers}

    def stage(self, request, layout, wrap):
        size = svd_models.Size.of(request["preset"])
        model = Model(pathlib.Path(), size, self.precision, self.device)
        for network in model.networks(request["stage"]):
            svd_times.lay_out(network, layout)
        return model.stage(request["stage"], wrap)


if __name__ == "__main__":
    Networks.serve()
