"""Runner: works on the stored jobs, some at a time, in the service's event loop.

A fault of the machine (no judge, no model) puts the job back, with a growing pause; its attempts so far count. It fails
only after several faults without a judged answer between them. A job that the process leaves unfinished is taken up
again when the service starts.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from extras.generation.config import SearchConfig, ServiceConfig
from extras.generation.result import GeneratedKernel
from extras.generation.search import Attempt
from extras.generation.service.jobs import Job, JobStore
from extras.generation.service.schemas import JobEvent, JobState, KernelRequest
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.problem import Problem

logger = logging.getLogger("kernelmill.generation")
_LONGEST_WAIT_S = 60.0
_LOOK_S = 1.0
"""Interval at which jobs whose pause is over are looked for."""

Generate = Callable[[Problem, SearchConfig, Callable[[Attempt], None], Sequence[Attempt]], Awaitable[GeneratedKernel]]


class Runner:
    """The jobs under way. For one event loop."""

    def __init__(self, store: JobStore, generate: Generate, config: ServiceConfig, identity: str) -> None:
        """`identity`: of model and GPU, for the cache of results."""
        self.store = store
        self.counts: Counter[tuple[str, str]] = Counter()
        """Since the start, by metric and label."""
        self.job_seconds = 0.0
        self._generate, self._config, self._identity = generate, config, identity
        self._changed = asyncio.Event()
        """Set, and replaced, at every change of any job."""
        self._under_way: dict[str, asyncio.Task[GeneratedKernel]] = {}
        self._workers: list[asyncio.Task[None]] = []
        self.is_stopping = False

    def start(self) -> None:
        """Take up unfinished jobs, and begin to work."""
        self.counts["resumed", ""] += self.store.requeue_interrupted()
        self._workers = [asyncio.ensure_future(self._work()) for _ in range(self._config.jobs_at_once)]

    async def stop(self) -> None:
        """Leave the jobs under way as they are: the next start takes them up."""
        self.announce_stop()
        for task in self._workers:
            task.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    def announce_stop(self) -> None:
        """Begin no further job, and end the streams."""
        self.is_stopping = True
        self._tell()

    @property
    def open_jobs(self) -> int:
        """Jobs waiting or under way."""
        return self.store.count(JobState.QUEUED) + self.store.count(JobState.RUNNING)

    def submit(self, request: KernelRequest, problem_digest: str, idempotency_key: str | None) -> tuple[Job, bool]:
        """Store a job, or return the one with this key; a result from the cache ends it at once."""
        cache_key = f"{problem_digest}/{self._identity}"
        job, is_new = self.store.add(request, problem_digest, cache_key, idempotency_key)
        if is_new:
            self.counts["submitted", ""] += 1
            self._finish_from_cache(job)
            self._tell()
        return self.store.job(job.id), is_new

    def cancel(self, name: str) -> Job:
        """End a job; one that has ended stays as it is. Raises KeyError if there is none."""
        job = self.store.job(name)
        if not job.state.is_final:
            self.store.cancel(name)
            self._count_end(self.store.job(name))
            task = self._under_way.get(name)
            if task is not None:
                task.cancel()
            self._tell()
        return self.store.job(name)

    async def events(self, name: str, after: int) -> AsyncIterator[JobEvent]:
        """Yield the events of a job as they come, until it has ended or the service stops."""
        while True:
            changed = self._changed
            ended = self.store.job(name).state.is_final  # before the events are read: none comes after
            for event in self.store.events(name, after):
                after = event.number
                yield event
            if ended or self.is_stopping:
                return
            await changed.wait()

    async def _work(self) -> None:
        while not self.is_stopping:
            changed = self._changed
            job = self.store.take()
            if job is not None:
                self._tell()
                await self._run(job)
                continue
            try:
                async with asyncio.timeout(_LOOK_S):
                    await changed.wait()
            except TimeoutError:
                continue

    async def _run(self, job: Job) -> None:
        """Work on one job until it has ended, failed for now, or was cancelled."""
        if self._finish_from_cache(job):
            self._tell()
            return
        problem = Problem(problem_id=job.request.name, source=job.request.problem_source)
        search = SearchConfig(**{name: getattr(job.request, name) for name in SearchConfig.model_fields})
        working = self._generate(
            problem, search, lambda attempt: self._note(job.id, attempt), self.store.attempts(job.id)
        )
        task = asyncio.ensure_future(working)
        self._under_way[job.id] = task
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            del self._under_way[job.id]
        await asyncio.wait({task})
        if self.store.job(job.id).state is JobState.RUNNING and not task.cancelled():  # else cancelled by its client
            self._end(job.id, task)
            self._tell()

    def _end(self, name: str, task: "asyncio.Task[GeneratedKernel]") -> None:
        error = task.exception()
        if error is None:
            self.store.finish(name, task.result())
        elif isinstance(error, InputError):
            self.store.fail(name, str(error))
        elif isinstance(error, InfrastructureError):
            self._put_back(name, str(error))
        else:
            logger.error("job %s: %s: %s", name, type(error).__name__, error, exc_info=error)
            self._put_back(name, f"{type(error).__name__}: {error}")
        self._count_end(self.store.job(name))

    def _put_back(self, name: str, message: str) -> None:
        failures = self.store.job(name).failures + 1
        if failures >= self._config.attempts:
            self.store.fail(name, f"the machine failed {failures} times: {message}")
            return
        self.counts["retried", ""] += 1
        wait_s = min(self._config.retry_s * 2 ** (failures - 1), _LONGEST_WAIT_S)
        self.store.retry(name, failures, time.time() + wait_s, message)

    def _finish_from_cache(self, job: Job) -> bool:
        known = self.store.cached(job.cache_key, job.request) if job.request.use_cache else None
        if known is None:
            return False
        self.counts["cached", ""] += 1
        self.store.finish(job.id, known, cached=True)
        self._count_end(self.store.job(job.id))
        return True

    def _note(self, name: str, attempt: Attempt) -> None:
        self.store.note_attempt(name, attempt)
        self.counts["answers", attempt.verdict.status.value] += 1
        self.counts["tokens", "prompt"] += attempt.prompt_tokens
        self.counts["tokens", "completion"] += attempt.completion_tokens
        self._tell()

    def _count_end(self, job: Job) -> None:
        if job.state.is_final and job.ended_at is not None:
            self.counts["ended", job.state.value] += 1
            self.job_seconds += job.ended_at - job.created_at

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
