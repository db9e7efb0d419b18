"""What the checks need of PyTorch's tensors."""

import gc
import threading
import time

import torch
from torch.multiprocessing.reductions import StorageWeakRef

# How long threads of a solution may go on after a call on a CPU. On a GPU its own synchronisation is exact.
SETTLE_SECONDS = 0.05

# Clocks that a GPU is kept busy: ten milliseconds or so, in which the host launches all that a call has.
DELAY_CLOCKS = 20_000_000


class TorchMemory:
    """The memory of a device."""

    def __init__(self, device):
        self.device = torch.device(device)
        self.threads = set(threading.enumerate())

    def tensors(self, result):
        if isinstance(result, torch.Tensor):
            return [result]
        if isinstance(result, (tuple, list)) and result and all(isinstance(one, torch.Tensor) for one in result):
            return list(result)
        return None

    def plain(self, value):
        kinds = (torch.Tensor, torch.nn.Parameter)
        return type(value) in kinds and value.layout is torch.strided and value.device.type == self.device.type

    def span(self, tensor):
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + max(1, storage.nbytes())

    def copy(self, tensor):
        return tensor.detach().clone()

    def equal(self, tensor, copy):
        if tensor.shape != copy.shape or tensor.dtype != copy.dtype:
            return False
        one, other = tensor.detach().contiguous().view(-1), copy.view(-1)
        # Of floats the bits count: NaN is not equal to itself. In pieces, because a comparison needs memory.
        if one.is_floating_point():
            whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[one.element_size()]
            one, other = one.view(whole), other.view(whole)
        piece = 1 << 28
        return all(torch.equal(one[at : at + piece], other[at : at + piece]) for at in range(0, one.numel(), piece))

    def held(self, tensor):
        storage = StorageWeakRef(tensor.untyped_storage())

        def is_held():
            if not storage.expired():
                # Cycles hold what nobody uses.
                gc.collect()
            return not storage.expired()

        return is_held

    def delay(self):
        if self.device.type == "cuda":
            # One thread that waits: other streams have the rest of the GPU.
            torch.cuda._sleep(DELAY_CLOCKS)

    def poison(self, like):
        """Fills what the allocator would give a result of such a shape, several times over."""
        for shape, dtype in like:
            blocks = [
                torch.empty(shape, dtype=dtype, device=self.device)
                for _ in range(3 if self.device.type == "cpu" else 2)
            ]
            for block in blocks:
                block.fill_(float("nan") if block.is_floating_point() else 0x55 if dtype != torch.bool else True)
            del blocks

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            return
        started = [thread for thread in threading.enumerate() if thread not in self.threads]
        for thread in started:
            thread.join(timeout=2)
        if started:
            time.sleep(SETTLE_SECONDS)
