"""The engine of a completions server: one request a response, over HTTP.

The server holds the policy; nobody compares its weights with the checkpoint's. A failed attempt is repeated; one that
fails always is a FAULT, and so is an answer without token ids. A refused request is repeated no more.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx

from kernels_eval.errors import InfrastructureError
from tasks.rollout.config import OpenAiConfig, SamplingConfig
from tasks.rollout.engines import FinishReason, Generation, GenerationRequest
from tasks.rollout.engines.openai.protocol import AnswerError, parse, payload

_BUSY = (408, 429)
_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0


class CompletionsEngine:
    """Samples from a server whose weights stay."""

    cohort_size = 1
    """Requests are batched by the server, continuously."""

    def __init__(self, config: OpenAiConfig, stop_token_ids: tuple[int, ...], context_tokens: int) -> None:
        self.context_tokens = context_tokens
        self._config = config
        self._stops = stop_token_ids
        self._model = config.model
        self._client: httpx.AsyncClient | None = None
        self._slots = asyncio.Semaphore(config.concurrency)

    async def generate(
        self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
    ) -> AsyncIterator[tuple[int, Generation]]:
        """Yield responses as they end. Raises InfrastructureError if the server does not list its models."""
        if not self._model:
            self._model = await self._first_model()
        pending = {asyncio.ensure_future(self._answer(each, sampling)): at for at, each in enumerate(requests)}
        try:
            while pending:
                done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield pending.pop(task), task.result()
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    async def close(self) -> None:
        """Close connections. The server stays."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _first_model(self) -> str:
        try:
            answer = await self._http().get("/models")
            return str(answer.raise_for_status().json()["data"][0]["id"])
        except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
            raise InfrastructureError(f"{self._config.url}/models: expected a list of models: {error}") from error

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            key = self._config.key
            self._client = httpx.AsyncClient(
                base_url=self._config.url.rstrip("/"),
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=httpx.Timeout(self._config.request_timeout_s, pool=None),
                trust_env=False,
            )
        return self._client

    async def _answer(self, request: GenerationRequest, sampling: SamplingConfig) -> Generation:
        started = time.perf_counter()
        body: dict[str, Any] = payload(self._model, request, sampling, self._stops)
        failure = ""
        for attempt in range(self._config.attempts):
            if attempt:
                await asyncio.sleep(min(_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S))
            try:
                async with self._slots:
                    answer = await self._http().post("/completions", json=body)
                if answer.is_success:
                    found = parse(answer.json(), sampling, self._stops)
                    seconds = time.perf_counter() - started
                    return Generation(found.token_ids, found.logprobs, found.finish_reason, seconds)
                failure = f"HTTP {answer.status_code} {answer.text[:300]}"
                if answer.status_code < 500 and answer.status_code not in _BUSY:
                    break
            except (AnswerError, ValueError) as error:
                failure = str(error)
                break
            except httpx.HTTPError as error:
                failure = f"{type(error).__name__} {error}".rstrip()
        error = f"{self._config.url}/completions: {failure}"
        return Generation((), (), FinishReason.FAULT, time.perf_counter() - started, error)
