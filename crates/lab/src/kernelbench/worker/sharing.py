"""How results come from the process of a solution to the one that compares them: in files, or within a GPU's memory.

A result may have gigabytes, and a copy from the GPU to a file and back takes longer than everything else.
"""

import ctypes

import torch

from kernels import Driver, DriverError, read, write

HANDLE_BYTES = 64


class Handle(ctypes.Structure):
    """CUipcMemHandle: names an allocation for other processes."""

    _fields_ = [("bytes", ctypes.c_ubyte * HANDLE_BYTES)]


def described(tensors):
    return [{"shape": list(one.shape), "dtype": str(one.dtype).removeprefix("torch.")} for one in tensors]


def elements(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


class Giver:
    """The side that has results."""

    def __init__(self, device, folder):
        self.folder = folder
        self.driver = Driver() if device == "cuda" else None
        self.within_memory = False
        self.kept = []

    def trial(self):
        """A tensor to try with, or nothing if there is no such way."""
        if self.driver is None:
            return None
        self.kept = [torch.arange(7, device="cuda", dtype=torch.int32)]
        try:
            return self.offered(self.kept[0])
        except DriverError:
            return None

    def offered(self, tensor):
        torch.cuda.synchronize()
        start, size, handle = ctypes.c_uint64(), ctypes.c_size_t(), Handle()
        address = ctypes.c_uint64(tensor.data_ptr())
        self.driver.call("cuMemGetAddressRange_v2", ctypes.byref(start), ctypes.byref(size), address)
        self.driver.call("cuIpcGetMemHandle", ctypes.byref(handle), start)
        return {"handle": bytes(handle.bytes).hex(), "offset": tensor.data_ptr() - start.value}

    def give(self, results):
        """What the other side needs to take them. They stay where they are until the next ones are given."""
        self.kept = [one.detach().contiguous() for one in results]
        return [
            {**description, **self.place(number, one)}
            for number, (one, description) in enumerate(zip(self.kept, described(self.kept), strict=True))
        ]

    def place(self, number, tensor):
        if tensor.numel() == 0:
            return {}
        if self.within_memory and tensor.is_cuda:
            return self.offered(tensor)
        file = self.folder / f"out-{number}.bin"
        file.unlink(missing_ok=True)
        write(file, tensor)
        return {"file": str(file)}


class Taker:
    """The side that compares. What it is told comes from the solution's process, and is not trusted."""

    def __init__(self, device):
        self.device = device
        self.driver = Driver() if device == "cuda" else None

    def tries(self, trial):
        """Whether results can be taken from the GPU's memory."""
        if self.driver is None or not trial:
            return False
        try:
            taken = self.take({**trial, "shape": [7], "dtype": "int32"})
        except (DriverError, ValueError):
            return False
        return taken.tolist() == list(range(7))

    def take(self, given):
        """A tensor of this process with what is in one of the other's."""
        shape, dtype = given["shape"], given["dtype"]
        if elements(shape) == 0:
            return torch.empty(shape, dtype=getattr(torch, dtype), device=self.device)
        if "file" in given:
            return read(given["file"], shape, dtype).to(self.device)
        copy = torch.empty(shape, dtype=getattr(torch, dtype), device=self.device)
        handle = Handle.from_buffer_copy(bytes.fromhex(given["handle"]))
        mapped, start, size = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
        # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS is the only flag there is.
        self.driver.call("cuIpcOpenMemHandle_v2", ctypes.byref(mapped), handle, 1)
        try:
            self.driver.call("cuMemGetAddressRange_v2", ctypes.byref(start), ctypes.byref(size), mapped)
            offset, bytes_wanted = int(given["offset"]), copy.numel() * copy.element_size()
            if not 0 <= offset <= size.value - bytes_wanted:
                raise ValueError("a result lies outside of its allocation")
            source, target = ctypes.c_uint64(mapped.value + offset), ctypes.c_uint64(copy.data_ptr())
            self.driver.call("cuMemcpyDtoD_v2", target, source, ctypes.c_size_t(bytes_wanted))
            torch.cuda.synchronize()
        finally:
            self.driver.call("cuIpcCloseMemHandle", mapped)
        return copy
