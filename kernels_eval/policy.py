"""The candidate-side line of the `strict` policy: which PyTorch operators a forward call may use.

`strict` allows what allocates, views, reshapes or copies; everything that computes is refused by name. This runs in the
candidate's own process and is the first line only. It also fills fresh memory with NaN (or a pattern), since stale memory
can hold the right answer, and follows which storages hold what kernels wrote, through copies.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels_eval.accounting import LEDGER
from kernels_eval.eager import count_operator

UNINITIALISED = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})
CREATIONS = frozenset(
    {
        "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full",
        "scalar_tensor", "arange", "lift_fresh", "lift_fresh_copy", "_efficientzerotensor",
    }
)  # fmt: skip
COPIES = frozenset({"clone", "copy_", "_to_copy", "contiguous"})
SETTERS = frozenset(
    {"fill_", "zero_", "set_", "resize_", "detach_", "requires_grad_", "_unsafe_view", "_reshape_alias"}
)
METADATA = frozenset({"sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "is_same_size", "is_contiguous"})
_MAX_HOST_READS = 16


class PolicyViolationError(Exception):
    """The candidate did with the library what its own kernels should do."""


class StrictPolicy(TorchDispatchMode):
    """Refuses computing operators; `violations` keeps them even where the candidate catches the exception."""

    def __init__(self, enforce: bool) -> None:
        super().__init__()
        self.enforce = enforce
        self.violations: list[str] = []
        self.copied: dict[int, int] = {}
        """Storage address -> address of the storage that it was copied from."""
        self._host_reads = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Let one operator through, or refuse it."""
        if LEDGER.inside_launch:
            return func(*args, **(kwargs or {}))
        name: str = func.overloadpacket.__name__
        if self.enforce and not self._is_allowed(func, name):
            self.violations.append(f"aten.{name}")
            raise PolicyViolationError(
                f"aten.{name}: the kernels have to compute this; PyTorch may only allocate, view and copy"
            )
        result = func(*args, **(kwargs or {}))
        if name in UNINITIALISED and not LEDGER.only_grids:
            _poison(result)
        launch = count_operator(func, args, kwargs or {}, result)
        if launch is not None:
            LEDGER.launches.append(launch)
        if isinstance(result, torch.Tensor):
            LEDGER.storages.append(result.untyped_storage())
            if name in COPIES and isinstance(args[0], torch.Tensor):
                source = args[1] if name == "copy_" else args[0]
                self.copied[result.untyped_storage().data_ptr()] = source.untyped_storage().data_ptr()
        return result

    def _is_allowed(self, func: Any, name: str) -> bool:
        if func.is_view or name in UNINITIALISED or name in CREATIONS or name in COPIES or name in SETTERS:
            return True
        if name == "_local_scalar_dense":  # `.item()` of a scalar parameter is fine, reading a tensor that way is not
            self._host_reads += 1
            return self._host_reads <= _MAX_HOST_READS
        return name in METADATA

    def origin(self, tensor: torch.Tensor) -> int:
        """Return the address of the storage that a tensor's content was first written to."""
        address = tensor.untyped_storage().data_ptr()
        for _ in range(64):
            if address in LEDGER.stored or address not in self.copied:
                break
            address = self.copied[address]
        return address

    def kernel_share(self, tensor: torch.Tensor) -> float:
        """Return the share of a result's elements that kernels stored; a copy counts as its source does."""
        stored = LEDGER.stored.get(self.origin(tensor))
        if stored is None or tensor.numel() == 0:
            return 0.0 if tensor.numel() else 1.0
        return min(1.0, int(stored.sum()) / tensor.numel())


def _poison(tensor: torch.Tensor) -> None:
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        tensor.fill_(float("nan"))
    elif tensor.dtype is not torch.bool:
        tensor.fill_(85)


def refuse_host_copies(record: Callable[[str], None]) -> None:
    """Refuse the ways from a tensor to host memory that pass by the dispatcher (numpy, lists, DLPack)."""

    def refusing(name: str) -> Callable[..., Any]:
        def refuse(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            record(f"Tensor.{name}")
            raise PolicyViolationError(f"Tensor.{name}: results have to be computed by the kernels, not on the host")

        return refuse

    for name in ("numpy", "tolist", "__array__", "__dlpack__"):
        setattr(torch.Tensor, name, refusing(name))
