"""Under policy `mixed`: does a kernel compute, or does it hand on what PyTorch has computed?

A kernel that copies the library's answer, scales it by one, or writes the same values over it once more makes the result depend on it and
takes time, yet does none of the work. What it wrote is counted as the library's, as with any other copy.
"""

from collections.abc import Sequence

import torch

from kernels_eval.interpreter.memory_accesses import ACCESS_LOG, Origin
from kernels_eval.interpreter.tensor_store import TensorStore
from kernels_eval.trace.schema import View

_SAME = 1e-3
"""Relative difference within which two values are the same one: looser than any tolerance for float32."""
_SHARE = 0.98
"""Share of the elements that a launch wrote which have to be the same for all of it to be a copy."""


class LibraryCopies:
    """One launch: made before it runs, asked after it has."""

    def __init__(self, memory: TensorStore, views: Sequence[View]) -> None:
        self._memory = memory
        self._views = [view for view in views if view.numel]
        self._before = [
            memory.tensor(view).reshape(-1).double()
            for view in self._views
            if memory.origin_counts(view)[Origin.LIBRARY]
        ]
        """What PyTorch had computed of the launch's arguments; reading makes a copy."""
        self.found = False
        """All that the launch wrote is a copy."""

    def settle(self) -> None:
        """Look at what the launch wrote; where it is a copy, say so in the origins."""
        written = [view for view in self._views if self._is_written(view)]
        self.found = bool(written) and all(self._is_copy(view) for view in written)
        if self.found:
            for view in written:
                origins = self._memory.origins(view)
                origins[origins == Origin.KERNEL] = int(Origin.LIBRARY)

    def _is_written(self, view: View) -> bool:
        region = next(region for region in ACCESS_LOG.regions if region.storage.number == view.storage)
        return region.written is not None

    def _is_copy(self, view: View) -> bool:
        mine = self._memory.origins(view).reshape(-1) == Origin.KERNEL
        after = self._memory.tensor(view).reshape(-1).double()[mine]
        if not after.numel():
            return True
        for before in self._before:
            if before.numel() == view.numel:
                same = torch.isclose(after, before[mine], rtol=_SAME, atol=0.0, equal_nan=True)
                if int(same.sum()) >= _SHARE * after.numel():
                    return True
        return False
