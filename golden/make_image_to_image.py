"""Makes the golden schedules of runs that begin from a picture: diffusers' tables and trajectories. See README.md.

A case is a configuration, the class that reads it, and runs: a strength of a number of steps, or a list of timesteps.
For every run there are the timesteps, the noise levels, the weights of picture and noise in the first sample, the
scales of the network's input, and the samples after every step in float64. A linear function stands for the network.
Picture, noise and fresh noise come from PyTorch's generator, which the test has as well, so that they need not be
stored.
"""

import warnings
from unittest import mock

import torch
from diffusers import StableDiffusionImg2ImgPipeline
from diffusers.pipelines.latent_consistency_models.pipeline_latent_consistency_img2img import retrieve_timesteps
from diffusers.schedulers import (
    scheduling_ddim,
    scheduling_dpmsolver_multistep,
    scheduling_euler_discrete,
    scheduling_lcm,
)
from diffusers.utils import logging
from safetensors.torch import save_file

import fixtures
from make_schedulers import ELEMENTS, KINDS, SD, SPACINGS, V
from ops.double import in_double

LIMIT = 128 << 10
MODULES = {
    "euler": scheduling_euler_discrete,
    "ddim": scheduling_ddim,
    "dpm++": scheduling_dpmsolver_multistep,
    "lcm": scheduling_lcm,
}
STRENGTHS = [(1, 1.0), (2, 0.5), (4, 0.5), (4, 0.8), (5, 1 / 5), (8, 0.3), (10, 0.7), (16, 0.9375), (25, 0.6)]
STRENGTHS += [(50, 0.35)]
LISTS = [[999], [499], [0], [999, 499], [679, 359, 99], [749, 499, 249, 0], [701, 700, 3, 2]]
# A strength that is a whole number of steps, as a slider of live video has it.
TRAILING = [(n, k / n) for n in (1, 2, 3, 4, 5, 7, 8) for k in range(1, n + 1) if int(n * (k / n)) == k]


def cases():
    """(name, kind, configuration, runs)."""
    by_strength = [{"steps": steps, "strength": strength} for steps, strength in STRENGTHS]
    lists = [{"timesteps": timesteps} for timesteps in LISTS]
    for spacing in SPACINGS:
        config = SD | {"timestep_spacing": spacing, "steps_offset": 1, "clip_sample": False}
        yield f"euler_{spacing}", "euler", config, by_strength + lists
        yield f"ddim_{spacing}", "ddim", config | V, by_strength
        yield f"dpm++_{spacing}", "dpm++", config, by_strength + lists
    yield "euler_karras", "euler", SD | V | {"use_karras_sigmas": True}, by_strength
    yield "dpm++_karras", "dpm++", SD | {"use_karras_sigmas": True}, by_strength
    yield "dpm++_second_order_end", "dpm++", SD | {"final_sigmas_type": "sigma_min"}, by_strength
    yield "ddim_clip", "ddim", SD | {"clip_sample": True}, by_strength
    yield "lcm", "lcm", SD, by_strength[:-1] + lists
    yield "lcm_original_20", "lcm", SD | V | {"original_inference_steps": 20}, by_strength[:3] + lists
    turbo = SD | {"timestep_spacing": "trailing", "steps_offset": 1}
    yield "euler_whole_steps", "euler", turbo, [{"steps": n, "strength": s} for n, s in TRAILING]


def visited(kind, scheduler, run):
    """The timesteps of a run, as diffusers' pipelines choose them."""
    if "timesteps" in run:
        scheduler.set_timesteps(timesteps=run["timesteps"])
        if hasattr(scheduler, "set_begin_index"):
            scheduler.set_begin_index(0)
        return scheduler.timesteps
    if kind == "lcm":
        # As `LatentConsistencyModelImg2ImgPipeline`: the scheduler takes the strength.
        return retrieve_timesteps(scheduler, run["steps"], "cpu", None, strength=run["strength"])[0]
    scheduler.set_timesteps(run["steps"])
    pipeline = mock.Mock(scheduler=scheduler)
    return StableDiffusionImg2ImgPipeline.get_timesteps(pipeline, run["steps"], run["strength"], "cpu")[0]


def sigmas_of(kind, scheduler, run, timesteps):
    """The noise levels of the steps, then where the last one ends."""
    if kind in ("euler", "dpm++"):
        first = len(scheduler.timesteps) - len(timesteps)
        return scheduler.sigmas[first : first + len(timesteps) + 1]
    alphas = [scheduler.alphas_cumprod[t] for t in timesteps]
    if kind == "ddim":
        before = timesteps[-1] - scheduler.config.num_train_timesteps // run["steps"]
        alphas.append(scheduler.alphas_cumprod[before] if before >= 0 else scheduler.final_alpha_cumprod)
    else:
        alphas.append(torch.tensor(1.0))
    return torch.stack([((1 - alpha.double()) / alpha.double()) ** 0.5 for alpha in alphas]).float()


def run_case(kind, config, run):
    """One run: its table, and its samples after every step."""
    scheduler = KINDS[kind].from_config({"_class_name": KINDS[kind].__name__} | config)
    timesteps = visited(kind, scheduler, run)
    sigmas = sigmas_of(kind, scheduler, run, timesteps)
    for level in ("sigmas", "alphas_cumprod", "final_alpha_cumprod"):
        if hasattr(scheduler, level):
            setattr(scheduler, level, getattr(scheduler, level).double())
    generator = torch.Generator().manual_seed(len(timesteps))

    def draw(*_, **__):
        return torch.randn(ELEMENTS, generator=generator).double()

    one, zero = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    mix = torch.cat([scheduler.add_noise(one, zero, timesteps[:1]), scheduler.add_noise(zero, one, timesteps[:1])])
    sample = scheduler.add_noise(draw(), draw(), timesteps[:1])
    scales, samples = [], []
    with in_double(MODULES[kind]), mock.patch.object(MODULES[kind], "randn_tensor", draw):
        for t in timesteps:
            scales.append(scheduler.scale_model_input(one, t).item())
            scaled = scheduler.scale_model_input(sample, t)
            sample = scheduler.step(0.5 * scaled + t.double() / 2000 - 0.2, t, sample).prev_sample
            assert sample.dtype == torch.float64
            samples.append(sample.float())
    return timesteps.float(), sigmas, mix.float(), torch.tensor(scales), torch.stack(samples)


def main():
    out = fixtures.folder(__doc__, "crates/models/tests/fixtures/image_to_image")
    fixtures.reproducible()
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    manifest, tensors = [], {}
    for name, kind, config, runs in cases():
        results = [run_case(kind, config, run) for run in runs]
        columns = ("timesteps", "sigmas", "mix", "scales", "samples")
        for column, parts in zip(columns, zip(*results, strict=True), strict=True):
            tensors[f"{name}/{column}"] = torch.cat(parts).contiguous()
        counts = [len(result[0]) for result in results]
        counted = [run | {"visited": count} for run, count in zip(runs, counts, strict=True)]
        manifest.append({"name": name, "kind": kind, "config": config, "runs": counted})
    save_file(tensors, out / "image_to_image.safetensors")
    fixtures.write_cases(out / "image_to_image.json", manifest)
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()
