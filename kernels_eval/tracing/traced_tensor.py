"""Tracing process: tensors without values, for the candidate's host code.

A `TracedTensor` has a shape, strides and a dtype. Its values are in the interpreter process, which this process
cannot reach. The `Tracer` (kernels_eval.tracing.tracer) records the operations of host code, and refuses those that
need values. Host code therefore cannot compute, cache or compare results. Traced tensors report the device `cuda:0`,
as if kernels ran on a GPU.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from kernels_eval.correctness.allowed_operators import ForbiddenOperatorError
from kernels_eval.trace.schema import ADDRESS_SPACE, FIRST_OWN

if TYPE_CHECKING:
    from kernels_eval.tracing.tracer import Tracer

DEVICE = torch.device("cuda", 0)


class Memory:
    """One storage of the interpreter process, created there by the first command that names it."""

    __slots__ = ("content", "is_on_host", "meta", "number", "tracer")

    def __init__(self, tracer: "Tracer", number: int, meta: torch.UntypedStorage, content: Any = None) -> None:
        self.is_on_host = False
        """True if it lies on another device than the kernels', which cannot reach it there."""
        self.tracer = tracer
        self.number = number
        self.meta = meta
        """Meta storage of the traced tensors. Held to prevent the reuse of its address."""
        self.content = content
        """CPU tensor with the bytes, until they are uploaded."""

    def __del__(self) -> None:
        """Mark the storage as freed for the interpreter process: no command can name it any more."""
        if self.number >= FIRST_OWN:
            self.tracer.freed.append(self.number)
            self.tracer.addresses.free(self.number)


class _Sealed(type(torch.Tensor)):
    """Class of a class of which host code can replace nothing."""

    def __setattr__(cls, name: str, value: Any) -> None:
        if "kernels_eval_sealed" in cls.__dict__:
            raise ForbiddenOperatorError(f"Tensor.{name}: is replaced")
        super().__setattr__(name, value)


class TracedTensor(torch.Tensor, metaclass=_Sealed):
    """Tensor without values. A file that names an attribute of the judge's is refused (kernels_eval.cpu.reach)."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl  # pyright: ignore[reportPrivateUsage]
    kernels_eval_memory: Memory
    kernels_eval_plain: torch.Tensor
    """The same tensor on PyTorch's meta device."""
    is_cuda = True
    is_meta = False
    is_cpu = False
    device = DEVICE

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record an operator. Also called outside of a forward call: in a thread, at the module's end."""
        tracer = next(value.kernels_eval_memory.tracer for value in args if isinstance(value, TracedTensor))
        return tracer.operate(func, args, kwargs or {})

    def cuda(self, *_: Any, **__: Any) -> "TracedTensor":
        """Return itself, or a copy if it was moved to the CPU."""
        return _moved(self, False) if self.kernels_eval_memory.is_on_host else self

    def pin_memory(self, *_: Any, **__: Any) -> "TracedTensor":
        """Return a copy in memory of the host that kernels reach, or itself if they reach it."""
        return self.cuda()

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Convert the dtype or layout. A device other than CUDA, or a tensor there, only marks the result's memory."""
        kept = tuple(value for value in args if not isinstance(value, torch.device) and not _is_device_name(value))
        device = kwargs.pop("device", None) or next((value for value in args if value not in kept), None)
        result: Any = super().to(*kept, **kwargs) if kept or kwargs else self
        like = next((value for value in args if isinstance(value, TracedTensor)), None)
        if like is not None:
            is_on_host = like.kernels_eval_memory.is_on_host
        elif device is not None:
            is_on_host = torch.device(device).type != "cuda"
        else:
            return result
        return result if result.kernels_eval_memory.is_on_host is is_on_host else _moved(result, is_on_host)

    def cpu(self, *_: Any, **__: Any) -> torch.Tensor:
        """Return a copy marked as being on the CPU. Its values stay in the interpreter process."""
        return _moved(self, True)

    def new_tensor(self, data: Any, *_: Any, **named: Any) -> torch.Tensor:
        """Return a tensor of Python's values, on the device."""
        return torch.tensor(data, dtype=named.get("dtype") or self.dtype)

    def get_device(self) -> int:
        """Return the device's index."""
        return 0

    def data_ptr(self) -> int:
        """Return an aligned address that is unique to the storage. Only kernels reach memory by it."""
        tracer = self.kernels_eval_memory.tracer
        place = tracer.addresses.place_of(tracer.view_of(self))
        return (place + 1) * ADDRESS_SPACE + int(self.storage_offset()) * self.element_size()

    def record_stream(self, s: Any) -> None:
        """Do nothing: there is one stream."""

    def tolist(self) -> Any:
        """Return whole numbers as a list, which host code may read a limited number of; refuse others."""
        if self.is_floating_point() or self.is_complex():
            return _refuse("tolist", self)
        return self.kernels_eval_memory.tracer.read_list(self)

    def __repr__(self, **_: Any) -> str:
        """Return shape and dtype as text."""
        return f"tensor(..., device='cuda:0', size={tuple(self.shape)}, dtype={self.dtype})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse pickling, and deep copies by way of pickle."""
        raise ForbiddenOperatorError(
            "Tensor.__reduce_ex__: results have to be computed by the kernels, not on the host"
        )

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        """Copy as `clone` does."""
        return self.clone()


def _moved(tensor: Any, is_on_host: bool) -> Any:
    """Return a copy on the host, or on the device."""
    copy: Any = tensor.clone()
    copy.kernels_eval_memory.is_on_host = is_on_host
    return copy


def _is_device_name(value: Any) -> bool:
    return isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu", "meta")


def _refuse(name: str, tensor: TracedTensor) -> NoReturn:
    tensor.kernels_eval_memory.tracer.violations.append(f"Tensor.{name}")
    raise ForbiddenOperatorError(
        f"Tensor.{name}: results have to be computed by the kernels, not on the host; `item()` reads a single value"
    )


def _refusing(name: str) -> Callable[..., Any]:
    return lambda tensor, *_, **__: _refuse(name, tensor)


for _name in ("numpy", "__array__", "__dlpack__"):
    setattr(TracedTensor, _name, _refusing(_name))
TracedTensor.kernels_eval_sealed = True  # pyright: ignore[reportAttributeAccessIssue]
