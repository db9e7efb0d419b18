"""Golden tensors of networks, computed in f64 by the libraries that the models come from, and stored as f32.

Weights and inputs are made from their names (see synthetic.py), so that a fixture holds results alone. An input is
called `<case>/<input>`, a result `<case>/<result>`.
"""

import torch
from safetensors.torch import save_file

import fixtures
import synthetic
from ops.layouts import images_last

LIMIT = 400 << 10


def given(case, name, *shape):
    """An input in Kinora's layout."""
    return torch.from_numpy(synthetic.uniform(f"{case}/{name}", torch.Size(shape).numel())).reshape(shape)


def synthetic_model(model, prefix=""):
    """The model with synthetic weights, in f64."""
    model = model.double().eval()
    synthetic.fill(model, prefix)
    return model


def keep_parts(model, case, results):
    """From now on a run of the model adds what the case's parts give, under their own names."""

    def keep(part):
        def hook(_module, _inputs, result):
            result = result[0] if isinstance(result, tuple) else result
            results[f"{case['name']}/{part}"] = images_last(result) if result.ndim == 4 else result

        return hook

    for part in case["parts"]:
        model.get_submodule(part).register_forward_hook(keep(part))


def each(cases, run):
    """The cases, and the results that `run(case, results)` adds for each."""
    results = {}
    for case in cases:
        run(case, results)
    return cases, results


def main(description, name, build):
    """Writes the cases and results that `build` gives to `<name>.json` and `<name>.safetensors`."""
    out = fixtures.folder(description, f"crates/models/tests/fixtures/{name}")
    fixtures.reproducible()
    with torch.no_grad():
        cases, results = build()
    for result, tensor in results.items():
        assert tensor.dtype in (torch.float64, torch.uint8), f"{result} is {tensor.dtype}"
        print(f"{result:50} {list(tensor.shape)!s:20} rms {tensor.double().square().mean().sqrt():.3f}")
    stored = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in results.items()}
    save_file({name: tensor.contiguous() for name, tensor in stored.items()}, out / f"{name}.safetensors")
    fixtures.write_cases(out / f"{name}.json", cases)
    fixtures.check_size(out, LIMIT)
