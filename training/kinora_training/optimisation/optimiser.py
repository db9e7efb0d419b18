"""Muon and AdamW on f32 weights, for networks that compute in bf16; with a moving average, and a training step as one
CUDA graph.

The networks are small: launched one by one, their kernels would wait for the CPU.
"""

import time

import torch

from .muon import Muon

CLIP = 1.0
# As a share of Muon's rate: embeddings, norms and biases take smaller steps.
BESIDE_MUON = 0.5


class Weights:
    """The f32 weights behind one or more networks, their moving average, and the optimisers' state. Weights for which
    `by_muon(name)` is true are Muon's, the others AdamW's."""

    def __init__(self, networks, weight_decay, averaged, by_muon=lambda name: False, betas=(0.9, 0.99)):
        self.networks = networks
        self.names = [f"{part}.{name}" for part, n in networks.items() for name, _ in n.named_parameters()]
        self.parameters = [p for network in networks.values() for p in network.parameters()]
        self.device = self.parameters[0].device
        self.master = [p.detach().float().clone() for p in self.parameters]
        self.average = [p.clone() for p in self.master]
        self.averaged = averaged
        on_gpu = self.device.type == "cuda"
        matrices = [m for m, name in zip(self.master, self.names, strict=True) if m.ndim > 1 and by_muon(name)]
        self.muon = Muon(matrices, weight_decay) if matrices else None
        taken = {id(m) for m in matrices}
        groups = [
            dict(params=[m for m in self.master if m.ndim > 1 and id(m) not in taken], weight_decay=weight_decay),
            dict(params=[m for m in self.master if m.ndim <= 1], weight_decay=0.0),
        ]
        rate = torch.tensor(0.0, device=self.device) if on_gpu else 0.0
        self.adam = torch.optim.AdamW(groups, lr=rate, betas=betas, eps=1e-8, fused=True, capturable=on_gpu)
        self.decay = torch.zeros((), device=self.device)
        self.steps = 0

    def networks_to(self, dtype):
        """Lets the networks compute in another type; the weights here stay f32."""
        for network in self.networks.values():
            network.to(dtype)
        self.parameters = [p for network in self.networks.values() for p in network.parameters()]

    def schedule(self, rate):
        """Before a step: sets its learning rate and the decay of the average."""
        self.steps += 1
        # Over the last part of the steps so far, however many there will be (Karras et al. 2024).
        keep = 1 - 1 / (10 + self.averaged * self.steps)
        self.decay.fill_(keep)
        if self.muon is not None:
            self.muon.rate.fill_(rate)
            rate *= BESIDE_MUON
        for group in self.adam.param_groups:
            if torch.is_tensor(group["lr"]):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def clear(self):
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def update(self):
        """After the backward pass: the step, the networks' copies and the average. Returns the gradients' norm."""
        live = [(p, m) for p, m in zip(self.parameters, self.master, strict=True) if p.grad is not None]
        for _, master in live:
            if master.grad is None:
                master.grad = torch.zeros_like(master)
        masters, gradients = [m for _, m in live], [m.grad for _, m in live]
        torch._foreach_copy_(gradients, [p.grad for p, _ in live])
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        torch._foreach_mul_(gradients, (CLIP / (norm + 1e-6)).clamp(max=1.0))
        self.adam.step()
        if self.muon is not None:
            self.muon.step()
        torch._foreach_copy_([p for p, _ in live], masters)
        averages = [a for a, p in zip(self.average, self.parameters, strict=True) if p.grad is not None]
        torch._foreach_mul_(averages, self.decay)
        torch._foreach_add_(averages, torch._foreach_mul(masters, 1 - self.decay))
        return norm

    def averaged_state(self, part):
        """The averaged weights of a network, by their names in it."""
        prefix = f"{part}."
        pairs = zip(self.names, self.average, strict=True)
        return {name.removeprefix(prefix): value.clone() for name, value in pairs if name.startswith(prefix)}

    def state(self):
        momenta = [] if self.muon is None else self.muon.momenta
        return dict(
            master=self.master, average=self.average, adam=self.adam.state_dict(), momenta=momenta, steps=self.steps
        )

    @torch.no_grad()
    def restore(self, state):
        momenta = [] if self.muon is None else self.muon.momenta
        for mine, kept in ((self.master, "master"), (self.average, "average"), (momenta, "momenta")):
            for own, saved in zip(mine, state[kept], strict=True):
                own.copy_(saved)
        rates = [group["lr"] for group in self.adam.param_groups]
        self.adam.load_state_dict(state["adam"])
        for group, rate in zip(self.adam.param_groups, rates, strict=True):
            group["lr"] = rate
        self.steps = state["steps"]
        torch._foreach_copy_([p.data for p in self.parameters], self.master)


class Step:
    """A training step on inputs of fixed shapes, replayed as a CUDA graph if it can be captured.

    `function(**inputs)` computes gradients, updates weights and returns a dictionary of tensors.
    """

    WARM_UP = 4

    def __init__(self, function, weights, graph=True):
        self.function, self.weights = function, weights
        self.wanted = graph and weights.device.type == "cuda"
        self.graph, self.inputs, self.results, self.calls = None, None, None, 0

    def run(self, **inputs):
        self.weights.clear()
        return self.function(**inputs)

    def __call__(self, **inputs):
        if self.graph is not None:
            for name, value in inputs.items():
                self.inputs[name].copy_(value)
            self.graph.replay()
            return self.results
        self.calls += 1
        if not self.wanted:
            return self.run(**inputs)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            results = self.run(**inputs)
        torch.cuda.current_stream().wait_stream(stream)
        if self.calls == self.WARM_UP:
            self.capture(inputs)
        return results

    def capture(self, inputs):
        self.inputs = {name: value.clone() for name, value in inputs.items()}
        start = time.perf_counter()
        try:
            torch.cuda.synchronize()
            self.weights.clear()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.results = self.function(**self.inputs)
            self.graph = graph
            print(f"  the step is one CUDA graph, made in {time.perf_counter() - start:.1f} s", flush=True)
        except Exception as error:  # noqa: BLE001 - whatever cannot be captured can still be run.
            self.wanted, self.inputs = False, None
            print(f"  the step cannot be made a CUDA graph, and runs without: {error}", flush=True)
            torch.cuda.synchronize()
