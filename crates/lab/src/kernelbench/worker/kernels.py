"""Runs the launches of a declaration: on a GPU through the CUDA driver, on PyTorch's stream, or in the simulator."""

import ctypes
from pathlib import Path

import torch

from declaration import Tensor


class DriverError(RuntimeError):
    """A call of the CUDA driver that failed."""


class Driver:
    """The few functions of the CUDA driver that launches need."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        torch.cuda.init()
        torch.zeros(1, device="cuda")

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(status, ctypes.byref(text))
            raise DriverError(f"{name}: {(text.value or b'unknown error').decode()}")

    def module(self, code):
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(code))
        return module

    def function(self, module, entry, shared):
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: beyond 48 KiB a kernel has to ask.
        if shared > 48 * 1024:
            self.call("cuFuncSetAttribute", function, 8, shared)
        return function

    def launch(self, function, launch, arguments, stream):
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        self.call(
            "cuLaunchKernel",
            function,
            *launch["grid"],
            *launch["block"],
            launch["shared"],
            ctypes.c_void_p(stream),
            pointers,
            None,
        )


SCALARS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float}


class OnGpu:
    """A declaration on a GPU. Results are allocated for every call, workspaces once."""

    def __init__(self, declared, parameters, names, ask):
        self.declared, self.names = declared, names
        self.driver = Driver()
        capability = torch.cuda.get_device_capability()
        code = ask({"ask": "compile", "plan": declared.plan({}), "capability": list(capability)})["ptx"]
        module = self.driver.module(code.encode() + b"\0")
        self.functions = {
            (launch["entry"], launch["shared"]): self.driver.function(module, launch["entry"], launch["shared"])
            for launch in declared.launches
        }
        self.kept = {name: value.detach().cuda().contiguous() for name, value in parameters.items()}
        self.kept |= {one.name: empty(one, "cuda") for one in declared.workspaces}

    def __call__(self, inputs):
        tensors = {**self.kept, **dict(zip(self.names, inputs, strict=True))}
        results = [empty(one, "cuda") for one in self.declared.outputs]
        tensors |= {one.name: result for one, result in zip(self.declared.outputs, results, strict=True)}
        stream = torch.cuda.current_stream().cuda_stream
        for launch in self.declared.launches:
            arguments = [
                ctypes.c_uint64(tensors[one.name].data_ptr())
                if isinstance(one, Tensor)
                else SCALARS[one.kind](one.value)
                for one in launch["arguments"]
            ]
            self.driver.launch(self.functions[launch["entry"], launch["shared"]], launch, arguments, stream)
        return results[0] if len(results) == 1 else tuple(results)


class Simulated:
    """A declaration in the simulator: tensors go there and come back in files."""

    def __init__(self, declared, parameters, names, ask, folder):
        self.declared, self.names, self.ask, self.folder = declared, names, ask, Path(folder)
        self.parameters = parameters
        self.findings = []

    def __call__(self, inputs):
        given = {**self.parameters, **dict(zip(self.names, inputs, strict=True))}
        files = {}
        for name, value in given.items():
            if isinstance(value, torch.Tensor):
                file = self.folder / f"given-{name}.bin"
                write(file, value)
                files[name] = (str(file), None)
        for one in self.declared.outputs:
            files[one.name] = (None, str(self.folder / f"result-{one.name}.bin"))
        answer = self.ask({"ask": "simulate", "plan": self.declared.plan(files)})
        self.findings += answer["findings"]
        results = [read(files[one.name][1], one.shape, one.dtype) for one in self.declared.outputs]
        return results[0] if len(results) == 1 else tuple(results)


def empty(one, device):
    return torch.empty(one.shape, dtype=getattr(torch, one.dtype), device=device)


def write(path, tensor):
    """Writes a tensor's bytes."""
    tensor = tensor.detach().contiguous().cpu()
    shared = torch.from_file(str(path), shared=True, size=max(1, tensor.numel()), dtype=tensor.dtype)
    shared[: tensor.numel()].copy_(tensor.reshape(-1))


def read(path, shape, dtype):
    """A tensor from its bytes."""
    count = 1
    for extent in shape:
        count *= extent
    tensor = torch.from_file(str(path), shared=False, size=count, dtype=getattr(torch, dtype))
    return tensor.clone().reshape(tuple(shape))
