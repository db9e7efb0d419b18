"""Makes the golden tensors of every op. See README.md."""

import fixtures
from ops import arrange, attention, conv, embedding, linear, norm, pointwise, resample, sampler

LIMIT = 5 << 19


def main():
    out = fixtures.folder(__doc__, "testing/fixtures/ops")
    fixtures.reproducible()
    for module in (conv, linear, norm, pointwise, attention, arrange, resample, embedding, sampler):
        family = module.build()
        size = family.write(out)
        print(f"{family.name:12} {len(family.cases):4} cases {size / 1024:8.1f} KiB")
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()
