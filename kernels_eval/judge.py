"""Judge: takes problems and kernels, returns verdicts. The entry point for most users; runs in the caller's process.

One thread for each worker takes jobs from the queue and sends them to its worker process (`pool.worker_client`). A
worker on which the machine failed gets no jobs until a probe, a kernel that is known to be right, has passed on it.
kernels_eval/README.md draws all processes.
"""

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

from kernels_eval.backends import backend_for, backend_named, variables_for
from kernels_eval.cells import joined
from kernels_eval.compile.one_shot import Builder, CompileCache
from kernels_eval.config import AUTO, BACKEND, JudgeConfig, with_settings
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.gpu.device.detection import check_device_memory, gpu_name, resolve_device
from kernels_eval.pool.builds_ahead import BuildsAhead, spare_processors
from kernels_eval.pool.job_queue import Dispatcher, Job
from kernels_eval.pool.probe import PROBE_KERNEL, PROBE_PROBLEM, PROBE_SETTINGS, next_wait_s
from kernels_eval.pool.scratch import Scratch
from kernels_eval.pool.verdict_cache import VerdictCache, verdict_key
from kernels_eval.pool.worker_client import ProblemEndedWorkerError, WorkerBugError, WorkerClient
from kernels_eval.pool.worker_status import WorkerStatuses
from kernels_eval.pool.zygote import Zygotes
from kernels_eval.problem import Problem, check_problem_source, without_mark
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.inductor_names import provided_names
from kernels_eval.streaming import CountedProgress, Item, Progress, stream_verdicts
from kernels_eval.verdict import Status, Verdict, fault
from kernels_eval.workloads import workloads_of

_YOUNG_S = 0.5
"""Time after which a running kernel gives up its slot: a worker in reserve takes the next one."""
_ATTEMPTS = 4
"""Attempts at a kernel on which the machine fails."""
_BLAMED_AFTER = 2
"""Attempts after which it is the kernel's fault, if a probe kernel passes then: on a GPU, or by a bug of the judge."""
_PROBES = 5
"""Failed probes in a row after which waiting kernels are ended as faults, if no worker is in service."""
REQUIRED_SANDBOX = ("seccomp", "landlock", "netns")
"""Parts of the sandbox that `require_sandbox` needs, by the names in verdicts."""


