"""Makes the golden schedules: diffusers' tables and whole trajectories. See README.md.

A case is a configuration, the class that reads it, and step counts. For every count there are the timesteps, the noise
levels, the scales of the network's input and of the first noise, and the samples after every step of a run in float64.
First samples, predictions and fresh noise come from PyTorch's generator, which the test has as well, so that they need
not be stored.
"""

import warnings
from unittest import mock

import torch
from diffusers.schedulers import (
    scheduling_ddim,
    scheduling_dpmsolver_multistep,
    scheduling_euler_discrete,
    scheduling_lcm,
)
from diffusers.utils import logging
from safetensors.torch import save_file

import fixtures
from ops.double import in_double

LIMIT = 256 << 10
EULER, DDIM = scheduling_euler_discrete.EulerDiscreteScheduler, scheduling_ddim.DDIMScheduler
DPM, LCM = scheduling_dpmsolver_multistep.DPMSolverMultistepScheduler, scheduling_lcm.LCMScheduler
KINDS = {"euler": EULER, "ddim": DDIM, "dpm++": DPM, "lcm": LCM}
STEPS = (1, 2, 3, 4, 8, 10, 25, 30, 50)
# Elements of a sample: few enough that one call of the generator is the sequential one.
ELEMENTS = 3
SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
V = {"prediction_type": "v_prediction"}
SVD = {
    "_class_name": "EulerDiscreteScheduler",
    **SD,
    **V,
    "clip_sample": False,
    "interpolation_type": "linear",
    "num_train_timesteps": 1000,
    "set_alpha_to_one": False,
    "sigma_max": 700.0,
    "sigma_min": 0.002,
    "skip_prk_steps": True,
    "steps_offset": 1,
    "timestep_spacing": "leading",
    "timestep_type": "continuous",
    "trained_betas": None,
    "use_karras_sigmas": True,
}
SPACINGS = ("linspace", "leading", "trailing")


def cases():
    """(name, kind, configuration, eta, step counts)."""

    def case(name, kind, config, eta=0.0, steps=STEPS):
        return name, kind, {"_class_name": KINDS[kind].__name__} | config, eta, steps

    for kind in KINDS:
        yield case(f"{kind}_default", kind, {})
        yield case(f"{kind}_svd", kind, SVD)
        yield case(f"{kind}_sample", kind, SD | {"prediction_type": "sample", "clip_sample": False})
        yield case(f"{kind}_cosine", kind, {"beta_schedule": "squaredcos_cap_v2", "clip_sample": False} | V)
    for kind in ("euler", "ddim", "dpm++"):
        for spacing in SPACINGS:
            config = SD | V | {"timestep_spacing": spacing, "steps_offset": 1, "clip_sample": False}
            yield case(f"{kind}_{spacing}", kind, config)
        config = SD | V | {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "clip_sample": False}
        yield case(f"{kind}_zero_snr", kind, config)
        short = {"num_train_timesteps": 60, "trained_betas": [0.001 + 0.0005 * i for i in range(60)]}
        yield case(f"{kind}_trained_betas", kind, short | {"clip_sample": False})
    for kind in ("euler", "dpm++"):
        yield case(f"{kind}_karras", kind, SD | {"use_karras_sigmas": True})
        yield case(f"{kind}_exponential", kind, SD | V | {"use_exponential_sigmas": True})
        yield case(f"{kind}_sigma_min", kind, SD | {"final_sigmas_type": "sigma_min"})
    yield case("euler_log_linear", "euler", SD | {"interpolation_type": "log_linear"})
    yield case("euler_range", "euler", SD | {"use_karras_sigmas": True, "sigma_min": 0.1, "sigma_max": 10.0})
    yield case("ddim_clip_epsilon", "ddim", SD | {"clip_sample": True, "clip_sample_range": 1.5})
    yield case("ddim_clip_velocity", "ddim", SD | V | {"clip_sample": True})
    yield case("ddim_eta", "ddim", SD | V | {"clip_sample": False}, eta=0.7)
    yield case("ddim_eta_clip", "ddim", SD | {"clip_sample": True}, eta=1.0)
    yield case("ddim_alpha_not_one", "ddim", SD | V | {"clip_sample": False, "set_alpha_to_one": False})
    yield case("dpm++_karras_cosine", "dpm++", {"beta_schedule": "squaredcos_cap_v2", "use_karras_sigmas": True})
    yield case("dpm++_first_order", "dpm++", SD | {"solver_order": 1})
    yield case("dpm++_no_lower_order", "dpm++", SD | V | {"lower_order_final": False, "final_sigmas_type": "sigma_min"})
    yield case("dpm++_euler_at_final", "dpm++", SD | {"euler_at_final": True, "final_sigmas_type": "sigma_min"})
    yield case("dpm++_lambda_min", "dpm++", {"beta_schedule": "squaredcos_cap_v2", "lambda_min_clipped": -5.1})
    yield case("lcm_original_8", "lcm", {"original_inference_steps": 8}, steps=(1, 2, 3, 4, 8))
    yield case("lcm_scaling", "lcm", V | {"timestep_scaling": 0.001})
    yield case("lcm_clip", "lcm", {"clip_sample": True, "clip_sample_range": 0.5})


