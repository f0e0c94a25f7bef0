"""A second line of stages, beside that of the flow: a thread which does what it is given, one after another.

The stages that it calls are task runs of the flow, as those of the flow's own thread are: Prefect's context is copied.
The flow's thread waits for single results, and at the end of the block for all. Work that follows failed work is not
begun, and ends with the same error: it may need what failed.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE_S = 30.0
"""Longest wait for the stage that computes when the flow fails; its workers have been ended."""


class Lane:
    """The line; a context, which ends with the last of its work.

    If the block ends with an error, `stop` is called, which makes the stage end that computes, and what waits is not
    begun. An error of the lane is raised where its result is waited for, at the end of the block at the latest.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        # A daemon: Ctrl-C ends the process whatever this thread waits for.
        self._thread = threading.Thread(target=self._work, name="lane", daemon=True)

    def submit(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Have work done after all that was given before; returns at once."""
        future: Future[R] = Future()
        self._waiting.put((future, partial(copy_context().run, work, *args, **kwargs)))
        return future

    def __enter__(self) -> "Lane":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.put(None)
        if error is None:
            self._thread.join()
            if self._failure is not None:
                raise self._failure
        elif self._failure is None:  # else the thread does nothing any more
            self._failure = error
            self._stop()
            self._thread.join(PATIENCE_S if isinstance(error, Exception) else 0.0)

    def _work(self) -> None:
        while (next_one := self._waiting.get()) is not None:
            future, work = next_one
            if self._failure is None:
                try:
                    future.set_result(work())
                    continue
                except BaseException as error:  # noqa: BLE001 (Prefect's Pause too; raised where the result is waited for)
                    self._failure = self._failure or error
                    future.set_exception(error)
            else:
                future.set_exception(self._failure)
