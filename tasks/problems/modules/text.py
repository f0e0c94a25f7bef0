"""Writes a problem's module, and the module of its kernel.

Both are written from one `Module`, so that the constructor and the arguments of `forward` agree.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.problems.modules.draw import Draw

_HEAD = "import torch\nimport torch.nn as nn\n"
_INPUT = "Input tensor."
_NAMED = 0.1
"""Share of the problems whose values on the way have names of their own."""
_KERNEL_HEAD = _HEAD + "import triton\nimport triton.language as tl\n"


@dataclass(frozen=True)
class Argument:
    """An argument of the constructor."""

    name: str
    value: str
    """Expression of its value: a number, a tuple, or the name of a constant."""
    kind: str = "int"
    """Its annotation."""
    meaning: str = ""
    """Half a sentence for the docstring."""


@dataclass(frozen=True)
class Input:
    """An argument of `forward`."""

    name: str
    made: str
    """Expression of its value, of the module's constants."""
    kind: str = "torch.Tensor"
    meaning: str = _INPUT


@dataclass(frozen=True)
class Module:
    """A problem, but for its words."""

    title: str
    """The computation as the object of a sentence: `a softmax over the last dimension`."""
    inputs: tuple[Input, ...]
    forward: tuple[str, ...]
    """Statements of `forward`."""
    arguments: tuple[Argument, ...] = ()
    init: tuple[str, ...] = ()
    """Statements of the constructor."""
    constants: tuple[tuple[str, str], ...] = ()
    """Names and values of the module's constants, in their order."""


def problem_text(rng: Draw, module: Module) -> str:
    """Return the source of a problem; docstrings, annotations and layout vary."""
    typed = rng.chance(0.5)
    functional = "import torch.nn.functional as F\n" if "F." in "".join([*module.forward, *module.init]) else ""
    text = _HEAD + functional + "\nclass Model(nn.Module):\n"
    text += rng.doc(_sentence(rng, module.title), 4)
    if module.arguments or module.init or rng.chance(0.7):
        text += _constructor(rng, module, typed) + "\n"
    text += _forward(rng, module, typed) + "\n"
    constants, values = _values(rng, module)
    text += "".join(f"{name} = {value}\n" for name, value in constants) + "\n"
    text += _get_inputs(rng, module) + "\n"
    note = rng.pick("", "", "  # No special initialization inputs needed") if not values else ""
    return text + f"def get_init_inputs():\n    return [{', '.join(values)}]{note}\n"


def kernel_text(kernels: Sequence[str], module: Module, host: Sequence[str], init: Sequence[str] | None = None) -> str:
    """Return the source of a kernel's module: `kernels` in their order, then `ModelNew` whose `forward` is `host`.

    `init`: statements of its constructor, by default the problem's.
    """
    init = module.init if init is None else init
    text = _KERNEL_HEAD + "".join(f"\n\n@triton.jit\n{kernel.strip()}\n" for kernel in kernels)
    text += "\n\nclass ModelNew(nn.Module):\n"
    if module.arguments or init:
        names = ", ".join(["self", *(argument.name for argument in module.arguments)])
        text += f"    def __init__({names}):\n        super().__init__()\n" + _block(init, 8) + "\n"
    names = ", ".join(["self", *(given.name for given in module.inputs)])
    return text + f"    def forward({names}):\n" + _block(host, 8)


def _sentence(rng: Draw, title: str) -> str:
    forms = ["Simple model that computes {}.", "A model that computes {}.", "Computes {}.", "Model computing {}."]
    forms += ["Applies {} to its input.", "Simple model for {}."]
    if title.startswith("a"):
        forms += ["Simple model that performs {}.", "Performs {}."]
    return rng.choice(forms).format(title)


def _block(lines: Sequence[str], indent: int) -> str:
    return "".join(f"{' ' * indent}{line}\n" for line in lines)


