"""The judge: takes problems and kernels, returns verdicts. The only thing that most users need.

Processes: this one (light: no torch) – a warm template that has imported torch and triton – one worker for each thread here,
forked from the template, which holds references, seeds and oracles – its nursery, forked before the worker saw any
problem – one confined child for each candidate. Compilation has a template of its own, in the same way.
"""

import asyncio
import queue
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels_eval.cache import VerdictCache, verdict_key
from kernels_eval.compiler import CompileCache, Compiler
from kernels_eval.config import JudgeConfig
from kernels_eval.confinement import Limits
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.launches import Launch
from kernels_eval.nursery import Nursery
from kernels_eval.problem import Problem, check_problem_source
from kernels_eval.template import SCRATCH_PREFIX, Template
from kernels_eval.verdict import Status, Verdict
from kernels_eval.wire import ChannelClosedError, MalformedFrameError, receive_frame, send_frame

_SPARE_S = 120.0
"""What a worker may take beyond the candidate's own time (building the reference, running the oracle)."""
_LIBRARY_PREFIX = "aten."
Progress = Callable[[int, int], None]


@dataclass
class _Job:
    key: str
    problem: Problem
    kernel_source: str
    config: JudgeConfig
    future: "Future[Verdict]"


class Judge:
    """Evaluates kernels on this machine. A context manager; safe for threads and for many concurrent asyncio calls."""

    def __init__(self, config: JudgeConfig | None = None) -> None:
        self.config = config or JudgeConfig()
        _check(self.config)
        self._cache = VerdictCache(Path(self.config.cache_dir) if self.config.cache_dir else None)
        self._compile_cache = CompileCache()
        self._scratch = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX))
        self._templates = _Templates(self._scratch)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._running: dict[str, Future[Verdict]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"judge-{index}", daemon=True)
            for index in range(self.config.workers)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Judge":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def evaluate(self, problem: Problem | str, kernel_source: str, backend: str | None = None) -> Verdict:
        """Return the verdict on one kernel. InputError: not a problem, or a back end that does not exist."""
        return self._submit(problem, kernel_source, backend).result()

    async def evaluate_async(self, problem: Problem | str, kernel_source: str, backend: str | None = None) -> Verdict:
        """Return the verdict on one kernel, without blocking the event loop."""
        return await asyncio.wrap_future(self._submit(problem, kernel_source, backend))

    def evaluate_many(
        self, items: Sequence[tuple[Problem | str, str]], progress: Progress | None = None
    ) -> list[Verdict]:
        """Return verdicts in the order of the items. `progress(done, total)` is called as they come in."""
        futures = [self._submit(problem, kernel_source, None) for problem, kernel_source in items]
        if progress is not None:
            done = _Counter(len(futures), progress)
            for future in futures:
                future.add_done_callback(done)
        return [future.result() for future in futures]

    def close(self) -> None:
        """Stop: running evaluations end as faults, processes are gone when this returns."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        self._templates.close()
        for thread in self._threads:
            thread.join(timeout=10)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _submit(self, problem: Problem | str, kernel_source: str, backend: str | None) -> "Future[Verdict]":
        if isinstance(problem, str):
            problem = Problem(problem_id="problem", source=problem)
        check_problem_source(problem.source, problem.problem_id)
        config = self.config.model_copy(update={"backend": backend}) if backend else self.config
        if config.backend != "triton":
            raise InputError(f"backend: expected triton, found {config.backend!r}")
        key = verdict_key(problem, kernel_source, config)
        known = self._cache.get(key)
        future: Future[Verdict] = Future()
        if known is not None:
            future.set_result(known)
            return future
        with self._lock:
            if self._closed:
                raise InfrastructureError("the judge is closed")
            running = self._running.get(key)
            if running is not None:
                return running
            self._running[key] = future
        self._jobs.put(_Job(key, problem, kernel_source, config, future))
        return future

    def _serve(self) -> None:
        """One thread: owns a worker and a compiler, and works the queue off."""
        bench = _Bench(self._templates, self._compile_cache, self.config)
        try:
            while (job := self._jobs.get()) is not None:
                verdict = self._judge(bench, job)
                self._cache.put(job.key, verdict)
                with self._lock:
                    self._running.pop(job.key, None)
                if not job.future.cancelled():
                    job.future.set_result(verdict)
        finally:
            bench.close()

    def _judge(self, bench: "_Bench", job: _Job) -> Verdict:
        """The boundary: a fault of the machine is tried once more, then becomes a verdict that says nothing of the kernel."""
        for attempt in (1, 2):
            try:
                return bench.judge(job)
            except InfrastructureError as fault:
                bench.reset()
                if attempt == 2 or self._closed:
                    return _fault("judge_fault", str(fault))
            except Exception as error:  # noqa: BLE001 (the one boundary: a bug here must not lose a verdict or end the thread)
                bench.reset()
                if attempt == 2:
                    return _fault("judge_bug", f"{type(error).__name__}: {error}")
        raise AssertionError("unreachable")


class _Bench:
    """What one thread judges with: a worker process and a compiler."""

    def __init__(self, templates: "_Templates", compile_cache: CompileCache, config: JudgeConfig) -> None:
        self._templates = templates
        self._config = config
        self._compiler = Compiler(self._new_compiler_nursery, compile_cache)
        self._worker: socket.socket | None = None
        self._process = 0

    def judge(self, job: _Job) -> Verdict:
        config = job.config
        reply = self._ask(job)
        if reply["kind"] == "reference_failed":
            return _fault("reference_failed", reply["message"])
        if reply["kind"] != "graded":
            raise InfrastructureError(str(reply.get("message", "the worker gave no verdict")))
        verdict = Verdict(**reply["verdict"])
        if config.compile == "never" or not config.targets or (config.compile == "correct" and not verdict.correct):
            return verdict
        launches = [Launch(**values) for values in reply["launches"]]
        launches = [launch for launch in launches if not launch.kernel.startswith(_LIBRARY_PREFIX)]
        limits = Limits(wall_s=config.compile_timeout_s, memory_mb=config.memory_mb)
        compiled = self._compiler.compile(job.kernel_source, launches, config.targets, limits)
        if compiled.category is None:
            return verdict.model_copy(update={"resources": compiled.resources})
        return Verdict(
            status=Status.COMPILE_ERROR,
            error_category=compiled.category,
            error_message=compiled.message,
            hardware=verdict.hardware,
            sandbox=verdict.sandbox,
            seed_commitment=verdict.seed_commitment,
        )

    def _ask(self, job: _Job) -> dict[str, Any]:
        try:
            if self._worker is None:
                self._process, self._worker = self._templates.interpreting().fork()
                self._worker.settimeout(_SPARE_S)
                hello, _ = receive_frame(self._worker)
                _check_sandbox(self._config, hello["sandbox"])
            self._worker.settimeout(job.config.timeout_s + _SPARE_S)
            send_frame(
                self._worker,
                {
                    "kind": "evaluate",
                    "problem": job.problem.source,
                    "kernel": job.kernel_source,
                    "config": job.config.model_dump(mode="json"),
                },
            )
            return receive_frame(self._worker)[0]
        except (ChannelClosedError, MalformedFrameError, TimeoutError) as error:
            raise InfrastructureError("a judge worker died or hung") from error

    def _new_compiler_nursery(self) -> Nursery:
        return Nursery(self._templates.compiling().fork()[1])

    def reset(self) -> None:
        """Give the worker up; the next job gets a new one."""
        if self._worker is not None:
            self._worker.close()
            self._templates.kill(self._process)
        self._worker = None

    def close(self) -> None:
        """Let both processes go."""
        if self._worker is not None:
            self._worker.close()
        self._compiler.close()


class _Templates:
    """The two warm processes, started when first needed, and again when they died. Safe for threads."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._known: dict[str, Template] = {}
        self._lock = threading.Lock()
        self._closed = False

    def interpreting(self) -> Template:
        """The one that candidates run in."""
        return self._get("interpret")

    def compiling(self) -> Template:
        """The one that compiles."""
        return self._get("compile")

    def _get(self, way: str) -> Template:
        with self._lock:
            if self._closed:
                raise InfrastructureError("the judge is closed")
            template = self._known.get(way)
            if template is None or not template.is_alive:
                template = self._known[way] = Template(way, self._scratch)
            return template

    def kill(self, process: int) -> None:
        """Kill a worker that no longer answers."""
        template = self._known.get("interpret")
        if template is not None:
            template.kill(process)

    def close(self) -> None:
        """End both."""
        with self._lock:
            self._closed = True
            for template in self._known.values():
                template.close()


class _Counter:
    """Counts finished futures for a progress callback."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._done = 0
        self._total = total
        self._progress = progress
        self._lock = threading.Lock()

    def __call__(self, _: object) -> None:
        with self._lock:
            self._done += 1
            self._progress(self._done, self._total)


def _fault(category: str, message: str) -> Verdict:
    return Verdict(status=Status.INFRASTRUCTURE_ERROR, error_category=category, error_message=message)


def _check(config: JudgeConfig) -> None:
    for target in config.targets:
        backend, _, architecture = target.partition(":")
        if backend not in ("cuda", "hip") or not architecture or (backend == "cuda" and not architecture.isdigit()):
            raise InputError(f"judge.targets: expected `cuda:90` or `hip:gfx942`, found {target!r}")


def _check_sandbox(config: JudgeConfig, sandbox: list[str]) -> None:
    missing = [name for name in ("seccomp", "netns") if name not in sandbox]
    if config.require_sandbox and missing:
        raise InfrastructureError(f"judge.require_sandbox: this machine lacks {', '.join(missing)}")
