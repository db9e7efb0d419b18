"""A Python that stays, for the references of the kernel lab.

It reads the paths of jobs from its standard input, a line each. It imports what the reference imports in its first
lines, once, and forks for each job. So a job finds imported libraries and nothing that another job has left, and
one that ends Python ends its own process. How that process ended is a line on standard output: a number, as
`waitpid` gives it.

Where a process cannot be forked, it does one job itself and ends.
"""

import ast
import contextlib
import getpass
import importlib.util
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from pathlib import Path

FOLDER = Path(__file__).parent

# Milliseconds between looks at a process that has a job.
LONGEST_PAUSE = 10

# What the reference imports does not lie here.
sys.path.insert(0, str(FOLDER))
import kinora_lab_jobs  # noqa: E402 - found by the line above

sys.path[:] = [place for place in sys.path if place != str(FOLDER)]


def adopt_orphans():
    """Makes processes whose parents end children of this one, wherever that is possible."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import ctypes

        set_child_subreaper = 36
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def children():
    """The processes whose parent this one is."""
    found, own = set(), str(os.getpid()).encode()
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - there are hundreds
        # It may have ended.
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
            # The name before it is in parentheses, and may have any characters.
            if file.read().rpartition(b")")[2].split()[1] == own:
                found.add(int(name))
    return found


def end_children(kept=frozenset()):
    """Ends the children. As each ends, its own become children of this process."""
    while found := children() - kept:
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in found:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)


def end(*_):
    """Ends this process and all that it has started, and leaves no file."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.platform == "linux":
        end_children()
    shutil.rmtree(FOLDER, ignore_errors=True)
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)


def is_beside(node, folder):
    """Whether a module that is imported lies beside the reference, or cannot be found."""
    if isinstance(node, ast.ImportFrom) and node.level > 0:
        return True
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
    for name in names:
        try:
            spec = importlib.util.find_spec(name.partition(".")[0])
        except (ImportError, ValueError):
            return True
        if spec is None:
            return True
        places = [*(spec.submodule_search_locations or []), spec.origin]
        if any(place and Path(place).parent == folder for place in places):
            return True
    return False


def import_libraries(file):
    """Runs the imports that a file begins with, up to the first statement of another kind. An import of something
    that lies beside the file is of another kind: it belongs to the reference, and may have changed for the next
    job. What goes wrong here goes wrong in the job too, which tells it."""
    folder = Path(file).resolve().parent
    sys.path.insert(0, str(folder))
    try:
        tree = ast.parse(Path(file).read_bytes(), file)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or is_beside(node, folder):
            return
        try:
            exec(compile(ast.Module([node], []), file, "exec"), {})
        except BaseException:  # noqa: BLE001 - whatever a module raises
            return


def can_fork():
    """Whether a copy of this process works as well as the original. Threads are not copied, an open GPU does not
    work in the copy, and the frameworks of macOS do not either."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    try:
        files = [str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    except OSError:
        return False
    return not any(file.startswith("/dev/nvidia") for file in files)


def work(job):
    """Does a job in this process. What it prints goes to a file, and what it leaves among temporary files goes with
    the job's folder."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    said = os.open(job["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.close(said)
    # What torch.compile has compiled is kept, as it is without the lab.
    with contextlib.suppress(KeyError, OSError, ImportError):
        kept = Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kept))
    tempfile.tempdir = os.environ["TMPDIR"] = job["temporary"]
    kinora_lab_jobs.do(job)


def forked(job, jobs, answers):
    """Does a job in a process of its own; tells how that ended."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Threads of libraries, which know of forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        try:
            os.close(jobs)
            os.close(answers)
            work(job)
            sys.stdout.flush()
            sys.stderr.flush()
            # Without what libraries do when Python ends: that is for once.
            os._exit(0)
        except BaseException:  # noqa: BLE001 - no answer could be written
            traceback.print_exc()
        finally:
            os._exit(1)
    waiting, pause = select.poll(), 1
    waiting.register(jobs, select.POLLIN)
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return status
        if waiting.poll(pause):
            # Nobody asks before the answer: the program is gone.
            end()
        pause = min(2 * pause, LONGEST_PAUSE)


def main():
    jobs, answers, nothing = os.dup(0), os.dup(1), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    own = None
    with open(jobs, encoding="utf-8", closefd=False) as lines:
        for line in lines:
            job = json.loads(Path(line.rstrip("\n")).read_text(encoding="utf-8"))
            if own is None:
                import_libraries(job["file"])
                if not can_fork():
                    os.close(jobs)
                    os.close(answers)
                    work(job)
                    return
                adopt_orphans()
                # What a library has started stays.
                own = children()
                # Until now there was nothing to end, and no need to be asked.
                signal.signal(signal.SIGTERM, end)
            status = forked(job, jobs, answers)
            end_children(own)
            os.write(answers, f"{status}\n".encode())
    end()


if __name__ == "__main__":
    main()
