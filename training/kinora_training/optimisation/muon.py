"""Muon: steps along the orthogonal matrix nearest to a gradient's moving average, for weights that are matrices.

Every direction of a matrix then learns at the same rate, whereas Adam's steps mostly follow the few directions that
gradients share (Jordan et al. 2024). Steps are scaled to the size of Adam's, 0.2 per weight, so that learning rates
carry over (Liu et al. 2025).
"""

import torch

MOMENTUM, SIZE, ITERATIONS = 0.95, 0.2, 5
# Coefficients of the Newton-Schulz iteration: they pull all singular values towards 1, fast rather than precisely.
FIRST, THIRD, FIFTH = 3.4445, -4.7750, 2.0315


def orthogonal(matrices):
    """Approximately the orthogonal matrices nearest to `[n, rows, columns]`."""
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    for _ in range(ITERATIONS):
        square = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=THIRD, alpha=FIFTH), x, beta=FIRST)
    return x.transpose(1, 2) if tall else x


class Muon:
    """For f32 weights of two or more dimensions; all but the first are flattened into one."""

    def __init__(self, weights, weight_decay):
        self.weights, self.weight_decay = weights, weight_decay
        self.momenta = [torch.zeros_like(weight) for weight in weights]
        self.rate = torch.zeros((), device=weights[0].device)
        # Weights of equal shape are one batched product.
        self.alike = {}
        for number, weight in enumerate(weights):
            self.alike.setdefault(tuple(weight.flatten(1).shape), []).append(number)

    @torch.no_grad()
    def step(self):
        live = [number for number, weight in enumerate(self.weights) if weight.grad is not None]
        momenta, gradients = ([values[n] for n in live] for values in (self.momenta, [w.grad for w in self.weights]))
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        # Nesterov momentum.
        ahead = dict(zip(live, torch._foreach_lerp(gradients, momenta, MOMENTUM), strict=True))
        steps = {}
        for (rows, columns), alike in self.alike.items():
            numbers = [number for number in alike if number in ahead]
            if numbers:
                found = orthogonal(torch.stack([ahead[number].flatten(1) for number in numbers]))
                found = found.float() * (SIZE * max(rows, columns) ** 0.5) * self.rate
                steps.update(
                    (number, one.reshape(self.weights[number].shape))
                    for number, one in zip(numbers, found, strict=True)
                )
        weights = [self.weights[number] for number in live]
        torch._foreach_mul_(weights, 1 - self.rate * self.weight_decay)
        torch._foreach_sub_(weights, [steps[number] for number in live])
