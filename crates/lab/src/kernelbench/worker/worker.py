"""A worker of the benchmark. It reads a request a line, and answers each with a line.

One process has the task and PyTorch's own model: it knows the results in f64, and compares. Another one has the
solution. Neither sees the other's memory: a solution cannot find the results that it should compute.
"""

import gc
import importlib.util
import json
import os
import sys
import time
import traceback
from pathlib import Path

import torch

from checks import Guarded, Watched
from declaration import Declared, Tensor
from errors import compared
from kernels import OnGpu, Simulated
from sharing import Giver, Taker, described
from tasks import Task, smaller
from timing import Timer
from torch_memory import TorchMemory

# What measures and compares. That a solution in the same process replaces none of it is no proof, but a hurdle.
GUARDED = [
    (time, "perf_counter"),
    (time, "time"),
    (time, "monotonic"),
    (torch, "equal"),
    (torch, "allclose"),
    (torch, "empty"),
    (torch, "from_file"),
    (torch.Tensor, "clone"),
    (torch.Tensor, "copy_"),
    (torch.Tensor, "fill_"),
    (torch.Tensor, "data_ptr"),
    (torch.Tensor, "cpu"),
    (torch.cuda, "Event"),
    (torch.cuda, "synchronize"),
    (torch.cuda, "current_stream"),
    (torch.cuda.Event, "elapsed_time"),
    (torch.cuda.Event, "record"),
    (Giver, "give"),
    (Guarded, "replaced"),
    (Timer, "hidden"),
    (Timer, "measure"),
    (Timer, "once"),
    (TorchMemory, "copy"),
    (TorchMemory, "delay"),
    (TorchMemory, "equal"),
    (TorchMemory, "held"),
    (TorchMemory, "poison"),
    (TorchMemory, "wait"),
    (Watched, "__call__"),
    (Watched, "forget"),
    (torch.cuda, "_sleep"),
]


