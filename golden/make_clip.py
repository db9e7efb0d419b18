"""Makes the golden tensors of the CLIP image encoder and its parts, with transformers. See networks.py."""

from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

import networks
from ops.layouts import images_first


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


def run(case, results):
    name = case["name"]
    model = networks.synthetic_model(CLIPVisionModelWithProjection(CLIPVisionConfig(**case["config"])))
    networks.keep_parts(model, case, results)
    size, channels = model.config.image_size, model.config.num_channels
    pixels = images_first(networks.given(name, "pixels", case["images"], size, size, channels))
    results[f"{name}/embedding"] = model(pixels.contiguous()).image_embeds


if __name__ == "__main__":
    networks.main(__doc__, "clip", lambda: networks.each(CASES, run))
