"""Makes the golden tensors of ControlNet and of the UNet that it steers, with diffusers. See networks.py."""

import json

import torch
from diffusers import ControlNetModel, UNet2DConditionModel
from diffusers.models import embeddings

import networks
from make_unet2d import AS_LCM, AS_SD15, AS_SD21, AS_SDXL
from networks import given
from ops.double import in_double
from ops.layouts import images_first, images_last

SMALL = dict(conditioning_embedding_out_channels=[8, 12, 24, 16])


def case(name, unet, sample, scale, control=None, time_ids=None):
    """A UNet and the settings that only its ControlNet has; the size of the sample `[images, height, width]`."""
    control = SMALL | (control or {})
    return dict(name=name, unet=unet, control=control, sample=sample, scale=scale, tokens=4, time_ids=time_ids)


# Without the guidance that latent consistency models embed, which a ControlNet does not read.
PLAIN = {key: value for key, value in AS_LCM.items() if key != "time_cond_proj_dim"}
CASES = [
    case("sd15", AS_SD15, [1, 8, 8], 1.0),
    case("sd21", AS_SD21, [2, 8, 16], 0.4),
    case(
        "two_levels",
        PLAIN,
        [1, 4, 6],
        1.5,
        control=dict(conditioning_embedding_out_channels=[8, 16], conditioning_channels=1),
    ),
    case("sdxl", AS_SDXL, [1, 4, 8], 0.7, time_ids=[[512.0, 512.0, 0.0, 0.0, 512.0, 512.0]]),
]


def shared(unet):
    """The settings of a UNet that a ControlNet has too."""
    return {key: value for key, value in unet.items() if key not in ("up_block_types", "out_channels")}


def run(case, results):
    name, (images, height, width) = case["name"], case["sample"]
    unet = networks.synthetic_model(UNet2DConditionModel(**case["unet"]), "unet.")
    control = networks.synthetic_model(ControlNetModel(**shared(case["unet"]), **case["control"]), "controlnet.")
    factor = 2 ** (len(control.config.conditioning_embedding_out_channels) - 1)
    sample = images_first(given(name, "sample", images, height, width, 4))
    picture = given(name, "picture", 1, factor * height, factor * width, control.config.conditioning_channels)
    # From 0 to 1.
    picture = images_first(picture / 2 + 0.5).expand(images, -1, -1, -1)
    context = given(name, "context", images, case["tokens"], unet.config.cross_attention_dim)
    timestep = torch.tensor([499.0], dtype=torch.float64)
    added = None
    if case["time_ids"]:
        ids = torch.tensor(case["time_ids"], dtype=torch.float64)
        text = unet.config.projection_class_embeddings_input_dim - ids.shape[1] * unet.config.addition_time_embed_dim
        added = {"text_embeds": given(name, "text", images, text), "time_ids": ids}
    options = dict(encoder_hidden_states=context, added_cond_kwargs=added)
    down, mid = control(
        sample, timestep, controlnet_cond=picture, conditioning_scale=case["scale"], return_dict=False, **options
    )
    steered = unet(
        sample, timestep, down_block_additional_residuals=down, mid_block_additional_residual=mid, **options
    ).sample
    results[f"{name}/first"], results[f"{name}/last"] = images_last(down[0]), images_last(down[-1])
    results[f"{name}/mid"], results[f"{name}/prediction"] = images_last(mid), images_last(steered)
    case |= {"unet": json.loads(unet.to_json_string()), "control": json.loads(control.to_json_string())}
    case["parameters"] = sum(parameter.numel() for net in (unet, control) for parameter in net.parameters())


def build():
    with in_double(embeddings):
        return networks.each(CASES, run)


if __name__ == "__main__":
    networks.main(__doc__, "controlnet", build)