class Line:
    """The line to whoever started this process. What a task or a solution prints goes to standard error instead."""

    def __init__(self):
        self.out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, message):
        self.out.write(json.dumps(message) + "\n")
        self.out.flush()

    def ask(self, message):
        self.send(message)
        answer = json.loads(sys.stdin.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def doubled(values):
    """The same values in f64."""
    floats = lambda value: isinstance(value, torch.Tensor) and value.is_floating_point()  # noqa: E731
    return [value.double() if floats(value) else value for value in values]


def listed(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def in_tf32(value):
    """A tensor of numbers that tf32 can hold, the nearest ones: what a convolution of PyTorch multiplies on a GPU."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    bits = value.detach().contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


class Worker:
    """What both kinds of worker have: the task."""

    def load_task(self, request):
        self.device = request["device"]
        self.seed = request["seed"]
        if request.get("threads"):
            torch.set_num_threads(request["threads"])
        overrides = request.get("overrides") or {}
        if request.get("shrink") and not overrides:
            overrides = smaller(request["task"], request["shrink"])
        self.task = Task(request["task"], overrides)
        return overrides

    def drawn(self, request):
        return self.task.inputs(request["seed"], request["distribution"], self.device)

    def timed_inputs(self, seed):
        return self.task.inputs(seed, "own", self.device)


class Reference(Worker):
    """PyTorch's own model, in f32 and f64."""

    def load(self, request):
        overrides = self.load_task(request)
        self.forget(request)
        self.model = self.task.model(self.seed).to(self.device)
        self.taker = Taker(self.device)
        return {
            "overrides": overrides,
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
        }

    def tries(self, request):
        return {"within_memory": self.taker.tries(request["trial"])}

    def round(self, request):
        """Computes what a solution will have to."""
        self.forget(request)
        with torch.no_grad():
            inputs = self.drawn(request)
            if request.get("tf32"):
                # On a CPU nothing is computed in tf32, but the numbers can be rounded to it.
                model = self.task.model(self.seed)
                for parameter in model.parameters():
                    parameter.data = in_tf32(parameter.data) if parameter.dim() > 2 else parameter.data
                self.baseline = listed(model(*[in_tf32(value) for value in inputs]))
            else:
                self.baseline = listed(self.model(*inputs))
            double = self.task.model(self.seed).to(self.device).double()
            self.exact = listed(double(*doubled(inputs)))
            del inputs, double
        finite = all(bool(torch.isfinite(one).all()) for one in self.exact if one.is_floating_point())
        # The two processes share the device: what only an allocator holds is the other's to use.
        clear(self.device)
        return {"finite": finite, "results": described(self.baseline)}

    def judge(self, request):
        """Compares the results of a solution, which are in files."""
        wanted, got = described(self.baseline), request["results"]
        shapes = [(one["shape"], one["dtype"]) for one in got]
        if shapes != [(one["shape"], one["dtype"]) for one in wanted]:
            return {"shapes": f"it returns {spelled(got)} instead of {spelled(wanted)}"}
        results = [self.taker.take(one) for one in got]
        judged = [compared(*each) for each in zip(results, self.baseline, self.exact, strict=True)]
        del results
        clear(self.device)
        return {"results": judged}

    def forget(self, _request):
        self.baseline = self.exact = None
        clear(self.device)
        return {}

    def unload(self, request):
        """Lets go of the task, so that the next one has the memory."""
        self.task = self.model = None
        torch._dynamo.reset()
        # What was compiled refers to itself. A collection takes half a second, because compilers have many objects.
        gc.collect()
        return self.forget(request)

    def time(self, request):
        """Times PyTorch's model as it is, or compiled."""
        way = request["way"]
        model = self.model
        begin = time.perf_counter()
        if way != "eager":
            torch._dynamo.reset()
            options = {} if way == "compile" else {"mode": "max-autotune"}
            model = torch.compile(model, **options)
        with torch.no_grad():
            model(*self.timed_inputs(request["seeds"][-1]))
        first = time.perf_counter() - begin
        timed, _ = Timer(self.device).measure(lambda inputs: model(*inputs), self.timed_inputs, request["seeds"])
        return {**timed, "first_seconds": first}


def spelled(results):
    return ", ".join(f"{one['dtype']}{one['shape']}" for one in results)


def known(name, value):
    """What a declaration knows of an input or a parameter."""
    if not isinstance(value, torch.Tensor):
        return value
    return Tensor(name, tuple(value.shape), str(value.dtype).removeprefix("torch."))


def clear(device):
    """Gives memory that nobody uses back to the device. Tensors go with their last reference: nothing is collected."""
    if device == "cuda":
        torch.cuda.empty_cache()


class Candidate(Worker):
    """A solution."""

    def __init__(self, line):
        self.line = line
        self.findings = None

    def load(self, request):
        self.load_task(request)
        self.folder = Path(request["folder"])
        self.giver = Giver(self.device, self.folder)
        self.timer = Timer(self.device)
        guarded = Guarded(GUARDED)
        solution = request["solution"]
        run = self.python(solution["file"]) if solution["kind"] == "python" else self.cuda(solution)
        self.guarded = guarded
        self.watched = Watched(run, TorchMemory(self.device))
        self.run = run
        self.kept = {}
        return {"trial": self.giver.trial()}

    def share(self, request):
        self.giver.within_memory = request["within_memory"]
        return {}

    def python(self, file):
        """A module with `ModelNew`, which is made as `Model` is: with the same arguments and the same seed."""
        spec = importlib.util.spec_from_file_location("solution", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if not hasattr(module, "ModelNew"):
            raise ValueError(f"{Path(file).name} has no class ModelNew")
        torch.manual_seed(self.seed)
        model = module.ModelNew(*self.task.init_inputs())
        if isinstance(model, torch.nn.Module):
            model = model.to(self.device)

        def run(inputs):
            with torch.no_grad():
                return model(*inputs)

        return run

    def declared(self, solution, inputs, model):
        names = {**self.task.variables(), **self.task.constructor(self.task.module.Model)}
        for number, (name, value) in enumerate(zip(self.task.input_names(), inputs, strict=False)):
            names[name] = names[f"input{number}"] = known(name, value)
        parameters = {name.replace(".", "_"): value.detach() for name, value in model.named_parameters()}
        last = [name.rsplit(".", 1)[-1] for name, _ in model.named_parameters()]
        for (full, value), short in zip(parameters.items(), last, strict=True):
            names[full] = known(full, value)
            if last.count(short) == 1:
                names.setdefault(short, names[full])
        return Declared(solution["table"], solution["folder"], names, solution.get("own")), parameters

    def cuda(self, solution):
        """A kernel with its declaration. The shapes are those of the task, so one declaration serves all inputs."""
        with torch.device("meta"):
            inputs = self.task.module.get_inputs()
        model = self.task.model(self.seed)
        declared, parameters = self.declared(solution, inputs, model)
        names = self.task.input_names()[: len(inputs)]
        if self.device == "cuda":
            return OnGpu(declared, parameters, names, self.line.ask)
        simulated = Simulated(declared, parameters, names, self.line.ask, self.folder)
        self.findings = simulated.findings
        return simulated

    def call(self, request):
        """Calls the solution with fresh inputs, in new memory or in that of the call before."""
        fresh = self.drawn(request)
        if request["placement"] == "same" and self.kept.get("inputs") is not None:
            for held, value in zip(self.kept["inputs"], fresh, strict=True):
                if isinstance(value, torch.Tensor):
                    held.copy_(value)
            inputs = [
                held if isinstance(held, torch.Tensor) else value
                for held, value in zip(self.kept["inputs"], fresh, strict=True)
            ]
        else:
            # What lies at the old place stays there, so that the new one is another.
            self.kept["earlier"] = self.kept.get("inputs")
            inputs = fresh
        self.kept["inputs"] = inputs
        expected = [(one["shape"], getattr(torch, one["dtype"])) for one in request["expected"]]
        with torch.no_grad():
            results, wrong = self.watched(inputs, expected)
        wrong += [f"{name} was replaced" for name in self.guarded.replaced()]
        given = self.giver.give(results)
        del results, fresh, inputs
        clear(self.device)
        return {"results": given, "wrong": wrong, "findings": self.found()}

    def found(self):
        found = list(self.findings or [])
        if self.findings:
            self.findings.clear()
        return found

    def time(self, request):
        """Times the solution; the result of one run is kept to be judged."""
        self.kept = {}
        wrong = self.watched.forget()
        clear(self.device)
        timed, returned = self.timer.measure(
            self.run, self.timed_inputs, request["seeds"], request["judged"], self.returned
        )
        if not all(self.watched.memory.equal(tensor, copy) for tensor, copy in returned):
            wrong.append(
                "a result was changed after its run: a buffer is used again, or work is left on another stream"
            )
        wrong += [f"{name} was replaced" for name in self.guarded.replaced()]
        return {**timed, "results": self.giver.give([copy for _, copy in returned]), "wrong": wrong}

    def returned(self, result):
        """What a timed run returned, with copies that are made in the order of its own work: what another stream still
        has to write is not in them."""
        memory = self.watched.memory
        return [(tensor, memory.copy(tensor)) for tensor in memory.tensors(result) or [] if memory.plain(tensor)]

    def predict(self, request):
        """The launches at the task's own sizes, for a prediction without tensors."""
        task = Task(request["task"])
        with torch.device("meta"):
            inputs, model = task.module.get_inputs(), task.module.Model(*task.init_inputs())
        self.task = task
        declared, _ = self.declared(request["solution"], inputs, model)
        return self.line.ask({"ask": "predict", "plan": declared.plan({})})


def main():
    line = Line()
    worker = Reference() if sys.argv[1:] == ["reference"] else Candidate(line)
    for text in sys.stdin:
        request = json.loads(text)
        try:
            answer = {"answer": getattr(worker, request["do"])(request)}
        except torch.OutOfMemoryError as error:
            answer = {"error": f"the device's memory is not enough: {str(error).splitlines()[0]}"}
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        line.send(answer)


if __name__ == "__main__":
    main()
