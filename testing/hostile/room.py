"""The folder of a case, what is in it beforehand, and what all cases share."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Cases are many, and each has a core.
QUIET = {
    "RAYON_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_ENDPOINT": "http://127.0.0.1:1",
    "HF_HUB_OFFLINE": "1",
    "NO_COLOR": "1",
    "PATH": os.environ.get("PATH", ""),
}

# A short clip, the same for every case that makes one.
SHORT = ["--steps", "1", "--frames", "2", "--size", "64x64", "--seed", "7", "--device", "cpu", "--precision", "f32"]
FORMATS = ["y4m", "gif", "mp4", "png"]


def clip_words(photo: str | bytes | Path, model: str | bytes | Path, output: str) -> list[str | bytes | Path]:
    """The command line of the short clip."""
    return ["generate", photo, "--model", model, "-o", output, "--json", *SHORT]


@dataclass(frozen=True)
class Supplies:
    """What all cases share: the program, a small model, photos, and clips as they ought to be."""

    program: Path
    root: Path
    seed: int
    photos: tuple[Path, ...]
    corpus: dict[str, tuple[Path, ...]]
    # The bytes of the short clip's files, by the ending of their name.
    clips: dict[str, tuple[bytes, ...]]
    profile: bytes
    # The least address space in which the program starts.
    least_memory: int
    hashes: dict[str, str]

    @property
    def model(self) -> Path:
        return self.root / "model"

    @property
    def live(self) -> Path:
        """A small model for live video. Its tiny autoencoder is the folder `tiny` in it."""
        return self.root / "live"

    @property
    def photo(self) -> Path:
        return self.root / "photo.png"

    @staticmethod
    def prepare(program: Path, photos: Path, corpus: Path, root: Path, seed: int) -> Supplies:
        """Makes the model with the program itself, and the clips that cases are compared with."""
        program = program.resolve(strict=True)
        found = tuple(sorted(path for path in photos.iterdir() if path.suffix != ".safetensors"))
        # Those with an ending were made by people, and are sound.
        kept = {folder.name: tuple(sorted(folder.glob("*.*"))) for folder in corpus.iterdir() if folder.is_dir()}

        def run(*words: str | Path) -> None:
            subprocess.run([program, *words], check=True, env=QUIET, capture_output=True, cwd=root, timeout=120)

        run("demo-model", "model")
        run("demo-model", "--preset", "live", "live")
        shutil.copy(next(path for path in found if path.name == "rgb.png"), root / "photo.png")
        clips = {}
        for ending in FORMATS:
            folder = root / f"good-{ending}"
            folder.mkdir()
            run("generate", "photo.png", "--model", "model", "-o", folder / f"clip.{ending}", *SHORT)
            clips[ending] = tuple(path.read_bytes() for path in sorted(folder.glob("[!.]*")))
        run("profile", "run", "photo.png", "--model", "model", "--save", "profile.json", *SHORT)
        profile = (root / "profile.json").read_bytes()
        shared = [path for model in ("model", "live") for path in (root / model).rglob("*") if path.is_file()]
        hashes = {str(path): digest(path) for path in [*shared, root / "photo.png"]}
        least = least_memory(program)
        return Supplies(program, root, seed, found, kept, clips, profile, least, hashes)

    def spoiled(self) -> list[str]:
        """The shared files that are not what they were."""
        return [path for path, before in self.hashes.items() if not Path(path).exists() or digest(Path(path)) != before]


def least_memory(program: Path) -> int:
    """The least address space in which the program prints its version, within 4 MB."""
    low, high = 1 << 20, 8 << 30
    while high - low > 4 << 20:
        middle = (low + high) // 2
        limited = ["sh", "-c", f'ulimit -v {middle >> 10}; exec "$0" --version', program]
        starts = subprocess.run(limited, capture_output=True, env=QUIET, check=False).returncode == 0
        low, high = (low, middle) if starts else (middle, high)
    return high


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Room:
    """The folder of one case. Everything in it before the run is somebody's, and must be there afterwards."""

    def __init__(self, supplies: Supplies, number: int, keep: bool = False) -> None:
        self.supplies = supplies
        self.keep = keep
        self.around = supplies.root / f"case-{number}"
        self.path = self.around / "room"
        self.before: dict[str, tuple] = {}

    def __enter__(self) -> Room:
        self.path.mkdir(parents=True)
        (self.around / "home").mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.keep:
            for folder, _, _ in os.walk(self.around):
                Path(folder).chmod(0o700)
            shutil.rmtree(self.around, ignore_errors=True)

    def photo(self, name: str = "photo.png") -> Path:
        """A good photo."""
        return self.write(name, self.supplies.photo.read_bytes())

    def write(self, name: str | bytes | Path, content: bytes) -> Path:
        path = self.path / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def model(self, shared: Path | None = None) -> Path:
        """A copy of a small model. Its weights are the shared ones under another name, until a case replaces them."""
        folder, shared = self.path / "model", shared or self.supplies.model
        for source in shared.rglob("*"):
            target = folder / source.relative_to(shared)
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif source.suffix == ".safetensors":
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(source, target)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        return folder

    def replace(self, path: Path, content: bytes) -> None:
        """Writes a file anew: a shared one keeps its content."""
        path.unlink(missing_ok=True)
        path.write_bytes(content)

    def remember(self) -> None:
        """Takes note of all that is there."""
        self.before = self.contents()

    def leftovers(self) -> bool:
        """Whether there are temporary files of the program's."""
        return any(path.name.startswith(".kinora-") for path in self.path.iterdir())

    def contents(self) -> dict[str, tuple]:
        """Everything in the folder: what it is, and what is in it."""
        return {str(path.relative_to(self.path)): described(path) for path in walk(self.path)}


def walk(folder: Path) -> list[Path]:
    found = []
    for path in folder.iterdir():
        found.append(path)
        if stat.S_ISDIR(path.lstat().st_mode):
            found.extend(walk(path))
    return found


def described(path: Path) -> tuple:
    about = path.lstat()
    mode = stat.S_IFMT(about.st_mode)
    if stat.S_ISLNK(about.st_mode):
        return (mode, str(path.readlink()))
    if not stat.S_ISREG(about.st_mode):
        return (mode,)
    if about.st_size > 1 << 20:
        # Weights, whose content is compared once at the end, or a file that is all holes.
        return (mode, about.st_size, about.st_mtime_ns)
    return (mode, about.st_size, digest(path))