class Judge:
    """Evaluates kernels on this machine. A context manager; safe for threads and for many concurrent asyncio calls."""

    def __init__(self, config: JudgeConfig | None = None) -> None:
        """Start no process unless `require_sandbox` is set. Raises InputError for what this machine cannot do."""
        config = config or JudgeConfig()
        variables = variables_for(config.backend)
        self.config = config.model_copy(update={"device": resolve_device(config.device)})
        if self.config.device == "cuda":
            check_device_memory(config.device_memory_gb)
        self._cache = VerdictCache(Path(config.cache_dir) if config.cache_dir else None, config.cache_mb)
        self._compile_cache = CompileCache()
        self._scratch_folder = Scratch(keep_caches=self.config.device == "cuda")
        self._scratch = self._scratch_folder.path
        self._zygotes = Zygotes(self._scratch, variables)
        on_gpu = self.config.device == "cuda"  # elsewhere a worker builds and does nothing else
        at_once = spare_processors(self.config.workers) if on_gpu else 0
        self._builds = BuildsAhead(self._new_builder, at_once, lambda: self._new_builder("ahead"))
        if self.config.require_sandbox:
            self._refuse_without_sandbox()
        threads = self.config.workers + _reserves(self.config)
        self._dispatcher = Dispatcher(self.config.workers, _YOUNG_S)
        self.statuses = WorkerStatuses([self.config.device] * threads, regular=self.config.workers)
        """States of the workers, and faults so far."""
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._serve, args=[index], name=f"judge-{index}", daemon=True)
            for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Judge":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    @property
    def waiting(self) -> int:
        """Kernels that no worker has taken yet."""
        return self._dispatcher.waiting

    @property
    def running(self) -> int:
        """Kernels that are being judged."""
        return self._dispatcher.running

    @property
    def cached(self) -> int:
        """Verdicts that are kept in memory."""
        return len(self._cache)

    def evaluate(self, problem: Problem | str, kernel_source: str, backend: str | None = None) -> Verdict:
        """Return the verdict on one kernel. Raises InputError if it is not a problem, or for an unknown back end."""
        return self.submit(problem, kernel_source, backend).result()

    async def evaluate_async(
        self,
        problem: Problem | str,
        kernel_source: str,
        backend: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Verdict:
        """Return the verdict on one kernel without blocking the event loop. Cancelling drops a waiting kernel."""
        return await asyncio.wrap_future(self.submit(problem, kernel_source, backend, settings))

    def evaluate_many(self, items: Sequence[Item], progress: Progress | None = None) -> list[Verdict]:
        """Return verdicts in the order of the items. Calls `progress(done, total)` after each verdict."""
        futures = [self.submit(item[0], item[1], item[2] if len(item) == 3 else None) for item in items]
        if progress is not None:
            done = CountedProgress(len(futures), progress)
            for future in futures:
                future.add_done_callback(done)
        return [future.result() for future in futures]

    def stream(self, items: Iterable[Item] | AsyncIterable[Item]) -> AsyncIterator[tuple[int, Verdict]]:
        """Yield (index of the item, verdict) as soon as verdicts are ready.

        An item is (problem, kernel source), or with a back end as its third. Items are taken as workers become free.
        """
        return stream_verdicts(self.evaluate_async, items, at_once=4 * self.config.workers)

    def check(
        self,
        problem: Problem,
        backend: str | None = None,
        settings: Mapping[str, Any] | None = None,
        source: str | None = None,
    ) -> JudgeConfig:
        """Return the configuration for a kernel; with its `source` a back end `auto` becomes its own.

        Raises InputError for a bad problem, settings that do not fit, or a back end that this machine cannot judge.
        """
        check_problem_source(problem.source, problem.problem_id)
        config = with_settings(self.config, backend, settings or {})
        if config.backend == AUTO and source is not None:
            config = config.model_copy(update={"backend": backend_for(source, config.device, config.targets)})
        if config.backend != self.config.backend and not BACKEND.is_ours(config.backend):
            raise InputError(f"backend: found {config.backend}, expected it in the judge's own configuration")
        judges = None if config.backend == AUTO else backend_named(config.backend)
        if judges and (reason := judges.unavailable(config.device, config.targets)):
            raise InputError(f"backend {config.backend}: {reason}")
        return config

    def submit(
        self,
        problem: Problem | str,
        kernel_source: str,
        backend: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> "Future[Verdict]":
        """Queue one kernel. `settings`: fields of JudgeConfig for it alone (kernels_eval.config.CHANGEABLE).

        At each workload, if the problem lists several (kernels_eval.workloads); their verdicts become one.
        """
        if isinstance(problem, str):
            problem = Problem(problem_id="problem", source=problem)
        kernel_source = without_mark(kernel_source)
        config = self.check(problem, backend, settings, kernel_source)
        workloads = workloads_of(problem.source, problem.problem_id)
        if not workloads:
            return self._submit(problem, kernel_source, config)
        cells = [problem.model_copy(update={"source": workload.source}) for workload in workloads]
        return joined(workloads, [self._submit(cell, kernel_source, config) for cell in cells])

    def _submit(self, problem: Problem, kernel_source: str, config: JudgeConfig) -> "Future[Verdict]":
        hardware = (gpu_name() or "") if config.device == "cuda" else ""
        key = verdict_key(problem, kernel_source, config, hardware)
        known = self._cache.get(key)
        if known is not None:
            future: Future[Verdict] = Future()
            future.set_result(known)
            return future
        job = Job(key, problem, kernel_source, config)
        verdict = self._dispatcher.submit(job)
        self._builds.begin(job, verdict)
        if self.running + self.waiting > self.config.workers:  # else a worker takes it at once
            self._builds.begin_warming(job, verdict)
        return verdict

    @property
    def is_closed(self) -> bool:
        """True once `drain` or `close` was called."""
        return self._dispatcher.is_closed

    def drain(self) -> None:
        """Refuse new kernels and end waiting ones as faults; running ones go on until `close`."""
        self._dispatcher.close(lambda _: fault(ErrorCategory.JUDGE_CLOSED, "the judge was closed"))

    def close(self) -> None:
        """Stop: waiting and running evaluations end as faults; all processes have ended when this returns."""
        if self._closing.is_set():
            return
        self._closing.set()
        self.drain()
        self._builds.close()
        self._zygotes.close()
        for thread in self._threads:
            thread.join(timeout=10)
        self._scratch_folder.close()

    def new_client(self) -> WorkerClient:
        """Return a worker of its own, outside the queue. The caller closes it."""
        return WorkerClient(self._zygotes, self._compile_cache, self._new_builder, self.config, self._builds)

    def _new_builder(self, role: str = "build") -> Builder:
        folder = self._scratch / "builds"
        return Builder(lambda: ForkServer(self._zygotes.fork(role)[1]), self._compile_cache, folder)

    def _refuse_without_sandbox(self) -> None:
        client = self.new_client()
        try:
            sandbox = client.start_worker()
            wanted = REQUIRED_SANDBOX if self.config.device == "cpu" else (*REQUIRED_SANDBOX, "unprivileged")
            missing = [name for name in wanted if name not in sandbox]
            if missing:
                raise InputError(
                    f"judge.require_sandbox: this machine lacks {', '.join(missing)}; it has {', '.join(sandbox)}"
                )
        except BaseException:
            self._zygotes.close()
            self._scratch_folder.close()
            raise
        finally:
            client.close()

    def _serve(self, worker: int) -> None:
        """Serve the queue with one worker. Runs in a thread for each."""
        client = self.new_client()
        try:
            while (job := self._dispatcher.take(worker)) is not None:
                self._serve_one(worker, client, job)
        finally:
            client.close()
            self.statuses.stopped(worker)

    def _serve_one(self, worker: int, client: "WorkerClient", job: Job) -> None:
        """Finish a job with a verdict; or, if the machine failed, put the job back and probe the worker."""
        self.statuses.begins(worker)
        is_fresh = not client.drop_dead_worker()
        verdict = (
            self._try(client, job)
            if is_fresh
            else _MachineFault(ErrorCategory.JUDGE_FAULT, "a judge worker died while idle")
        )
        if not isinstance(verdict, _MachineFault):
            self._cache.put(job.key, verdict)
            self.statuses.judged(worker, verdict, client.seconds)
            self._dispatcher.finish(job, verdict)
            self._scratch_folder.trim()
            return
        self.statuses.failed(worker, *verdict)
        job.faults += is_fresh  # after a zygote died every worker is found dead once: that is no attempt at this kernel
        job.bugs += verdict.category == ErrorCategory.JUDGE_BUG
        blamed_for = job.faults if self.config.device == "cuda" else job.bugs
        if blamed_for >= _BLAMED_AFTER and not self._closing.is_set():
            self._probe(worker, client)
            self._dispatcher.finish(job, fault(*verdict) if self._closing.is_set() else _blamed(verdict))
            return
        if job.faults >= _ATTEMPTS or self._closing.is_set():
            self._dispatcher.finish(job, fault(*verdict))
        else:
            self._dispatcher.put_back(job, lambda _: fault(*verdict))
        if verdict.category == ErrorCategory.REFERENCE_FAILED:  # the machine did nothing wrong: no probe is needed
            self.statuses.returned(worker)
        else:
            self._probe(worker, client)

    def _try(self, client: "WorkerClient", job: Job) -> "Verdict | _MachineFault":
        """Judge; turns any exception into a fault of the machine, which says nothing of the kernel."""
        try:
            verdict = client.judge(job).verdict
            provided = provided_names(job.kernel_source, self.config.device == "cuda")
            return verdict.model_copy(update={"provided": provided}) if provided else verdict
        except ProblemEndedWorkerError as error:
            found = _MachineFault(ErrorCategory.REFERENCE_FAILED, str(error))
        except WorkerBugError as error:
            found = _MachineFault(ErrorCategory.JUDGE_BUG, str(error))
        except InfrastructureError as error:
            found = _MachineFault(ErrorCategory.JUDGE_FAULT, str(error))
        except Exception as error:  # noqa: BLE001 (the one boundary: a bug must not lose a verdict or end the thread)
            found = _MachineFault(ErrorCategory.JUDGE_BUG, f"{type(error).__name__}: {error}")
        client.reset()
        return found

    def _probe(self, worker: int, client: "WorkerClient") -> None:
        """Keep a worker out of service until a kernel that is known to be right gets the verdict `correct` on it."""
        probe = Job("probe", PROBE_PROBLEM, PROBE_KERNEL, self.config.model_copy(update=PROBE_SETTINGS))
        wait_s, probes = 0.0, 0
        while not self._closing.wait(wait_s):
            found = self._try(client, probe)
            if isinstance(found, Verdict):
                if found.correct:
                    self.statuses.returned(worker)
                    return
                client.reset()
                found = _MachineFault(ErrorCategory.PROBE_FAILED, f"{found.status}: {found.error_message}")
            self.statuses.failed(worker, *found)
            probes += 1
            if probes >= _PROBES and self.statuses.in_service == 0:
                verdict = fault(found.category, f"no worker is in service: {found.message}")
                self._dispatcher.fail_waiting(lambda _, verdict=verdict: verdict)
            wait_s = next_wait_s(wait_s)


class _MachineFault(NamedTuple):
    category: str
    message: str


def _blamed(found: _MachineFault) -> Verdict:
    """Return the verdict on a kernel on which the machine failed again and again, and on a probe kernel did not.

    Else a kernel could choose to have no verdict: on a GPU, which it shares with the judge, or by a bug of ours.
    """
    message = f"the machine failed on this kernel {_BLAMED_AFTER} times, and not on a probe: {found.message}"
    return Verdict(status=Status.RUNTIME_ERROR, error_category=ErrorCategory.MACHINE_FAULT, error_message=message)


def _reserves(config: JudgeConfig) -> int:
    """Return the number of workers in reserve: none on a GPU, where kernels are timed one at a time."""
    return 0 if config.device == "cuda" else max(2, config.workers)
