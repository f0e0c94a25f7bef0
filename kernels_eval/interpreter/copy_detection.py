"""Interpreter process: detects launches that compute nothing, since they only copy or rearrange their arguments."""

from collections.abc import Callable, Sequence

import torch

from kernels_eval.interpreter.kept_content import KeptContent
from kernels_eval.interpreter.memory_accesses import ACCESS_LOG, Origin, Region
from kernels_eval.interpreter.tensor_store import TensorStore
from kernels_eval.sandbox.tensor_bytes import DTYPES
from kernels_eval.trace.schema import View

_SAME = 1e-3
_SAME_HALF = 2e-2
"""Differences up to which two values count as equal: looser than any tolerance; changed values are about 1."""
_SHARE = 0.98
"""Share of the written elements that have to be copies, moved values or constants."""
_MOVED_SHARE = 0.3
_TURN = 7
"""Minuend of the changed whole numbers."""


class MovedValues:
    """Detects launches that only move values, by a second run on changed values.

    Create it before the launch; call `settle` after it. A launch that moves values also moves the changed ones;
    max-pooling, sorting or ReLU do not follow them. `mixed` checks launches that only rearrange a tensor: they take
    time and do no work. `strict` checks launches that copy, element for element, a tensor that PyTorch has converted
    or rearranged: then PyTorch did the work.
    """

    def __init__(self, memory: TensorStore, views: Sequence[View]) -> None:
        self._memory = memory
        self._views = [view for view in views if view.numel]
        self._sources = [view for view in self._views if self._is_source(view)]
        numbers = {view.storage for view in self._views} if self._sources else set[int]()
        self._storages = [memory[number] for number in numbers]
        self._before = KeptContent(self._storages)
        self.asked = False
        """True if the launch could have been a copy, and was run again."""

    def settle(self, again: Callable[[], None]) -> bool:
        """Return True if the launch only moved values; its results then get the origin of these values.

        `again` runs some of the launch's programs again.
        """
        written = [view for view in self._views if self._sources and _is_written(view)]
        origins = {view: [source for source in self._sources if source.numel == view.numel] for view in written}
        if not written or not all(origins.values()):
            return False
        self.asked = True
        first = {view: self._memory.tensor(view).clone() for view in written}
        content, regions = KeptContent(self._storages), ACCESS_LOG.regions
        try:
            is_moved = all(self._is_moved(sign, first, origins, again) for sign in (1, -1))
        except Exception:  # noqa: BLE001 (a kernel whose indices were changed may do anything)
            is_moved = False
        finally:
            content.put_back()
            ACCESS_LOG.regions = regions
        if is_moved:
            for view, sources in origins.items():
                origins = self._memory.origins(view)
                origins[origins == Origin.KERNEL] = int(self._origin_of(sources))
        return is_moved

    def _is_source(self, view: View) -> bool:
        """Return True if a copy of this tensor could be a result that the kernel did not compute."""
        dtype = DTYPES[view.dtype]
        if self._memory.strict:
            return bool(self._memory.origin_counts(view)[Origin.MOVED]) and dtype is not torch.bool
        return dtype.is_floating_point and self._memory.origin_counts(view)[Origin.NOBODY] < view.numel

    def _origin_of(self, sources: list[View]) -> Origin:
        if self._memory.strict:
            return Origin.MOVED
        origins = [self._memory.origin_counts(view) for view in sources]
        return next(
            (origin for origin in (Origin.LIBRARY, Origin.KERNEL) if any(counts[origin] for counts in origins)),
            Origin.GIVEN,
        )

    def _is_moved(
        self, sign: int, first: dict[View, torch.Tensor], origins: dict[View, list[View]], again: Callable[[], None]
    ) -> bool:
        """Run the launch on changed values; compare its results with those of the `first` run."""
        self._before.put_back()
        for storage in {view.storage for view in self._sources}:
            _change([self._memory.tensor(view) for view in self._sources if view.storage == storage], sign)
        changed = {view: self._memory.tensor(view).clone() for view in self._sources}
        for view in origins:
            self._memory[view.storage].all_origins().fill(Origin.NOBODY)
        ACCESS_LOG.start(
            [Region(region.name, region.storage, region.base, region.size) for region in ACCESS_LOG.regions]
        )
        again()
        return all(
            self._follows(view, first[view], [changed[source] for source in sources], sign)
            for view, sources in origins.items()
        )

    def _follows(self, view: View, first: torch.Tensor, sources: list[torch.Tensor], sign: int) -> bool:
        mine = self._memory.origins(view).reshape(-1) == Origin.KERNEL
        old, new = first.reshape(-1)[mine].double(), self._memory.tensor(view).reshape(-1)[mine]
        if not old.numel():
            return False
        follows = torch.zeros(old.shape, dtype=torch.bool)
        for source in sources:
            in_place = source.reshape(-1)[mine].double()
            follows |= _close(new, in_place if self._memory.strict else _turned(old, sign, is_float=True))
        same = _close(new, old)
        moved = int((follows & ~same).sum())
        return int((follows | same).sum()) >= _SHARE * old.numel() and moved >= _MOVED_SHARE * old.numel()


def _is_written(view: View) -> bool:
    return any(region.storage.number == view.storage and region.written is not None for region in ACCESS_LOG.regions)


def _change(views: list[torch.Tensor], sign: int) -> None:
    """Replace each value of views of one storage by another one, once."""
    largest = max(views, key=torch.Tensor.numel)
    largest.copy_(_turned(largest.double(), sign, largest.is_floating_point()))


def _turned(values: torch.Tensor, sign: int, is_float: bool) -> torch.Tensor:
    """A function of each value that an order, a sign or a sum does not survive."""
    if not is_float:
        return _TURN - values if sign > 0 else -_TURN - (values / 2).floor()
    return torch.where(values.isfinite(), sign * torch.cos(5 * values + 1), values)


def _close(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    tolerance = _SAME_HALF if actual.dtype in (torch.float16, torch.bfloat16) else _SAME
    return torch.isclose(actual.double(), expected, rtol=tolerance, atol=tolerance, equal_nan=True)


class LibraryCopies:
    """Detects launches that pass on a result of PyTorch (`mixed` only).

    Create it before the launch; call `settle` after it. A kernel that copies the library's result, scales it by one, or
    overwrites it with the same values makes the output depend on it and takes time, but does none of the work. Its
    results are counted as the library's.
    """

    def __init__(self, memory: TensorStore, views: Sequence[View]) -> None:
        self._memory = memory
        self._views = [view for view in views if view.numel]
        self._before = [
            memory.tensor(view).reshape(-1).double()
            for view in self._views
            if memory.origin_counts(view)[Origin.LIBRARY]
        ]
        """Arguments of the launch that PyTorch had computed; reading makes a copy."""
        self.found = False
        """True if everything that the launch wrote is a copy."""

    def settle(self) -> None:
        """Compare the launch's results with those of PyTorch; set the origin of a copy."""
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
