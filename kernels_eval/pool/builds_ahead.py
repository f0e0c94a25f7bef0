"""Builds ahead, in the caller's process: candidates that wait for a worker on a GPU are built by spare processors.

nvcc takes some seconds for an extension, twice as long as all else of its verdict, and needs no GPU. What has begun to
build when a worker takes the candidate is waited for; what has not, the worker has built itself.

Kernels that are compiled at launch can be compiled ahead too (`judge.compile_ahead`). Nothing waits for that: what is
not there when a worker takes the candidate is compiled at launch, and whatever fails ahead fails there again.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from kernels_eval.backends import backend_named
from kernels_eval.compile.one_shot import Builder, Compiled
from kernels_eval.errors import InfrastructureError
from kernels_eval.gpu.device.detection import gpu_target
from kernels_eval.pool.job_queue import Job
from kernels_eval.problem import literal_init_inputs
from kernels_eval.sandbox.folders import remove_folder
from kernels_eval.sandbox.limits import Limits

_BUILD_FACTOR = 4
"""Building a PyTorch extension takes this many times as long as compiling a kernel."""
_MOST_WARMED = 1024
"""Candidates whose kernels lie compiled in folders, of some 100 KB each."""
_MOST = 16
"""Builds at the same time. Each may take four times `memory_mb`."""


def build(builder: Builder, job: Job) -> Compiled:
    """Build a candidate. Raises InfrastructureError as `Builder.build` does."""
    config = job.config
    limits = Limits(wall_s=_BUILD_FACTOR * config.compile_timeout_s, memory_mb=4 * config.memory_mb)
    arguments = literal_init_inputs(job.problem.source)
    problem = job.problem.source if backend_named(config.backend).compiles else None
    runs = config.device == "cuda"
    return builder.build(config.backend, job.kernel_source, arguments, config.targets, runs, limits, problem)


def spare_processors(workers: int) -> int:
    """Return how many builds may run beside so many workers, each of which takes a processor."""
    return min(max(len(os.sched_getaffinity(0)) - workers, 0), _MOST)


class BuildsAhead:
    """Builds candidates while they wait. Safe for threads; builds nothing before the first candidate needs it."""

    def __init__(
        self, new_builder: Callable[[], Builder], at_once: int, new_warmer: Callable[[], Builder] | None = None
    ) -> None:
        """`new_builder`: makes what builds one candidate after the other; `at_once`: how many of them, 0 for none.

        `new_warmer`: the same for what is compiled at launch.
        """
        self._new_builder, self._new_warmer = new_builder, new_warmer
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="judge-build") if at_once else None
        self._of_thread = threading.local()
        self._builders: list[Builder] = []
        self._begun: dict[str, Future[Compiled]] = {}
        self._warmed: dict[str, Future[str | None]] = {}
        """Folders with kernels compiled ahead, by job."""

    def begin(self, job: Job, verdict: "Future[Any]") -> None:
        """Have a candidate built if its language needs that. It is forgotten once `verdict` is there, or cancelled."""
        is_built = backend_named(job.config.backend).is_built(job.config.device == "cuda")
        if self._threads is None or not is_built or job.key in self._begun or verdict.done():
            return
        self._begun[job.key] = self._threads.submit(self._build, job)
        verdict.add_done_callback(lambda _: self._take(job.key))

    def begin_warming(self, job: Job, verdict: "Future[Any]") -> None:
        """Have a candidate's kernels compiled ahead if its language and the settings allow that.

        What was compiled is removed once `verdict` is there, or cancelled.
        """
        allowed = job.config.compile_ahead and job.config.device == "cuda" and backend_named(job.config.backend).warms
        if self._threads is None or self._new_warmer is None or not allowed:
            return
        if job.key in self._warmed or len(self._warmed) >= _MOST_WARMED or verdict.done():
            return
        future = self._warmed[job.key] = self._threads.submit(self._warm, job)

        def forget(_: "Future[Any]") -> None:
            self._warmed.pop(job.key, None)
            future.cancel()
            future.add_done_callback(_remove)

        verdict.add_done_callback(forget)

    def warmed(self, job: Job) -> str | None:
        """Return the folder with a candidate's kernels if they are compiled by now; what has not begun never will."""
        future = self._warmed.get(job.key)
        if future is None or future.cancel() or not future.done():
            return None
        return _folder_of(future)

    def outcome(self, job: Job) -> Compiled | None:
        """Return what was built, as soon as it is. None: it has not begun, or the machine failed; build it then."""
        future = self._take(job.key)
        if future is None or future.cancelled():
            return None
        try:
            return future.result()
        except InfrastructureError:
            return None

    def close(self) -> None:
        """Begin nothing more. The processes end with the zygotes that they were forked from."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        for builder in self._builders:
            builder.close()

    def _take(self, key: str) -> "Future[Compiled] | None":
        """Return a build that is no longer to be known; cancelled if it has not begun."""
        future = self._begun.pop(key, None)
        if future is not None:
            future.cancel()
        return future

    def _build(self, job: Job) -> Compiled:
        return build(self._of("builder", self._new_builder), job)

    def _warm(self, job: Job) -> str | None:
        """Compile a candidate's kernels ahead; returns the folder, or None if that failed."""
        assert self._new_warmer is not None
        warmer, config = self._of("warmer", self._new_warmer), job.config
        limits = Limits(wall_s=config.compile_timeout_s, memory_mb=_BUILD_FACTOR * config.memory_mb)
        arguments = literal_init_inputs(job.problem.source)
        target = gpu_target()
        if target is None:
            return None
        try:
            return warmer.warm(config.backend, job.kernel_source, arguments, target, limits, job.problem.source)
        except InfrastructureError:
            return None

    def _of(self, name: str, make: Callable[[], Builder]) -> Builder:
        """Return this thread's own builder of a kind."""
        builder: Builder | None = getattr(self._of_thread, name, None)
        if builder is None:
            builder = make()
            setattr(self._of_thread, name, builder)
            self._builders.append(builder)
        return builder


def _folder_of(future: "Future[str | None]") -> str | None:
    """Return the folder of an ended future, or None if it has none."""
    return None if future.cancelled() or future.exception() is not None else future.result()


def _remove(future: "Future[str | None]") -> None:
    """Remove the folder of an ended future."""
    folder = _folder_of(future)
    if folder is not None:
        remove_folder(folder)
