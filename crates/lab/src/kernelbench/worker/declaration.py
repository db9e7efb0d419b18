"""The declaration of a solution in CUDA: what it needs, and what it launches. Its values are expressions of the shapes.

A declaration is a TOML file:

    source = "scale.cu"            # beside the declaration
    [let]                          # names for other expressions, in any order
    count = "x.count"
    [define]                       # constants of the kernel: -DCOUNT=...
    COUNT = "count"
    [[output]]                     # in the order in which the task returns them
    name = "y"
    shape = "x.shape"
    [[workspace]]                  # memory that holds nothing before the first launch
    name = "partial"
    shape = "[1024]"
    [[launch]]
    entry = "scale"
    grid = "ceil_div(count, 256)"  # one number, or a list of up to three
    block = "256"
    arguments = ["x", "y", "f32(s)"]

Expressions know the inputs by the names of the task's `forward`, the model's parameters by theirs (`conv2d_weight`, and
`weight` if there is one only), the arguments of the model's constructor, and the task's own variables.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

BYTES = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
MOST_LAUNCHES = 100_000


class DeclarationError(ValueError):
    """A declaration that cannot be used; the message says why."""


@dataclass(frozen=True)
class Tensor:
    """What an expression knows of a tensor."""

    name: str
    shape: tuple
    dtype: str = "float32"

    @property
    def count(self):
        return math.prod(self.shape)

    @property
    def bytes(self):
        return self.count * BYTES[self.dtype]


@dataclass(frozen=True)
class Scalar:
    """An argument that is a number."""

    kind: str
    value: float


def each(value, axes):
    """A number for each axis: those of a tuple, or the same one."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
    if len(values) != axes:
        raise DeclarationError(f"{value!r} has {len(values)} numbers, but there are {axes} axes")
    return values


