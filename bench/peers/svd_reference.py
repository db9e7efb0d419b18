"""Reference outputs of each stage, and how far the lower precisions are from f32, or f32 from f64.

`<out>/reference/inputs.safetensors` holds the inputs, `<out>/reference/photo.png` the pipeline's photo, and
`<out>/reference/<precision>/<stage>.safetensors` the results; `<out>/errors.json` compares. See README.md for the names.
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
    """Within it f32 is f32: PyTorch's convolutions use TF32 unless told otherwise, and what is timed later is to do so again."""
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
    """Results are kept in f32 whatever they were computed in; bytes stay bytes."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).contiguous()


def error(result, reference):
    """How far a result is from the reference: relative in the root mean square, and the largest difference."""
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
    """The precision whose results another one's are compared with: f32 is no truth for itself."""
    return "f64" if precision == "f32" else "f32"


def compare(out, precision, stage):
    """Adds the errors of a stage's results to errors.json, where those that judge them are there."""
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


def run(out, folder, size, precisions, stages, device, decode_chunk):
    """Computes and stores every stage's results in every precision; those that judge others first."""
    write_inputs(out, size)
    judges = ("f64", "f32")
    for precision in sorted(precisions, key=lambda precision: (judges + (precision,)).index(precision)):
        for stage in stages:
            with true_f32(), torch.inference_mode():
                model = svd_stages.Model(folder, size, precision, device, decode_chunk)
                results = measure.attempt(lambda: model.stage(stage)())
            del model
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
