"""Makes the golden tensors of the CLIP text encoder and its parts, with transformers. See networks.py.

Hidden states are those that diffusers takes: after the final norm for Stable Diffusion, before it for Stable Diffusion
XL.
"""

import torch
from transformers import CLIPTextConfig, CLIPTextModelWithProjection

import networks


def case(name, tokens, skip=0, final_norm=True, parts=(), projection=True, **config):
    """A configuration with the tokens of its prompts, and which hidden states are wanted."""
    config["architectures"] = ["CLIPTextModelWithProjection" if projection else "CLIPTextModel"]
    return {
        "name": name,
        "config": config,
        "tokens": tokens,
        "skip": skip,
        "final_norm": final_norm,
        "parts": list(parts),
    }


CASES = [
    # Settings that are not named have their defaults, the activation among them. The end is the old one, and so the
    # largest token.
    case(
        "quick_gelu",
        [[97, 5, 3, 98, 98, 98, 98], [97, 2, 98, 98, 98, 98, 98]],
        parts=["text_model.embeddings", "text_model.encoder.layers.0"],
        projection=False,
        vocab_size=99,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=7,
        eos_token_id=2,
    ),
    # As Stable Diffusion XL's second one: the pooled result is after the last layer, the hidden states are not.
    case(
        "gelu",
        [[50, 60, 7, 7, 51, 0, 0, 0, 0], [50, 1, 2, 3, 4, 5, 6, 8, 51], [50, 51, 0, 0, 0, 0, 0, 0, 51]],
        skip=1,
        final_norm=False,
        parts=["text_model.encoder.layers.1"],
        vocab_size=64,
        hidden_size=48,
        intermediate_size=80,
        projection_dim=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        max_position_embeddings=9,
        hidden_act="gelu",
        layer_norm_eps=1e-3,
        eos_token_id=51,
    ),
    # Fewer tokens than there may be, and Stable Diffusion's `clip_skip`.
    case(
        "skip_two",
        [[8, 1, 4, 9]],
        skip=2,
        vocab_size=10,
        hidden_size=40,
        intermediate_size=24,
        projection_dim=7,
        num_hidden_layers=4,
        num_attention_heads=5,
        max_position_embeddings=12,
        hidden_act="gelu_new",
        eos_token_id=9,
    ),
]


def run(case, results):
    name, config = case["name"], dict(case["config"])
    projected = config.pop("architectures") == ["CLIPTextModelWithProjection"]
    model = networks.synthetic_model(CLIPTextModelWithProjection(CLIPTextConfig(**config)))
    networks.keep_parts(model, case, results)
    given = model.text_model(torch.tensor(case["tokens"]), output_hidden_states=True)
    hidden = given.hidden_states[-(case["skip"] + 1)]
    norm = model.text_model.final_layer_norm
    results[f"{name}/hidden"] = norm(hidden) if case["final_norm"] else hidden
    pooled = given.pooler_output
    results[f"{name}/pooled"] = model.text_projection(pooled) if projected else pooled
    if not case["skip"]:
        assert torch.equal(results[f"{name}/hidden"], given.last_hidden_state)


if __name__ == "__main__":
    networks.main(__doc__, "clip_text", lambda: networks.each(CASES, run))
