"""Routes of the service. Every possible reply is declared, as in the judge's server, whose gate this is too."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from extras.generation.config import ServiceConfig
from extras.generation.generate import hardware_of
from extras.generation.service.jobs import Job
from extras.generation.service.metrics import exposition
from extras.generation.service.runner import Runner
from extras.generation.service.schemas import JobEvent, Jobs, JobState, JobView, KernelRequest, ServiceHealth
from extras.generation.writers import Writer
from kernels_eval.errors import InputError
from kernels_eval.judge import Judge
from kernels_eval.problem import Problem, check_problem_source
from kernels_eval.server.application import LINES, open_application
from kernels_eval.server.gate import FOREIGN, REFUSALS, UNAUTHORISED, Gate, QueueFullError
from kernels_eval.server.metrics import CONTENT_TYPE
from kernels_eval.server.schemas import ErrorReply
from kernels_eval.verdict import JUDGE_VERSION

_RETRY_AFTER_S = 10
_UNKNOWN: dict[int | str, dict[str, Any]] = UNAUTHORISED | {
    404: {"model": ErrorReply, "description": "There is no such job."},
    422: REFUSALS[422],
}
_NO_KERNEL: dict[int | str, dict[str, Any]] = _UNKNOWN | {
    200: {"content": {"text/x-python": {"schema": {"type": "string"}}}},
    409: {"model": ErrorReply, "description": "The job has no result, or none yet."},
}
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="A request that is sent again with the same key gets the job of the first.",
    ),
]


def create_app(
    runner: Runner,
    judge: Judge,
    writer: Writer,
    config: ServiceConfig,
    token: str | None,
    close: Callable[[], Awaitable[None]],
) -> Gate:
    """Return the ASGI application. `close` is awaited after the last request."""
    replies: Counter[int] = Counter()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        runner.start()
        try:
            yield
        finally:
            await runner.stop()
            await close()

    app = open_application(
        "kernelmill kernels",
        "PyTorch module in, verified kernel out.",
        lifespan,
        has_token=token is not None,
        streaming=("/v1/kernels/{name}/events", "get"),
    )
    _Routes(runner, config).add_to(app)
    _add_state(app, runner, judge, writer, config, replies)
    return Gate(
        app, token=token, max_body_bytes=config.max_body_bytes, body_timeout_s=config.body_timeout_s, replies=replies
    )


class _Routes:
    """Handlers of `/v1/kernels`."""

    def __init__(self, runner: Runner, config: ServiceConfig) -> None:
        self._runner = runner
        self._config = config

    def add_to(self, app: FastAPI) -> None:
        """Declare the routes."""
        accepted: dict[int | str, dict[str, Any]] = REFUSALS | {
            202: {"model": JobView, "description": "The job was stored and waits."},
            200: {"model": JobView, "description": "The job of this key, or a result from the cache."},
        }

        @app.post("/v1/kernels", response_model=JobView, responses=accepted, tags=["kernels"])
        async def submit(body: KernelRequest, response: Response, idempotency_key: Key = None) -> JobView:
            """Ask for a kernel. The job outlives this connection, and a restart of the service."""
            return await self._submit(body, response, idempotency_key)

        @app.get("/v1/kernels", responses=UNAUTHORISED | {422: REFUSALS[422]}, tags=["kernels"])
        async def jobs(limit: Annotated[int, Query(ge=1, le=1000)] = 50) -> Jobs:
            """List jobs, the newest first."""
            return Jobs(jobs=[view(job, with_result=False) for job in self._runner.store.newest(limit)])

        @app.get("/v1/kernels/{name}", responses=_UNKNOWN, tags=["kernels"])
        async def job(name: str) -> JobView:
            """Return a job with its result."""
            return view(self._job(name))

        @app.get("/v1/kernels/{name}/events", response_model=JobEvent, responses=_UNKNOWN, tags=["kernels"])
        async def events(name: str, after: Annotated[int, Query(ge=0, lt=2**31)] = 0) -> Response:
            """Stream the progress of a job until it has ended: one JSON object a line, those after `after`."""
            self._job(name)
            return StreamingResponse(self._lines(name, after), media_type=LINES)

        @app.get("/v1/kernels/{name}/kernel.py", response_class=Response, responses=_NO_KERNEL, tags=["kernels"])
        async def source(name: str) -> Response:
            """Return the file that defines `ModelNew`."""
            found = self._job(name)
            if found.result is None:
                raise HTTPException(409, f"the job is {found.state.value}: it has no result")
            return Response(found.result.source.encode("utf-8", "backslashreplace"), media_type="text/x-python")

        @app.delete("/v1/kernels/{name}", responses=_UNKNOWN, tags=["kernels"])
        async def cancel(name: str) -> JobView:
            """Cancel a job; one that has ended stays as it is."""
            self._job(name)
            return view(self._runner.cancel(name))

    async def _submit(self, body: KernelRequest, response: Response, key: str | None) -> JobView:
        limit = self._config.max_problem_bytes
        if len(body.problem_source.encode("utf-8", "surrogatepass")) > limit:
            raise HTTPException(413, f"problem_source: expected at most {limit} bytes")
        digest = await asyncio.to_thread(_checked_digest, body)
        if self._runner.is_stopping:
            raise HTTPException(503, "the service is stopping")
        is_known = self._runner.store.with_key(key) is not None
        if not is_known and self._runner.open_jobs >= self._config.queue_limit:
            raise QueueFullError(f"the queue holds {self._config.queue_limit} jobs", _RETRY_AFTER_S)
        job, is_new = self._runner.submit(body, digest, key)
        if not is_new and job.request != body:
            raise _misfit(("header", "Idempotency-Key"), "this key belongs to another request")
        response.status_code = 202 if is_new and not job.state.is_final else 200
        response.headers["Location"] = f"/v1/kernels/{job.id}"
        return view(job)

    def _job(self, name: str) -> Job:
        try:
            return self._runner.store.job(name)
        except KeyError:
            raise HTTPException(404, "there is no such job") from None

    async def _lines(self, name: str, after: int) -> AsyncIterator[bytes]:
        async for event in self._runner.events(name, after):
            yield event.model_dump_json(exclude_none=True).encode("utf-8", "backslashreplace") + b"\n"


def _add_state(
    app: FastAPI, runner: Runner, judge: Judge, writer: Writer, config: ServiceConfig, replies: Counter[int]
) -> None:
    started = time.monotonic()

    @app.get(
        "/health",
        responses=FOREIGN | {503: {"model": ServiceHealth, "description": "No worker is in service."}},
        tags=["state"],
    )
    async def health(response: Response) -> ServiceHealth:  # pyright: ignore[reportUnusedFunction]
        """Report whether jobs are worked on. Needs no token."""
        in_service = min(judge.statuses.in_service, judge.config.workers)
        quarantined = len(judge.statuses.fault_statistics().quarantined)
        status = (
            "stopping" if runner.is_stopping
            else "unavailable" if in_service == 0
            else "degraded" if quarantined
            else "ok"
        )  # fmt: skip
        response.status_code = 503 if status in ("unavailable", "stopping") else 200
        return ServiceHealth(
            status=status,
            judge_version=JUDGE_VERSION,
            policy=writer.name,
            policy_digest=writer.digest,
            hardware=hardware_of(judge.config),
            queued=runner.store.count(JobState.QUEUED),
            running=runner.store.count(JobState.RUNNING),
            queue_limit=config.queue_limit,
            uptime_s=round(time.monotonic() - started, 3),
        )

    metrics_reply = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @app.get("/metrics", response_class=Response, responses=UNAUTHORISED | metrics_reply, tags=["state"])
    async def metrics() -> Response:  # pyright: ignore[reportUnusedFunction]
        """Return figures as Prometheus text."""
        return Response(exposition(runner, judge, replies, config.queue_limit), media_type=CONTENT_TYPE)


def view(job: Job, with_result: bool = True) -> JobView:
    """Return a job as clients see it."""
    return JobView(
        id=job.id,
        state=job.state,
        name=job.request.name,
        problem_digest=job.problem_digest,
        budget=job.request.budget,
        judged=job.judged,
        best_speedup=job.best_speedup,
        cached=job.cached,
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        error=job.error,
        result=job.result if with_result else None,
    )


def _checked_digest(body: KernelRequest) -> str:
    """Return the problem's digest, off the event loop since it is parsed. Raises RequestValidationError."""
    try:
        check_problem_source(body.problem_source, body.name)
    except InputError as error:
        raise _misfit(("body", "problem_source"), str(error)) from error
    return Problem(problem_id=body.name, source=body.problem_source).digest


def _misfit(place: tuple[str, ...], message: str) -> RequestValidationError:
    return RequestValidationError([{"loc": place, "msg": message, "type": "value_error"}])
