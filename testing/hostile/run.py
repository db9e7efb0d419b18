"""Running the program as a case asks for it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from room import QUIET, Room

# A clip of the small model takes less than a second.
HANGS_AFTER = 20.0
# No case may take the host's memory or disk.
GUARDS = {resource.RLIMIT_AS: 6 << 30, resource.RLIMIT_FSIZE: 1 << 30, resource.RLIMIT_CORE: 0}
TICK = 0.003


@dataclass
class Run:
    """A run of the program, and what it may leave behind."""

    what: str
    words: list[str | bytes | Path]
    # The files that the run may write; those of `good` have this content if they are there.
    outputs: list[str] = field(default_factory=list)
    good: dict[str, bytes] = field(default_factory=dict)
    env: dict[str, str | bytes] = field(default_factory=dict)
    limits: dict[int, int] = field(default_factory=dict)
    # Signals and when they are sent, in seconds after the start.
    signals: list[tuple[float, int]] = field(default_factory=list)
    # Signals that are ignored, as `nohup` has it.
    ignored: list[int] = field(default_factory=list)
    # Where standard output and standard error go: "file", "closed", "full" or "gone".
    stdout: str = "file"
    stderr: str = "file"
    stdin: Path | None = None
    # How many copies run at the same time.
    copies: int = 1
    # Signals that may end the process.
    deaths: list[int] = field(default_factory=list)
    # Standard output carries a video.
    video_on_stdout: bool = False
    # What writes into a FIFO while the program runs.
    feeder: tuple[Path, bytes] | None = None
    # Standard output is one JSON object.
    json: bool = False
    # The exit code, if there is only one that is right.
    exit: int | None = None
    # The seconds after which it hangs.
    patience: float = HANGS_AFTER


@dataclass
class Outcome:
    """What came of a run."""

    exits: list[int]
    hung: bool
    stdout: bytes
    stderr: bytes
    seconds: float
    peak_mb: int
    # Whether a signal was sent before the program could have prepared for it.
    early: bool


def execute(run: Run, room: Room) -> Outcome:
    """Runs the program, and waits for it."""
    started = time.monotonic()
    streams = {name: room.around / name for name in ("stdout", "stderr")}
    processes = [start(run, room, streams) for _ in range(run.copies)]
    feeder = feed(*run.feeder) if run.feeder else None
    exits: dict[int, int] = {}
    peak, hung, early = 0, False, False
    to_send = sorted(run.signals)
    while len(exits) < len(processes):
        passed = time.monotonic() - started
        for process in processes:
            if process.pid in exits:
                continue
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = exits[pid] = os.waitstatus_to_exitcode(status)
                peak = max(peak, usage.ru_maxrss >> 10)
        while to_send and passed >= to_send[0][0]:
            _, number = to_send.pop(0)
            for process in processes:
                if process.pid not in exits:
                    early |= not awaits(process.pid, number)
                    os.kill(process.pid, number)
        if passed > run.patience and len(exits) < len(processes):
            hung = True
            for process in processes:
                if process.pid not in exits:
                    os.kill(process.pid, signal.SIGKILL)
        time.sleep(TICK)
    if feeder:
        feeder.kill()
        feeder.wait()
    read = {name: path.read_bytes() if path.exists() else b"" for name, path in streams.items()}
    codes = [exits[process.pid] for process in processes]
    return Outcome(codes, hung, read["stdout"], read["stderr"], time.monotonic() - started, peak, early)


def awaits(pid: int, number: int) -> bool:
    """Whether a process has said what is to become of a signal: it blocks, ignores or handles it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def start(run: Run, room: Room, streams: dict[str, Path]) -> subprocess.Popen:
    """Starts the program with the limits, signals and streams of the case."""

    def prepare() -> None:
        os.setsid()
        for number in run.ignored:
            signal.signal(number, signal.SIG_IGN)
        for limit, value in {**GUARDS, **run.limits}.items():
            resource.setrlimit(limit, (value, value))
        for number, kind in ((1, run.stdout), (2, run.stderr)):
            if kind == "closed":
                os.close(number)

    environment = {**QUIET, "HOME": str(room.around / "home"), **run.env}
    targets = {"stdout": opened(run.stdout, streams["stdout"]), "stderr": opened(run.stderr, streams["stderr"])}
    stdin = run.stdin.open("rb") if run.stdin else subprocess.DEVNULL
    words = [os.fsencode(word) for word in run.words]
    try:
        # Each worker has one thread, so that a function between fork and exec is safe.
        return subprocess.Popen(
            [os.fsencode(room.supplies.program), *words],
            cwd=room.path,
            env=environment,
            stdin=stdin,
            preexec_fn=prepare,  # noqa: PLW1509
            **targets,
        )
    finally:
        for target in [*targets.values(), stdin]:
            if not isinstance(target, int):
                target.close()


def opened(kind: str, path: Path):
    """What a stream is at the start."""
    match kind:
        case "full":
            return Path("/dev/full").open("wb")
        case "gone":
            reading, writing = os.pipe()
            os.close(reading)
            return os.fdopen(writing, "wb")
        case "closed":
            return subprocess.DEVNULL
        case _:
            return path.open("ab")


def feed(fifo: Path, content: bytes) -> subprocess.Popen:
    """Something that writes into a FIFO as soon as it is opened."""
    source = fifo.parent.parent / "feed"
    source.write_bytes(content)
    return subprocess.Popen(["sh", "-c", 'exec cat "$0" > "$1"', source, fifo], stderr=subprocess.DEVNULL)
