"""Makes the golden image processing: Pillow's resize, and diffusers' pre- and postprocessing. See README.md.

Inputs are made by a formula that the test has as well. Of large results a checksum and every so many values are kept.
"""

import json
from types import SimpleNamespace

import numpy as np
import torch
from diffusers import StableVideoDiffusionPipeline
from diffusers.video_processor import VideoProcessor
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPImageProcessor

import fixtures

LIMIT = 128 << 10
# Width and height before and after.
RESIZES = (
    ((1, 1), (64, 64)),
    ((2, 3), (128, 64)),
    ((37, 53), (64, 64)),
    ((97, 61), (32, 24)),
    ((64, 48), (64, 48)),
    ((64, 100), (64, 50)),
    ((100, 64), (50, 64)),
    ((16, 16), (31, 7)),
    ((640, 480), (1024, 576)),
    ((1000, 701), (256, 192)),
    ((2000, 31), (64, 64)),
    ((3, 1500), (64, 64)),
    # On both sides of where Pillow changes the order of its passes: a height that loses twice what the width loses.
    ((100, 120), (70, 60)),
    ((100, 121), (70, 60)),
    ((60, 80), (61, 79)),
    ((300, 400), (102, 57)),
)
CLIPS = ((2, 2), (5, 3), (100, 70), (224, 224), (225, 223), (640, 480), (300, 1100), (1024, 576), (1600, 2))
CLIP_STRIDE = 197
WHOLE = 4096
NORMALISATION = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.25, 0.3]}


def picture(width, height):
    """Soft and hard edges, and values that change from pixel to pixel."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    soft = x * 3 // 2 + y + 40 * c
    hard = (x // 7 + y // 5 + c) % 2 * 255
    noisy = (x * x * 31 + y * y * 17 + x * y * 7 + c * 101) // 3
    value = np.where((x // 16 + y // 16) % 3 == 0, soft, np.where((x // 16 + y // 16) % 3 == 1, hard, noisy))
    return (value % 256).astype(np.uint8)


def checksum(array):
    """Bytes weighted by their place, modulo 2^64."""
    flat = array.reshape(-1).astype(np.uint64)
    places = np.arange(flat.size, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(1)
    return int((flat * places).sum(dtype=np.uint64))


def clip_pixels(processor, image):
    """What the pipeline's own code hands to the image encoder."""
    seen = []

    class Encoder:
        def parameters(self):
            yield torch.zeros(1)

        def __call__(self, pixels):
            seen.append(pixels)
            return SimpleNamespace(image_embeds=torch.zeros(1, 1))

    pipeline = SimpleNamespace(image_encoder=Encoder(), video_processor=VideoProcessor(), feature_extractor=processor)
    StableVideoDiffusionPipeline._encode_image(pipeline, Image.fromarray(image), "cpu", 1, False)
    return seen[0][0].permute(1, 2, 0).contiguous()


def main():
    out = fixtures.folder(__doc__, "crates/models/tests/fixtures/images")
    fixtures.reproducible()
    tensors, manifest = {}, {"resizes": [], "clips": []}
    processor = VideoProcessor(do_resize=True, vae_scale_factor=1)
    for before, after in RESIZES:
        image = Image.fromarray(picture(*before))
        resized = np.asarray(processor.resize(image, height=after[1], width=after[0]))
        name = f"resize/{before[0]}x{before[1]}/{after[0]}x{after[1]}"
        stride = max(1, resized.size // WHOLE)
        tensors[name] = torch.from_numpy(resized.reshape(-1)[::stride].copy())
        case = {"name": name, "before": before, "after": after, "stride": stride, "checksum": checksum(resized)}
        manifest["resizes"].append(case)
    prepared = processor.preprocess(Image.fromarray(picture(37, 53)), height=24, width=16)
    tensors["preprocess"] = prepared[0].permute(1, 2, 0).contiguous()
    for i, size in enumerate(CLIPS):
        config = NORMALISATION if i % 2 else {}
        pixels = clip_pixels(CLIPImageProcessor(**config), picture(*size))
        name = f"clip/{size[0]}x{size[1]}"
        tensors[name] = pixels.reshape(-1)[::CLIP_STRIDE].clone()
        manifest["clips"].append({"name": name, "size": size, "config": config})
    # Every byte, values halfway between two, and values out of range.
    edges = torch.arange(-20, 531, dtype=torch.float32) / 255 - 1
    frames = torch.cat([edges, torch.randn(489, generator=torch.Generator().manual_seed(3))])[: 3 * 346]
    video = frames.reshape(1, 3, 1, 1, -1)
    (converted,) = VideoProcessor().postprocess_video(video, output_type="pil")
    tensors["frames/values"] = video[0, :, 0, 0].T.contiguous()
    tensors["frames/bytes"] = torch.from_numpy(np.asarray(converted[0])[0].copy())
    save_file(tensors, out / "images.safetensors")
    (out / "images.json").write_text(json.dumps(manifest, indent=1) + "\n")
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()
