"""Random numbers that depend on the clip and on the place where they are drawn, and on nothing else.

A clip is a function of its number: it draws the same numbers in any batch and on any device. So training clips and
held-out clips are two ranges of numbers, and a clip can be made again on its own.
"""

import torch

MASK = (1 << 64) - 1


def signed(number):
    """The same 64 bits as a number that PyTorch's int64 holds."""
    number &= MASK
    return number - (1 << 64) if number >> 63 else number


STRIDE = signed(0x9E3779B97F4A7C15)
FIRST = signed(0xBF58476D1CE4E5B9)
SECOND = signed(0x94D049BB133111EB)


def shifted(bits, places):
    """A shift to the right that brings in zeros; PyTorch's brings in the sign."""
    return (bits >> places) & ((1 << (64 - places)) - 1)


def mixed(bits):
    """splitmix64's last step: every bit of the result depends on every bit of the input."""
    bits = (bits ^ shifted(bits, 30)) * FIRST
    bits = (bits ^ shifted(bits, 27)) * SECOND
    return bits ^ shifted(bits, 31)


class Draw:
    """Draws numbers for a batch of clips, in the order of the calls.

    Numbers are made ahead in long rows: a GPU makes thousands as quickly as one, and a clip draws hundreds.
    """

    AHEAD = 2048

    def __init__(self, numbers, stream=0):
        # Twice, so that neighbouring clips and streams have nothing in common.
        self.keys = mixed(mixed(numbers * STRIDE + (stream + 1)))
        self.rows = self.used = self.length = 0

    def of(self, rows, stream):
        """For some of the clips, numbers of their own that do not depend on what was drawn before."""
        return Draw(self.keys[rows], stream)

    @property
    def device(self):
        return self.keys.device

    @property
    def count(self):
        return self.keys.shape[0]

    def make_ahead(self, length):
        """A new row of numbers for every clip: 31 bits each, and from 0 to 1."""
        self.rows += 1
        self.used, self.length = 0, length
        places = torch.arange(1, length + 1, device=self.device) * STRIDE
        stream = mixed(self.keys + signed(self.rows * STRIDE))
        self.bits = shifted(mixed(stream[:, None] + places), 33)
        self.units = (self.bits >> 7).float() * (1.0 / (1 << 24))

    def taken(self, shape):
        """Where the next numbers are in the row."""
        elements = torch.Size(shape).numel()
        if self.used + elements > self.length:
            self.make_ahead(max(elements, self.AHEAD))
        self.used += elements
        return slice(self.used - elements, self.used)

    def uniform(self, low, high, *shape):
        """From `low` to `high`, `[clips, *shape]`."""
        place = self.taken(shape)
        return (self.units[:, place] * (high - low) + low).reshape(self.count, *shape)

    def log_uniform(self, low, high, *shape):
        low, high = torch.tensor([low, high]).log().tolist()
        return self.uniform(low, high, *shape).exp()

    def integer(self, count, *shape):
        """From 0 to `count` − 1."""
        place = self.taken(shape)
        return (self.bits[:, place] % count).reshape(self.count, *shape)

    def choice(self, values, *shape):
        """One of the values, each with a probability in proportion to how often it is listed."""
        return torch.tensor(values, device=self.device)[self.integer(len(values), *shape)]

    def chance(self, probability, *shape):
        return self.uniform(0.0, 1.0, *shape) < probability

    def sign(self, *shape):
        return self.integer(2, *shape).float() * 2 - 1

    def normal(self, *shape):
        """By the method of Box and Muller."""
        radius = (-2 * self.uniform(1e-7, 1.0, *shape).log()).sqrt()
        return radius * torch.cos(2 * torch.pi * self.uniform(0.0, 1.0, *shape))
