"""Stable Video Diffusion in diffusers on a GPU: the peer of Kinora's CUDA backend, on the same machine in the same run.

    python svd_gpu.py --out FOLDER [--size full] [--parts model,reference,eager,compile] [--stages unet,…]

The parts, in this order. Each writes its results as soon as it has them:

    model       a model's folder with synthetic weights in f16, at `<out>/model-<size>` unless `--model` says otherwise
    reference   every stage's results in f32 and f16, and the errors of f16
    eager       times and memory of every stage, as PyTorch runs it
    compile     the same with torch.compile, each stage in a process that is ended after `--compile-limit`

README.md in this folder describes the files and their names. `kinora bench kernels` times single layers.
"""

import argparse
import os
import pathlib
import sys
import time

# Everything comes from a folder; nothing is downloaded.
os.environ["HF_HUB_OFFLINE"] = "1"

import host_packages

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("model", "reference", "eager", "compile")


def chosen(text, known, what):
    """The words of a list, in the order of `known`."""
    words = [word for word in text.split(",") if word]
    for word in words:
        if word not in known:
            raise SystemExit(f"there is no {what} {word!r}: choose from {', '.join(known)}")
    return [word for word in known if word in words]


def parsed():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = arguments.add_argument
    add("--out", type=pathlib.Path, required=True, help="where results go")
    add("--size", choices=("tiny", "small", "full"), default="full")
    add("--model", type=pathlib.Path, help="the model's folder; the part `model` makes it if it does not exist")
    add("--parts", default=",".join(PARTS))
    add("--stages", default="clip,vae_encode,unet,vae_decode,pipeline")
    add("--precisions", default="f32,f16", help="of the references; from f64, f32, f16 and bf16")
    add("--precision", default="f16", choices=("f32", "f16", "bf16"), help="of what is timed")
    add("--layout", default="contiguous", choices=("contiguous", "channels_last"), help="of the weights that are timed")
    add("--decode-chunk", type=int, help="frames that the VAE decodes at a time [default: all]")
    add("--compile-limit", type=float, default=300.0, help="seconds for a compiled stage, measuring included")
    add("--device", default="cuda", help="cuda, cuda:1, … or cpu")
    add("--packages", choices=host_packages.CHOICES, default="missing", help="what to take from the bundle's archive")
    add("--packages-folder", type=pathlib.Path, default=HERE, help="where packages.tar.xz is")
    add("--compiled-alone", help=argparse.SUPPRESS)
    return arguments.parse_args()


def main():
    arguments = parsed()
    parts = chosen(arguments.parts, PARTS, "part")
    added = host_packages.make_importable(arguments.packages, arguments.packages_folder)
    host_packages.import_libraries(added)

    # Only now are the packages there.
    import diffusers
    import torch
    import transformers

    import measure
    import svd_models
    import svd_reference
    import svd_stages
    import svd_times
    import turns

    # Both warn of what is intended here, and draw progress bars into a log.
    diffusers.utils.logging.set_verbosity_error()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()

    device = torch.device(arguments.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no CUDA device here; `--device cpu --size tiny` tries the script without one")
    size = svd_models.Size.named(arguments.size)
    stages = chosen(arguments.stages, svd_stages.STAGES, "stage")
    precisions = chosen(arguments.precisions, tuple(turns.PRECISIONS), "precision")
    out = arguments.out
    model = arguments.model or out / f"model-{arguments.size}"
    chunk, layout, precision = arguments.decode_chunk, arguments.layout, arguments.precision

    if arguments.compiled_alone:
        name = arguments.compiled_alone
        svd_times.compiled_alone(model, size, precision, name, device, chunk, layout)
        return

    out.mkdir(parents=True, exist_ok=True)
    environment = measure.environment(device) | {"size": arguments.size, "from_bundle": added}
    print(", ".join(f"{name} {value}" for name, value in environment.items() if value), flush=True)
    measure.add(out / "times.json", "environment", environment)
    if "model" in parts:
        seconds = svd_models.write(model, size, device)
        print(f"{model}: " + ("there already" if seconds is None else f"written in {seconds:.1f} s"), flush=True)
        measure.release(device)
    elif not (model / "model_index.json").exists():
        raise SystemExit(f"{model} is not a model's folder; the part `model` makes one")
    if "reference" in parts:
        start = time.perf_counter()
        svd_reference.run(out, model, size, precisions, stages, device, chunk)
        print(f"references: {time.perf_counter() - start:.1f} s", flush=True)
    if "eager" in parts:
        svd_times.eager(out, model, size, precision, stages, device, chunk, layout)
    if "compile" in parts:
        svd_times.compiled(out, precision, stages, layout, sys.argv, arguments.compile_limit)


if __name__ == "__main__":
    main()
