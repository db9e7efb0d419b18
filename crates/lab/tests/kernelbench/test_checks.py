"""The checks on plain Python lists: they need no PyTorch, so they run wherever there is a Python."""

import sys
import unittest
import unittest.mock
import weakref
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).parents[2] / "src" / "kernelbench" / "worker"))

import checks
from checks import Guarded, Watched, overlap
from declaration import DeclarationError, Declared, Scalar, Tensor, constant


class Numbers:
    """A tensor: a view of some memory."""

    def __init__(self, memory, begin=0, count=None):
        self.memory, self.begin = memory, begin
        self.count = len(memory) - begin if count is None else count

    def __getitem__(self, at):
        return self.memory[self.begin + at]

    def __setitem__(self, at, value):
        self.memory[self.begin + at] = value

    def list(self):
        return self.memory[self.begin : self.begin + self.count]

    def set(self, values):
        self.memory[self.begin : self.begin + self.count] = values


class Lazy(Numbers):
    """A tensor of another kind."""


class ListMemory:
    """Memory that has a heap: what was freed is handed out again, unless it is poisoned. Work that a call leaves
    elsewhere has ended when the host comes to copy the results, unless the caller's own stream was delayed."""

    def __init__(self):
        self.free = {}
        self.unfinished = []
        self.addresses = {}
        self.delayed = False

    def allocate(self, count):
        blocks = self.free.get(count, [])
        return Numbers(blocks.pop() if blocks else [0.0] * count)

    def release(self, tensor):
        self.free.setdefault(tensor.count, []).append(tensor.memory)

    def tensors(self, result):
        if isinstance(result, Numbers):
            return [result]
        if isinstance(result, tuple) and all(isinstance(one, Numbers) for one in result):
            return list(result)
        return None

    def plain(self, value):
        return type(value) is Numbers

    def span(self, tensor):
        base = self.addresses.setdefault(id(tensor.memory), (len(self.addresses) + 1) << 32)
        # As PyTorch's: the whole memory that a view is of.
        return base, base + len(tensor.memory)

    def copy(self, tensor):
        return Numbers(list(tensor.list()))

    def equal(self, tensor, copy):
        return repr(tensor.list()) == repr(copy.list())

    def held(self, tensor):
        memory = weakref.ref(tensor)
        return lambda: memory() is not None

    def delay(self):
        self.delayed = True

    def elsewhere(self, work):
        """Short work on another stream."""
        if self.delayed:
            self.unfinished.append(work)
        else:
            work()

    def poison(self, like):
        for count in like:
            for memory in self.free.get(count, []):
                memory[:] = [float("nan")] * len(memory)

    def wait(self):
        self.delayed = False
        while self.unfinished:
            self.unfinished.pop()()


def doubled(inputs):
    return Numbers([2 * value for value in inputs[0].list()])


class Cheats(unittest.TestCase):
    def setUp(self):
        self.memory = ListMemory()

    def call(self, run, values=(1.0, 2.0, 3.0), watched=None):
        watched = watched or Watched(run, self.memory)
        results, wrong = watched([Numbers(list(values))], [len(values)])
        return [result.list() for result in results], wrong

    def test_an_honest_solution_is_not_accused(self):
        watched = Watched(doubled, self.memory)
        self.assertEqual(self.call(doubled, watched=watched), ([[2.0, 4.0, 6.0]], []))
        self.assertEqual(self.call(doubled, (5.0, 6.0, 7.0), watched), ([[10.0, 12.0, 14.0]], []))

    def test_what_is_not_written_is_not_right_by_chance(self):
        right = Numbers([2.0, 4.0, 6.0])
        self.memory.release(right)
        (result,), _ = self.call(lambda inputs: self.memory.allocate(3))
        self.assertTrue(all(value != value for value in result))

    def test_a_result_that_shares_memory_with_an_input(self):
        _, wrong = self.call(lambda inputs: inputs[0])
        self.assertEqual(wrong, ["result 0 shares memory with input 0"])
        # A part of it as well.
        _, wrong = self.call(lambda inputs: Numbers(inputs[0].memory, 1, 2))
        self.assertEqual(wrong, ["result 0 shares memory with input 0"])
        self.assertTrue(overlap((0, 10), (9, 12)))
        self.assertFalse(overlap((0, 10), (10, 12)))

    def test_an_input_that_was_changed(self):
        def run(inputs):
            result = doubled(inputs)
            inputs[0][1] = 0.0
            return result

        _, wrong = self.call(run)
        self.assertEqual(wrong, ["input 0 was changed by the call"])

    def test_work_that_goes_on_after_the_call(self):
        def run(inputs):
            result = Numbers([0.0] * inputs[0].count)
            self.memory.unfinished.append(lambda: result.set(doubled(inputs).list()))
            return result

        results, wrong = self.call(run)
        # What counts is what was there when the call returned.
        self.assertEqual(results, [[0.0, 0.0, 0.0]])
        self.assertEqual(len(wrong), 1)
        self.assertIn("work is left on another stream", wrong[0])

    def test_a_buffer_that_is_used_again(self):
        buffer = Numbers([0.0] * 3)

        def run(inputs):
            buffer.set(doubled(inputs).list())
            return buffer

        watched = Watched(run, self.memory)
        self.assertEqual(self.call(run, watched=watched)[1], [])
        _, wrong = self.call(run, (5.0, 6.0, 7.0), watched)
        self.assertEqual(wrong, ["the result of an earlier call was changed by this one: a buffer is used again"])

    def test_buffers_that_are_used_in_turn(self):
        for count in (2, 3, 4):
            buffers, calls = [Numbers([0.0] * 3) for _ in range(count)], [0]

            def run(inputs, buffers=buffers, calls=calls):
                buffer = buffers[calls[0] % len(buffers)]
                calls[0] += 1
                buffer.set(doubled(inputs).list())
                return buffer

            watched = Watched(run, self.memory)
            for call in range(count):
                self.assertEqual(self.call(run, (float(call), 2.0, 3.0), watched)[1], [])
            _, wrong = self.call(run, (5.0, 6.0, 7.0), watched)
            self.assertEqual(wrong, ["the result of an earlier call was changed by this one: a buffer is used again"])

    def test_more_buffers_than_calls(self):
        buffers = [Numbers([0.0] * 3) for _ in range(9)]

        def run(inputs):
            buffer = buffers[0]
            buffers.append(buffers.pop(0))
            buffer.set(doubled(inputs).list())
            return buffer

        watched = Watched(run, self.memory)
        for call in range(5):
            self.assertEqual(self.call(run, (float(call), 2.0, 3.0), watched)[1], [])
        self.assertEqual(
            watched.forget(), ["the solution holds what an earlier call returned: a buffer that is used again"]
        )
        # One that makes its results anew holds none.
        watched = Watched(doubled, self.memory)
        self.call(doubled, watched=watched)
        self.call(doubled, watched=watched)
        self.assertEqual(watched.forget(), [])
        self.assertEqual(watched.forget(), [])

    def test_results_are_kept_as_long_as_there_is_room(self):
        sized, room = [], checks.KEPT_BYTES
        for count in (1, 3):
            with unittest.mock.patch.object(checks, "KEPT_BYTES", 2 * 3 * count):
                watched = Watched(doubled, self.memory)
                for _ in range(5):
                    self.call(doubled, watched=watched)
                sized.append(len(watched.earlier))
        # A call's own results are kept in any case.
        with unittest.mock.patch.object(checks, "KEPT_BYTES", 0):
            self.call(doubled, watched=watched)
            sized.append(len(watched.earlier))
        self.assertEqual((sized, checks.KEPT_BYTES), ([1, 3, 1], room))

    def test_short_work_on_another_stream(self):
        def run(inputs):
            result = Numbers([0.0] * inputs[0].count)
            self.memory.elsewhere(lambda: result.set(doubled(inputs).list()))
            return result

        results, wrong = self.call(run)
        self.assertEqual(results, [[0.0, 0.0, 0.0]])
        self.assertIn("work is left on another stream", wrong[0])

    def test_results_that_are_no_ordinary_tensors(self):
        self.assertIn("not a tensor", self.call(lambda inputs: 3.0)[1][0])
        self.assertIn("not an ordinary tensor", self.call(lambda inputs: Lazy([1.0]))[1][0])

    def test_functions_that_measure_are_guarded(self):
        class Clock:
            now = len

        guarded = Guarded([(Clock, "now")])
        self.assertEqual(guarded.replaced(), [])
        Clock.now = max
        self.assertEqual(guarded.replaced(), ["Clock.now"])


