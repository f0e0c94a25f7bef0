"""Routes. Every possible reply is declared: a client, or a fuzzer, can be written from the OpenAPI page."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from kernels_eval.config import ServerConfig
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.judge import Judge
from kernels_eval.pool.worker_status import FaultStatistics
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM, Problem
from kernels_eval.server.application import LINES, open_application
from kernels_eval.server.gate import FOREIGN, REFUSALS, UNAUTHORISED, Admission, Gate
from kernels_eval.server.metrics import CONTENT_TYPE, exposition
from kernels_eval.server.schemas import (
    AnyEvalRequest,
    BatchLine,
    BatchRequest,
    EvalRequest,
    Health,
    KernelBenchRequest,
    KernelBenchVerdict,
    Workers,
    in_kernelbench_names,
)
from kernels_eval.verdict import JUDGE_VERSION, Verdict

Item = Annotated[AnyEvalRequest, Body(description="One kernel, in our names or in KernelBench's.")]


class _VerdictLines(StreamingResponse):
    """Streams verdicts as they are ready. Calls `release` at the end, even if the client disconnects."""

    media_type = LINES

    def __init__(self, lines: AsyncIterator[bytes], release: Callable[[], None]) -> None:
        super().__init__(lines)
        self._release = release

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()


def create_app(judge: Judge, config: ServerConfig | None = None, token: str | None = None) -> Gate:
    """Return the ASGI application of a judge. The caller closes the judge."""
    config = config or ServerConfig()
    replies: Counter[int] = Counter()
    server = _Server(judge, config, replies)
    app = open_application(
        "kernelmill judge",
        "Judges GPU kernels: correctness against a reference, defences against cheating, speed.",
        server.lifespan,
        has_token=token is not None,
        streaming=("/eval/batch", "post"),
    )
    server.add_routes(app)
    return Gate(
        app,
        token=token,
        max_body_bytes=config.max_body_bytes,
        body_timeout_s=config.body_timeout_s,
        replies=replies,
    )


class _Server:
    """State and handlers of all routes."""

    def __init__(self, judge: Judge, config: ServerConfig, replies: Counter[int]) -> None:
        self._judge = judge
        self._config = config
        self._replies = replies
        self._admission = Admission(judge, config.queue_limit)
        self._started = time.monotonic()
        self._warm = False

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncGenerator[None]:
        """Warm up the judge in the background: torch and triton are imported before the first client waits for them."""
        warming = asyncio.ensure_future(self._warm_up())
        try:
            yield
        finally:
            warming.cancel()

    async def _warm_up(self) -> None:
        try:
            await self._judge.evaluate_async(EXAMPLE_PROBLEM, EXAMPLE_KERNEL)
        except InfrastructureError:  # closed before it was warm
            return
        self._warm = True

    def add_routes(self, app: FastAPI) -> None:
        """Declare the routes."""

        @app.post("/eval", response_model=Verdict | KernelBenchVerdict, responses=REFUSALS, tags=["judge"])
        async def evaluate(request: Request, body: Item) -> Response:
            """Judge one kernel. A fault of the machine is a verdict `infrastructure_error` (KernelBench: 503)."""
            return await self._evaluate(request, body)

        @app.post(
            "/eval/batch",
            response_model=BatchLine,
            responses=REFUSALS,
            tags=["judge"],
        )
        async def evaluate_batch(batch: BatchRequest) -> Response:
            """Judge many kernels: one JSON object a line, each as soon as its verdict is ready, in any order."""
            return await self._evaluate_batch(batch.items)

        @app.get(
            "/health",
            responses=FOREIGN | {503: {"model": Health, "description": "No worker is in service."}},
            tags=["state"],
        )
        async def health(response: Response) -> Health:
            """Report whether kernels can be judged. Needs no token."""
            found = self.health()
            response.status_code = 503 if found.status in ("unavailable", "stopping") else 200
            return found

        @app.get("/workers", responses=UNAUTHORISED, tags=["state"])
        async def workers() -> Workers:
            """List the workers and their states."""
            return Workers(workers=self._judge.statuses.workers())

        @app.get("/fault_statistics", responses=UNAUTHORISED, tags=["state"])
        async def fault_statistics() -> FaultStatistics:
            """Report how often the machine failed, where, and which workers are in quarantine."""
            return self._judge.statuses.fault_statistics()

        metrics_reply = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

        @app.get("/metrics", response_class=Response, responses=UNAUTHORISED | metrics_reply, tags=["state"])
        async def metrics() -> Response:
            """Return the same figures as Prometheus text."""
            text = exposition(self._judge, self._replies, self._admission.taken, self._config.queue_limit)
            return Response(text, media_type=CONTENT_TYPE)

    def health(self) -> Health:
        """Return a summary of the state."""
        judge = self._judge
        quarantined = len(judge.statuses.fault_statistics().quarantined)
        in_service = min(judge.statuses.in_service, judge.config.workers)
        status = (
            "stopping" if judge.is_closed
            else "unavailable" if in_service == 0
            else "degraded" if quarantined
            else "ok" if self._warm
            else "starting"
        )  # fmt: skip
        return Health(
            status=status,
            judge_version=JUDGE_VERSION,
            workers=judge.config.workers,
            in_service=in_service,
            running=judge.running,
            waiting=judge.waiting,
            queue_limit=self._config.queue_limit,
            uptime_s=round(time.monotonic() - self._started, 3),
        )

    async def _evaluate(self, request: Request, body: EvalRequest | KernelBenchRequest) -> Response:
        own = body.as_own()
        self._check_sizes(own)
        with self._admission.places(1):
            (future,) = await self._submit([own], lambda _: ())
            verdict = await _unless_disconnected(request, future)
        if isinstance(body, KernelBenchRequest):
            if verdict.is_fault:  # a reward made of `compiled` and `correctness` would punish the kernel for it
                raise HTTPException(503, f"the machine failed: {verdict.error_message}", {"Retry-After": "1"})
            verdict = in_kernelbench_names(verdict)
        return Response(verdict.model_dump_json(), media_type="application/json")

    async def _evaluate_batch(self, items: Sequence[EvalRequest | KernelBenchRequest]) -> Response:
        own = [item.as_own() for item in items]
        for item in own:
            self._check_sizes(item)
        if len(own) > self._config.queue_limit:
            raise HTTPException(
                413, f"items: the queue has {self._config.queue_limit} places, for any number of batches"
            )
        with ExitStack() as held:
            held.enter_context(self._admission.places(len(own)))
            futures = await self._submit(own, lambda index: ("items", index))
            for future in futures:
                held.callback(future.cancel)
            release = held.pop_all().close  # the verdicts come in after this function has returned
        lines = self._lines([isinstance(item, KernelBenchRequest) for item in items], futures)
        return _VerdictLines(lines, release)

    async def _lines(self, foreign: Sequence[bool], futures: "Sequence[Future[Verdict]]") -> AsyncIterator[bytes]:
        async for index, verdict in _as_they_finish(futures):
            reply = in_kernelbench_names(verdict) if foreign[index] else verdict
            yield b'{"index":%d,"verdict":%s}\n' % (index, reply.model_dump_json().encode())

    async def _submit(
        self, items: Sequence[EvalRequest], place: Callable[[int], tuple[str | int, ...]]
    ) -> "list[Future[Verdict]]":
        """Queue kernels, off the event loop since problems are parsed. Raises RequestValidationError."""

        def submit_all() -> "list[Future[Verdict]]":
            for index, item in enumerate(items):  # all of them before any is queued
                try:
                    problem = Problem(problem_id="problem", source=item.problem_source)
                    self._judge.check(problem, item.backend, item.settings.given())
                except InputError as error:
                    misfit = {"loc": ("body", *place(index)), "msg": str(error), "type": "value_error"}
                    raise RequestValidationError([misfit]) from error
            return [
                self._judge.submit(item.problem_source, item.kernel_source, item.backend, item.settings.given())
                for item in items
            ]

        return await asyncio.to_thread(submit_all)

    def _check_sizes(self, item: EvalRequest) -> None:
        for name, source, limit in (
            ("problem_source", item.problem_source, self._config.max_problem_bytes),
            ("kernel_source", item.kernel_source, self._config.max_kernel_bytes),
        ):
            if len(source) > limit or len(source.encode("utf-8", "surrogatepass")) > limit:
                raise HTTPException(413, f"{name}: expected at most {limit} bytes")


async def _unless_disconnected(request: Request, future: "Future[Verdict]") -> Verdict:
    """Wait for a verdict until the client disconnects: a kernel that no client waits for is not judged."""
    verdict = asyncio.wrap_future(future)
    disconnect = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({verdict, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not verdict.done():
            raise HTTPException(499, "the client has gone")
        return verdict.result()
    finally:
        verdict.cancel()
        disconnect.cancel()


async def _as_they_finish(futures: "Sequence[Future[Verdict]]") -> AsyncIterator[tuple[int, Verdict]]:
    """Yield (index, verdict) as verdicts are ready."""
    waiting = {asyncio.wrap_future(future): index for index, future in enumerate(futures)}
    while waiting:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            yield waiting.pop(future), future.result()
