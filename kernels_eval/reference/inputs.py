"""Worker process: draws a problem's inputs secretly, at any leading size, and encodes them for the candidate.

The leading size is changed by running the problem's own `get_inputs` with tensor factories that create fewer rows.
Further input sets come from other distributions: with uniform [0, 1) alone, ReLU would be an identity.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.sandbox.tensor_bytes import NAMES, TensorForm, form_of

Shape = tuple[int, ...]
_FACTORIES = {
    torch.randn, torch.rand, torch.randint, torch.zeros, torch.ones, torch.full, torch.empty, torch.normal,
    torch.randperm,
}  # fmt: skip


class ResizedFactories(TorchFunctionMode):
    """Replaces the leading size `full_size` by `size` in every tensor created inside this context."""

    def __init__(self, full_size: int, size: int) -> None:
        super().__init__()
        self._true_size = full_size
        self._size = size

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Create a tensor of the other size, or run any other function unchanged."""
        kwargs = dict(kwargs or {})
        if func in _FACTORIES:
            if "size" in kwargs:
                kwargs["size"] = self._resized(kwargs["size"])
            elif (
                args
                and func in (torch.randn, torch.rand, torch.zeros, torch.ones, torch.empty)
                and isinstance(args[0], int)
            ):
                args = (self._number(args[0]), *args[1:])
            else:
                args = tuple(self._resized(value) if isinstance(value, tuple | list) else value for value in args)
        return func(*args, **kwargs)

    def _number(self, value: int) -> int:
        return self._size if value == self._true_size else value

    def _resized(self, shape: Any) -> tuple[int, ...]:
        return (self._number(shape[0]), *shape[1:]) if len(shape) else tuple(shape)


_DRAWN = frozenset(
    [
        "rand",
        "randn",
        "normal",
        "rand_like",
        "randn_like",
        "uniform_",
        "normal_",
        "empty",
        "zeros",
        "ones",
        "full",
        "zeros_like",
        "ones_like",
        "tensor",
        "linspace",
    ]
)
_KEEPS = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "truediv",
        "radd",
        "rsub",
        "rmul",
        "neg",
        "float",
        "half",
        "double",
        "bfloat16",
        "to",
        "type",
        "cuda",
        "cpu",
        "contiguous",
        "clone",
        "detach",
        "requires_grad_",
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "permute",
        "transpose",
        "t",
        "movedim",
        "squeeze",
        "unsqueeze",
        "get",
        "getitem",
        "narrow",
        "cat",
        "stack",
    ]
)
_ARITHMETIC = frozenset(["add", "sub", "mul", "div", "truediv", "radd", "rsub", "rmul"])


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
        if isinstance(result, torch.Tensor) and (name in _DRAWN or (name in _KEEPS and self._keeps(name, args))):
            self._plain[id(result)] = result
        return result

    def _keeps(self, name: str, args: tuple[Any, ...]) -> bool:
        tensors = [value for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
        if name in _ARITHMETIC and sum(value.dim() > 0 for value in tensors) > 1:
            return False  # e.g. a matrix plus its own transpose
        return all(self.is_plain(value) for value in tensors)


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator)


def _wide(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return 3.0 * torch.randn(shape, generator=generator)


def _negative(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator) - 1.0


def _signed_uniform(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return 4.0 * torch.rand(shape, generator=generator) - 2.0


NORMAL, WIDE = _normal, _wide
DISTRIBUTIONS: tuple[Callable[[tuple[int, ...], torch.Generator], torch.Tensor], ...] = (
    NORMAL,
    _signed_uniform,
    _negative,
    WIDE,
)
"""Distributions used besides the problem's own, if the reference stays finite on them."""


class SecretSeed:
    """Secret seed of one request. All draws are reproducible from it, and the verdict commits to it by hash."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @property
    def commitment(self) -> str:
        """SHA-256 of the secret."""
        return hashlib.sha256(self._secret).hexdigest()

    def number(self, *purpose: object) -> int:
        """Return a 63-bit number for a named purpose."""
        text = ":".join(str(part) for part in purpose).encode()
        return int.from_bytes(hashlib.sha256(self._secret + text).digest()[:8], "big") >> 1

    def generator(self, *purpose: object) -> torch.Generator:
        """Return a generator for a named purpose."""
        return torch.Generator().manual_seed(self.number(*purpose))


def passed_as(value: Any) -> Any:
    """Return the form of a tensor, or a plain value itself, as sent to a candidate's processes.

    Raises ReferenceFailedError for any other input.
    """
    if isinstance(value, torch.Tensor):
        if value.dtype not in NAMES or value.layout is not torch.strided:
            raise ReferenceFailedError(f"get_inputs returns a {value.layout} tensor of {value.dtype}")
        return form_of(value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple) and not any(isinstance(passed_as(item), TensorForm) for item in value):
        return value
    raise ReferenceFailedError(f"get_inputs returns a {type(value).__name__}, expected tensors, numbers and strings")


def address_of(value: Any) -> int:
    """Return the address of a tensor's memory, or 0 for anything else."""
    return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0


def shapes_of(values: list[Any]) -> list[Shape | None]:
    """Return the shape of each tensor, and None for anything else."""
    return [tuple(value.shape) if isinstance(value, torch.Tensor) else None for value in values]


def as_fake(values: list[Any]) -> list[Any]:
    """Return new tensors of the same forms. Under FakeTensorMode this allocates nothing."""
    return [
        torch.empty(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value for value in values
    ]


def copied(values: list[Any]) -> list[Any]:
    """Return copies of the same values in separate memory."""
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def same_bytes(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if two tensors of one shape hold the same bits (NaN equals NaN)."""
    if first.numel() == 0:
        return True
    flat = (first.contiguous().reshape(-1).view(torch.uint8), second.contiguous().reshape(-1).view(torch.uint8))
    return torch.equal(*flat)


def seed_cpu_only() -> None:
    """Make `torch.manual_seed` seed only the CPU's generator, in this process and its forks.

    Not for processes with a GPU. PyTorch's function also queues a call for each device type that is not initialised
    (CUDA, XPU), with the caller's stack. This takes 2 ms each time, and the queue grows as long as the process lives.
    """
    torch.manual_seed = torch.random.manual_seed = _manual_seed


def _manual_seed(seed: int) -> torch.Generator:
    return torch.default_generator.manual_seed(int(seed))
