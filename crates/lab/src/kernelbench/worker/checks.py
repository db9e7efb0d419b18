"""What is watched while a solution runs: whether it does what it seems to do.

Nothing here needs PyTorch. What it needs of tensors it asks of a `memory`: `torch_memory.py` has that of PyTorch, and
the tests have one of plain Python, so that the checks run where no PyTorch is.

A memory has:
    tensors(result)        the tensors of a result, or None if it is anything else
    plain(tensor)          whether it is an ordinary tensor, whose numbers are there when its work is done
    span(tensor)           where its memory begins and ends
    copy(tensor)           a copy, made in the order of the caller's own work and no later
    equal(tensor, copy)    whether both have the same bits
    held(tensor)           a function that tells whether anybody holds the tensor's memory
    poison(like)           fills free memory, so that what is not written is not right by chance
    delay()                keeps the caller's stream busy for a while, and no other
    wait()                 waits for all work of the device, whoever started it
"""

# Results of earlier calls are kept up to so many bytes together, so that there is room for those to come.
KEPT_BYTES = 8 << 30


def overlap(one, other):
    """Whether two spans share memory."""
    return one[0] < other[1] and other[0] < one[1]


class Watched:
    """Runs a solution, and says what it did beside computing."""

    def __init__(self, run, memory):
        self.run = run
        self.memory = memory
        # Results with their copies, and how to tell whether somebody holds them.
        self.earlier, self.held = [], []

    def __call__(self, inputs, expected):
        """The results of a call, as they were when it returned, and what was wrong."""
        memory, wrong = self.memory, []
        tensors = [value for value in inputs if memory.plain(value)]
        before = [memory.copy(tensor) for tensor in tensors]
        memory.poison(expected)
        memory.wait()
        # So that the host gets ahead: the copies below then follow the call's own work without a gap, in which another
        # stream could end its work.
        memory.delay()
        result = memory.tensors(self.run(inputs))
        if result is None:
            return [], ["it returns something that is not a tensor or a tuple of tensors"]
        lazy = [number for number, tensor in enumerate(result) if not memory.plain(tensor)]
        if lazy:
            return [], [f"result {lazy[0]} is not an ordinary tensor: it may be computed only when it is looked at"]
        # At once: what is still on its way on another stream or thread is not in these copies.
        snapshots = [memory.copy(tensor) for tensor in result]
        memory.wait()
        for number, (tensor, snapshot) in enumerate(zip(result, snapshots, strict=True)):
            if not memory.equal(tensor, snapshot):
                wrong.append(
                    f"result {number} was still being written when the call returned: work is left on another stream"
                )
            for place, given in enumerate(tensors):
                if overlap(memory.span(tensor), memory.span(given)):
                    wrong.append(f"result {number} shares memory with input {place}")
        for place, (tensor, copy) in enumerate(zip(tensors, before, strict=True)):
            if not memory.equal(tensor, copy):
                wrong.append(f"input {place} was changed by the call")
        for tensor, snapshot in self.earlier:
            if not memory.equal(tensor, snapshot):
                wrong.append("the result of an earlier call was changed by this one: a buffer is used again")
                break
        self.keep(result, snapshots)
        return snapshots, wrong

    def keep(self, result, snapshots):
        """Keeps results, so that their memory is nobody's to use, and lets go of the oldest if they are too many."""
        self.held += [self.memory.held(tensor) for tensor in result]
        self.earlier += zip(result, snapshots, strict=True)
        sizes = [end - begin for begin, end in (self.memory.span(tensor) for tensor, _ in self.earlier)]
        while len(self.earlier) > len(result) and 2 * sum(sizes) > KEPT_BYTES:
            del self.earlier[0], sizes[0]

    def forget(self):
        """Lets go of the results of earlier calls. Tells whether the solution holds one, which it could use again."""
        self.earlier = []
        held, self.held = any(is_held() for is_held in self.held), []
        return ["the solution holds what an earlier call returned: a buffer that is used again"] if held else []


class Guarded:
    """Functions that measure or compare, and must stay what they are while a solution is loaded and run."""

    def __init__(self, places):
        self.functions = {f"{owner.__name__}.{name}": (owner, name, getattr(owner, name)) for owner, name in places}

    def replaced(self):
        """The names of those that were replaced."""
        return [
            full
            for full, (owner, name, function) in self.functions.items()
            if getattr(owner, name, None) is not function
        ]
