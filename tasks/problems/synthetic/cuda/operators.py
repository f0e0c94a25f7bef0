"""Operators in CUDA C++: statements on one element, and reductions over its row.

A kernel holds an element `x` at (`row`, `col`). A reduction takes an expression of every element of the row; the
statements after it see its value as `{s}`, and that of the reduction before it as `{before}`. Each operator also has a
plausible mistake, the same one as in Triton wherever the language lets it be.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Reduce:
    """A reduction of an expression over the row; the accumulator starts at the neutral element."""

    kind: Literal["sum", "max"]
    expression: str = "x"


Step = str | Reduce


@dataclass(frozen=True)
class CudaOperator:
    """One operator in CUDA C++, and with its mistake."""

    steps: tuple[Step, ...] = ()
    wrong: tuple[Step, ...] = ()
    result: str | None = None
    """Of a reduction that ends a composition: the row's value."""
    wrong_result: str | None = None
    store: str = "out_ptr[row * N + col] = x;"
    """Statement that writes an element; those of layout operators write it elsewhere."""
    wrong_store: str | None = None
    weight: str | None = None
    """Of a matrix product: the offset of the weight for `col` and `{k}`."""
    wrong_weight: str | None = None

    @property
    def is_reducing(self) -> bool:
        """True if it needs the whole row."""
        return any(isinstance(step, Reduce) for step in (*self.steps, *self.wrong))


def _map(right: str, wrong: str) -> CudaOperator:
    return CudaOperator((f"x = {right};",), (f"x = {wrong};",))


def _row(*steps: Step, wrong: tuple[Step, ...]) -> CudaOperator:
    return CudaOperator(steps, wrong)


def _reduction(*steps: Step, result: str, wrong: tuple[Step, ...], wrong_result: str) -> CudaOperator:
    return CudaOperator(steps, wrong, result, wrong_result)


def _layout(store: str, wrong: str) -> CudaOperator:
    return CudaOperator(store=store, wrong_store=wrong)


_SIGMOID = "1.0f / (1.0f + expf(-x))"
_SUM, _MAX, _SQUARES = Reduce("sum"), Reduce("max"), Reduce("sum", "x * x")
_Y, _C, _SCALE, _BIAS = "y_ptr[row * N + col]", "c_ptr[row]", "scale_ptr[col]", "bias_ptr[col]"

