"""Makes small image files of every kind that people bring, and the RGB pixels that Pillow sees in them.

A file is opened as diffusers' `load_image` opens it: `ImageOps.exif_transpose`, then `convert("RGB")`. The one
exception is 16-bit grayscale, which Pillow clips at 255 instead of scaling, so that nearly every photo turns white;
there the expected pixels are the high bytes, which is what Pillow itself takes of 16-bit colour.
"""

import struct
import zlib

import numpy as np
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo
from safetensors.numpy import save_file

import fixtures

LIMIT = 200 << 10
ORIENTATION = 0x0112


def scene(width=24, height=16):
    """An asymmetric picture: gradients, a bright disc off the centre, a dark bar."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    red = 255 * x / max(width - 1, 1)
    green = 255 * y / max(height - 1, 1)
    blue = 127 + 120 * np.sin(x / 5) * np.cos(y / 3)
    rgb = np.stack([red, green, blue], -1)
    rgb[(x - 7) ** 2 + (y - 5) ** 2 < 9] = (250, 240, 40)
    rgb[(x > 17) & (x < 20)] = (10, 20, 30)
    return rgb.round().astype(np.uint8)


def alpha(height=16, width=24):
    return (np.add.outer(np.arange(height), np.arange(width)) * 6 % 256).astype(np.uint8)


def png16(samples, colour_type):
    """A 16-bit PNG, which Pillow cannot write for colour."""
    height, width = samples.shape[:2]
    rows = b"".join(b"\0" + samples[y].astype(">u2").tobytes() for y in range(height))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def exif(orientation):
    data = Image.Exif()
    data[ORIENTATION] = orientation
    return data


def xmp(orientation):
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        f'<rdf:Description xmlns:tiff="http://ns.adobe.com/tiff/1.0/" tiff:Orientation="{orientation}"/>'
        "</rdf:RDF></x:xmpmeta>"
    )


class Photos:
    """The files and their pixels."""

    def __init__(self, out):
        self.out = out
        self.pixels = {}

    def save(self, name, image, **options):
        image.save(self.out / name, **options)
        self.read(name)

    def write(self, name, data, expected=None):
        (self.out / name).write_bytes(data)
        self.read(name, expected)

    def read(self, name, expected=None):
        if expected is None:
            with Image.open(self.out / name) as image:
                expected = np.array(ImageOps.exif_transpose(image).convert("RGB"))
        self.pixels[name] = np.ascontiguousarray(expected)


def cmyk(rgb):
    """Four inks, black among them, which Pillow's own conversion from RGB never uses."""
    height, width = rgb.shape[:2]
    black = (np.add.outer(np.arange(height) * 3, np.arange(width) * 5)).astype(np.uint8)
    return Image.fromarray(np.dstack([255 - rgb, black]), mode="CMYK")


def wide_gray():
    gray = scene()[..., 0].astype(np.uint16) * 257
    gray[3] += np.arange(24, dtype=np.uint16) * 11 % 200
    return gray, np.repeat((gray >> 8).astype(np.uint8)[..., None], 3, -1)


def png(photos, rgb, rgba):
    image = Image.fromarray(rgb)
    photos.save("rgb.png", image)
    photos.save("one_pixel.png", image.crop((9, 9, 10, 10)))
    photos.save("rgba.png", Image.fromarray(rgba))
    photos.save("gray.png", image.convert("L"))
    photos.save("gray_alpha.png", Image.fromarray(rgba).convert("LA"))
    photos.save("bilevel.png", image.convert("1"))
    photos.save("palette.png", image.quantize(64))
    photos.save("palette_4_bit.png", image.quantize(11))
    photos.save("palette_transparent.png", image.quantize(32), transparency=5)
    photos.save("rgb_transparent.png", image, transparency=(10, 20, 30))
    photos.save("oriented.png", image, exif=exif(6))
    information = PngInfo()
    information.add_itxt("XML:com.adobe.xmp", xmp(8))
    photos.save("oriented_by_xmp.png", image, pnginfo=information)
    wide = rgb.astype(np.uint16) * 257
    wide[5] ^= 0x0055
    photos.write("rgb_16_bit.png", png16(wide, 2))
    photos.write("rgba_16_bit.png", png16(np.dstack([wide, alpha().astype(np.uint16) * 257]), 6))
    photos.write("gray_16_bit.png", png16(wide_gray()[0], 0), wide_gray()[1])


