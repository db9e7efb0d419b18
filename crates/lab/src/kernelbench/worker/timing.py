"""How long calls take: fresh inputs and a flushed L2 cache for each, medians of single runs.

The host's clock is beside the device's.
"""

import ctypes
import statistics
import time

import torch

# Larger than the L2 cache of any device.
FLUSHED_BYTES = 256 << 20
# NVML_CLOCK_SM
MULTIPROCESSOR_CLOCK = 1


class Clocks:
    """The clock of the multiprocessors in MHz, and why it is lowered, as the driver's management library tells it."""

    def __init__(self):
        self.library = self.handle = None
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            handle = ctypes.c_void_p()
            uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}".encode()
            if library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)) == 0:
                self.library, self.handle = library, handle
        except (OSError, AttributeError):
            # Without it times are told all the same.
            pass

    def now(self):
        if self.library is None:
            return {}
        mhz, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
        told = self.library.nvmlDeviceGetClockInfo(self.handle, MULTIPROCESSOR_CLOCK, ctypes.byref(mhz)) == 0
        told &= self.library.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle, ctypes.byref(reasons)) == 0
        return {"mhz": float(mhz.value), "throttle": f"{reasons.value:#018x}"} if told else {}


class Timer:
    """Functions that measure, taken before a solution is loaded."""

    def __init__(self, device):
        self.cuda = torch.device(device).type == "cuda"
        self.now = time.perf_counter
        if self.cuda:
            self.event, self.wait = torch.cuda.Event, torch.cuda.synchronize
            self.clocks = Clocks()
            self.flushed = torch.empty(FLUSHED_BYTES // 4, dtype=torch.int32, device="cuda")

    def once(self, run, inputs, returned):
        """Milliseconds of one run, and what `returned` makes of its result before the run is waited for."""
        if not self.cuda:
            begin = self.now()
            result = run(inputs)
            spent = 1e3 * (self.now() - begin)
            return spent, returned(result)
        self.flushed.zero_()
        before, after = self.event(enable_timing=True), self.event(enable_timing=True)
        before.record()
        result = run(inputs)
        after.record()
        made = returned(result)
        after.synchronize()
        return before.elapsed_time(after), made

    def hidden(self, run, sets, median):
        """What the host sees of several runs beyond what events see: work that is not in the timed stream."""
        if not self.cuda:
            return 0.0
        count = max(3, min(50, int(200 / max(median, 0.05))))
        self.wait()
        begin = self.now()
        before, after = self.event(enable_timing=True), self.event(enable_timing=True)
        before.record()
        for number in range(count):
            run(sets[number % len(sets)])
        after.record()
        after.synchronize()
        seen = before.elapsed_time(after)
        self.wait()
        return max(0.0, (1e3 * (self.now() - begin) - seen) / count)

    def measure(self, run, draw, seeds, judged=0, returned=lambda _result: [], seconds=2.0):
        """The median of single runs with their spread, and what `returned` makes of the result of run number `judged`,
        or of the last one.

        Every run has inputs of its own: what is kept from an earlier one is of no use. The last two seeds warm up.
        """
        with torch.no_grad():
            sets = [draw(seed) for seed in seeds[-2:]]
            for inputs in sets:
                run(inputs)
            del sets, inputs
            first = self.clocks.now() if self.cuda else {}
            times, kept, inputs = [], None, None
            begin = self.now()
            for number, seed in enumerate(seeds[:-2]):
                if number >= 5 and self.now() - begin >= seconds:
                    break
                # One set at a time has to fit.
                inputs = None
                inputs = draw(seed)
                if self.cuda:
                    self.wait()
                if number <= judged:
                    # The memory of one result is that of the next.
                    kept = None
                    spent, kept = self.once(run, inputs, returned)
                else:
                    spent, _ = self.once(run, inputs, lambda _result: [])
                times.append(spent)
            inputs = None
            hidden = self.hidden(run, [draw(seed) for seed in seeds[-2:]], statistics.median(times))
        ordered = sorted(times)
        return {
            "median": statistics.median(times),
            "low": ordered[len(times) // 10],
            "high": ordered[len(times) - 1 - len(times) // 10],
            "runs": len(times),
            "hidden": hidden,
            "clocks": [first, self.clocks.now()] if self.cuda else [],
        }, kept
