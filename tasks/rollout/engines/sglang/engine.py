"""SGLang engine, in the rollout worker: talks to the servers over HTTP, one request per response.

A failed attempt is repeated on another server with the same seed after a growing pause; a request that fails everywhere
is a fault. A response is accepted only if the server says that it was sampled from the policy's weights. Before a
server is used, and after each change of weights, the canary compares it with the checkpoint.

Log-probabilities are those of T = 1, as the interface requires. Servers return them after the temperature: if that is
neither 1 nor 0 (which they treat as 1), the finished response is scored once more.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import httpx

from kernels_eval.errors import InfrastructureError
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig, SamplingConfig, SglangConfig
from tasks.rollout.engines import FinishReason, Generation, GenerationRequest
from tasks.rollout.engines.sglang.api import SglangApi
from tasks.rollout.engines.sglang.canary import CanaryResult
from tasks.rollout.engines.sglang.generation import FailureKind, SampledResponse, ServerError
from tasks.rollout.engines.sglang.pool import Member, Pool
from tasks.rollout.engines.sglang.served_policy import ServedPolicy
from tasks.rollout.engines.sglang.servers import start_on_ray
from tasks.rollout.engines.sglang.weights import WeightSync
from tasks.rollout.engines.team import TeamServer

_Opened = TypeVar("_Opened")

logger = logging.getLogger("kernelmill.rollout")

_LONGEST_BACKOFF_S = 30.0
_DRAIN_S = 10.0
_RETURN_INTERVAL_S = 1.0
_IDLE_CONNECTION_S = 2.0
"""The server closes idle connections after 5 s: one that is closing must not count as a dead server."""


class SglangEngine:
    """Servers with one policy. Call `serve` before `generate`, use one event loop, and `close` when done."""

    cohort_size = 1
    """Requests are batched by the servers, continuously."""

    def __init__(self, members: Sequence[Member], config: SglangConfig, weights: WeightSync | None = None) -> None:
        self._config = config
        self._pool = Pool(members, config.start_timeout_s)
        self._weights = weights or WeightSync(config)
        self._policy: ServedPolicy | None = None
        self._client: httpx.AsyncClient | None = None
        self._returning: dict[str, asyncio.Task[None]] = {}
        self.counts: Counter[str] = Counter()
        """attempts, failures, prompt_tokens, cached_tokens, generated_tokens: since the engine was opened."""

    @property
    def context_tokens(self) -> int:
        """Smallest context of all servers and the policy."""
        self._served()
        return self._weights.context_tokens

    @property
    def canary_results(self) -> dict[str, CanaryResult]:
        """Last result of the canary, by the server's address."""
        return dict(self._weights.results)

    @property
    def pushes(self) -> Counter[str]:
        """Pushes so far: from `disk`, as `tensors`, of an `adapter`."""
        return Counter(self._weights.pushes)

    async def serve(self, policy: CheckpointRef, tokenizer: Any) -> None:
        """Push the weights to every server, then compare each with the checkpoint on fixed prompts; pauses generation.

        A server that is down is skipped while others are up, and is used again once it is back. Raises
        InfrastructureError if none is left, or if one answers from other weights.
        """
        pool = self._pool
        # A refused server may pass with the new weights; one that its supervisor gave up is gone.
        members = [m for m in pool.members if m.is_up or (m.gave_up and m.supervisor is None)] or list(pool.members)
        for member in members:
            pool.hold(member)
        await self._drain()
        pool.clear_affinity()
        self._policy = await self._weights.prepare(policy, tokenizer)
        outcomes = await self._weights.sync(members, self._policy)
        for member, outcome in outcomes.items():
            pool.apply(member, outcome)
        for outcome in outcomes.values():
            if isinstance(outcome, InfrastructureError):
                raise outcome
        if not any(member.is_up for member in pool.members):
            raise InfrastructureError(f"no SGLang server is left: {pool.report()}")

    async def generate(
        self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
    ) -> AsyncIterator[tuple[int, Generation]]:
        """Yield responses as they end."""
        self._restore_servers_down()
        pending = {asyncio.ensure_future(self._answer(request, sampling)): i for i, request in enumerate(requests)}
        try:
            while pending:
                done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    index = pending.pop(task)
                    yield index, task.result()
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    async def close(self) -> None:
        """Close connections, and stop the servers that the pipeline started."""
        for task in self._returning.values():
            task.cancel()
        await asyncio.gather(*self._returning.values(), return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()
        own = [member.supervisor for member in self._pool.members if not member.is_borrowed]
        await asyncio.gather(*(supervisor.stop() for supervisor in own if supervisor is not None))
        self._weights.close()

    def beside(self) -> "SglangEngine":
        """Return an engine for another policy on the same servers, which holds none yet: where they take adapters."""
        return SglangEngine([member.borrowed() for member in self._pool.members], self._config)

    async def _answer(self, request: GenerationRequest, sampling: SamplingConfig) -> Generation:
        """Request one response, from another server after each failure."""
        started = time.perf_counter()
        failed_at: Member | None = None
        error: ServerError | None = None
        for attempt in range(self._config.attempts):
            if attempt:
                await asyncio.sleep(_backoff(self._config.backoff_s, attempt))
            member = await self._pool.member_for(request.routing_key, request.prompt_token_ids, avoid=failed_at)
            self.counts["attempts"] += 1
            member.load += 1
            try:
                async with member.slots:
                    sampled = await self._sample(member, request, sampling)
            except ServerError as failure:
                self.counts["failures"] += 1
                failed_at, error = member, failure
                logger.info("%s: attempt %d failed: %s", request.name, attempt + 1, failure)
                if failure.kind is FailureKind.REFUSED:
                    break
                self._pool.failed(member, failure)
                self._restore_servers_down()
                continue
            finally:
                member.load -= 1
            member.failures = 0
            self.counts["prompt_tokens"] += len(request.prompt_token_ids)
            self.counts["cached_tokens"] += sampled.cached_tokens
            self.counts["generated_tokens"] += len(sampled.token_ids)
            seconds = time.perf_counter() - started
            return Generation(sampled.token_ids, sampled.logprobs, sampled.finish_reason, seconds)
        return Generation((), (), FinishReason.FAULT, time.perf_counter() - started, error=str(error))

    async def _sample(self, member: Member, request: GenerationRequest, sampling: SamplingConfig) -> SampledResponse:
        policy, timeout_s = self._served(), self._config.request_timeout_s
        api = SglangApi(member.url, self._connections())
        asked = policy.request(request.prompt_token_ids, request.seed, sampling)
        try:
            sampled = await api.generate(asked, timeout_s)
            if sampling.temperature not in (0, 1):
                whole = (*request.prompt_token_ids, *sampled.token_ids)
                scored = policy.request(whole, request.seed, SamplingConfig(temperature=1, max_new_tokens=1))
                logprobs = await api.score(scored, len(request.prompt_token_ids), timeout_s)
                sampled = replace(sampled, logprobs=logprobs)
        except (asyncio.CancelledError, ServerError) as error:
            # After a failure, too, the server may still be generating for a caller that is gone.
            if not isinstance(error, ServerError) or error.kind is FailureKind.FAILED:
                with suppress(ServerError):
                    await api.abort(asked.rid)
            raise
        return sampled

    async def _drain(self) -> None:
        """Wait for running requests; those that take too long are aborted by the change of weights."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                while any(member.load for member in self._pool.members):
                    await asyncio.sleep(0.02)

    def _restore_servers_down(self) -> None:
        for member in self._pool.members:
            task = self._returning.get(member.url)
            if not member.is_up and not member.gave_up and (task is None or task.done()):
                self._returning[member.url] = asyncio.ensure_future(self._bring_back(member))

    async def _bring_back(self, member: Member) -> None:
        """Retry until the server is healthy, up to date and passes the canary; stop if it never can."""
        while not member.is_up and not member.gave_up:
            await asyncio.sleep(_RETURN_INTERVAL_S)
            policy = self._served()
            if member.supervisor is not None and (state := await member.supervisor.state()).gave_up:
                self._pool.mark_down(member, f"{member.url}: {state.report}", gave_up=True)
                return
            try:
                outcome = (await self._weights.sync([member], policy, patience_s=0))[member]
            except InfrastructureError as error:  # no reference to compare with, for now
                logger.warning("%s: %s", member.url, error)
                continue
            if policy is not self._policy:
                continue  # the policy has changed meanwhile
            if outcome is None:
                logger.info("SGLang server %s is back", member.url)
            self._pool.apply(member, outcome)

    def _served(self) -> ServedPolicy:
        if self._policy is None:
            raise InfrastructureError("the SGLang engine has no policy yet: serve() comes first")
        return self._policy

    def _connections(self) -> httpx.AsyncClient:
        """Return the HTTP client of this event loop, opened with the first request."""
        if self._client is None:
            limits = httpx.Limits(max_connections=None, keepalive_expiry=_IDLE_CONNECTION_S)
            self._client = httpx.AsyncClient(limits=limits, trust_env=False)
        return self._client


def _backoff(first_s: float, attempt: int) -> float:
    """Return the pause before attempt `attempt` (1 is the second): doubling, from half to the whole of it at random."""
    return min(first_s * 2 ** (attempt - 1), _LONGEST_BACKOFF_S) * random.uniform(0.5, 1.0)


def open_sglang(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> SglangEngine:
    """Return an engine whose servers hold this policy: those of `rollout.sglang_urls`, or new ones on this machine.

    Blocks until they are ready. Raises InputError, InfrastructureError.
    """
    return run_on_thread(_open(policy, tokenizer, config))


async def _open(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> SglangEngine:
    engine = await start_engine(policy, tokenizer, config)
    await serve_or_close(engine, policy, tokenizer)
    return engine


async def start_engine(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> SglangEngine:
    """Return an engine of the configured servers, new ones with the weights of `policy`, before it serves anything."""
    weights = WeightSync(config.sglang)
    served = await weights.prepare(policy, tokenizer)
    if config.sglang_urls:
        urls = dict.fromkeys(url.rstrip("/") for url in config.sglang_urls)
        members = [Member(url, None, config.sglang.concurrency) for url in urls]
    else:
        # On a thread: waiting for actors would block the loop.
        members = await asyncio.to_thread(start_on_ray, config.sglang, str(served.folder), served.version)
    return SglangEngine(members, config.sglang, weights)


async def serve_or_close(engine: SglangEngine | TeamServer, policy: CheckpointRef, tokenizer: Any) -> None:
    """Have an engine serve its first policy; close it, with its servers, where that fails."""
    try:
        await engine.serve(policy, tokenizer)
    except BaseException:
        await engine.close()
        raise


def run_on_thread(opening: Coroutine[Any, Any, _Opened]) -> _Opened:
    """Run to completion on a thread: the caller may be inside an event loop."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, opening).result()
