"""Sources for a composition: the problem in KernelBench's format, and Triton kernels in styles that differ in speed."""

import random
from collections.abc import Collection
from enum import StrEnum

from kernels_eval.frozen import FrozenModel
from tasks.problems.synthetic.composition import Composition
from tasks.problems.synthetic.tuning import Tuning, fixed_tuning, needs_whole_rows


class Shape(FrozenModel):
    """Sizes of a problem: x is (rows, columns), or (rows, inner) before a matrix product to `columns`."""

    rows: int
    columns: int
    inner: int = 0


def problem_source(composition: Composition, shape: Shape) -> str:
    """Return the module: one line of `forward` an operator."""
    sizes, x = f"M, N = {shape.rows}, {shape.columns}", "torch.randn(M, N)"
    if composition.head is not None:
        sizes, x = f"M, K, N = {shape.rows}, {shape.inner}, {shape.columns}", "torch.randn(M, K)"
    second = {"y": "torch.randn(M, N)", "c": "torch.randn(M, 1)"}
    inputs = [x, *(second[name] for name in composition.operands if name in second)]
    lines = [
        "import torch",
        "import torch.nn as nn",
        "import torch.nn.functional as F",
        "",
        sizes,
        "",
        "class Model(nn.Module):",
        *init_lines(composition),
        f"    def forward({', '.join(['self', *forward_arguments(composition)])}):",
        *(f"        {operator.torch_line}" for operator in composition.operators),
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


def init_lines(composition: Composition) -> list[str]:
    """The constructor of `Model` and `ModelNew` with an empty line after it; nothing where there are no parameters."""
    weight = "torch.randn(n, k) / k**0.5" if "linear" in composition.names else "torch.randn(k, n) / k**0.5"
    makes = {
        "weight": f"self.weight = nn.Parameter({weight})",
        "scale": "self.scale = nn.Parameter(torch.rand(n) + 0.5)",
        "bias": "self.bias = nn.Parameter(torch.randn(n))",
    }
    parameters = [f"        {makes[name]}" for name in composition.operands if name in makes]
    if not parameters:
        return []
    signature = ", ".join(["self", *init_arguments(composition)])
    return [f"    def __init__({signature}):", "        super().__init__()", *parameters, ""]


class Style(StrEnum):
    """Style of a kernel."""

    FUSED = "fused"
    """One kernel, one pass over memory, a good block size."""
    SMALL_BLOCKS = "small_blocks"
    """One kernel, and a program for every row (every 16 rows of a matrix product)."""
    EXTRA_PASSES = "extra_passes"
    """One kernel that writes its tile to memory and reads it back after every operator."""
    STEPWISE = "stepwise"
    """A kernel an operator, as eager PyTorch does."""
    PARTLY_FUSED = "partly_fused"
    """As EXTRA_PASSES, but after some operators alone, which are drawn; never one pass over memory (`draw_passes`)."""


FIXED_STYLES = tuple(style for style in Style if style is not Style.PARTLY_FUSED)
"""Styles in which a composition is written in one way, without a draw."""
_HEADER = ["import torch", "import torch.nn as nn", "import triton", "import triton.language as tl", ""]
_SPILL = ["tl.store(out_ptr + offs, x, mask=mask)", "x = tl.load(out_ptr + offs, mask=mask, other=0.0)"]
PASS_PROBABILITY = 0.8
"""Chance that a partly fused kernel writes its tile to memory after an operator."""


def _between(composition: Composition) -> range:
    """Return the numbers of the operators that others follow."""
    return range(len(composition.names) - 1)


def draw_passes(composition: Composition, generator: random.Random) -> frozenset[int]:
    """Draw the operators, by number, after which a partly fused kernel writes its tile to memory: one or more of them.

    A single operator has none.
    """
    places = _between(composition)
    drawn = frozenset(place for place in places if generator.random() < PASS_PROBABILITY)
    return drawn or frozenset(generator.choices(places) if places else ())


def kernel_source(
    composition: Composition,
    style: Style,
    wrong: Collection[str] = (),
    tuning: Tuning | None = None,
    passes: Collection[int] = (),
) -> str:
    """Return a module that defines `ModelNew`; operators named in `wrong` are written with their mistake.

    `tuning`: launch parameters; by default those of `fixed_tuning`. SMALL_BLOCKS has its own and ignores it. `passes`:
    of PARTLY_FUSED, the numbers of the operators after which the tile is written to memory.
    """
    if style is Style.EXTRA_PASSES:
        passes = _between(composition)
    if tuning is None or style is Style.SMALL_BLOCKS:
        tuning = fixed_tuning(composition, style is Style.SMALL_BLOCKS)
    stepwise = style is Style.STEPWISE and len(composition.names) > 1
    steps = [Composition(names=(name,)) for name in composition.names] if stepwise else [composition]
    lines, forward = list(_HEADER), list[str]()
    for number, step in enumerate(steps, start=1):
        name = f"step{number}_kernel" if stepwise else "fused_kernel"
        chosen = tuning if (step.head is None) == (composition.head is None) else fixed_tuning(step, is_small=False)
        lines += [*_kernel(name, step, wrong, passes, chosen), ""]
        forward.append(f"        out = torch.empty({step.operators[-1].output_shape}, device=x.device)")
        forward.append(_launch(name, step, chosen))
        if stepwise:
            forward.append("        x = out")
    result = "x" if stepwise else "out"
    return "\n".join([*lines, *_model_lines(composition), *forward, f"        return {result}"]) + "\n"


def _kernel(
    name: str, composition: Composition, wrong: Collection[str], passes: Collection[int], tuning: Tuning
) -> list[str]:
    """One kernel for the whole composition; lines at module level."""
    operators = composition.operators
    has_head = composition.head is not None
    pointers = ["x_ptr", *(f"{operand}_ptr" for operand in composition.operands), "out_ptr"]
    sizes = ["M", "N", "K"] if has_head else ["M", "N"]
    blocks = ["ROWS: tl.constexpr", "BLOCK: tl.constexpr", *(["BLOCK_K: tl.constexpr"] if has_head else [])]
    first_column = "tl.program_id(1) * BLOCK + " if _columns(composition, tuning) else ""
    body = [
        "rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]",
        f"cols = {first_column}tl.arange(0, BLOCK)[None, :]",
        "offs = rows * N + cols",
        "mask = (rows < M) & (cols < N)",
    ]
    if not has_head:
        body.append("x = tl.load(x_ptr + offs, mask=mask, other=0.0)")
    # A tile fits where it is spilt only if the output has the tile's shape.
    has_place = operators[-1].output_shape == "M, N"
    is_spilt = False
    for index, operator in enumerate(operators):
        is_wrong = operator.name in wrong
        body += operator.wrong_lines if is_wrong and operator.kernel_lines else operator.kernel_lines
        if has_place and index in passes:
            body += _SPILL
            is_spilt = True
    if is_spilt and operators[-1].store != _SPILL[0]:
        body.append("tl.debug_barrier()")  # another lane stores where the tile was spilt
    # The mistake of a layout operator, which has no lines of its own, is in its store.
    wrong_store = operators[-1].name in wrong and not operators[-1].kernel_lines
    body.append(operators[-1].wrong_lines[-1] if wrong_store else operators[-1].store)
    return [
        "@triton.jit",
        f"def {name}({', '.join([*pointers, *sizes, *blocks])}):",
        *(f"    {line}" for line in body),
    ]


def _model_lines(composition: Composition) -> list[str]:
    arguments = ", ".join(["self", *forward_arguments(composition)])
    lines = ["class ModelNew(nn.Module):", *init_lines(composition), f"    def forward({arguments}):"]
    if composition.head is None:
        return [*lines, "        M, N = x.shape"]
    n_axis = 0 if composition.head.name == "linear" else 1
    return [*lines, "        M, K = x.shape", f"        N = self.weight.shape[{n_axis}]"]


def _columns(composition: Composition, tuning: Tuning) -> int | None:
    """Columns of the tile; None: the whole row. A step of several kernels may need it where others do not."""
    return None if needs_whole_rows(composition) else tuning.columns


def _launch(name: str, composition: Composition, tuning: Tuning) -> str:
    operands = [operand if operand in {"y", "c"} else f"self.{operand}" for operand in composition.operands]
    columns = _columns(composition, tuning)
    has_head = composition.head is not None
    arguments = ["x", *operands, "out", "M", "N", *(["K"] if has_head else []), f"ROWS={tuning.rows}"]
    arguments.append(f"BLOCK={columns or 'triton.next_power_of_2(N)'}")
    if has_head:
        arguments.append(f"BLOCK_K={tuning.inner}")
    for option, value in (("num_warps", tuning.warps), ("num_stages", tuning.stages)):
        if value is not None:
            arguments.append(f"{option}={value}")
    tiles = f"triton.cdiv(M, {tuning.rows})"
    grid = f"({tiles}, triton.cdiv(N, {columns}))" if columns else f"({tiles},)"
    return f"        {name}[{grid}]({', '.join(arguments)})"