def jpeg(photos, rgb):
    image = Image.fromarray(rgb)
    photos.save("444.jpg", image, quality=95, subsampling=0)
    photos.save("420.jpg", image, quality=92, subsampling=2)
    photos.save("422.jpg", image, quality=92, subsampling=1)
    photos.save("progressive.jpg", image, quality=92, progressive=True)
    photos.save("gray.jpg", image.convert("L"), quality=92)
    photos.save("cmyk.jpg", cmyk(rgb), quality=95)
    for orientation in range(1, 9):
        photos.save(f"orientation_{orientation}.jpg", image, quality=95, subsampling=0, exif=exif(orientation))
    photos.save("oriented_by_xmp.jpg", image, quality=95, subsampling=0, xmp=xmp(3).encode())


def webp(photos, rgb, rgba):
    image = Image.fromarray(rgb)
    photos.save("lossless.webp", image, lossless=True)
    photos.save("lossless_alpha.webp", Image.fromarray(rgba), lossless=True, exact=True)
    photos.save("lossy.webp", image, quality=90)
    photos.save("oriented.webp", image, lossless=True, exif=exif(5))


def gif(photos, rgb):
    image = Image.fromarray(rgb).quantize(64)
    photos.save("palette.gif", image)
    photos.save("transparent.gif", image, transparency=3)
    photos.save("gray.gif", Image.fromarray(rgb).convert("L"))
    others = [Image.fromarray(np.roll(rgb, 5 * i, 1)).quantize(64) for i in (1, 2)]
    photos.save("animated.gif", image, save_all=True, append_images=others, duration=50)
    # The first frame as a window on a larger screen: Pillow fills the rest with colour 0.
    data = bytearray((photos.out / "palette.gif").read_bytes())
    data[6:10] = struct.pack("<HH", 30, 20)
    descriptor = 13 + 3 * 64
    assert data[descriptor] == 0x2C
    data[descriptor + 1 : descriptor + 5] = struct.pack("<HH", 4, 2)
    photos.write("window.gif", bytes(data))


def bmp(photos, rgb, rgba):
    image = Image.fromarray(rgb)
    photos.save("rgb.bmp", image)
    photos.save("rgba.bmp", Image.fromarray(rgba))
    photos.save("palette.bmp", image.quantize(64))
    photos.save("bilevel.bmp", image.convert("1"))


def tiff(photos, rgb, rgba):
    image = Image.fromarray(rgb)
    photos.save("rgb.tif", image)
    photos.save("rgb_lzw.tif", image, compression="tiff_lzw")
    photos.save("rgb_deflate.tif", image, compression="tiff_adobe_deflate")
    photos.save("rgba.tif", Image.fromarray(rgba))
    photos.save("gray.tif", image.convert("L"))
    photos.save("bilevel.tif", image.convert("1"))
    photos.save("cmyk.tif", cmyk(rgb))
    photos.save("oriented.tif", image, tiffinfo={ORIENTATION: 7})
    gray, expected = wide_gray()
    Image.fromarray(gray).save(photos.out / "gray_16_bit.tif")
    photos.read("gray_16_bit.tif", expected)


def main():
    out = fixtures.folder(__doc__, "golden/photos")
    photos = Photos(out)
    rgb = scene()
    rgba = np.dstack([rgb, alpha()])
    png(photos, rgb, rgba)
    jpeg(photos, rgb)
    webp(photos, rgb, rgba)
    gif(photos, rgb)
    bmp(photos, rgb, rgba)
    tiff(photos, rgb, rgba)
    save_file(photos.pixels, out / "pixels.safetensors")
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()
