"""Counts the arithmetic of Stable Video Diffusion's networks with PyTorch's own counter. See README.md.

Nothing is computed: the networks are on the meta device, which knows shapes alone.
"""

import torch
from diffusers import AutoencoderKLTemporalDecoder, UNetSpatioTemporalConditionModel
from torch.utils.flop_counter import FlopCounterMode
from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

import fixtures

LIMIT = 4 << 10
# What the plan takes out of the steps: attention over a single token, and what depends on the time alone.
ONCE = ("attn2", "time_pos_embed", "time_embedding", "add_embedding", "time_emb_proj")


def count(name, run):
    """The operations of a network, in all and by what is done once a clip; a multiplication and an addition are two."""
    with FlopCounterMode(display=False, depth=None) as counter, torch.no_grad():
        run()
    modules = {path: sum(ops.values()) for path, ops in counter.get_flop_counts().items()}
    once = {part: sum(n for path, n in modules.items() if path.endswith(f".{part}")) for part in ONCE}
    return {"name": name, "all": counter.get_total_flops(), "once": {part: n for part, n in once.items() if n}}


def networks():
    """The three networks as they are published. Some parameters are made on the CPU in any case: all are moved."""
    levels = {"down_block_types": ("DownEncoderBlock2D",) * 4, "block_out_channels": (128, 256, 512, 512)}
    vae = AutoencoderKLTemporalDecoder(**levels, layers_per_block=2).to("meta").eval()
    vision = {"hidden_size": 1280, "intermediate_size": 5120, "projection_dim": 1024, "patch_size": 14}
    vision |= {"num_hidden_layers": 32, "num_attention_heads": 16, "hidden_act": "gelu"}
    clip = CLIPVisionModelWithProjection(CLIPVisionConfig(**vision)).eval()
    return UNetSpatioTemporalConditionModel(num_frames=14).to("meta").eval(), vae, clip


def main():
    out = fixtures.folder(__doc__, "crates/kinora/tests/fixtures/flops")
    with torch.device("meta"):
        unet, vae, clip = networks()
        sample, time, ids = torch.empty(2, 14, 8, 72, 128), torch.empty(()), torch.empty(2, 3)
        cases = [
            count("image encoder", lambda: clip(torch.empty(1, 3, 224, 224))),
            count("autoencoder's encoder", lambda: vae.encode(torch.empty(1, 3, 576, 1024))),
            count("UNet", lambda: unet(sample, time, torch.empty(2, 1, 1024), ids)),
            count("autoencoder's decoder", lambda: vae.decode(torch.empty(2, 4, 72, 128), num_frames=2)),
        ]
    fixtures.write_cases(out / "flops.json", cases)
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()
