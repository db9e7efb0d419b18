"""Stable Video Diffusion with synthetic weights, as a folder that diffusers and Kinora both read.

The configurations are the presets of Kinora, `crates/models/presets/*.json`. The weights are made from their names
alone (synthetic.py) on whatever device is fast, since the full size has two thousand million of them. They are
stored as f16, and every run, f32 too, reads them from the folder, so that all see the same.
"""

import dataclasses
import json
import pathlib
import time

import torch
from safetensors.torch import load_file

import synthetic
from turns import PRECISIONS

PRESETS = pathlib.Path(__file__).resolve().parents[2] / "models" / "presets"
# The files of the sizes.
SIZES = {"tiny": "tiny.json", "small": "small.json", "full": "svd.json"}


@dataclasses.dataclass(frozen=True)
class Size:
    """A model, and the clip that it makes."""

    unet: dict
    vae: dict
    image_encoder: dict
    scheduler: dict
    frames: int
    height: int
    width: int
    steps: int

    @classmethod
    def of(cls, preset):
        """From a preset with all of its parts."""
        parts = {name: preset[name] for name in ("unet", "vae", "image_encoder", "scheduler")}
        return cls(**parts, **preset["clip"])

    @classmethod
    def named(cls, name):
        """From the preset's file. Small models have the scheduler of Stable Video Diffusion."""
        scheduler = read_preset("full")["scheduler"]
        return cls.of({"scheduler": scheduler} | read_preset(name))


def read_preset(name):
    return json.loads((PRESETS / SIZES[name]).read_text(encoding="utf-8"))


def scheduler(size):
    from diffusers import EulerDiscreteScheduler

    return EulerDiscreteScheduler.from_config(size.scheduler)


def feature_extractor():
    import transformers

    # transformers 5 has a variant that needs no torchvision under its own name.
    kind = getattr(transformers, "CLIPImageProcessorPil", None) or transformers.CLIPImageProcessor
    return kind()


def build(name, size, device):
    """A network of a model. It is made on the device, where the initial values that are replaced anyway are cheap."""
    from diffusers import AutoencoderKLTemporalDecoder, UNetSpatioTemporalConditionModel
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    with torch.device(device):
        if name == "unet":
            return UNetSpatioTemporalConditionModel.from_config(size.unet)
        if name == "vae":
            return AutoencoderKLTemporalDecoder.from_config(size.vae)
        return CLIPVisionModelWithProjection(CLIPVisionConfig.from_dict(size.image_encoder))


def make_pipeline(networks, size):
    """diffusers' pipeline of these networks."""
    from diffusers import StableVideoDiffusionPipeline

    pipeline = StableVideoDiffusionPipeline(
        **networks, scheduler=scheduler(size), feature_extractor=feature_extractor()
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def write(folder, size, device):
    """Writes the model's folder as diffusers saves it, and returns the seconds; `None` if there is one already."""
    index = folder / "model_index.json"
    if index.exists():
        return None
    start = time.perf_counter()
    networks = {name: build(name, size, device) for name in ("unet", "vae", "image_encoder")}
    networks = {name: synthetic.fill(network, device).to(torch.float16) for name, network in networks.items()}
    make_pipeline(networks, size).save_pretrained(folder)
    # The name that the class is published under, whichever variant of it was saved.
    contents = json.loads(index.read_text(encoding="utf-8"))
    contents["feature_extractor"] = ["transformers", "CLIPImageProcessor"]
    index.write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")
    return time.perf_counter() - start


def load_unet(folder, precision, device):
    from diffusers import UNetSpatioTemporalConditionModel

    return load(UNetSpatioTemporalConditionModel, folder / "unet", precision, device)


def load_vae(folder, precision, device):
    from diffusers import AutoencoderKLTemporalDecoder

    return load(AutoencoderKLTemporalDecoder, folder / "vae", precision, device)


def load(kind, folder, precision, device):
    """A network of diffusers, made on the device. Its own loader makes it on the CPU first, which takes a minute."""
    with torch.device(device):
        network = kind.from_config(kind.load_config(folder)).to(PRECISIONS[precision])
    network.load_state_dict(load_file(folder / "diffusion_pytorch_model.safetensors", device=str(device)))
    # Some tensors, such as the factors of a blend, are made on the CPU whatever the device.
    return network.to(device).eval()


def load_image_encoder(folder, precision, device):
    from transformers import CLIPVisionModelWithProjection

    encoder = CLIPVisionModelWithProjection.from_pretrained(folder / "image_encoder", dtype=PRECISIONS[precision])
    return encoder.to(device).eval()


def load_pipeline(folder, size, precision, device):
    networks = {
        "unet": load_unet(folder, precision, device),
        "vae": load_vae(folder, precision, device),
        "image_encoder": load_image_encoder(folder, precision, device),
    }
    return make_pipeline(networks, size)