def _constructor(rng: Draw, module: Module, typed: bool) -> str:
    names = [f"{item.name}: {item.kind}" if typed else item.name for item in module.arguments]
    text = f"    def __init__({', '.join(['self', *names])}):\n"
    if module.arguments and rng.chance(0.4):
        described = "".join(f"            {item.name} ({item.kind}): {item.meaning}\n" for item in module.arguments)
        text += f'        """\n        Initializes the model.\n\n        Args:\n{described}        """\n'
    text += f"        {rng.pick('super(Model, self).__init__()', 'super().__init__()')}\n"
    return text + _block(module.init, 8)


def _forward(rng: Draw, module: Module, typed: bool) -> str:
    names = [f"{item.name}: {item.kind}" if typed else item.name for item in module.inputs]
    text = f"    def forward({', '.join(['self', *names])}){' -> torch.Tensor' if typed else ''}:\n"
    if rng.chance(0.5):
        described = "".join(f"            {item.name} ({item.kind}): {_meaning(rng, item)}\n" for item in module.inputs)
        sentence = rng.pick("Computes {}.", "Computes {}.", "Applies {} to the input tensor.", "Performs {}.")
        text += f'        """\n        {sentence.format(module.title)}\n\n        Args:\n{described}\n'
        result = rng.pick("Output tensor", "Output tensor", "The result", f"Output tensor after {module.title}")
        text += f'        Returns:\n            torch.Tensor: {result}.\n        """\n'
    forward = _with_names(rng, module.forward) if rng.chance(_NAMED) else _shortened(rng, module.forward)
    return text + _block(forward, 8)


def _meaning(rng: Draw, item: Input) -> str:
    """Return what the docstring says of an input; of one without words of its own perhaps the shape."""
    shape = re.fullmatch(r"torch\.randn?\(([\w, ]+)\)", item.made)
    if item.meaning != _INPUT or rng.chance(0.5):
        return item.meaning
    return f"Input tensor of shape ({shape[1]})." if shape and rng.chance(0.6) else "Input tensor of any shape."


def _with_names(rng: Draw, forward: Sequence[str]) -> Sequence[str]:
    """Return the statements with a name of its own for each value of `x` but the first."""
    stem, now, lines = rng.pick("x{}", "h{}", "out{}", "y{}_"), "x", list[str]()
    for number, line in enumerate(forward, 1):
        name, is_assigned, value = line.partition(" = ")
        new = stem.format(number) if is_assigned and name == "x" else now
        value = re.sub(r"(?<![.\w])x\b", now, value if is_assigned else line)
        lines.append(f"{new if name == 'x' else name} = {value}" if is_assigned else value)
        now = new
    return lines


def _shortened(rng: Draw, forward: Sequence[str]) -> Sequence[str]:
    """Return the statements, some of them with the last value returned where it is computed."""
    if forward[-1] == "return x" and forward[-2].startswith("x = ") and rng.chance(0.25):
        return [*forward[:-2], "return " + forward[-2].removeprefix("x = ")]
    return forward


def _values(rng: Draw, module: Module) -> tuple[list[tuple[str, str]], list[str]]:
    """Return all constants, and the constructor's values: a literal becomes a constant or stays one."""
    constants, values = list(module.constants), list[str]()
    taken = {name for name, _ in constants}
    for argument in module.arguments:
        is_literal = argument.value not in taken
        if is_literal and argument.name not in taken and rng.chance(0.7):
            constants.append((argument.name, argument.value))
            values.append(argument.name)
        else:
            values.append(argument.value)
    return constants, values


def _get_inputs(rng: Draw, module: Module) -> str:
    if rng.chance(0.5):
        made = "".join(f"    {item.name} = {item.made}\n" for item in module.inputs)
        return f"def get_inputs():\n{made}    return [{', '.join(item.name for item in module.inputs)}]\n"
    return f"def get_inputs():\n    return [{', '.join(item.made for item in module.inputs)}]\n"
