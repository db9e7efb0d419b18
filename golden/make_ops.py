"""Makes the golden tensors of every op. See README.md."""

import fixtures
from ops import arrange, attention, attention_backward, conv, embedding, linear, norm, pointwise, resample, sampler

LIMIT = 5 << 19


def main():
    out = fixtures.folder(__doc__, "testing/fixtures/ops")
    fixtures.reproducible()
    modules = (
        conv,
        linear,
        norm,
        pointwise,
        attention,
        attention_backward,
        arrange,
        resample,
        embedding,
        sampler,
    )
    for module in modules:
        family = module.build()
        size = family.write(out)
        print(f"{family.name:12} {len(family.cases):4} cases {size / 1024:8.1f} KiB")
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()
