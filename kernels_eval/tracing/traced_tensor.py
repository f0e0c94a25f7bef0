"""Tensors without values: what the candidate's host code works on.

A `TracedTensor` is a tensor of shape, strides and type whose values are somewhere else: in the executor's process, which this
one cannot reach. What host code does with it is written down by the `Tracer` (kernels_eval.tracing.tracer); what would need values is refused. So
host code that computes, caches or compares results has nothing to do it with. Handles say that they are on `cuda:0`: that is where the
kernels believe to run.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from kernels_eval.correctness.allowed_operators import ForbiddenOperatorError
from kernels_eval.trace.schema import FIRST_OWN

if TYPE_CHECKING:
    from kernels_eval.tracing.tracer import Tracer

DEVICE = torch.device("cuda", 0)
_ADDRESS_SPACE = 1 << 44


class Memory:
    """One storage on the executor's side; known to it from the first command that names it."""

    __slots__ = ("content", "meta", "number", "tracer")

    def __init__(self, tracer: "Tracer", number: int, meta: torch.UntypedStorage, content: Any = None) -> None:
        self.tracer = tracer
        self.number = number
        self.meta = meta
        """Storage of the handles' own; keeps its address from being used again."""
        self.content = content
        """The host's own tensor of bytes, as long as it was not uploaded."""

    def __del__(self) -> None:
        """Tell the executor that nobody can name this storage any more."""
        if self.number >= FIRST_OWN:
            self.tracer.freed.append(self.number)


class TracedTensor(torch.Tensor):
    """A tensor without values."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl  # pyright: ignore[reportPrivateUsage]
    memory: Memory
    plain: torch.Tensor
    """The same tensor on PyTorch's meta device."""
    is_on_host = False
    """Asked for on another device than the kernels': no result to return."""
    is_cuda = True
    is_meta = False
    is_cpu = False
    device = DEVICE

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Reached outside of a forward call too: in a thread, at the module's end."""
        tracer = next(value.memory.tracer for value in args if isinstance(value, TracedTensor))
        return tracer.operate(func, args, kwargs or {})

    def cuda(self, *_: Any, **__: Any) -> "TracedTensor":
        """Return itself: it is there already."""
        return self.clone() if self.is_on_host else self  # pyright: ignore[reportReturnType]

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Convert; devices mean nothing here."""
        kept = tuple(value for value in args if not isinstance(value, torch.device) and not _is_device_name(value))
        device = kwargs.pop("device", None) or next((value for value in args if value not in kept), None)
        result = super().to(*kept, **kwargs) if kept or kwargs else self
        if device is None or torch.device(device).type == "cuda":
            return result
        moved: Any = result.clone() if result is self else result
        moved.is_on_host = True
        return moved

    def cpu(self, *_: Any, **__: Any) -> torch.Tensor:
        """Return a copy, as the host would have one. Its values stay where they are."""
        copy: Any = self.clone()
        copy.is_on_host = True
        return copy

    def get_device(self) -> int:
        """Return the device's index."""
        return 0

    def data_ptr(self) -> int:
        """Return an address that is aligned and differs between storages, and that nothing lies at."""
        return (self.memory.number + 1) * _ADDRESS_SPACE + int(self.storage_offset()) * self.element_size()

    def record_stream(self, s: Any) -> None:
        """Do nothing: there is one stream."""

    def __repr__(self, **_: Any) -> str:
        """Say what is known."""
        return f"tensor(..., device='cuda:0', size={tuple(self.shape)}, dtype={self.dtype})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be pickled or deep-copied by way of pickle."""
        raise ForbiddenOperatorError(
            "Tensor.__reduce_ex__: results have to be computed by the kernels, not on the host"
        )

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        """Copy as `clone` does."""
        return self.clone()


def _is_device_name(value: Any) -> bool:
    return isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu", "meta")


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(self: TracedTensor, *_: Any, **__: Any) -> Any:
        self.memory.tracer.violations.append(f"Tensor.{name}")
        raise ForbiddenOperatorError(f"Tensor.{name}: results have to be computed by the kernels, not on the host")

    return refuse


for _name in ("numpy", "tolist", "__array__", "__dlpack__"):
    setattr(TracedTensor, _name, _refusing(_name))
