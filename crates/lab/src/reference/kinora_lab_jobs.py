"""The jobs of the kernel lab's worker: reads arrays, calls one function of a reference, writes arrays."""

import importlib.util
import inspect
import json
import sys
import traceback
from pathlib import Path


class WrongError(Exception):
    """Something that the reference's author has to know, in one sentence."""


def load(path):
    spec = importlib.util.spec_from_file_location("reference_of_task", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def describe(job):
    module = load(job["file"])
    task = getattr(module, "TASK", None)
    if not isinstance(task, dict):
        raise WrongError("it declares no task: a dictionary TASK")
    return {"task": task}


def to_array(numpy, value, wanted):
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    array = numpy.asarray(value)
    shape = tuple(wanted["shape"])
    if array.shape != shape and not (array.size == 1 and shape in ((), (1,))):
        raise WrongError(f"{wanted['name']} has shape {tuple(array.shape)}, but the task says {shape}")
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise WrongError(f"{wanted['name']} has elements of type {array.dtype}")
    return array.reshape(shape)


def function_of(job):
    function = getattr(load(job["file"]), job["function"], None)
    if not callable(function):
        raise WrongError(f"it has no function {job['function']}")
    return function


def arguments_of(function, known, name):
    """What a function takes of what there is."""
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(parameter.kind == inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return known
    arguments = {}
    for parameter in parameters:
        if parameter.kind in kinds:
            continue
        if parameter.name in known:
            arguments[parameter.name] = known[parameter.name]
        elif parameter.default is inspect.Parameter.empty:
            raise WrongError(f"{name} takes {parameter.name}, but the task has {', '.join(known)}")
    return arguments


def time_on_gpu(job):
    """Times a function as the kernel is timed: by events, with the L2 cache overwritten before each run, and
    several sets of inputs in turn."""
    import numpy

    function = function_of(job)
    if "torch" not in sys.modules:
        raise WrongError("it does not use PyTorch")
    import torch

    if job["device"] == "cuda" and not torch.cuda.is_available():
        raise WrongError(f"PyTorch {torch.__version__} sees no GPU")
    device = torch.device(job["device"], job["gpu"]) if job["device"] == "cuda" else torch.device("cpu")
    types = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
    sets = []
    for files in job["sets"]:
        known = dict(job["numbers"])
        for given in files:
            array = numpy.load(given["file"], allow_pickle=False)
            element = given["element"]
            kind = types.get(element) or element.replace("i", "int", 1).replace("u", "uint", 1)
            known[given["name"]] = torch.from_numpy(array).to(device=device, dtype=getattr(torch, kind))
        sets.append(arguments_of(function, known, job["function"]))
    ways = [("eager", lambda: function)]
    if job["compile"]:
        ways.append(("torch.compile", lambda: torch.compile(function)))
    answers = []
    for name, made in ways:
        try:
            with torch.no_grad():
                answers.append({"name": name, "milliseconds": milliseconds(torch, device, made(), sets, job)})
        except Exception as error:  # noqa: BLE001 - that one way fails says nothing about the other
            text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            answers.append({"name": name, "error": text})
    return {"version": torch.__version__, "ways": answers}


def milliseconds(torch, device, function, sets, job):
    if device.type == "cpu":
        for arguments in sets:
            function(**arguments)
        return []
    flush = torch.empty(job["flush"], dtype=torch.uint8, device=device)
    for run in range(job["warm_up"]):
        function(**sets[run % len(sets)])
    torch.cuda.synchronize(device)
    marks = []
    for run in range(job["runs"]):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # This also keeps the GPU busy while the launches are given to it, so that the host is not what is timed.
        flush.fill_(run % 256)
        start.record()
        function(**sets[run % len(sets)])
        end.record()
        marks.append((start, end))
    torch.cuda.synchronize(device)
    return [start.elapsed_time(end) for start, end in marks]


def compute(job):
    try:
        import numpy
    except ImportError:
        raise WrongError(
            f"{sys.executable} has no NumPy: `pip install numpy`, or set KINORA_LAB_PYTHON to a Python that has it"
        ) from None
    function = function_of(job)
    known = dict(job["numbers"])
    for given in job["given"]:
        known[given["name"]] = numpy.load(given["file"], allow_pickle=False)
    if "torch" in sys.modules:
        import torch

        for given in job["given"]:
            known[given["name"]] = torch.from_numpy(known[given["name"]])
    results = function(**arguments_of(function, known, job["function"]))
    wanted = job["results"]
    if isinstance(results, dict):
        missing = [one["name"] for one in wanted if one["name"] not in results]
        if missing:
            raise WrongError(f"{job['function']} gives no {missing[0]}")
        results = [results[one["name"]] for one in wanted]
    elif not isinstance(results, (tuple, list)) or len(wanted) == 1:
        results = [results]
    if len(results) != len(wanted):
        raise WrongError(f"{job['function']} gives {len(results)} results, but the task has {len(wanted)}")
    for result, one in zip(results, wanted, strict=True):
        array = to_array(numpy, result, one)
        kind = numpy.float64 if array.dtype.kind == "f" else numpy.int64
        if array.dtype == numpy.uint64:
            kind = numpy.uint64
        array = numpy.array(array, dtype=kind, order="C")
        with Path(one["file"]).open("wb") as file:
            numpy.lib.format.write_array(file, array, allow_pickle=False)
    return {}


def do(job):
    """Does a job, whatever comes of it, and writes the answer."""
    try:
        answer = {"describe": describe, "compute": compute, "time": time_on_gpu}[job["what"]](job)
        text = json.dumps(answer)
    except WrongError as wrong:
        text = json.dumps({"error": str(wrong)})
    except SystemExit as end:
        text = json.dumps({"error": f"it ends Python (sys.exit({end.code!r})) instead of returning"})
    except BaseException as error:  # noqa: BLE001 - whatever a reference raises is its author's to see
        # The frames of the worker mean nothing to the reference's author.
        own = Path(__file__).parent
        frames = traceback.extract_tb(error.__traceback__)
        lines = [
            f"{frame.filename}:{frame.lineno}"
            for frame in frames
            if Path(frame.filename).parent != own and "importlib" not in frame.filename
        ]
        place = f" at {lines[-1]}" if lines else ""
        text = json.dumps({"error": f"{type(error).__name__}: {error}{place}"})
    Path(job["answer"]).write_text(text, encoding="utf-8")
