"""Makes the golden tensors of step caching, with diffusers: denoising steps, some of which read what the deep blocks
gave in an earlier one. See networks.py.

Every step runs diffusers' whole network. In a shallow one, what its deep blocks give is replaced where the first outer
block reads it.
"""

import json

import torch
from diffusers import EulerDiscreteScheduler
from diffusers.models import embeddings
from diffusers.schedulers import scheduling_euler_discrete

import make_denoise
import make_unet
import networks
import svd
from ops.double import in_double

STEPS = 5
INTERVAL = 3

SMALLEST = dict(
    network=make_unet.SMALLEST,
    frames=2,
    height=4,
    width=4,
    added_time_ids=[6.0, 127.0, 0.0625],
    guidance=[1.0, 2.5],
)
UNEVEN = dict(
    network=make_unet.UNEVEN, frames=3, height=5, width=6, added_time_ids=[3.0, 0.5], guidance=[1.0, 1.5, 3.0]
)
AS_SVD = dict(
    network=make_unet.AS_SVD,
    frames=2,
    height=8,
    width=8,
    added_time_ids=[6.0, 127.0, 0.03125],
    guidance=[1.0, 3.0],
)

# A run with a choice of outer blocks: some lie within a level, some end with one, and some leave the middle alone.
CASES = [
    ("smallest", SMALLEST, [1, 2, 4]),
    ("uneven", UNEVEN, [1, 3, 6]),
    ("as_svd", AS_SVD, [1, 2, 3, 5]),
]


class Cache:
    """Replaces what the deep blocks give in the steps that are not whole. The last `blocks` residual blocks of the way
    up are outer blocks."""

    def __init__(self, model, blocks):
        up = [resnet for block in model.up_blocks for resnet in block.resnets]
        resnets = [model.mid_block.resnets[-1], *up]
        self.kept, self.whole = None, True
        # The first outer block reads the last deep one's result, followed by a skip.
        self.channels = resnets[-blocks - 1].spatial_res_block.out_channels
        self.hook = resnets[-blocks].register_forward_pre_hook(self.replace)

    def begin_step(self, step):
        self.whole = step % INTERVAL == 0

    def replace(self, _module, inputs):
        joined, *rest = inputs
        deep, skip = joined.tensor_split([self.channels], dim=1)
        if self.whole:
            self.kept = deep.clone()
        return (torch.cat([self.kept, skip], dim=1), *rest)


def build():
    cases, results = [], {}
    with in_double(embeddings), in_double(scheduling_euler_discrete):
        for name, run, choices in CASES:
            scheduler = EulerDiscreteScheduler(**svd.SCHEDULER)
            scheduler.set_timesteps(STEPS)
            model = make_unet.network(run["network"])
            config = json.loads(model.to_json_string())
            numbers = {key: value for key, value in run.items() if key != "network"}
            for blocks in choices:
                scheduler.set_timesteps(STEPS)
                case = {"name": f"{name}_{blocks}", "blocks": blocks, "interval": INTERVAL} | numbers
                cache = Cache(model, blocks)
                made = make_denoise.denoise(case, model, scheduler, cache.begin_step)
                cache.hook.remove()
                results |= {key: value for key, value in made.items() if "/next" in key}
                cases.append(case | {"config": config} | make_denoise.levels(scheduler))
    return cases, results


if __name__ == "__main__":
    networks.main(__doc__, "step_cache", build)
