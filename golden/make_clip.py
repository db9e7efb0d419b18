"""Makes the golden tensors of the CLIP image encoder and its parts, with transformers.

Weights and inputs are those of synthetic.py under their names, so that a fixture holds results alone. They are computed
in f64 and stored as f32.
"""

import json
import pathlib

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

import synthetic

FIXTURES = pathlib.Path(__file__).parent.parent / "crates/models/tests/fixtures"


def case(name, images, parts=(), nested=False, **config):
    """A configuration with the number of its images; `nested` puts it where a whole CLIP model has it."""
    return {"name": name, "images": images, "parts": list(parts), "nested": nested, "config": config}


CASES = [
    # Settings that are not named have their defaults, the activation among them.
    case(
        "quick_gelu",
        1,
        parts=["vision_model.pre_layrnorm", "vision_model.encoder.layers.0"],
        hidden_size=32,
        intermediate_size=64,
        projection_dim=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=12,
        patch_size=4,
    ),
    # Two pixels at the right and below are no whole patch.
    case(
        "gelu",
        2,
        parts=["vision_model.encoder.layers.1"],
        hidden_size=48,
        intermediate_size=80,
        projection_dim=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_channels=2,
        image_size=17,
        patch_size=5,
        hidden_act="gelu",
        layer_norm_eps=1e-3,
    ),
    case(
        "gelu_new",
        3,
        nested=True,
        hidden_size=40,
        intermediate_size=24,
        projection_dim=7,
        num_hidden_layers=1,
        num_attention_heads=5,
        image_size=8,
        patch_size=2,
        hidden_act="gelu_new",
    ),
]


def run(case, tensors):
    config, name = case["config"], case["name"]
    model = CLIPVisionModelWithProjection(CLIPVisionConfig(**config)).eval()
    synthetic.fill(model)
    model = model.double()

    def keep(part):
        def hook(_module, _inputs, result):
            result = result[0] if isinstance(result, tuple) else result
            tensors[f"{name}/{part}"] = result.numpy().astype(np.float32)

        return hook

    for part in case["parts"]:
        model.get_submodule(part).register_forward_hook(keep(part))
    shape = [case["images"], model.config.image_size, model.config.image_size, model.config.num_channels]
    pixels = synthetic.uniform(f"{name}/pixels", int(np.prod(shape))).reshape(shape).transpose(0, 3, 1, 2)
    embedding = model(torch.from_numpy(np.ascontiguousarray(pixels))).image_embeds
    tensors[f"{name}/embedding"] = embedding.numpy().astype(np.float32)


def main():
    # Sums must not depend on how many cores share them.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    tensors = {}
    with torch.no_grad():
        for case in CASES:
            run(case, tensors)
    FIXTURES.mkdir(parents=True, exist_ok=True)
    save_file(tensors, FIXTURES / "clip.safetensors")
    (FIXTURES / "clip.json").write_text(json.dumps(CASES, indent=1) + "\n", encoding="utf-8")
    print(f"clip: {len(CASES)} cases, {sum(t.nbytes for t in tensors.values()) / 1024:.1f} KiB")


if __name__ == "__main__":
    main()
