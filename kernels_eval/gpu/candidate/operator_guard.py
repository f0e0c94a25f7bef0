"""Operator guard in the candidate's process on a GPU: refuses the operators of PyTorch that are refused on a CPU.

In force in every call alike, checked, profiled or timed: a call cannot tell one from another. Fresh memory is filled
with NaN only in calls that are not timed (filling costs device time); in a timed call the fresh inputs serve instead,
since results that older calls left behind are wrong for them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels_eval.correctness.allowed_operators import (
    COPIES,
    CREATIONS,
    MAX_HOST_INTEGERS,
    MAX_HOST_READS,
    METADATA,
    MOVES,
    SETTERS,
    UNINITIALISED,
    ForbiddenOperatorError,
)
from kernels_eval.correctness.composed_operators import parts_of
from kernels_eval.gpu.candidate.host_tensors import HostTensors
from kernels_eval.gpu.candidate.kept_copies import KeptCopies

_ALLOWED = (
    UNINITIALISED | CREATIONS | COPIES | MOVES | SETTERS | METADATA | {"record_stream", "pin_memory", "_pin_memory"}
)


_MARKS = ("_record_function_enter", "_record_function_exit")
"""Beginnings of the names of a profiler's operators that mark a span."""
_DLPACK_CUDA = 2
"""kDLCUDA of DLPack's header: memory of an NVIDIA GPU."""
_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})
_FRESH = UNINITIALISED | _ZEROS
"""Operators whose result can be made in a slot."""


class OperatorGuard(TorchDispatchMode):
    """Refuses computing operators; `violations` keeps them even if the candidate catches the exception."""

    def __init__(self, enforce: bool) -> None:
        super().__init__()
        self.enforce = enforce
        self.poisons = True
        """Fill fresh memory with NaN."""
        self.violations: list[str] = []
        self.allocations: dict[int, int] = {}
        """Number of the last tensor that was made in this call at an address, by address of its storage."""
        self._slots: dict[int, torch.Tensor] = {}
        self._made = 0
        self._host_reads = [0, 0]
        """Values that host code has read in this call: whole numbers, and others."""
        self._most_reads = MAX_HOST_READS
        self._host = HostTensors()
        self.copies = KeptCopies()
        """Noted in calls that are not timed: the first ones make what is kept."""

    def start(self, poisons: bool, most_reads: int = MAX_HOST_READS) -> None:
        """Begin another call, in which host code may read `most_reads` values."""
        self.poisons = poisons
        self._most_reads = most_reads
        self.allocations.clear()
        if poisons:  # it takes 0.5 µs a copy, and timed calls make none that is noted
            self.copies.forget_unused()
        self._made = 0
        self._host_reads = [0, 0]

    def use_slots(self, slots: dict[int, torch.Tensor]) -> None:
        """Make tensors of the next call in these places (bytes), by their number in `allocations`."""
        self._slots = slots

    def may_read(self, tensor: torch.Tensor) -> bool:
        """Count the values of a tensor that host code is to read in this call; returns whether it may."""
        is_whole = _is_whole(tensor)
        self._host_reads[not is_whole] += _numel_of(tensor)
        of_its_kind = MAX_HOST_INTEGERS if is_whole else MAX_HOST_READS
        return self._host_reads[not is_whole] <= of_its_kind and sum(self._host_reads) <= self._most_reads

    def may_list(self, tensor: torch.Tensor) -> bool:
        """Return whether host code may read a tensor as a list, and count its values: of whole numbers alone."""
        return _is_whole(tensor) and self.may_read(tensor)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Let one operator through, or refuse it."""
        name: str = func.overloadpacket.__name__
        kwargs = kwargs or {}
        if self.enforce and not self._passes(func, args, kwargs):
            parts = parts_of(func)
            if parts is not None:
                with self:
                    return parts(*args, **kwargs)
            if name != "_local_scalar_dense" or not self.may_read(args[0]):
                self.violations.append(f"aten.{name}")
                raise ForbiddenOperatorError(
                    f"aten.{name}: the kernels have to compute this; PyTorch may only allocate, view and copy"
                )
        if name not in _FRESH:
            result = func(*args, **kwargs)
            if self.enforce and not func.is_view:
                self._host.note(args, kwargs, result)
            if self.poisons:
                self.copies.note(func, args, kwargs, result)
            return result
        result = self._make(func, name, args, kwargs)
        if self.poisons and name in UNINITIALISED:
            _poison(result)
        return result

    def _passes(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """True for an operator of PyTorch's that anybody may use, or whose tensors are the host's alone."""
        name = func.overloadpacket.__name__
        if func.namespace != "aten":
            return func.namespace == "profiler" and name.startswith(_MARKS)
        return func.is_view or name in _ALLOWED or self._host.are_alone(args, kwargs)

    def _make(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a tensor: in a slot if one is given for it."""
        number = self._made
        self._made += 1
        slot = self._slots.get(number)
        made = None if slot is None else _made_in(slot, func, args, kwargs)
        if made is None:
            made = func(*args, **kwargs)
        elif name in _ZEROS:
            _fill(made, 0)
        self.allocations[made.untyped_storage().data_ptr()] = number
        return made