class Declarations(unittest.TestCase):
    table: ClassVar = {
        "source": "scale.cu",
        "let": {"blocks": "ceil_div(count, 128)", "count": "x.count"},
        "define": {"COUNT": "count", "FACTOR": "float(factor)"},
        "output": [{"name": "y", "shape": "x.shape"}],
        "launch": [{"entry": "scale", "grid": "blocks", "block": "128", "arguments": ["x", "y", "f32(factor)"]}],
    }
    folder = Path(__file__).parent / "kernels"

    def declared(self, **changes):
        names = {"input0": Tensor("x", (10, 30)), "factor": 3}
        return Declared({**self.table, **changes}, self.folder, names)

    def test_expressions_are_worked_out_in_the_order_that_they_need(self):
        declared = self.declared()
        self.assertEqual(declared.options, ["-DCOUNT=300", "-DFACTOR=3.0f"])
        launch = declared.launches[0]
        self.assertEqual((launch["grid"], launch["block"]), ([3, 1, 1], [128, 1, 1]))
        self.assertEqual(launch["arguments"][2], Scalar("f32", 3.0))
        plan = declared.plan({"x": ("in.bin", None), "y": (None, "out.bin")})
        self.assertEqual(
            [(one["name"], one["bytes"], one["from"], one["to"]) for one in plan["buffers"]],
            [("x", 1200, "in.bin", None), ("y", 1200, None, "out.bin")],
        )
        self.assertEqual(plan["launches"][0]["arguments"], [{"buffer": 0}, {"buffer": 1}, {"f32": 3.0}])

    def test_mistakes_are_named(self):
        launch = self.table["launch"][0]
        for changes, message in [
            ({"output": []}, "has no output"),
            ({"launch": []}, "launches nothing"),
            ({"let": {"count": "y.count"}}, "cannot be evaluated"),
            ({"let": {"a": "b", "b": "a"}}, "cannot be evaluated"),
            ({"launch": [{**launch, "arguments": ["factor"]}]}, "has no type"),
            ({"launch": [{**launch, "grid": "0"}]}, "is no shape of a launch"),
            ({"output": [{"name": "y", "shape": "x.shape", "dtype": "f8"}]}, "unknown type"),
        ]:
            with self.subTest(message), self.assertRaisesRegex(DeclarationError, message):
                self.declared(**{"let": self.table["let"], **changes})

    def test_constants_are_written_as_the_compiler_reads_them(self):
        cases = [(True, "1"), (7, "7"), (1 << 40, f"{1 << 40}LL"), (0.1, "0.1f"), ((1, 2), "1,2"), ("Relu", "Relu")]
        for value, text in cases:
            self.assertEqual(constant(value, "here"), text)
        with self.assertRaisesRegex(DeclarationError, "not a number that a kernel"):
            constant(float("inf"), "here")


if __name__ == "__main__":
    unittest.main()
