"""Reference results of each stage, and the errors of the lower precisions against f32, or of f32 against f64.

`<out>/reference/inputs.safetensors` holds the inputs, `<out>/reference/photo.png` the pipeline's photo, and
`<out>/reference/<precision>/<stage>.safetensors` the results; `<out>/errors.json` compares. See README.md for the
names.
"""

import contextlib
import json
import math

import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import measure
import svd_stages


@contextlib.contextmanager
def true_f32():
    """Turns TF32 off: PyTorch's convolutions use it by default, and should again when they are timed later."""
    kinds = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [kind.allow_tf32 for kind in kinds]
    try:
        for kind in kinds:
            kind.allow_tf32 = False
        yield
    finally:
        for kind, allowed in zip(kinds, before, strict=True):
            kind.allow_tf32 = allowed


def write_inputs(out, size):
    folder = out / "reference"
    folder.mkdir(parents=True, exist_ok=True)
    tensors = svd_stages.inputs(size)
    save_file(tensors, folder / "inputs.safetensors")
    Image.fromarray(tensors["pipeline.photo"].numpy()).save(folder / "photo.png")


def stored(tensor):
    """Results are stored in f32 in any precision; bytes stay bytes."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).contiguous()


def error(result, reference):
    """The error of a result: its relative root mean square, and the largest difference."""
    result, reference = result.double(), reference.double()
    difference = result - reference
    scale = reference.square().mean().sqrt().item()
    rms = difference.square().mean().sqrt().item()
    numbers = {
        "relative_rms": rms / scale if scale else rms,
        "largest": difference.abs().max().item(),
        "reference_rms": scale,
        "reference_largest": reference.abs().max().item(),
    }
    # JSON has neither infinities nor NaN.
    finite = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
    return finite | {"finite": bool(torch.isfinite(result).all())}


def judge(precision):
    """The precision that another one is compared with."""
    return "f64" if precision == "f32" else "f32"


def compare(out, precision, stage):
    """Adds the errors of a stage's results to errors.json, if there are results to compare them with."""
    reference = out / "reference" / judge(precision) / f"{stage}.safetensors"
    if precision == "f64" or not reference.exists():
        return
    expected = load_file(reference)
    results = load_file(out / "reference" / precision / f"{stage}.safetensors")
    for name, tensor in results.items():
        found = error(tensor, expected[name])
        measure.add(out / "errors.json", f"{precision}.{name}", found)
        if found["finite"]:
            far = f"relative rms error {found['relative_rms']:.3e}, largest {found['largest']:.3e}"
        else:
            far = "not finite"
        print(f"  {precision} {name}: {far}")


def compute(folder, size, precision, device, decode_chunk, stage):
    """A stage's results. The model is freed with the call."""
    return svd_stages.Model(folder, size, precision, device, decode_chunk).stage(stage)()


def run(out, folder, size, precisions, stages, device, decode_chunk):
    """Computes and stores every stage's results in every precision, the higher precisions first."""
    write_inputs(out, size)
    judges = ("f64", "f32")
    for precision in sorted(precisions, key=lambda precision: (*judges, precision).index(precision)):
        for stage in stages:
            with true_f32(), torch.inference_mode():
                results = measure.attempt(compute, folder, size, precision, device, decode_chunk, stage)
            if "failed" in results:
                measure.add(out / "errors.json", f"{precision}.{stage}", results)
                print(f"reference {precision} {stage}: {results['failed']}", flush=True)
                measure.release(device)
                continue
            target = out / "reference" / precision / f"{stage}.safetensors"
            target.parent.mkdir(parents=True, exist_ok=True)
            save_file({f"{stage}.{name}": stored(result) for name, result in results.items()}, target)
            shapes = json.dumps({name: list(result.shape) for name, result in results.items()})
            print(f"reference {precision} {stage}: {shapes}", flush=True)
            compare(out, precision, stage)
            del results
            measure.release(device)
