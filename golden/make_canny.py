"""Makes the golden edges: what OpenCV's `Canny` finds in pictures that the test makes too. See README.md."""

import cv2
import numpy as np
import torch
from safetensors.torch import save_file

import fixtures
import synthetic
from make_images import picture

LIMIT = 128 << 10
# A picture, its width and height, and the thresholds.
CASES = [
    ("picture", 64, 48, 100, 200),
    ("picture", 97, 61, 30, 400),
    ("picture", 1, 1, 10, 20),
    ("picture", 31, 1, 100, 200),
    ("picture", 1, 40, 100, 200),
    ("hill", 80, 60, 20, 60),
    ("hill", 61, 90, 0, 150),
    ("hill", 40, 40, 300, 40),
    ("noise", 50, 37, 500, 900),
    ("noise", 33, 44, 0, 0),
    ("noise", 20, 20, 2040, 2040),
]


def hill(width, height):
    """Slopes in every direction, with a plain around them."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    far = ((x - width // 2) ** 2 * 3 + (y - height // 2) ** 2 * 5) // (c + 4)
    return (255 - np.minimum(far, 255)).astype(np.uint8)


PICTURES = {"picture": picture, "hill": hill, "noise": synthetic.photo}


def main():
    out = fixtures.folder(__doc__, "crates/models/tests/fixtures/canny")
    cases, results = [], {}
    for kind, width, height, low, high in CASES:
        name = f"{kind}_{width}x{height}"
        edges = cv2.Canny(PICTURES[kind](width, height), low, high)
        assert set(np.unique(edges)) <= {0, 255}
        print(f"{name:20} {(edges > 0).mean():.1%} of the pixels are edges")
        # A bit for each pixel.
        results[f"{name}/edges"] = torch.from_numpy(np.packbits(edges > 0))
        cases.append(dict(name=name, kind=kind, width=width, height=height, low=low, high=high))
    save_file(results, out / "canny.safetensors")
    fixtures.write_cases(out / "canny.json", cases)
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()
