"""Stream of verdicts: many kernels judged at the same time, each verdict yielded when it is ready."""

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable

from kernels_eval.problem import Problem
from kernels_eval.verdict import Verdict

Item = tuple[Problem | str, str] | tuple[Problem | str, str, str | None]
"""Problem, kernel source, and optionally the back end."""
Evaluate = Callable[[Problem | str, str, str | None], Awaitable[Verdict]]
Progress = Callable[[int, int], None]
"""Called with the number of verdicts so far, and of all."""


async def stream_verdicts(
    evaluate: Evaluate, items: Iterable[Item] | AsyncIterable[Item], at_once: int
) -> AsyncIterator[tuple[int, Verdict]]:
    """Yield (index, verdict) for each item exactly once, in the order in which verdicts come in.

    At most `at_once` items are taken ahead: items can be an endless generator. Raises InputError for an item that is
    not a problem. If the caller stops early (`break`, an exception, cancellation), evaluations under way are
    cancelled.
    """
    source = aiter(items) if isinstance(items, AsyncIterable) else _as_async(items)
    under_way: dict[asyncio.Task[Verdict], int] = {}
    fetching: asyncio.Task[Item] | None = None
    taken, exhausted = 0, False
    try:
        while True:
            if fetching is None and not exhausted and len(under_way) < at_once:
                fetching = asyncio.ensure_future(_next(source))
            waited_for = {*under_way, fetching} if fetching is not None else set(under_way)
            if not waited_for:
                return
            done, _ = await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
            if fetching in done:
                assert fetching is not None
                finished, fetching = fetching, None
                try:
                    problem, kernel_source, *backend = finished.result()
                except _ExhaustedError:
                    exhausted = True
                else:
                    call = evaluate(problem, kernel_source, backend[0] if backend else None)
                    under_way[asyncio.ensure_future(call)] = taken
                    taken += 1
            for task in [task for task in under_way if task in done]:
                yield under_way.pop(task), task.result()
    finally:
        for task in [*under_way, *([fetching] if fetching is not None else [])]:
            task.cancel()


class _ExhaustedError(Exception):
    """End of the items (StopAsyncIteration cannot leave a task)."""


async def _next(source: AsyncIterator[Item]) -> Item:
    try:
        return await anext(source)
    except StopAsyncIteration:
        raise _ExhaustedError from None


async def _as_async(items: Iterable[Item]) -> AsyncIterator[Item]:
    for item in items:
        yield item


class CountedProgress:
    """Counts finished futures for a progress callback."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._done = 0
        self._total = total
        self._progress = progress
        self._lock = threading.Lock()

    def __call__(self, _: object) -> None:
        """Count one."""
        with self._lock:
            self._done += 1
            self._progress(self._done, self._total)
