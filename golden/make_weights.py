"""Makes the weights folders that the reader of weights is checked against: written by safetensors, diffusers and
transformers themselves. See README.md.

Beside every folder lies what PyTorch reads from it, in f32 and in the layout of a graph.
"""

import pathlib
import shutil

import torch
from diffusers import ConfigMixin, ModelMixin
from diffusers.configuration_utils import register_to_config
from safetensors.torch import load_file, save_file
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

import fixtures
import synthetic

LIMIT = 48 << 10


class Layers(ModelMixin, ConfigMixin):
    """One layer of every kind whose weights are laid out in their own way."""

    @register_to_config
    def __init__(self, channels: int = 4):
        super().__init__()
        self.conv2d = torch.nn.Conv2d(channels, 3, (3, 2))
        self.conv3d = torch.nn.Conv3d(channels, 2, (3, 1, 2))
        self.conv1d = torch.nn.Conv1d(channels, 5, 3)
        self.pointwise = torch.nn.Conv2d(channels, 6, 1)
        self.linear = torch.nn.Linear(channels, 6)
        self.norm = torch.nn.LayerNorm(channels)
        self.mix_factor = torch.nn.Parameter(torch.zeros(1))


def layers() -> Layers:
    model = Layers()
    synthetic.fill(model)
    return model


def encoder() -> CLIPVisionModelWithProjection:
    config = CLIPVisionConfig(
        hidden_size=4,
        intermediate_size=8,
        projection_dim=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=8,
        patch_size=4,
    )
    model = CLIPVisionModelWithProjection(config)
    synthetic.fill(model)
    return model


def graph_layout(tensor: torch.Tensor) -> torch.Tensor:
    """A convolution's weights as `[out, frames, height, width, in]`, everything else as it is; in f32."""
    if tensor.ndim >= 3:
        tensor = tensor.movedim(1, -1)
        while tensor.ndim < 5:
            tensor = tensor.unsqueeze(1)
    return tensor.float().contiguous()


def expect(folder: pathlib.Path):
    """Writes what PyTorch reads from a folder, as a graph wants it."""
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(file))
    expected = {name: graph_layout(tensor) for name, tensor in tensors.items()}
    save_file(expected, folder.with_suffix(".expected.safetensors"))


def build(out: pathlib.Path):
    state = {name: tensor.contiguous() for name, tensor in layers().state_dict().items()}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        folder = out / str(dtype).removeprefix("torch.")
        folder.mkdir()
        tensors = {name: tensor.to(dtype) for name, tensor in state.items()}
        # As files of CLIP have it: a tensor that no network asks for, of a type that no graph knows.
        tensors["position_ids"] = torch.arange(3)
        save_file(tensors, folder / "diffusion_pytorch_model.safetensors")
        expect(folder)

    folder = out / "sharded"
    layers().save_pretrained(folder, max_shard_size=300)
    expect(folder)
    folder = out / "sharded_fp16"
    layers().half().save_pretrained(folder, max_shard_size=150, variant="fp16")
    expect(folder)
    folder = out / "transformers_sharded"
    encoder().save_pretrained(folder, max_shard_size=700)
    expect(folder)
    folder = out / "transformers_fp16"
    encoder().half().save_pretrained(folder, variant="fp16")
    expect(folder)


def main():
    out = fixtures.folder(__doc__, "crates/models/tests/fixtures/weights")
    # How many shards there are depends on the sizes.
    shutil.rmtree(out)
    out.mkdir()
    build(out)
    for file in sorted(path for path in out.rglob("*") if path.is_file()):
        print(f"{file.stat().st_size:6} {file.relative_to(out)}")
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()
