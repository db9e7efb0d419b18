"""Makes small videos of the kinds that people bring with ffmpeg, and what ffmpeg itself sees in them.

`NAME.mp4`, `NAME.mov`, `NAME.gif` or `NAME.y4m` is a video. `NAME.yuv.png` holds the luma and chroma planes of its
frames as ffmpeg's decoder gives them, below each other in one gray picture; `NAME.rgb.png` holds the frames as ffmpeg
shows them, below each other. `videos.json` says when each frame is shown. The files depend on the versions of ffmpeg
and x264: these are of ffmpeg 5.1.
"""

import json
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np
from PIL import Image

import fixtures

LIMIT = 200 << 10
WIDTH, HEIGHT, FRAMES, RATE = 48, 32, 8, 25
BIT_EXACT = ["-fflags", "+bitexact", "-flags:v", "+bitexact", "-flags:a", "+bitexact", "-map_metadata", "-1"]
PRIMARIES = "primariesin=170m:transferin=601:primaries=170m:transfer=601"
STANDARD = f"matrixin=170m:{PRIMARIES}:rangein=limited:chromalin=left"
FULL_RANGE = f"matrixin=709:{PRIMARIES}:rangein=full:chromalin=left"
H264 = ["-c:v", "libx264", "-threads", "1", "-pix_fmt", "yuv420p", "-crf", "24"]


def scene(width, height, frames):
    """A disc that moves over gradients, asymmetric in both directions: [frames, height, width, 3]."""
    time, y, x = np.mgrid[0:frames, 0:height, 0:width].astype(np.float64)
    red = 40 + 160 * x / width
    green = 60 + 120 * y / height
    blue = 128 + 60 * np.sin((x + 2 * time) / 9)
    rgb = np.stack([red, green, blue], -1)
    rgb[(x - 8 - 3 * time) ** 2 + (y - 10 - time) ** 2 < 36] = (240, 220, 60)
    rgb[(x > width - 7) & (y > height - 12)] = (20, 30, 200)
    return rgb.round().astype(np.uint8)


def ffmpeg(*words, stdin=None):
    command = ["ffmpeg", "-hide_banner", "-loglevel", "error", "-y", *map(str, words)]
    return subprocess.run(command, input=stdin, check=True, stdout=subprocess.PIPE).stdout


def raw(width=WIDTH, height=HEIGHT, rate=RATE):
    """The words that read the scene from standard input."""
    return ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", rate, "-i", "-"]


def make(path, *words, width=WIDTH, height=HEIGHT, frames=FRAMES, inputs=()):
    """Encodes the scene."""
    data = scene(width, height, frames).tobytes()
    ffmpeg(*raw(width, height), *inputs, *words, *BIT_EXACT, path, stdin=data)


def times(path):
    """When each frame is shown, in seconds."""
    words = ["-select_streams", "v:0", "-show_entries", "frame=best_effort_timestamp_time", "-of", "json"]
    found = subprocess.run(["ffprobe", "-v", "error", *words, path], check=True, stdout=subprocess.PIPE).stdout
    return [round(float(frame["best_effort_timestamp_time"]), 6) for frame in json.loads(found)["frames"]]


def stack(data, width, path):
    pixels = np.frombuffer(data, np.uint8).reshape(-1, width)
    Image.fromarray(pixels).save(path, optimize=True)


def planes(path, out):
    """The planes as they are decoded, without being turned: two chroma rows share one of the picture."""
    data = ffmpeg("-noautorotate", "-i", path, "-vsync", "passthrough", "-f", "rawvideo", "-pix_fmt", "yuv420p", "-")
    stack(data, WIDTH, out)


