"""How a peer takes turns with a benchmark.

It reads one request per line from standard input, and answers each with one line on standard output:

    {"do": "hello", "threads": n, "device": "cpu" or "cuda:0", "precision": "f32", "compile": false}
        answers with PyTorch's version and the device
    {"do": "prepare", …, "window": n, "result": path}
        prepares a case in every way that PyTorch has, and runs each once; answers
        {"variants": [{"name": …} or {"name": …, "failed": why}]}. The result of variant i is in `<path>.<i>` as f32
    {"do": "time", "variant": i, "seconds": s, "least": n}
        runs a variant for about s seconds and at least n times; answers {"seconds": [one per run]}

A result longer than three windows is written as its first, middle and last window.
"""

import json
import sys
import time

import torch

import measure

PRECISIONS = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def windows(y, window):
    """The first, middle and last window of a long tensor; a short one as it is."""
    y = y.flatten()
    if len(y) <= 3 * window:
        return y
    middle = len(y) // 2
    return torch.cat([y[:window], y[middle : middle + window], y[-window:]])


def reason(error):
    """An exception as one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


class Peer:
    """What layers and networks have in common. A subclass prepares cases."""

    def __init__(self, hello):
        torch.set_grad_enabled(False)
        self.device = torch.device(hello["device"])
        self.precision = hello["precision"]
        self.dtype = PRECISIONS[self.precision]
        self.compile = hello["compile"]
        # For every variant, the functions that runs cycle through.
        self.variants = []
        if self.device.type == "cpu":
            torch.set_num_threads(hello["threads"])
        else:
            # f32 without TF32. cuDNN may try its algorithms, as in any careful measurement.
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            torch.backends.cudnn.benchmark = True
        self.flush = measure.Flush(self.device)

    def versions(self):
        answer = {"torch": torch.__version__, "threads": torch.get_num_threads(), "device": str(self.device)}
        if self.device.type == "cuda":
            answer["device"] = torch.cuda.get_device_name(self.device)
            answer |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
        return answer

    def prepare(self, request):
        raise NotImplementedError

    def write_result(self, request, number, result):
        """Writes as much of a variant's result as is compared."""
        result = windows(result, request["window"]).float().cpu().contiguous()
        result.numpy().tofile(f"{request['result']}.{number}")

    def time(self, request):
        """Seconds of calls that cycle through a variant's functions. The first call is not counted."""
        runs = self.variants[request["variant"]]
        self.once(runs[-1])
        samples, end = [], time.perf_counter() + request["seconds"]
        while len(samples) < request["least"] or time.perf_counter() < end:
            samples.append(self.once(runs[len(samples) % len(runs)]))
        return {"seconds": samples}

    def once(self, run):
        return measure.once(run, self.device, self.flush) / 1e3

    @classmethod
    def serve(cls):
        """Answers every line of standard input. The first one is the hello."""
        peer = None
        for line in sys.stdin:
            request = json.loads(line)
            if request["do"] == "hello":
                peer = cls(request)
                answer = peer.versions()
            elif request["do"] == "prepare":
                answer = peer.prepare(request)
            else:
                answer = peer.time(request)
            print(json.dumps(answer), flush=True)
