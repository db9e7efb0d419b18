"""Compares results and gradients of the fused layers with PyTorch in f64, and of the networks with diffusers' own.

    python -m kinora_training.check_fused                     # on a GPU, its Triton kernels
    TRITON_INTERPRET=1 python -m kinora_training.check_fused  # the same kernels, interpreted on a CPU

Exits with an error if anything differs by more than rounding.
"""

import argparse
import math
import pathlib
import sys

from .host import add_packages


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--packages", type=pathlib.Path)
    arguments.add_argument("--seed", type=int, default=0)
    arguments = arguments.parse_args()
    add_packages(arguments.packages)
    import torch

    from .networks import fused
    from .networks.fused import tiles

    if not (torch.cuda.is_available() or tiles.INTERPRETED):
        sys.exit("there is no GPU; set TRITON_INTERPRET=1 to interpret the kernels")
    device = "cuda" if torch.cuda.is_available() and not tiles.INTERPRETED else "cpu"
    torch.manual_seed(arguments.seed)
    failures = 0

    def check(name, dtype, function, plain, tensors, *rest):
        nonlocal failures
        # Scalars are always f32, as in training.
        kinds = [torch.float32 if t is not None and t.ndim == 0 else dtype for t in tensors]
        given = [
            None if t is None else t.to(device, kind).requires_grad_() for t, kind in zip(tensors, kinds, strict=True)
        ]
        exact = [None if t is None else t.detach().double().requires_grad_() for t in given]
        results = [function(*given, *rest), plain(*exact, *rest)]
        results = [r if isinstance(r, tuple) else (r,) for r in results]
        gradients = [torch.randn_like(r) for r in results[0]]
        torch.autograd.backward(results[0], gradients)
        torch.autograd.backward(results[1], [g.double() for g in gradients])
        ours = [*results[0], *(t.grad for t in given if t is not None)]
        theirs = [*results[1], *(t.grad for t in exact if t is not None)]
        errors = [((a.double() - b).norm() / b.norm()).item() for a, b in zip(ours, theirs, strict=True)]
        bar = 2e-5 if dtype == torch.float32 else 8e-3
        good = all(error < bar for error in errors)
        failures += not good
        print(
            f"{'ok' if good else 'WRONG':5} {name} {str(dtype)[6:]}: " + " ".join(f"{e:.1e}" for e in errors),
            flush=True,
        )

    random = torch.randn
    small = tiles.INTERPRETED
    clips = 2 if small else 8
    for dtype in (torch.float32, torch.bfloat16):
        for width, rows, n in ((96, 200, 3), (192, 64, 5), (64, 14 * 64, clips), (64, 9000, 1)):
            for silu in (False, True):
                for vector in (None, random(n, width)):
                    tensors = [random(n, rows, width) + 0.5, vector, random(width) + 1, random(width)]
                    check(
                        f"group norm {n}x{rows}x{width} silu={silu} vector={vector is not None}",
                        dtype,
                        fused.group_norm,
                        fused.plain_group_norm,
                        tensors,
                        32,
                        1e-5,
                        silu,
                    )
        for count, every, repeats, branch in ((1, 128, 2, True), (clips, 192, 1, True), (3, 64, 2, False)):
            rows = count * every * repeats
            tensors = [
                random(rows, 96),
                random(rows, 96) if branch else None,
                random(count, 96),
                random(96) + 1,
                random(96),
            ]

            def called(x, branch, vector, weight, bias, every=every, function=None):
                return function(x, branch, vector, every, weight, bias, 1e-5)

            check(
                f"add and layer norm {rows}x96 vectors={count} branch={branch}",
                dtype,
                lambda *t: called(*t, function=fused.add_norm),
                lambda *t: called(*t, function=fused.plain_add_norm),
                tensors,
            )
        check("gate", dtype, fused.gate, fused.plain_gate, [random(128, 768), random(768)])
        for part, other in ((None, None), (random(()), None), (random(()), random(192, 96))):
            tensors = [random(192, 96), random(192, 96), random(96), part, other]
            check(f"mix part={part is not None} other={other is not None}", dtype, fused.mix, fused.plain_mix, tensors)
        if small and dtype == torch.bfloat16:
            print("not run: attention in bfloat16, of which the interpreter cannot make products")
            continue
        for frames, places, heads, size in ((14, 6, 3, 32), (16, 4, 2, 16), (5, 3, 1, 32)):
            tensors = [random(clips, frames, places, 3 * heads * size)]
            check(
                f"attention over {frames} frames",
                dtype,
                fused.frame_attention,
                fused.plain_frame_attention,
                tensors,
                heads,
            )

    # The whole networks, at the sizes used in training but with fewer clips. Interpreting them would take too long.
    tiles.INTERPRETED = False
    torch.backends.cudnn.allow_tf32 = False
    from .networks import configurations as sizes
    from .networks import fast_layers, fast_unet

    def check_network(name, make, plain, fast):
        """Compares results and gradients of `plain`, diffusers in f64, and `fast`, our layers."""
        nonlocal failures
        start = make().to(device)
        for parameter in start.parameters():
            # Nothing is left out: all of a network's layers do something.
            torch.nn.init.normal_(parameter, std=0.05 if parameter.ndim > 1 else 0.3)
        exact = make().to(device).double()
        exact.load_state_dict(start.state_dict())
        theirs = plain(exact, torch.float64)
        gradient = torch.randn(theirs.shape, dtype=torch.float64, device=device)
        theirs.backward(gradient)
        wanted = {name: parameter.grad for name, parameter in exact.named_parameters()}
        for dtype, bar in ((torch.float32, 1e-3), (torch.bfloat16, 0.05)):
            network = make().to(device)
            network.load_state_dict(start.state_dict())
            network.to(dtype)
            ours = fast(network, dtype)
            ours.backward(gradient.to(dtype))
            compared = {"result": (ours.double(), theirs)}
            for part, parameter in network.named_parameters():
                # With a single key, queries, keys and the norm before them have no gradient; nor do biases of keys.
                if wanted[part] is not None and wanted[part].norm() > 1e-9 * theirs.numel() ** 0.5:
                    given = torch.zeros_like(wanted[part]) if parameter.grad is None else parameter.grad
                    compared[part] = (given.double(), wanted[part])
            # Gradients of scalars are sums that nearly cancel, as are many others in bf16: compare them as one vector.
            joined = [
                part for part, (_, one) in compared.items() if part != "result" and (one.numel() == 1 or bar > 1e-2)
            ]
            pairs = zip(*(compared.pop(part) for part in joined), strict=True)
            compared["gradients together"] = tuple(torch.cat([value.flatten() for value in values]) for values in pairs)
            errors = {part: ((a - b).norm() / b.norm()).item() for part, (a, b) in compared.items()}
            good = all(error < bar for error in errors.values())
            failures += not good
            worst = max(errors, key=lambda part: math.inf if math.isnan(errors[part]) else errors[part])
            told = f"result {errors['result']:.1e}, worst {errors[worst]:.1e} {worst}"
            print(f"{'ok' if good else 'WRONG':5} {name} {str(dtype)[6:]}: {told}", flush=True)

    side, count = sizes.LATENT_SIDE, 1 if small else 4
    sample = random(count, sizes.FRAMES, 2 * sizes.LATENT_CHANNELS, side, side, device=device)
    context, time = random(count, sizes.EMBEDDING, device=device), random(count, device=device)
    ids = torch.tensor([[6.0, 127.0, 0.02]], device=device).repeat(count, 1)
    check_network(
        "the UNet",
        sizes.unet,
        lambda unet, dtype: unet(sample.to(dtype), time.to(dtype), context.to(dtype)[:, None], ids, return_dict=False)[
            0
        ],
        lambda unet, dtype: fast_unet.forward(unet, sample.to(dtype), time, context.to(dtype), ids),
    )
    frames, pixels = (2, 64) if small else (sizes.FRAMES, sizes.SIDE)
    pictures = random(2 * frames, 3, pixels, pixels, device=device)

    def there_and_back(vae, dtype):
        latents = vae.quant_conv(vae.encoder(pictures.to(dtype))).chunk(2, dim=1)[0]
        indicator = torch.zeros(2, frames, device=device, dtype=dtype)
        return vae.decoder(latents, image_only_indicator=indicator, num_frames=frames)

    check_network(
        "the autoencoder",
        sizes.autoencoder,
        there_and_back,
        lambda vae, dtype: there_and_back(fast_layers.speed_up(vae), dtype),
    )
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