def shown(path, out, width, colours=None):
    """The frames as they are shown, turned as the file says; `colours` is what zimg, which is exact, must know."""
    exact = f"zscale={colours}:matrix=gbr:range=full:filter=bilinear:dither=none,format=gbrp" if colours else "null"
    words = ["-vf", exact, "-vsync", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    data = ffmpeg("-i", path, *words, "-")
    pixels = np.frombuffer(data, np.uint8).reshape(-1, width, 3)
    Image.fromarray(pixels).save(out, optimize=True)


def h264(out):
    make(out / "plain.mp4", *H264, "-bf", "0", "-movflags", "+faststart")
    pyramid = [*H264, "-profile:v", "high", "-bf", "3", "-b-pyramid", "normal", "-g", "6"]
    make(out / "reordered.mp4", *pyramid, "-x264-params", "weightb=0")
    make(out / "weighted.mp4", *pyramid)
    colours = "scale=out_color_matrix=bt709:out_range=full"
    tags = ["-color_range", "pc", "-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"]
    make(out / "full_range.mp4", "-vf", colours, *H264, *tags, frames=2)
    make(out / "cut_to_size.mp4", *H264, "-bf", "2", width=50, height=38, frames=3)
    variable = ["-vf", "settb=1/1000,setpts='1000*(0.04*N+0.01*mod(N,3)+0.3*gte(N,5))'", "-vsync", "passthrough"]
    make(out / "variable.mp4", *variable, *H264, "-bf", "2", "-video_track_timescale", "90000")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        make(folder / "whole.mp4", *H264, "-bf", "0", frames=3)
        ffmpeg("-i", folder / "whole.mp4", "-c", "copy", "-metadata:s:v", "rotate=90", *BIT_EXACT, out / "turned.mp4")
        make(folder / "a.h264", *H264, "-bf", "0", frames=3)
        make(folder / "b.h264", *H264, "-bf", "0", width=32, height=48, frames=3)
        (folder / "ab.h264").write_bytes((folder / "a.h264").read_bytes() + (folder / "b.h264").read_bytes())
        ffmpeg("-r", RATE, "-i", folder / "ab.h264", "-c", "copy", *BIT_EXACT, out / "resized.mp4")


def with_sound(out):
    """Sound that is longer than the pictures, and begins with an encoder's delay."""
    sound = ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=44100:duration=1"]
    aac = ["-c:a", "aac", "-b:a", "32k", "-ac", "1", "-map", "0:v", "-map", "1:a"]
    make(out / "sound.mp4", *H264, "-bf", "2", *aac, inputs=sound, frames=16)
    make(out / "sound.mov", *H264, "-bf", "0", *aac, "-shortest", inputs=sound, frames=4)


def fragmented(out):
    """The same samples, described in pieces as recorders and browsers do."""
    pieces = "frag_keyframe+empty_moov"
    ffmpeg("-i", out / "reordered.mp4", "-c", "copy", "-movflags", pieces, *BIT_EXACT, out / "pieces.mp4")
    pieces = "frag_keyframe+delay_moov+default_base_moof"
    ffmpeg("-i", out / "sound.mp4", "-c", "copy", "-movflags", pieces, *BIT_EXACT, out / "sound_pieces.mp4")


def refused(out):
    make(out / "hevc.mp4", "-c:v", "libx265", "-x265-params", "log-level=none:pools=1", "-tag:v", "hvc1", frames=1)
    make(out / "ten_bits.mp4", "-c:v", "libx264", "-threads", "1", "-pix_fmt", "yuv420p10le", frames=1)
    make(out / "interlaced.mp4", *H264, "-flags:v", "+ilme+ildct", "-x264-params", "interlaced=1", frames=2)


def other_formats(out):
    between = STANDARD.replace("left", "center").replace("limited", "full")
    kinds = [
        ("420", "yuvj420p", between),
        ("422", "yuv422p", STANDARD),
        ("444", "yuv444p", STANDARD),
        ("mono", "gray", None),
    ]
    for kind, pixels, colours in kinds:
        path = out / f"kind_{kind}.y4m"
        make(path, "-pix_fmt", pixels, "-strict", "-1", width=18, height=12, frames=2)
        shown(path, path.with_suffix(".rgb.png"), 18, colours)
    make(out / "parts.gif", "-vf", "split[a][b];[a]palettegen=max_colors=32[p];[b][p]paletteuse=dither=none", frames=4)
    shown(out / "parts.gif", out / "parts.rgb.png", WIDTH)


def main():
    out = fixtures.folder(__doc__, "crates/kinora/tests/fixtures/videos")
    if shutil.which("ffmpeg") is None:
        print("videos: ffmpeg is not installed, so they stay as they are")
        return
    h264(out)
    with_sound(out)
    fragmented(out)
    refused(out)
    other_formats(out)
    for name in ["plain", "reordered", "weighted"]:
        planes(out / f"{name}.mp4", out / f"{name}.yuv.png")
    shown(out / "full_range.mp4", out / "full_range.rgb.png", WIDTH, FULL_RANGE)
    shown(out / "cut_to_size.mp4", out / "cut_to_size.rgb.png", 50, STANDARD)
    # A quarter to the left: what was the left of two pixels is the lower one.
    shown(out / "turned.mp4", out / "turned.rgb.png", HEIGHT, STANDARD.replace("left", "bottom"))
    names = ["plain.mp4", "reordered.mp4", "variable.mp4", "cut_to_size.mp4", "resized.mp4", "sound.mp4", "parts.gif"]
    fixtures.write_cases(out / "videos.json", [{"name": name, "times": times(out / name)} for name in names])
    fixtures.check_size(out, LIMIT)


if __name__ == "__main__":
    main()
