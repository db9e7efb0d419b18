"""Sampler steps, by diffusers' own schedulers.

Each run goes through a short schedule with a random prediction a step. A case is one step of it: the sample before,
the prediction, and what the scheduler made of them, in some runs moved towards a frame before by `torch.lerp`. The
manifest holds the raw noise levels, so that the test builds the coefficients itself and their formulas are checked too.
"""

from unittest import mock

import torch
from diffusers.schedulers import (
    scheduling_ddim,
    scheduling_dpmsolver_multistep,
    scheduling_euler_discrete,
    scheduling_lcm,
)

from .double import in_double
from .fixture import DTYPES, F32, STORAGES, Family, f32, storage_name

SHAPE = (4, 2, 3, 4)
BETAS = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
PREDICTIONS = {"epsilon": "epsilon", "velocity": "v_prediction"}
GUIDANCE = {"none": None, "scalar": [7.5], "per_frame": [1.0, 3.0]}


class Run:
    """A schedule run step by step in float64."""

    def __init__(self, family, name, module, scheduler, steps, guidance="none", clip=None, storage="f32", blend=None):
        self.family, self.module, self.scheduler = family, module, scheduler
        self.name = name if blend is None else f"{name}_blend_{blend}"
        self.guidance, self.clip, self.dtype = GUIDANCE[guidance], clip, DTYPES[storage]
        # The strength, and the frame before of the present step.
        self.blend, self.previous = blend, None
        scheduler.set_timesteps(steps)
        for level in ("sigmas", "alphas_cumprod", "final_alpha_cumprod"):
            if hasattr(scheduler, level):
                setattr(scheduler, level, getattr(scheduler, level).double())
        self.storage = storage
        self.sample = self.stored(self.random("start") * float(scheduler.init_noise_sigma))

    def random(self, *key, shape=SHAPE):
        return self.family.normal(self.name, *key, shape=shape)

    def stored(self, x):
        """Rounded to the storage, widened again."""
        return x.to(self.dtype).double()

    def predict(self, i):
        """The network's answer, and what guidance makes of it."""
        if self.guidance is None:
            prediction = self.stored(self.random(f"{i}", "prediction"))
            return prediction, prediction
        both = self.stored(self.random(f"{i}", "prediction", shape=(2 * SHAPE[0], *SHAPE[1:])))
        unconditional, conditional = both.chunk(2)
        weight = torch.tensor(self.guidance, dtype=torch.float64).repeat(SHAPE[0] // len(self.guidance))
        weight = weight.reshape(-1, *(1 for _ in SHAPE[1:]))
        return both, torch.lerp(unconditional, conditional, weight)

    def step(self, guided, i, **options):
        with in_double(self.module):
            output = self.scheduler.step(guided, self.scheduler.timesteps[i], self.sample, **options)
        assert output.prev_sample.dtype == torch.float64
        if self.blend is not None:
            self.previous = self.stored(self.random(f"{i}", "previous"))
            output.prev_sample = torch.lerp(output.prev_sample, self.previous, f32(self.blend))
        return output

    def record(self, step_name, prediction, result, levels, denoised=None, scaled=None, history=None, noise=None):
        """Adds the step as a case and moves on to its result."""
        op = {
            "guided": self.guidance is not None,
            "history": history is not None,
            "noise": noise is not None,
            "blend": self.blend is not None,
            "clip": self.clip,
            "emit_denoised": denoised is not None,
            "emit_scaled": scaled is not None,
        }
        inputs = {"sample": self.sample, "prediction": prediction, "table": "$table", "step": "$step"}
        if self.guidance is not None:
            inputs["guidance"] = torch.tensor(self.guidance)
        for key, value in (("history", history), ("noise", noise), ("previous", self.previous)):
            if value is not None:
                inputs[key] = value
        if self.blend is not None:
            inputs["strength"] = torch.tensor([self.blend])
        keep = ("guidance", "strength")
        inputs = {k: v if isinstance(v, str) or k in keep else v.to(self.dtype) for k, v in inputs.items()}
        outputs = [y for y in (result, denoised, scaled) if y is not None]
        name = storage_name(f"{self.name}_{step_name}", self.storage)
        self.family.add(name, {"sampler_step": op}, inputs, outputs, sampler=levels)
        self.sample = self.stored(result)


def label(i, steps):
    return {0: "first", steps - 1: "last"}.get(i, f"middle_{i}")


def euler(family, prediction, guidance="none", steps=4, storage="f32", blend=None, **config):
    name = "_".join(("euler", prediction, guidance, *config))
    scheduler = scheduling_euler_discrete.EulerDiscreteScheduler(
        prediction_type=PREDICTIONS[prediction], **BETAS, **config
    )
    run = Run(family, name, scheduling_euler_discrete, scheduler, steps, guidance, storage=storage, blend=blend)
    for i in range(steps):
        answer, guided = run.predict(i)
        scheduler.scale_model_input(run.sample, scheduler.timesteps[i])
        output = run.step(guided, i)
        levels = {"kind": "euler", "prediction": prediction}
        levels |= {"sigma": scheduler.sigmas[i].item(), "next": scheduler.sigmas[i + 1].item()}
        scaled = scheduler.scale_model_input(output.prev_sample, None)
        run.record(label(i, steps), answer, output.prev_sample, levels, output.pred_original_sample, scaled)


def ddim(family, prediction, eta, guidance="none", steps=4, clip=None, storage="f32", blend=None, **config):
    name = "_".join(("ddim", prediction, f"eta_{eta}", guidance, *(["clip"] if clip else []), *config))
    scheduler = scheduling_ddim.DDIMScheduler(
        prediction_type=PREDICTIONS[prediction],
        clip_sample=clip is not None,
        clip_sample_range=clip or 1.0,
        **BETAS,
        **config,
    )
    run = Run(family, name, scheduling_ddim, scheduler, steps, guidance, clip, storage, blend)
    for i in range(steps):
        answer, guided = run.predict(i)
        noise = run.stored(run.random(f"{i}", "noise")) if eta > 0.0 else None
        # A clipped sample must also decide the direction: Kinora's step knows the network's answer through it alone.
        output = run.step(guided, i, eta=eta, use_clipped_model_output=clip is not None, variance_noise=noise)
        t = scheduler.timesteps[i]
        before = t - scheduler.config.num_train_timesteps // steps
        following = scheduler.alphas_cumprod[before] if before >= 0 else scheduler.final_alpha_cumprod
        levels = {"kind": "ddim", "prediction": prediction, "eta": eta}
        levels |= {"alpha": scheduler.alphas_cumprod[t].item(), "next": following.item()}
        run.record(label(i, steps), answer, output.prev_sample, levels, output.pred_original_sample, noise=noise)


def dpm_solver(family, prediction, guidance="none", steps=4, storage="f32", blend=None, **config):
    name = "_".join(("dpm", prediction, guidance, *config))
    module = scheduling_dpmsolver_multistep
    scheduler = module.DPMSolverMultistepScheduler(
        prediction_type=PREDICTIONS[prediction],
        algorithm_type="dpmsolver++",
        solver_order=2,
        solver_type="midpoint",
        **BETAS,
        **config,
    )
    run = Run(family, name, module, scheduler, steps, guidance, storage=storage, blend=blend)
    alpha = [(1.0 / (sigma**2 + 1.0)).item() for sigma in scheduler.sigmas]
    for i in range(steps):
        answer, guided = run.predict(i)
        second_order = 0 < i < steps - 1
        history = None
        if second_order:
            # The solver is to read the stored history, as Kinora's step does.
            history = scheduler.model_outputs[-1] = run.stored(scheduler.model_outputs[-1])
        output = run.step(guided, i)
        levels = {"kind": "dpm_solver_2m", "prediction": prediction}
        levels |= {
            "previous": alpha[i - 1] if second_order else None,
            "alpha": alpha[i],
            "next": alpha[i + 1],
        }
        run.record(label(i, steps), answer, output.prev_sample, levels, scheduler.model_outputs[-1], history=history)


def lcm(family, prediction, guidance="none", steps=4, clip=None, storage="f32", blend=None, **config):
    name = "_".join(("lcm", prediction, guidance, *(["clip"] if clip else []), *config))
    scheduler = scheduling_lcm.LCMScheduler(
        prediction_type=PREDICTIONS[prediction],
        clip_sample=clip is not None,
        clip_sample_range=clip or 1.0,
        **BETAS,
        **config,
    )
    run = Run(family, name, scheduling_lcm, scheduler, steps, guidance, clip, storage, blend)
    for i in range(steps):
        answer, guided = run.predict(i)
        last = i == steps - 1
        noise = None if last else run.stored(run.random(f"{i}", "noise"))
        with mock.patch.object(scheduling_lcm, "randn_tensor", return_value=noise):
            output = run.step(guided, i)
        t = scheduler.timesteps[i]
        levels = {
            "kind": "lcm",
            "prediction": prediction,
            "alpha": scheduler.alphas_cumprod[t].item(),
            "next": None if last else scheduler.alphas_cumprod[scheduler.timesteps[i + 1]].item(),
            "timestep": t.item(),
            "timestep_scaling": scheduler.config.timestep_scaling,
            "sigma_data": scheduler.sigma_data,
        }
        run.record(label(i, steps), answer, output.prev_sample, levels, noise=noise)


def build():
    family = Family("sampler")
    for prediction in PREDICTIONS:
        for storage in STORAGES:
            euler(family, prediction, "scalar", steps=3, storage=storage)
        euler(family, prediction, steps=3)
        for storage in STORAGES if prediction == "epsilon" else F32:
            ddim(family, prediction, 1.0, "scalar", steps=3, storage=storage)
            dpm_solver(family, prediction, "scalar", storage=storage)
            lcm(family, prediction, "scalar", steps=3, storage=storage)
        ddim(family, prediction, 0.0, steps=3)
        ddim(family, prediction, 0.5, "per_frame", steps=3)
        ddim(family, prediction, 0.0, steps=3, clip=1.0)
        dpm_solver(family, prediction)
        lcm(family, prediction, steps=3)
    euler(family, "velocity", "per_frame", steps=3, use_karras_sigmas=True)
    ddim(family, "epsilon", 0.0, "scalar", steps=3, set_alpha_to_one=False)
    dpm_solver(family, "epsilon", "per_frame", use_karras_sigmas=True)
    lcm(family, "epsilon", "per_frame", clip=1.0)
    # With the published scaling of 10 the sample's share is too small to show.
    lcm(family, "epsilon", steps=3, timestep_scaling=0.001)
    for storage in STORAGES:
        euler(family, "epsilon", "scalar", steps=2, storage=storage, blend=0.3)
        dpm_solver(family, "epsilon", "scalar", steps=3, storage=storage, blend=0.6)
        lcm(family, "epsilon", steps=2, storage=storage, blend=0.3)
    lcm(family, "epsilon", "per_frame", steps=2, clip=1.0, blend=0.8)
    # Off, as at a cut, and nothing but the frame before.
    ddim(family, "velocity", 1.0, "per_frame", steps=2, blend=0.0)
    ddim(family, "velocity", 0.0, steps=2, blend=1.0)
    return family
