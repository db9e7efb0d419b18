"""What may not happen."""

from __future__ import annotations

import json
import signal

from room import Room, clip_words
from run import Outcome, Run, execute

# The columns of the table.
FAULTS = ["panic", "abort", "hang", "file lost", "left behind", "wrong exit", "wrong JSON", "raw escape"]

# 128 and the number of a signal is what shells show for it.
EXITS = {0, 1, 2, 3, 129, 130, 143}
PANICS = [
    b"panicked at", b"RUST_BACKTRACE", b"has overflowed its stack", b"internal error: entered unreachable",
    b"memory allocation of", b"Fatal glibc error", b"fatal runtime error", b"terminate called",
]  # fmt: skip
# Reports that were printed in full, and whose bad news make the exit code 1.
REPORTS = {"sim", "bench", "doctor", "info"}


def judge(run: Run, outcome: Outcome, room: Room) -> list[tuple[str, str]]:
    """The faults of a run, each with a word about it."""
    faults = [*process(run, outcome), *text(run, outcome), *files(run, outcome, room)]
    if run.json and run.stdout == "file" and run.copies == 1 and outcome.exits[0] >= 0:
        faults.extend(printed_json(run, outcome))
    return faults


def process(run: Run, outcome: Outcome) -> list[tuple[str, str]]:
    """How the process ended."""
    if outcome.hung:
        return [("hang", f"{outcome.seconds:.0f} s")]
    found = []
    for code in outcome.exits:
        if code < 0:
            allowed = set(run.deaths)
            if outcome.early:
                allowed |= {number for _, number in run.signals}
            if -code not in allowed:
                found.append(("abort", signal.Signals(-code).name))
        elif code not in EXITS or (run.exit is not None and code != run.exit):
            found.append(("wrong exit", str(code)))
    return found


def text(run: Run, outcome: Outcome) -> list[tuple[str, str]]:
    """What was printed."""
    printed = outcome.stderr if run.video_on_stdout else outcome.stderr + outcome.stdout
    found = [("panic", sign.decode()) for sign in PANICS if sign in printed][:1]
    # Standard error is no terminal, so that every escape comes from outside.
    controls = {byte for byte in printed if byte < 0x20 and byte not in b"\n\r\t"} | ({0x7F} & set(printed))
    # JSON escapes all of these but the last, which it need not.
    if controls or "\x9b".encode() in outcome.stderr:
        found.append(("raw escape", f"bytes {sorted(controls) or [0x9B]}"))
    told = run.stderr == "file" and run.stdout == "file"
    if told and not found and outcome.exits[0] in (1, 2, 3) and not outcome.stderr.strip():
        found.append(("wrong exit", "it failed without a word"))
    return found


def files(run: Run, outcome: Outcome, room: Room) -> list[tuple[str, str]]:
    """What became of the folder."""
    outputs = set(run.outputs)
    killed = any(code < 0 for code in outcome.exits)
    found = next_run(room) if killed and room.leftovers() else []
    after = room.contents()
    # A clip may be whole although there was nobody to report it to.
    succeeded = any(code == 0 for code in outcome.exits) or run.stdout != "file"
    for path, was in room.before.items():
        now = after.get(path)
        if now == was or (path in outputs and succeeded and now is not None):
            continue
        if path in outputs and killed and now is not None and holds_good(run, room, path):
            continue
        found.append(("file lost", f"{path!r} is {'gone' if now is None else 'changed'}"))
    for path in after.keys() - room.before.keys():
        if path in outputs:
            # Whole, or not there.
            if not (succeeded or (killed and holds_good(run, room, path))):
                found.append(("left behind", f"{path!r} of a run that failed"))
        else:
            found.append(("left behind", repr(path)))
    for name, content in run.good.items():
        path = room.path / name
        if 0 in outcome.exits and (not path.exists() or path.read_bytes() != content):
            found.append(("file lost", f"{name} is not the clip that was asked for"))
    return found[:4]


def next_run(room: Room) -> list[tuple[str, str]]:
    """Makes another clip in the folder, which clears up what a killed run has left there, and takes it away again."""
    name = "the next.y4m"
    room.photo("the next.png")
    outcome = execute(Run("the next run", clip_words("the next.png", room.supplies.model, name)), room)
    clip = room.path / name
    good = outcome.exits == [0] and (clip.read_bytes(),) == room.supplies.clips["y4m"]
    for path in (clip, room.path / "the next.png"):
        path.unlink(missing_ok=True)
    return [] if good else [("left behind", f"and the next run fails: {outcome.exits}")]


def holds_good(run: Run, room: Room, name: str) -> bool:
    """Whether an output holds what it ought to."""
    return name in run.good and (room.path / name).read_bytes() == run.good[name]


def printed_json(run: Run, outcome: Outcome) -> list[tuple[str, str]]:
    """`--json` prints one object, which has an error if and only if the run failed."""
    try:
        printed = json.loads(outcome.stdout)
    except ValueError as error:
        return [("wrong JSON", str(error)[:80])]
    if not isinstance(printed, dict):
        return [("wrong JSON", "not an object")]
    failed = outcome.exits[0] != 0
    reports = failed and str(run.words[0]) in REPORTS and "error" not in printed
    if failed != ("error" in printed) and not reports:
        return [("wrong JSON", f"exit {outcome.exits[0]}, error {'error' in printed}")]
    if failed and not reports and printed["error"].get("exit_code") != outcome.exits[0]:
        return [("wrong JSON", f"exit {outcome.exits[0]}, and it says {printed['error'].get('exit_code')}")]
    return []