FUNCTIONS = {
    "abs": abs,
    "all": all,
    "bool": bool,
    "ceil_div": lambda a, b: -(-a // b),
    "each": each,
    "float": float,
    "f32": lambda value: Scalar("f32", float(value)),
    "i32": lambda value: Scalar("i32", int(value)),
    "i64": lambda value: Scalar("i64", int(value)),
    "int": int,
    "isinstance": isinstance,
    "len": len,
    "list": list,
    "max": max,
    "min": min,
    "next_power_of_two": lambda value: 1 << max(0, value - 1).bit_length(),
    "prod": math.prod,
    "range": range,
    "round_up": lambda a, b: -(-a // b) * b,
    "sqrt": math.sqrt,
    "str": str,
    "sum": sum,
    "tuple": tuple,
    "zip": zip,
}


def evaluated(expression, names, where):
    """The value of an expression; anything but text stands for itself."""
    if not isinstance(expression, str):
        return expression
    try:
        # One dictionary, so that generator expressions see the names as well. Whoever writes a declaration also writes
        # the kernel, so this is no boundary of trust.
        return eval(expression, {"__builtins__": {}, **FUNCTIONS, **names})
    except DeclarationError:
        raise
    except Exception as error:
        raise DeclarationError(f"{where}: {expression!r} cannot be evaluated: {error}") from error


def used_names(expression):
    """The names in an expression, those within its comprehensions as well."""
    try:
        codes = [compile(expression, "declaration", "eval")]
    except SyntaxError:
        return []
    names = []
    while codes:
        code = codes.pop()
        names += code.co_names
        codes += [one for one in code.co_consts if hasattr(one, "co_names")]
    return names


def constant(value, where):
    """A value as the compiler reads it."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return str(value) if abs(value) < 1 << 31 else f"{value}LL"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DeclarationError(f"{where}: {value} is not a number that a kernel can be compiled with")
        return f"{value!r}f"
    if isinstance(value, (tuple, list)):
        return ",".join(constant(one, where) for one in value)
    if isinstance(value, str):
        return value
    raise DeclarationError(f"{where}: {value!r} is not a constant: give a number or a name")


def extents(value, where):
    """Three extents of a grid or a block."""
    values = list(value) if isinstance(value, (tuple, list)) else [value]
    if not 1 <= len(values) <= 3 or not all(isinstance(one, int) and one > 0 for one in values):
        raise DeclarationError(f"{where}: {value!r} is no shape of a launch: give one to three positive numbers")
    return values + [1] * (3 - len(values))


def with_includes(path, seen=None):
    """A source with the files in it that lie beside it."""
    seen = seen if seen is not None else set()
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        named = re.match(r'\s*#include\s+"([\w.]+)"', line)
        if not named:
            lines.append(line)
        elif named[1] not in seen:
            seen.add(named[1])
            lines.append(with_includes(path.parent / named[1], seen))
    return "\n".join(lines) + "\n"


class Declared:
    """A declaration for one task, with everything worked out."""

    def __init__(self, table, folder, names, own=None):
        # Most tasks call their first input x; where they do not, a template can nevertheless.
        self.names = {"x": names.get("input0"), **names}
        own = own or {}
        # What a task's entry says takes precedence over the template's `let`, and both may use each other's names.
        self.pending = {
            name: value if isinstance(value, str) else repr(value) for name, value in table.get("let", {}).items()
        }
        for name, value in own.items():
            expression = isinstance(value, str) and value.startswith("=")
            self.pending[name] = value[1:] if expression else repr(value)
        for name in list(self.pending):
            self.resolve(name)
        source = Path(folder) / table.get("source", "kernel.cu")
        self.name, self.text = source.name, with_includes(source)
        self.options = [str(option) for option in table.get("options", [])]
        for name, expression in table.get("define", {}).items():
            value = constant(evaluated(expression, self.names, f"define {name}"), f"define {name}")
            self.options.append(f"-D{name}={value}")
        self.outputs = self.tensors(table.get("output", []), "output")
        if not self.outputs:
            raise DeclarationError("the declaration has no output: add a table [[output]] with a name and a shape")
        self.workspaces = self.tensors(table.get("workspace", []), "workspace")
        self.launches = []
        for launch in table.get("launch", []):
            self.add(launch)
        if not self.launches:
            raise DeclarationError("the declaration launches nothing: add a table [[launch]]")

    def resolve(self, name):
        """Works out a name of `let`, and before it those that its expression uses, whatever their order in the file."""
        expression = self.pending.pop(name, None)
        if expression is None:
            return
        for used in used_names(expression):
            if used != name:
                self.resolve(used)
        self.names[name] = evaluated(expression, self.names, f"let {name}")

    def tensors(self, tables, kind):
        made = []
        for table in tables:
            name = table.get("name")
            if not isinstance(name, str):
                raise DeclarationError(f"an {kind} has no name" if kind == "output" else f"a {kind} has no name")
            if "if" in table and not evaluated(table["if"], self.names, f"{kind} {name}"):
                continue
            shape = evaluated(table.get("shape"), self.names, f"{kind} {name}")
            dtype = table.get("dtype", "float32")
            if dtype not in BYTES:
                raise DeclarationError(f"{kind} {name}: unknown type {dtype!r}; known are {', '.join(BYTES)}")
            if not isinstance(shape, (tuple, list)) or not all(isinstance(one, int) and one >= 0 for one in shape):
                raise DeclarationError(f"{kind} {name}: {shape!r} is not a shape")
            tensor = Tensor(name, tuple(shape), dtype)
            self.names[name] = tensor
            made.append(tensor)
        return made

    def add(self, launch):
        entry = launch.get("entry")
        if not isinstance(entry, str):
            raise DeclarationError("a launch has no entry: name the kernel that it runs")
        computed = entry.startswith("=")
        loops = launch.get("for", {})
        if len(loops) > 1:
            raise DeclarationError(f"launch {entry}: `for` takes one name")
        turns = [{}]
        for name, expression in loops.items():
            turns = [{name: value} for value in evaluated(expression, self.names, f"launch {entry}")]
        for turn in turns:
            names = {**self.names, **turn}
            for name, expression in launch.get("let", {}).items():
                names[name] = evaluated(expression, names, f"launch {entry}: let {name}")
            if "if" in launch and not evaluated(launch["if"], names, f"launch {entry}"):
                continue
            arguments = []
            for expression in launch.get("arguments", []):
                value = evaluated(expression, names, f"launch {entry}")
                if not isinstance(value, (Tensor, Scalar)):
                    raise DeclarationError(
                        f"launch {entry}: argument {expression!r} has no type: name a tensor, or write f32(…)"
                    )
                arguments.append(value)
            self.launches.append(
                {
                    "entry": evaluated(entry[1:], names, "launch") if computed else entry,
                    "grid": extents(
                        evaluated(launch.get("grid", 1), names, f"launch {entry}"), f"launch {entry}: grid"
                    ),
                    "block": extents(
                        evaluated(launch.get("block", 256), names, f"launch {entry}"), f"launch {entry}: block"
                    ),
                    "shared": evaluated(launch.get("shared", 0), names, f"launch {entry}"),
                    "arguments": arguments,
                }
            )
            if len(self.launches) > MOST_LAUNCHES:
                raise DeclarationError(f"the declaration launches more than {MOST_LAUNCHES} kernels")

    def plan(self, inputs):
        """The plan for the simulator; `inputs` has the files of tensors that are given, and those for outputs."""
        used = {}
        for launch in self.launches:
            for argument in launch["arguments"]:
                if isinstance(argument, Tensor):
                    used.setdefault(argument.name, argument)
        names = list(used)
        buffers = [
            {
                "name": name,
                "bytes": tensor.bytes,
                "from": inputs.get(name, (None, None))[0],
                "to": inputs.get(name, (None, None))[1],
            }
            for name, tensor in used.items()
        ]
        launches = [
            {
                **launch,
                "arguments": [
                    {"buffer": names.index(argument.name)}
                    if isinstance(argument, Tensor)
                    else {argument.kind: argument.value}
                    for argument in launch["arguments"]
                ],
            }
            for launch in self.launches
        ]
        return {
            "name": self.name,
            "text": self.text,
            "options": self.options,
            "buffers": buffers,
            "launches": launches,
        }
