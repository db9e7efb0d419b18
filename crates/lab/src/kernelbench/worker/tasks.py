"""A task of the benchmark: its module with other sizes, its inputs from other distributions, and its model."""

import ast
import inspect
import types
from pathlib import Path

import torch

# Names of sizes that may become smaller. Kernels, strides and the like stay, because they say what is computed.
FIXED = ("kernel", "stride", "padding", "dilation", "group", "dim", "num_classes", "margin", "eps")


class Task:
    """A task's module, with some of its variables overridden."""

    def __init__(self, path, overrides=None):
        self.path = Path(path)
        tree = ast.parse(self.path.read_text(encoding="utf-8"), str(path))
        overrides = {
            name: tuple(value) if isinstance(value, list) else value for name, value in (overrides or {}).items()
        }
        self.overridden = sorted(overrides)
        for node in tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name in overrides:
                    node.value = ast.copy_location(ast.parse(repr(overrides.pop(name)), mode="eval").body, node.value)
        if overrides:
            raise ValueError(f"{self.path.name} has no variable {', '.join(overrides)}")
        self.module = types.ModuleType(self.path.stem)
        self.module.__file__ = str(path)
        ast.fix_missing_locations(tree)
        exec(compile(tree, str(path), "exec"), self.module.__dict__)

    def variables(self):
        """The task's own numbers."""
        plain = (int, float, bool, tuple, list)
        return {
            name: value
            for name, value in vars(self.module).items()
            if isinstance(value, plain) and not name.startswith("_")
        }

    def init_inputs(self):
        return self.module.get_init_inputs()

    def constructor(self, model_class):
        """The arguments of the constructor by name, with the defaults of those that are not given."""
        bound = inspect.signature(model_class.__init__).bind(None, *self.init_inputs())
        bound.apply_defaults()
        return dict(list(bound.arguments.items())[1:])

    def model(self, seed):
        torch.manual_seed(seed)
        return self.module.Model(*self.init_inputs())

    def inputs(self, seed, distribution, device="cpu"):
        """Inputs, drawn freshly; those that are floating-point numbers may be shifted and scaled.

        They are drawn where they are used: a GPU draws gigabytes in milliseconds, a processor in half a minute.
        """
        torch.manual_seed(seed)
        scale, shift = DISTRIBUTIONS[distribution]

        def other(value):
            if not isinstance(value, torch.Tensor) or not value.is_floating_point() or distribution == "own":
                return value
            # Zeros stay, because they are a structure that the task promises: triangles, masks.
            return torch.where(value == 0, value, value * scale + shift)

        with torch.device(device):
            drawn = self.module.get_inputs()
        # A task may name a device of its own.
        return [other(value.to(device) if isinstance(value, torch.Tensor) else value) for value in drawn]

    def input_names(self):
        return list(inspect.signature(self.module.Model.forward).parameters)[1:]


# A factor and a term for each. The benchmark draws nearly everything from [0, 1): sums of such numbers hide rounding,
# because errors of both signs cancel while the sum grows. Around zero they do not.
DISTRIBUTIONS = {"own": (1.0, 0.0), "shifted": (2.0, -1.0), "scaled": (0.25, 0.125)}


def smaller(path, most):
    """Overrides with which the inputs of a task have at most about `most` elements."""
    task_sizes = {}
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            try:
                value = eval(compile(ast.Expression(node.value), "size", "eval"), {"__builtins__": {}})
            except (NameError, TypeError, ValueError):
                continue
            whole = isinstance(value, int) and not isinstance(value, bool)
            shape = isinstance(value, tuple) and name.endswith("shape")
            if (whole or shape) and (not any(word in name for word in FIXED) or name.rstrip("123") == "dim" != name):
                task_sizes[name] = value
    overrides = {}
    cap = max([value for value in task_sizes.values() if isinstance(value, int)] + [4])
    while cap > 4:
        cap = cap * 3 // 4
        for name, value in task_sizes.items():
            limit = 4 if "batch" in name else cap
            if isinstance(value, tuple):
                overrides[name] = tuple(min(one, limit + one % 4) for one in value)
            elif value > limit:
                # An odd size stays odd: whether the last tile is right shows only there.
                overrides[name] = limit // 4 * 4 + value % 4 if limit >= 4 else limit
        try:
            with torch.device("meta"):
                task = Task(path, overrides)
                task.module.Model(*task.init_inputs())
                tensors = [one for one in task.module.get_inputs() if isinstance(one, torch.Tensor)]
        except (RuntimeError, ValueError, TypeError, NotImplementedError):
            continue
        if sum(tensor.numel() for tensor in tensors) <= most:
            break
    return overrides