OPERATORS: dict[str, CudaOperator] = {
    "relu": _map("fmaxf(x, 0.0f)", "fminf(x, 0.0f)"),
    "sigmoid": _map(_SIGMOID, "1.0f / (1.0f + expf(x))"),
    "tanh": _map("tanhf(x)", "tanhf(0.5f * x)"),
    "silu": _map("x / (1.0f + expf(-x))", _SIGMOID),
    "gelu": _map("0.5f * x * (1.0f + erff(x * 0.70710678f))", "0.5f * x * (1.0f + erff(x))"),
    "leaky_relu": _map("x > 0.0f ? x : 0.1f * x", "x > 0.0f ? x : 0.01f * x"),
    "elu": _map("x > 0.0f ? x : expf(x) - 1.0f", "x > 0.0f ? x : expf(x)"),
    "softplus": _map("x > 20.0f ? x : logf(1.0f + expf(x))", "x > 20.0f ? x : logf(expf(x))"),
    "hardtanh": _map("fminf(fmaxf(x, -1.0f), 1.0f)", "fminf(fmaxf(x, 0.0f), 1.0f)"),
    "hardsigmoid": _map("fminf(fmaxf(x / 6.0f + 0.5f, 0.0f), 1.0f)", "fminf(fmaxf(x * 0.2f + 0.5f, 0.0f), 1.0f)"),
    "hardswish": _map("x * fminf(fmaxf(x + 3.0f, 0.0f), 6.0f) / 6.0f", "x * fminf(fmaxf(x + 3.0f, 0.0f), 6.0f)"),
    "softsign": _map("x / (1.0f + fabsf(x))", "x / (1.0f + x)"),
    "abs": _map("fabsf(x)", "-x"),
    "square": _map("x * x", "x + x"),
    "negate": _map("-x", "fabsf(x)"),
    "sine": _map("sinf(x)", "cosf(x)"),
    "cosine": _map("cosf(x)", "sinf(x)"),
    "log1p_abs": _map("logf(1.0f + fabsf(x))", "logf(1.0f + x)"),
    "sqrt_abs": _map("sqrtf(fabsf(x) + 0.01f)", "sqrtf(fabsf(x))"),
    "gaussian": _map("expf(-x * x)", "expf(x * x)"),
    "double": _map("x * 2.0f", "x + 2.0f"),
    "halve": _map("x * 0.5f", "x - 0.5f"),
    "increment": _map("x + 1.0f", "x - 1.0f"),
    "decrement": _map("x - 0.5f", "x + 0.5f"),
    "third": _map("x / 3.0f", "x * 3.0f"),
    "complement": _map("1.0f - x", "x - 1.0f"),
    "add_tensor": _map(f"x + {_Y}", f"x - {_Y}"),
    "multiply_tensor": _map(f"x * {_Y}", f"x + {_Y}"),
    "maximum_tensor": _map(f"fmaxf(x, {_Y})", f"fminf(x, {_Y})"),
    "scale_rows": _map(f"x * {_C}", f"x + {_C}"),
    "shift_rows": _map(f"x + {_C}", f"x * {_C}"),
    "scale_columns": _map(f"x * {_SCALE}", f"x + {_SCALE}"),
    "shift_columns": _map(f"x + {_BIAS}", f"x - {_BIAS}"),
    "subtract_mean": _row(_SUM, "x = x - {s} / N;", wrong=(_SUM, "x = x - {s};")),
    "subtract_max": _row(_MAX, "x = x - {s};", wrong=(_MAX, "x = x + {s};")),
    "divide_by_l1": _row(Reduce("sum", "fabsf(x)"), "x = x / ({s} + 1.0f);", wrong=(_SUM, "x = x / ({s} + 1.0f);")),
    "softmax": _row(
        _MAX, "x = expf(x - {s});", _SUM, "x = x / {s};", wrong=(_MAX, "x = x - {s};", _SUM, "x = x / {s};")
    ),
    "log_softmax": _row(
        *(_MAX, "x = x - {s};", Reduce("sum", "expf(x)"), "x = x - logf({s});"),
        wrong=(_MAX, "x = x - {s};", Reduce("sum", "expf(x)"), "x = x - {s};"),
    ),
    "layer_norm": _row(
        *(_SUM, "x = x - {s} / N;", _SQUARES, "x = x * rsqrtf({s} / N + 1e-5f);"),
        wrong=(_SUM, "x = x - {s};", _SQUARES, "x = x * rsqrtf({s} / N + 1e-5f);"),
    ),
    "rms_norm": _row(_SQUARES, "x = x * rsqrtf({s} / N + 1e-6f);", wrong=(_SQUARES, "x = x * rsqrtf({s} + 1e-6f);")),
    "sum": _reduction(_SUM, result="{s}", wrong=(_SUM,), wrong_result="{s} / N"),
    "mean": _reduction(_SUM, result="{s} / N", wrong=(_SUM,), wrong_result="{s}"),
    "amax": _reduction(_MAX, result="{s}", wrong=(_SUM,), wrong_result="{s}"),
    "l2": _reduction(_SQUARES, result="sqrtf({s})", wrong=(_SQUARES,), wrong_result="{s}"),
    "logsumexp": _reduction(
        *(_MAX, Reduce("sum", "expf(x - {s})")),
        result="logf({s}) + {before}",
        wrong=(_MAX, Reduce("sum", "x - {s}")),
        wrong_result="{s} + {before}",
    ),
    "transpose": _layout("out_ptr[col * M + row] = x;", "out_ptr[row * N + col] = x;"),
    "flip_columns": _layout("out_ptr[row * N + N - 1 - col] = x;", "out_ptr[row * N + col] = x;"),
    "roll_columns": _layout("out_ptr[row * N + (col + 1) % N] = x;", "out_ptr[row * N + (col + N - 1) % N] = x;"),
    "even_columns": _layout(
        "if (col % 2 == 0) out_ptr[row * (N / 2) + col / 2] = x;",
        "if (col < N / 2) out_ptr[row * (N / 2) + col] = x;",
    ),
    "linear": CudaOperator(weight="col * K + {k}", wrong_weight="{k} * N + col"),
    "matmul": CudaOperator(weight="{k} * N + col", wrong_weight="col * K + {k}"),
}
"""By the operator's name in `tasks.problems.synthetic.operators`."""
