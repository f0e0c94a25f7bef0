"""Worker process: draws a problem's inputs secretly, and encodes them for the candidate.

Input sets beyond the first come from other distributions: with uniform [0, 1) alone, ReLU would be an identity. They
are drawn in place: an input may take a fifth of a GPU.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.reference.weights import is_constant, varied
from kernels_eval.sandbox.tensor_bytes import NAMES, TensorForm, form_of

Shape = tuple[int, ...]


_TURN = 8
"""Of so many rows one has negative values alone, and one positive ones."""
_FROM_ZERO = 0.25
"""Least magnitude of values in such rows."""
_BLOCK_BYTES = 1 << 28
Distribution = Callable[[Shape, torch.Generator], torch.Tensor]


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Draw normal values, all of them negative in some rows of the first dimension, and positive in others.

    A largest or smallest value of a row that was padded with zeros is wrong there.
    """
    values = torch.randn(shape, generator=generator)
    if len(shape) > 1 and shape[0] > 1:
        turn = min(_TURN, shape[0])
        first = int(torch.randint(turn, (), generator=generator))
        values[first::turn].abs_().neg_().sub_(_FROM_ZERO)
        second = (first + turn // 2) % turn
        values[second::turn].abs_().add_(_FROM_ZERO)
    return values


def _wide(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator).mul_(3.0)


def _negative(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator).sub_(1.0)


def _signed_uniform(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=generator).mul_(4.0).sub_(2.0)


NORMAL, WIDE = _normal, _wide
DISTRIBUTIONS: tuple[Distribution, ...] = (
    NORMAL,
    _signed_uniform,
    _negative,
    WIDE,
)
"""Distributions used besides the problem's own, if the reference stays finite on them."""


def redrawn(value: torch.Tensor, distribution: Distribution, generator: torch.Generator) -> torch.Tensor:
    """Return an input without a structure with values of another distribution. Indices and masks keep theirs."""
    if value.dtype.is_floating_point:
        return distribution(tuple(value.shape), generator).to(value.dtype)
    if value.dtype.is_complex:
        parts = (distribution(tuple(value.shape), generator) for _ in range(2))
        return torch.complex(*parts).to(value.dtype)
    return varied_if_constant(value, True, generator)


def varied_if_constant(value: torch.Tensor, is_plain: bool, generator: torch.Generator) -> torch.Tensor:
    """Return other values for a constant input: near it, flipped if it is a mask, and in the range of an index.

    `is_plain`: it has no structure. A constant mask has none either.
    """
    if not is_constant(value) or value.dtype.is_complex or not (is_plain or value.dtype is torch.bool):
        return value
    if value.dtype.is_floating_point or value.dtype is torch.bool:
        return varied(value, generator)
    constant = int(value.reshape(-1)[0].item())
    if constant < 0 or (constant == 0 and value.device.type != "cpu"):  # on a GPU a wrong index ends the process
        return value
    low, high = (0, 1) if constant == 0 else (constant // 2, constant)
    return torch.randint(low, high + 1, value.shape, generator=generator).to(value.dtype)


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
    raise ReferenceFailedError(
        f"get_inputs returns a {type(value).__name__}, expected tensors, numbers, texts, lists and dictionaries"
    )


def address_of(value: Any) -> int:
    """Return the address of a tensor's memory, or 0 for anything else."""
    return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0


def shapes_of(values: list[Any]) -> list[Shape | None]:
    """Return the shape of each tensor, and None for anything else."""
    return [tuple(value.shape) if isinstance(value, torch.Tensor) else None for value in values]


def no_values(**options: Any) -> FakeTensorMode:
    """Return a mode in which tensors have no values, and nothing is computed. `options`: those of PyTorch's mode.

    Its cache of operators by shape stays off. Shapes seldom come back, to fill it takes a tenth of a reference's time,
    and it would grow as long as the process lives.
    """
    mode = FakeTensorMode(**options)
    mode.cache_enabled = False
    return mode


def as_fake(values: list[Any]) -> list[Any]:
    """Return new tensors of the same forms. Under `no_values` this allocates nothing."""
    return [
        torch.empty(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value for value in values
    ]


def copied(values: list[Any]) -> list[Any]:
    """Return copies of the same values in separate memory."""
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def same_bytes(first: torch.Tensor, second: torch.Tensor) -> bool:
    """True if two tensors of one shape hold the same bits (NaN equals NaN).

    A block at a time if they are large: on a GPU comparing makes a truth value of each element.
    """
    if first.numel() == 0:
        return True
    flat = [value.contiguous().reshape(-1).view(torch.uint8) for value in (first, second)]
    if flat[0].numel() <= _BLOCK_BYTES or any(value.numel() % 8 or value.storage_offset() % 8 for value in flat):
        return torch.equal(*flat)
    parts = [value.view(torch.int64).split(_BLOCK_BYTES // 8) for value in flat]
    return all(torch.equal(*pair) for pair in zip(*parts, strict=True))


def seed_cpu_only() -> None:
    """Make `torch.manual_seed` seed only the CPU's generator, in this process and its forks.

    Not for processes with a GPU. PyTorch's function also queues a call for each device type that is not initialised
    (CUDA, XPU), with the caller's stack. This takes 2 ms each time, and the queue grows as long as the process lives.
    """
    torch.manual_seed = torch.random.manual_seed = _manual_seed


def seed_cpu_and_gpu() -> None:
    """Make `torch.manual_seed` seed the CPU's and the GPU's generators alone, in this process: for the same reason."""
    torch.manual_seed = torch.random.manual_seed = _manual_seed_with_gpu


def _manual_seed_with_gpu(seed: int) -> torch.Generator:
    for generator in torch.cuda.default_generators:
        generator.manual_seed(int(seed))
    return _manual_seed(seed)


def _manual_seed(seed: int) -> torch.Generator:
    return torch.default_generator.manual_seed(int(seed))


def widened(value: torch.Tensor) -> torch.Tensor:
    """Return a copy of an input, in float64 if it has a floating point."""
    return value.to(torch.float64, copy=True) if value.dtype.is_floating_point else value.clone()
