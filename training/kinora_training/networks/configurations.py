"""The sizes of the networks, and of the clips they are made for.

All weights together must fit in 24 MiB in f16, and a clip of the default steps in about 700 GFLOP; flops.py prints
both.
"""

from ..data.clips import FRAMES
from ..data.layers import SIDE

PIXELS_PER_LATENT = 8
LATENT_SIDE = SIDE // PIXELS_PER_LATENT
# Few, so that a UNet of this width can move them from their place in the still: with 16 the autoencoder reached 40 dB,
# but moving sprites fell apart; with 8 it reached 38 dB, and sprites melted late in a clip.
LATENT_CHANNELS = 6
# The pipeline resizes to this, whatever the model.
CLIP_SIDE = 224
EMBEDDING = 64
TIME_EMBEDDING = 64
STEPS = 8
# By eye: at 64, sprites keep their shapes better than at 127, the pipeline's own default, and still move. The
# evaluation uses 127, which is harder.
FPS, MOTION_BUCKET, NOISE_AUGMENTATION = 7, 64, 0.02
MEASURED_BUCKET = 127
MIN_GUIDANCE, MAX_GUIDANCE = 1.0, 3.0

AUTOENCODER = dict(
    # All norms are over 32 groups. With one channel in a group, the last one would forget how bright a picture is; with
    # two, and three where the encoder ends, it need not: see beginning.py.
    block_out_channels=[64, 64, 96, 96],
    down_block_types=["DownEncoderBlock2D"] * 4,
    layers_per_block=1,
    latent_channels=LATENT_CHANNELS,
    sample_size=SIDE,
    # Latents are divided by their deviation in the weights themselves; see autoencoder.py.
    scaling_factor=1.0,
    # Activations stay far below f16's maximum: evaluation on a GPU encodes and decodes in f16.
    force_upcast=False,
)

UNET = dict(
    sample_size=[LATENT_SIDE, LATENT_SIDE],
    in_channels=2 * LATENT_CHANNELS,
    out_channels=LATENT_CHANNELS,
    down_block_types=["CrossAttnDownBlockSpatioTemporal"] * 2,
    up_block_types=["CrossAttnUpBlockSpatioTemporal"] * 2,
    block_out_channels=[96, 96],
    layers_per_block=[2, 1],
    num_attention_heads=[3, 3],
    cross_attention_dim=EMBEDDING,
    addition_time_embed_dim=TIME_EMBEDDING,
    projection_class_embeddings_input_dim=3 * TIME_EMBEDDING,
    num_frames=FRAMES,
)

IMAGE_ENCODER = dict(
    hidden_size=96,
    intermediate_size=384,
    projection_dim=EMBEDDING,
    num_hidden_layers=2,
    num_attention_heads=3,
    image_size=CLIP_SIDE,
    patch_size=32,
    hidden_act="gelu",
)

# Stable Video Diffusion's, except for the range of noise: far less than 700 drowns latents of 16 by 16.
SCHEDULER = dict(
    beta_end=0.012,
    beta_schedule="scaled_linear",
    beta_start=0.00085,
    interpolation_type="linear",
    num_train_timesteps=1000,
    prediction_type="v_prediction",
    sigma_max=80.0,
    sigma_min=0.02,
    steps_offset=1,
    timestep_spacing="leading",
    timestep_type="continuous",
    use_karras_sigmas=True,
)


def autoencoder():
    from diffusers import AutoencoderKLTemporalDecoder

    return AutoencoderKLTemporalDecoder(**AUTOENCODER)


def unet():
    from diffusers import UNetSpatioTemporalConditionModel

    return UNetSpatioTemporalConditionModel(**UNET)


def image_encoder():
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    return CLIPVisionModelWithProjection(CLIPVisionConfig(**IMAGE_ENCODER))


def scheduler():
    from diffusers import EulerDiscreteScheduler

    return EulerDiscreteScheduler(**SCHEDULER)


def feature_extractor():
    import transformers

    # transformers 5 has a variant that needs no torchvision under its own name.
    kind = getattr(transformers, "CLIPImageProcessorPil", None) or transformers.CLIPImageProcessor
    return kind()


def parameter_count(network):
    return sum(parameter.numel() for parameter in network.parameters())
