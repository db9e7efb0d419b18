"""What the system does to a program: limits, signals, streams, the environment, and other runs beside it."""

from __future__ import annotations

import resource
import signal
from random import Random

from room import FORMATS, SHORT, Room
from run import Run

from .clip import clip, frames

HOSTILE = ["", "0", "-1", "1", "100000", "18446744073709551616", "NaN", "\x1b[2J", "../../..", "/dev/full", "/dev/zero",
           "/", "x" * 10_000, "http://127.0.0.1:1", "ftp://x", "not a url", "http://[::1", "file:///etc/passwd",
           "\n", "'"]  # fmt: skip


ADDRESSES = 5 << 30


def limit(room: Room, random: Random) -> Run:
    """Less memory, fewer bytes, files, threads or seconds than a clip needs."""
    photo = room.photo()
    ending = random.choice(FORMATS)
    kind = random.choice(["memory", "memory", "bytes", "files", "threads", "seconds"])
    env = {"RAYON_NUM_THREADS": random.choice(["1", "2", "8"])}
    match kind:
        case "memory":
            # From where the program just starts to where a clip fits.
            value = room.supplies.least_memory + random.randrange(1 << 20, 400 << 20)
            limits, deaths = {resource.RLIMIT_AS: value}, []
        case "bytes":
            value = random.choice([0, 1, 100, 5000, 20_000])
            limits, deaths = {resource.RLIMIT_FSIZE: value}, []
        case "files":
            value = random.randrange(5, 24)
            limits, deaths = {resource.RLIMIT_NOFILE: value}, []
        case "threads":
            # Each takes its share of the addresses, and there are not enough for one more.
            value = random.randrange(6)
            limits, deaths = {resource.RLIMIT_AS: ADDRESSES}, []
            env["RUST_MIN_STACK"] = str(ADDRESSES // (value + 1))
        case _:
            value = 1
            # The kernel ends a program that has used its time.
            limits, deaths = {resource.RLIMIT_CPU: value}, [signal.SIGXCPU, signal.SIGKILL]
    words = ["--steps", "400"] if kind == "seconds" else []
    run = clip(room, photo.name, f"{kind} {value}", ending=ending, words=words, limits=limits, deaths=deaths)
    run.env = env
    if kind == "bytes":
        # Where the limit is too small for the error itself, nothing can be read of it.
        run.stdout = run.stderr = "gone"
    return run


def signalled(room: Room, random: Random) -> Run:
    """A signal at any moment, one or several."""
    photo = room.photo()
    ending = random.choice(FORMATS)
    requests = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    number = random.choice([*requests, signal.SIGKILL, signal.SIGPIPE, signal.SIGUSR1])
    moment = random.choice([random.uniform(0.0, 0.15), random.uniform(0.0, 0.6)])
    again = random.choice([[], [], [(moment + random.uniform(0.0, 0.5), number)]])
    ignored = [number] if number != signal.SIGKILL and random.random() < 0.15 else []
    mine = random.random() < 0.5
    names = frames("clip") if ending == "png" else [f"clip.{ending}"]
    if mine:
        for name in names:
            room.write(name, b"mine")
    run = clip(
        room, photo.name, f"{number.name} after {moment:.2f} s, {len(again)} more", ending=ending, good=True,
        words=["--force"] if mine else [], signals=[(moment, int(number)), *again], ignored=[int(n) for n in ignored],
    )  # fmt: skip
    if number in (signal.SIGKILL, signal.SIGUSR1) and not ignored:
        run.deaths = [int(number)]
    return run


def stream(room: Room, random: Random) -> Run:
    """Standard output or error is closed, full or has no reader."""
    photo = room.photo()
    kinds = ["file", "closed", "full", "gone"]
    out, err = random.choice(kinds), random.choice(kinds)
    what = f"stdout {out}, stderr {err}"
    match random.randrange(4):
        case 0:
            words = ["generate", photo.name, "--model", room.supplies.model, "-o", "-", *SHORT]
            code = 1 if out in ("closed", "full") else None
            return Run(f"a video on stdout; {what}", words, stdout=out, stderr=err, video_on_stdout=True, exit=code)
        case 1:
            return Run(f"info; {what}", ["info", room.supplies.model, "--json"], stdout=out, stderr=err, json=True)
        case 2:
            return Run(f"help; {what}", [random.choice(["--help", "help", "nonsense"])], stdout=out, stderr=err)
        case _:
            words = random.choice([[], ["-v"], ["-q"]])
            return clip(room, photo.name, what, ending=random.choice(FORMATS), words=words, stdout=out, stderr=err)


def environment(room: Room, random: Random) -> Run:
    """Variables that the program reads, with values that make no sense."""
    names = [
        "RAYON_NUM_THREADS", "HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE",
        "KINORA_MODEL", "KINORA_CACHE_DIR", "KINORA_KERNEL_BUNDLE", "KINORA_NVRTC", "KINORA_PEER_PYTHON", "TMPDIR",
        "HOME", "COLUMNS", "TERM", "LANG", "XDG_CACHE_HOME", "RUST_BACKTRACE", "http_proxy", "HTTPS_PROXY",
    ]  # fmt: skip
    chosen = {random.choice(names): random.choice(HOSTILE) for _ in range(random.choice([1, 2, 3]))}
    if random.random() < 0.1:
        chosen[random.choice(names)] = b"\xff\xfe"
    photo = room.photo()
    what = ", ".join(f"{name}={value!r}"[:60] for name, value in chosen.items())
    if random.random() < 0.4:
        # A model of the hub, none of which can be reached.
        words = ["generate", photo.name, "--model", "owner/name", "-o", "clip.y4m", "--json"]
        return Run(what, words, env=chosen, json=True, outputs=["clip.y4m"])
    return clip(room, photo.name, what, env=chosen)


def concurrent(room: Room, random: Random) -> Run:
    """Several runs at once that write the same files."""
    photo = room.photo()
    ending = random.choice(FORMATS)
    copies = random.choice([2, 3, 4])
    run = clip(room, photo.name, f"{copies} runs", ending=ending, words=["--force"], good=True, copies=copies)
    run.signals = random.choice([[], [], [(random.uniform(0.1, 0.4), int(signal.SIGTERM))]])
    return run
