"""Stable Video Diffusion as it is published: what the golden scripts and the peers of benchmarks both build it from."""

# The UNet's kinds of blocks, as diffusers calls them.
CROSS_DOWN, DOWN = "CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"
CROSS_UP, UP = "CrossAttnUpBlockSpatioTemporal", "UpBlockSpatioTemporal"

# Of its EulerDiscreteScheduler. Settings that Euler's method does not know are left out.
SCHEDULER = dict(
    beta_end=0.012,
    beta_schedule="scaled_linear",
    beta_start=0.00085,
    interpolation_type="linear",
    num_train_timesteps=1000,
    prediction_type="v_prediction",
    sigma_max=700.0,
    sigma_min=0.002,
    steps_offset=1,
    timestep_spacing="leading",
    timestep_type="continuous",
    use_karras_sigmas=True,
)