def refuse_host_copies(record: Callable[[str], None], may_list: Callable[[torch.Tensor], bool]) -> None:
    """Refuse conversions of a tensor that bypass the dispatcher, for good: to numpy, to lists, and of host memory to
    DLPack.

    `record`: takes the name of what was refused; `may_list`: returns whether a tensor may become a list, such as
    the lengths of a batch's sequences. A tensor on the device is handed over as DLPack: CuTe DSL takes no
    other form, and what any library computes with it there is a kernel in the profile.
    """

    def refuse(name: str) -> Any:
        record(f"Tensor.{name}")
        raise ForbiddenOperatorError(f"Tensor.{name}: results have to be computed by the kernels, not on the host")

    def refusing(name: str) -> Callable[..., Any]:
        return lambda *_, **__: refuse(name)

    tensor: Any = torch.Tensor
    give, device_of = tensor.__dlpack__, tensor.device.__get__  # not what a class of the candidate's says of itself

    def give_on_device(self: torch.Tensor, *, dl_device: Any = None, **options: Any) -> Any:
        if device_of(self).type == "cpu" or (dl_device is not None and int(dl_device[0]) != _DLPACK_CUDA):
            refuse("__dlpack__")
        return give(self, **options)

    to_list = tensor.tolist

    def listed(self: torch.Tensor) -> Any:
        return to_list(self) if may_list(self) else refuse("tolist")

    for name in ("numpy", "__array__"):
        setattr(torch.Tensor, name, refusing(name))
    setattr(torch.Tensor, "tolist", listed)  # noqa: B010 (as below)
    setattr(torch.Tensor, "__dlpack__", give_on_device)  # noqa: B010 (pyright knows the method's own signature)


def _made_in(slot: torch.Tensor, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """Return the tensor that the operator would make, in a slot; None if it does not fit there exactly."""
    form = func(*args, **{**kwargs, "device": "meta", "pin_memory": None})
    if form.untyped_storage().nbytes() != slot.numel():
        return None
    typed = slot.view(form.dtype)
    return typed.as_strided(form.shape, form.stride(), typed.storage_offset())


def _poison(tensor: torch.Tensor) -> None:
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        _fill(tensor, float("nan"))
    elif tensor.dtype is not torch.bool:
        _fill(tensor, 85)


def _is_whole(tensor: torch.Tensor) -> bool:
    dtype = _dtype_of(tensor)
    return not (dtype.is_floating_point or dtype.is_complex)


_fill: Any = torch.Tensor.fill_
_dtype_of: Any = torch.Tensor.dtype.__get__  # type: ignore[attr-defined] # not what a class of the candidate's says
_numel_of: Any = torch.Tensor.numel
