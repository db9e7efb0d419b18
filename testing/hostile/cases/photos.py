"""Photos that are damaged, or larger than they look."""

from __future__ import annotations

import struct
import zlib
from random import Random

from damage import damaged
from room import FORMATS, Room
from run import Run

from .clip import clip


def damaged_photo(room: Room, random: Random) -> Run:
    source = random.choice(room.supplies.photos)
    content = damaged(source.read_bytes(), random)
    # The content decides, not the name.
    name = random.choice([source.name, "photo.png", "photo"])
    room.write(name, content)
    return clip(room, name, f"{source.name} damaged", ending=random.choice(FORMATS))


def bomb(room: Room, random: Random) -> Run:
    """A small file that says that it is large."""
    sides = [0, 1, 20_000, 16_384, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1]
    width, height = random.choice(sides), random.choice(sides)
    kind = random.choice(list(BOMBS))
    room.write(f"photo.{kind}", BOMBS[kind](width, height, random))
    return clip(room, f"photo.{kind}", f"a {kind} of {width}×{height}", words=["--memory-limit", "300MB"])


def png(width: int, height: int, random: Random) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    colour = random.choice([0, 2, 3, 4, 6])
    depth = random.choice([1, 2, 4, 8, 16])
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, random.choice([0, 1]))
    chunks = [chunk(b"IHDR", header)]
    if random.random() < 0.3:
        # A note that unfolds to a quarter of a gigabyte.
        packer = zlib.compressobj(9)
        folded = b"".join(packer.compress(b"\0" * (1 << 24)) for _ in range(16)) + packer.flush()
        name = random.choice([b"iCCP", b"zTXt"])
        chunks.append(chunk(name, b"a\0\0" + folded))
    if colour == 3:
        chunks.append(chunk(b"PLTE", b"\1\2\3"))
    chunks += [chunk(b"IDAT", zlib.compress(b"\0" * random.choice([0, 100, 1 << 20]), 9)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def bmp(width: int, height: int, random: Random) -> bytes:
    bits = random.choice([1, 4, 8, 16, 24, 32])
    packing = random.choice([0, 0, 1, 2, 3])
    colours = random.choice([0, 256, 2**32 - 1])
    header = struct.pack("<IIIHHIIIIII", 40, width, height, 1, bits, packing, 0, 0, 0, colours, 0)
    return b"BM" + struct.pack("<IHHI", 2**32 - 1, 0, 0, 54) + header + b"\0" * random.choice([0, 1024])


def gif(width: int, height: int, random: Random) -> bytes:
    size = struct.pack("<HH", width & 0xFFFF, height & 0xFFFF)
    frame = b"," + struct.pack("<HH", random.choice([0, 65_535]), 0) + size + b"\0"
    return b"GIF89a" + size + b"\xf0\0\0" + b"\0\0\0\xff\xff\xff" + frame + b"\x02\x02\x4c\x01\0;"


def tiff(width: int, height: int, random: Random) -> bytes:
    packing = random.choice([1, 5, 7, 8, 32773])
    entries = [
        (256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, random.choice([1, 8, 16, 64])), (259, 3, 1, packing),
        (262, 3, 1, random.choice([0, 1, 2, 3, 5, 6])), (273, 4, 1, 8), (277, 3, 1, random.choice([1, 3, 4, 65_535])),
        (278, 4, 1, random.choice([1, height])), (279, 4, 1, random.choice([1, 2**32 - 1])),
    ]  # fmt: skip
    body = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0" + struct.pack("<I", 8) + body + struct.pack("<I", random.choice([0, 8]))


def webp(width: int, height: int, random: Random) -> bytes:
    canvas = b"".join(struct.pack("<I", max(side - 1, 0) & 0xFFFFFF)[:3] for side in (width, height))
    extended = b"VP8X" + struct.pack("<I", 10) + bytes([random.choice([0, 16, 62])]) + b"\0\0\0" + canvas
    bits = (width - 1 & 0x3FFF) | (height - 1 & 0x3FFF) << 14
    lossless = b"VP8L" + struct.pack("<IBI", 5 + 16, 0x2F, bits) + b"\0" * 17
    body = random.choice([extended + lossless, lossless, extended])
    return b"RIFF" + struct.pack("<I", random.choice([len(body) + 4, 2**32 - 1])) + b"WEBP" + body


def jpeg(width: int, height: int, random: Random) -> bytes:
    parts = random.choice([1, 3, 4, 255])
    components = b"".join(bytes([i, 0x11, 0]) for i in range(parts))
    frame = struct.pack(">BHHB", 8, height & 0xFFFF, width & 0xFFFF, parts) + components
    marker = random.choice([0xC0, 0xC1, 0xC2, 0xC3, 0xC9])
    scan = b"\xff\xda\0\x08\x01\x01\0\0\x3f\0\0\xff\xd9"
    return b"\xff\xd8\xff" + bytes([marker]) + struct.pack(">H", len(frame) + 2) + frame + scan


BOMBS = {"png": png, "bmp": bmp, "gif": gif, "tif": tiff, "webp": webp, "jpg": jpeg}
