"""Writes a composition as a problem in KernelBench's format."""

from kernels_eval.frozen import FrozenModel
from tasks.problems.generated.composition import Composition


class Shape(FrozenModel):
    """Sizes of a problem: x is (rows, columns), or (rows, inner) before a matrix product to `columns`."""

    rows: int
    columns: int
    inner: int = 0


def problem_source(composition: Composition, shape: Shape) -> str:
    """Return the module: one line of `forward` an operator."""
    has_head = composition.head is not None
    sizes = (
        f"M, K, N = {shape.rows}, {shape.inner}, {shape.columns}"
        if has_head
        else f"M, N = {shape.rows}, {shape.columns}"
    )
    x = "torch.randn(M, K)" if has_head else "torch.randn(M, N)"
    second = {"y": "torch.randn(M, N)", "c": "torch.randn(M, 1)"}
    inputs = [x, *(second[name] for name in composition.operands if name in second)]
    parameters = parameter_lines(composition)
    lines = [
        "import torch",
        "import torch.nn as nn",
        "import torch.nn.functional as F",
        "",
        sizes,
        "",
        "class Model(nn.Module):",
    ]
    if parameters:
        lines += init_lines(composition)
    lines += [f"    def forward({', '.join(['self', *forward_arguments(composition)])}):"]
    lines += [f"        {operator.torch_line}" for operator in composition.operators]
    lines += [
        "        return x",
        "",
        "def get_inputs():",
        f"    return [{', '.join(inputs)}]",
        "",
        "def get_init_inputs():",
        f"    return [{', '.join(name.upper() for name in init_arguments(composition))}]",
    ]
    return "\n".join(lines) + "\n"


def forward_arguments(composition: Composition) -> list[str]:
    """Names of the tensors that `forward` takes."""
    return ["x", *(name for name in composition.operands if name in {"y", "c"})]


def init_arguments(composition: Composition) -> list[str]:
    """Names of the sizes that the constructor takes: those that its parameters need."""
    operands = composition.operands
    if "weight" in operands:
        return ["k", "n"]
    return ["n"] if "scale" in operands or "bias" in operands else []


def parameter_lines(composition: Composition) -> list[str]:
    """Statements of the constructor that make the parameters; the same in `Model` and `ModelNew`."""
    weight = "torch.randn(n, k) / k**0.5" if "linear" in composition.names else "torch.randn(k, n) / k**0.5"
    makes = {
        "weight": f"self.weight = nn.Parameter({weight})",
        "scale": "self.scale = nn.Parameter(torch.rand(n) + 0.5)",
        "bias": "self.bias = nn.Parameter(torch.randn(n))",
    }
    return [makes[name] for name in composition.operands if name in makes]


def init_lines(composition: Composition) -> list[str]:
    """The constructor, indented as a class body, with an empty line after it; nothing where there are no parameters."""
    parameters = parameter_lines(composition)
    if not parameters:
        return []
    signature = ", ".join(["self", *init_arguments(composition)])
    return [
        f"    def __init__({signature}):",
        "        super().__init__()",
        *(f"        {line}" for line in parameters),
        "",
    ]
