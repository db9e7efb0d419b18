"""Stable Video Diffusion with synthetic weights, as a folder that diffusers and Kinora both read.

The weights are those of golden/synthetic.py, made from their names alone; here on whatever device is fast, since the full size
has two thousand million of them. They are stored as f16, and every run, f32 too, reads them from the folder: all see the same.
"""

import dataclasses
import json
import pathlib
import sys
import time

import torch
from safetensors.torch import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "golden"))
import svd  # noqa: E402
from synthetic import GOLDEN_RATIO, fnv1a  # noqa: E402

PRECISIONS = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@dataclasses.dataclass(frozen=True)
class Size:
    """A model with the clip that it is asked for."""

    unet: dict
    vae: list
    image_encoder: dict
    frames: int
    height: int
    width: int
    steps: int


def image_encoder(width, layers, heads, patch, embedding):
    return dict(
        hidden_size=width,
        intermediate_size=4 * width,
        projection_dim=embedding,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        image_size=224,
        patch_size=patch,
        hidden_act="gelu",
    )


def unet(widths, heads, layers, embedding, frames, sample, time_embedding=32):
    return dict(
        block_out_channels=widths,
        num_attention_heads=heads,
        layers_per_block=layers,
        cross_attention_dim=embedding,
        addition_time_embed_dim=time_embedding,
        projection_class_embeddings_input_dim=3 * time_embedding,
        num_frames=frames,
        sample_size=sample,
    )


# `tiny` and `small` are Kinora's own synthetic models, `full` is Stable Video Diffusion for 14 frames.
SIZES = {
    "tiny": Size(
        unet=unet([32, 32, 64, 64], [1, 1, 2, 2], 1, 32, 4, 8),
        vae=[32, 32, 32, 32],
        image_encoder=image_encoder(32, 2, 4, 56, 32),
        frames=4,
        height=64,
        width=64,
        steps=2,
    ),
    "small": Size(
        unet=unet([64, 128, 256, 256], [1, 2, 4, 4], 2, 256, 8, 32),
        vae=[32, 64, 128, 128],
        image_encoder=image_encoder(256, 4, 4, 28, 256),
        frames=8,
        height=192,
        width=320,
        steps=10,
    ),
    "full": Size(
        unet=unet([320, 640, 1280, 1280], [5, 10, 20, 20], 2, 1024, 14, 96, time_embedding=256),
        vae=[128, 256, 512, 512],
        image_encoder=image_encoder(1280, 32, 16, 14, 1024),
        frames=14,
        height=576,
        width=1024,
        steps=10,
    ),
}


def signed(value):
    """The 64-bit number with the same bits: torch computes with signed ones, whose products wrap alike."""
    return value - (1 << 64) if value >= 1 << 63 else value


def shifted(z, bits):
    """A shift to the right that brings in zeros; torch's brings in the sign."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def uniform(name, count, device):
    """golden/synthetic.py's `uniform`, on a device."""
    z = torch.arange(1, count + 1, dtype=torch.int64, device=device)
    z = z.mul_(signed(GOLDEN_RATIO)).add_(signed(fnv1a(name)))
    z = z.bitwise_xor_(shifted(z, 30)).mul_(signed(0xBF58476D1CE4E5B9))
    z = z.bitwise_xor_(shifted(z, 27)).mul_(signed(0x94D049BB133111EB))
    z = z.bitwise_xor_(shifted(z, 31))
    return shifted(z, 40).double().div_(1 << 23).sub_(1.0)


def synthetic(name, shape, device):
    """golden/synthetic.py's `tensor`, on a device."""
    u = uniform(name, torch.Size(shape).numel(), device)
    if len(shape) >= 2:
        u.mul_((3.0 / torch.Size(shape[1:]).numel()) ** 0.5)
    elif name.endswith(".weight"):
        u.mul_(0.2).add_(1.0)
    else:
        u.mul_(0.2)
    return u.float().reshape(shape)


def fill(network, device):
    """Gives every weight its synthetic value."""
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.dtype.is_floating_point:
                value.copy_(synthetic(name, value.shape, device))
    return network.eval()


def scheduler():
    from diffusers import EulerDiscreteScheduler

    return EulerDiscreteScheduler(**svd.SCHEDULER)


def feature_extractor():
    import transformers

    # transformers 5 has a variant that needs no torchvision under its own name.
    kind = getattr(transformers, "CLIPImageProcessorPil", None) or transformers.CLIPImageProcessor
    return kind()


def build(name, size, device):
    """A network of a model, on the device, where the initial values that are about to be replaced cost nothing."""
    from diffusers import AutoencoderKLTemporalDecoder, UNetSpatioTemporalConditionModel
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    levels = ["DownEncoderBlock2D"] * len(size.vae)
    with torch.device(device):
        if name == "unet":
            return UNetSpatioTemporalConditionModel(**size.unet)
        if name == "vae":
            widths = size.vae
            return AutoencoderKLTemporalDecoder(block_out_channels=widths, down_block_types=levels, layers_per_block=2)
        return CLIPVisionModelWithProjection(CLIPVisionConfig(**size.image_encoder))


def write(folder, size, device):
    """Writes the model's folder, as diffusers saves it, unless there is one; gives the seconds that it took."""
    from diffusers import StableVideoDiffusionPipeline

    index = folder / "model_index.json"
    if index.exists():
        return None
    start = time.perf_counter()
    networks = {name: build(name, size, device) for name in ("unet", "vae", "image_encoder")}
    networks = {name: fill(network, device).to(torch.float16) for name, network in networks.items()}
    pipeline = StableVideoDiffusionPipeline(
        **networks, scheduler=scheduler(), feature_extractor=feature_extractor()
    )
    pipeline.save_pretrained(folder)
    # By the name that the class is published under, whichever variant of it wrote the numbers.
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
    """A network of diffusers, made on the device: its own loader makes it on the CPU first, which takes a minute."""
    with torch.device(device):
        network = kind.from_config(kind.load_config(folder)).to(PRECISIONS[precision])
    network.load_state_dict(load_file(folder / "diffusion_pytorch_model.safetensors", device=str(device)))
    # Some numbers, such as the factors of a blend, are made on the CPU whatever the device.
    return network.to(device).eval()


def load_image_encoder(folder, precision, device):
    from transformers import CLIPVisionModelWithProjection

    encoder = CLIPVisionModelWithProjection.from_pretrained(folder / "image_encoder", dtype=PRECISIONS[precision])
    return encoder.to(device).eval()


def load_pipeline(folder, precision, device):
    from diffusers import StableVideoDiffusionPipeline

    pipeline = StableVideoDiffusionPipeline(
        unet=load_unet(folder, precision, device),
        vae=load_vae(folder, precision, device),
        image_encoder=load_image_encoder(folder, precision, device),
        scheduler=scheduler(),
        feature_extractor=feature_extractor(),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
