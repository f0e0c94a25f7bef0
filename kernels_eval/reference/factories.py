"""Worker process: the context in which a problem's own code runs: other sizes, recorded draws, a virtual device.

The leading size is changed by running the problem's own `get_inputs` with tensor factories that create fewer rows.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_FACTORIES = {
    torch.randn, torch.rand, torch.randint, torch.zeros, torch.ones, torch.full, torch.empty, torch.normal,
    torch.randperm,
}  # fmt: skip
_SIZES_AS_NUMBERS = (torch.randn, torch.rand, torch.zeros, torch.ones, torch.empty)
_INDICES = (torch.randint, torch.randperm, torch.arange)


class ResizedFactories(TorchFunctionMode):
    """Replaces the leading size `full_size` by `size` in every tensor created inside this context.

    `values`: replace it in the bounds of drawn indices too (`torch.randint(0, full_size, …)`, `randperm`, `arange`).
    """

    def __init__(self, full_size: int, size: int, values: bool = False) -> None:
        super().__init__()
        self._true_size = full_size
        self._size = size
        self._values = values

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Create a tensor of the other size, or run any other function unchanged."""
        kwargs = dict(kwargs or {})
        if self._values and func in _INDICES:
            args = tuple(self._number(value) if type(value) is int else value for value in args)
            kwargs |= {name: self._number(kwargs[name]) for name in ("high", "n", "end") if name in kwargs}
        if func in _FACTORIES:
            if "size" in kwargs:
                kwargs["size"] = self._resized(kwargs["size"])
            elif args and func in _SIZES_AS_NUMBERS and isinstance(args[0], int):
                args = (self._number(args[0]), *args[1:])
            else:
                args = tuple(self._resized(value) if isinstance(value, tuple | list) else value for value in args)
        return func(*args, **kwargs)

    def _number(self, value: int) -> int:
        return self._size if value == self._true_size else value

    def _resized(self, shape: Any) -> tuple[int, ...]:
        return (self._number(shape[0]), *shape[1:]) if len(shape) else tuple(shape)


class _GeneratorOnCpu(torch.Generator):
    """A generator for the virtual device."""

    def __new__(cls, device: Any = None) -> torch.Generator:
        """Make it on the CPU, whatever device is named."""
        return super().__new__(cls, _CPU)  # pyright: ignore[reportCallIssue] (its stub names no device)


class CudaOnCpu(TorchFunctionMode):
    """Has a problem that names the device `cuda` run on the CPU: the device is virtual on a machine without a GPU."""

    def __enter__(self) -> Any:
        """Begin; the class of generators is no function that a mode sees."""
        self._generator, torch.Generator = torch.Generator, _GeneratorOnCpu
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        """End."""
        torch.Generator = self._generator
        super().__exit__(*error)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function on the CPU."""
        if func is torch.Tensor.cuda:
            return args[0]
        if func == _IS_CUDA:
            return True
        kwargs = {name: _CPU if _is_cuda(value) else value for name, value in (kwargs or {}).items()}
        return func(*(_CPU if _is_cuda(value) else value for value in args), **kwargs)


_CPU = torch.device("cpu")
_IS_CUDA: Any = vars(torch._C.TensorBase)["is_cuda"].__get__  # pyright: ignore[reportPrivateUsage]


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


_DRAWN = frozenset(
    {
        "rand", "randn", "normal", "rand_like", "randn_like", "uniform_", "normal_", "empty", "zeros", "ones", "full",
        "zeros_like", "ones_like", "tensor", "linspace",
    }
)  # fmt: skip
_KEEPS = frozenset(
    {
        "add", "sub", "mul", "div", "truediv", "radd", "rsub", "rmul", "neg", "float", "half", "double", "bfloat16",
        "to", "type", "cuda", "cpu", "contiguous", "clone", "detach", "requires_grad_", "view", "reshape", "flatten",
        "unflatten", "permute", "transpose", "t", "movedim", "squeeze", "unsqueeze", "get", "getitem", "narrow",
        "cat", "stack",
    }
)  # fmt: skip
_ARITHMETIC = frozenset(["add", "sub", "mul", "div", "truediv", "radd", "rsub", "rmul"])
_IN_PLACE = frozenset({"setitem", "iadd", "isub", "imul", "itruediv", "ipow"})


class PlainDraws(TorchFunctionMode):
    """Records the tensors created inside that have no structure: drawn, scaled, reshaped, and nothing else.

    Other tensors may have a structure that kernels may rely on: a triangle, rows that sum to one, a mask, a symmetry.
    """

    def __init__(self) -> None:
        super().__init__()
        self._plain: dict[int, torch.Tensor] = {}
        """By `id`. The tensors are held to prevent the reuse of an id."""

    def is_plain(self, value: Any) -> bool:
        """True for a tensor whose values can be replaced by any others."""
        return id(value) in self._plain

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function, and record its result if it has no structure."""
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        name = name.strip("_") if name.startswith("__") else name
        base = name if name in _KEEPS else name.rstrip("_")  # of what is done in place
        is_plain = name in _DRAWN or (base in _KEEPS and self._keeps(base, args))
        if name in _IN_PLACE or (name.endswith("_") and not is_plain):
            for changed in args[:1] or tuple((kwargs or {}).values())[:1]:
                self._plain.pop(id(changed), None)
        if isinstance(result, torch.Tensor) and is_plain:
            self._plain[id(result)] = result
        return result

    def _keeps(self, name: str, args: tuple[Any, ...]) -> bool:
        tensors = [value for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
        if name in _ARITHMETIC and sum(value.dim() > 0 for value in tensors) > 1:
            return False  # e.g. a matrix plus its own transpose
        return all(self.is_plain(value) for value in tensors)


_FILLED = frozenset(
    {"bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_"}
)
_NOT_BY_PLACE = frozenset({"randperm", "_sample_dirichlet"})
"""Draws whose elements belong together."""
_EVEN = frozenset({"randint", "randint_like", "random_"})
_MIXED = frozenset(
    {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int8, torch.int16}
    | {torch.int32, torch.int64}
)


class MixedDraws(TorchDispatchMode):
    """Draws everything inside twice and mixes both, before the problem's own code makes its inputs of it.

    So a triangle, a mask, a symmetry or rows that sum to one are there in the inputs as they are in the problem's own.
    Draws are what PyTorch says is random: its operators with the tag `nondeterministic_seeded`.
    """

    def __init__(self, mix: Callable[[torch.Tensor, Callable[[], torch.Tensor], bool], None]) -> None:
        """`mix`: takes a draw, which it changes in place, and a function that draws the same once more.

        And whether each place may have each whole number of a range.
        """
        super().__init__()
        self._mix = mix

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, and mix its result with another one if it is drawn."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if not isinstance(result, torch.Tensor) or result.is_meta or result.dtype not in _MIXED:
            return result
        if name in _FILLED:
            self._mix(result, lambda: func(torch.empty_like(result), *args[1:], **kwargs), name in _EVEN)
        elif torch.Tag.nondeterministic_seeded in func.tags and _is_by_place(name, args, kwargs):
            self._mix(result, lambda: func(*args, **kwargs), name in _EVEN)
        return result


def _is_by_place(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if an element that is drawn again goes with any other ones."""
    if name == "multinomial" and not (len(args) > 2 and args[2]) and not kwargs.get("replacement"):
        return False  # no number twice
    return name not in _NOT_BY_PLACE and not name.endswith("_") and "out" not in kwargs