def run(kind, config, eta, steps):
    """One run: its table, and its samples after every step."""
    scheduler = KINDS[kind].from_config(config)
    scheduler.set_timesteps(steps)
    if hasattr(scheduler, "set_begin_index"):
        # Sigmas above the trained range share a timestep, by which diffusers would begin at the second.
        scheduler.set_begin_index(0)
    timesteps = scheduler.timesteps
    assert len(timesteps) == steps, (kind, config, steps)
    initial = torch.as_tensor(scheduler.init_noise_sigma, dtype=torch.float32)
    if kind in ("euler", "dpm++"):
        sigmas = scheduler.sigmas[: steps + 1]
    else:
        alphas = [scheduler.alphas_cumprod[t] for t in timesteps]
        before = timesteps[-1] - scheduler.config.num_train_timesteps // steps
        if kind == "ddim":
            alphas.append(scheduler.alphas_cumprod[before] if before >= 0 else scheduler.final_alpha_cumprod)
        else:
            alphas.append(torch.tensor(1.0))
        sigmas = torch.stack([((1 - alpha.double()) / alpha.double()) ** 0.5 for alpha in alphas]).float()
    for level in ("sigmas", "alphas_cumprod", "final_alpha_cumprod"):
        if hasattr(scheduler, level):
            setattr(scheduler, level, getattr(scheduler, level).double())
    generator = torch.Generator().manual_seed(steps)

    def draw(*_, **__):
        return torch.randn(ELEMENTS, generator=generator).double()

    sample = (draw().float() * initial).double()
    module = {"euler": scheduling_euler_discrete, "ddim": scheduling_ddim}.get(kind)
    module = module or {"dpm++": scheduling_dpmsolver_multistep, "lcm": scheduling_lcm}[kind]
    scales, samples = [], []
    with in_double(module), mock.patch.object(module, "randn_tensor", draw):
        for t in timesteps:
            one = torch.ones(1, dtype=torch.float64)
            scales.append(scheduler.scale_model_input(one, t).item())
            options = {"eta": eta} if kind == "ddim" else {}
            sample = scheduler.step(draw(), t, sample, **options).prev_sample
            assert sample.dtype == torch.float64
            samples.append(sample.float())
    return timesteps.float(), sigmas, torch.tensor(scales), initial.reshape(1), torch.stack(samples)


def main():
    out = fixtures.folder(__doc__, "crates/models/tests/fixtures/schedulers")
    fixtures.reproducible()
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    manifest, tensors = [], {}
    for name, kind, config, eta, counts in cases():
        runs = [run(kind, config, eta, steps) for steps in counts]
        columns = ("timesteps", "sigmas", "scales", "initial", "samples")
        for column, parts in zip(columns, zip(*runs, strict=True), strict=True):
            tensors[f"{name}/{column}"] = torch.cat(parts).contiguous()
        manifest.append({"name": name, "kind": kind, "config": config, "eta": eta, "steps": counts})
    save_file(tensors, out / "schedulers.safetensors")
    fixtures.write_cases(out / "schedulers.json", manifest)
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()
