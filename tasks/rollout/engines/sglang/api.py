"""HTTP client of one SGLang server, in the rollout worker.

Written against SGLang 0.5.11 to 0.5.17 (`http_server.py`).
"""

from typing import Any

import httpx

from tasks.rollout.engines.sglang.generation import (
    FailureKind,
    SampledResponse,
    ServerError,
    ServerRequest,
    generation_payload,
    parse_generation,
    parse_scores,
)

_CONTROL_TIMEOUT_S, _CONNECT_TIMEOUT_S, _ABORT_TIMEOUT_S = 60.0, 10.0, 2.0
_HEALTH_TIMEOUT_S = 30.0
"""Longer than the server's own limit: its health check generates a token, and says 503 after 20 s without one."""


class SglangApi:
    """Endpoints of one server. Every method raises ServerError only."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.url = url.rstrip("/")
        self._client = client

    async def generate(self, asked: ServerRequest, timeout_s: float) -> SampledResponse:
        """Sample one response."""
        answer = await self._generate(asked, {}, timeout_s)
        return parse_generation(self.url, answer, asked)

    async def generate_and_score(
        self, asked: ServerRequest, timeout_s: float
    ) -> tuple[SampledResponse, tuple[float, ...]]:
        """Sample one response, and return beside it the log-probabilities of the prompt's tokens but the first."""
        answer = await self._generate(asked, {"logprob_start_len": 0}, timeout_s)
        return parse_generation(self.url, answer, asked), parse_scores(self.url, answer, asked.prompt_token_ids, 1)

    async def score(self, asked: ServerRequest, start: int, timeout_s: float) -> tuple[float, ...]:
        """Return the log-probabilities at T = 1 of the prompt's tokens from `start` (at least 1) on."""
        answer = await self._generate(asked, {"logprob_start_len": start - 1}, timeout_s)
        return parse_scores(self.url, answer, asked.prompt_token_ids, start)

    async def abort(self, rid: str) -> None:
        """Stop a request, if the server still can."""
        await self._post("/abort_request", {"rid": rid}, _ABORT_TIMEOUT_S)

    async def is_healthy(self) -> bool:
        """True if the server generates; False while it is starting or paused."""
        try:
            await self._request("GET", "/health", None, _HEALTH_TIMEOUT_S)
        except ServerError as error:
            if error.kind is FailureKind.UNREACHABLE:
                raise
            return False
        return True

    async def weight_version(self) -> str:
        """Return the label of the server's weights."""
        return str((await self._json("GET", "/model_info", None, _CONTROL_TIMEOUT_S)).get("weight_version"))

    async def context_tokens(self) -> int:
        """Return the largest number of tokens of a prompt and its response together."""
        info = await self._json("GET", "/server_info", None, _CONTROL_TIMEOUT_S)
        try:
            # The scheduler silently shortens responses beyond these; it counts whole pages.
            in_pool = int(info["max_total_num_tokens"]) - 2 * int(info.get("page_size") or 1)
            return min(int(info["max_req_input_len"]), in_pool)
        except (KeyError, TypeError, ValueError) as error:
            raise ServerError(FailureKind.FAILED, self.url, f"/server_info without its limits: {error!r}") from error

    async def pause(self) -> None:
        """Abort running requests; new ones wait."""
        await self._post("/pause_generation", {"mode": "abort"}, _CONTROL_TIMEOUT_S)

    async def resume(self) -> None:
        """Resume generation; no effect if it was not paused."""
        await self._post("/continue_generation", {}, _CONTROL_TIMEOUT_S)

    async def flush(self) -> bool:
        """Drop all cached prefixes; returns False if requests are still running."""
        try:
            await self._request("POST", "/flush_cache", None, _CONTROL_TIMEOUT_S)
        except ServerError as error:
            if error.kind is not FailureKind.REFUSED:
                raise
            return False
        return True

    async def load_weights(self, folder: str, version: str, timeout_s: float) -> None:
        """Load a checkpoint in place and label it. The server must be idle."""
        payload = {"model_path": folder, "weight_version": version}
        await self._load("/update_weights_from_disk", payload, timeout_s)

    async def load_tensors(self, message: str, version: str | None, timeout_s: float) -> None:
        """Load some weights (tasks.rollout.engines.sglang.tensors), and label them. The server must be idle."""
        info = await self._json("GET", "/server_info", None, _CONTROL_TIMEOUT_S)
        ranks = info.get("tp_size")
        # Each rank of the server takes its share out of the same tensors.
        payload: dict[str, Any] = {"serialized_named_tensors": [message] * (ranks if isinstance(ranks, int) else 1)}
        if version is not None:
            payload["weight_version"] = version
        await self._load("/update_weights_from_tensor", payload, timeout_s)

    async def adapters(self) -> list[str]:
        """Return the names of the adapters that the server holds beside its weights."""
        listed: Any = (await self._json("GET", "/v1/models", None, _CONTROL_TIMEOUT_S)).get("data")
        try:
            return [str(model["id"]) for model in listed if model.get("parent") is not None]
        except (TypeError, KeyError, AttributeError) as error:
            raise ServerError(FailureKind.FAILED, self.url, f"/v1/models without its models: {error!r}") from error

    async def load_adapter(self, name: str, folder: str, timeout_s: float) -> None:
        """Load an adapter (PEFT's files) under a name that is not in use; requests go on meanwhile."""
        await self._post("/load_lora_adapter", {"lora_name": name, "lora_path": folder}, timeout_s)

    async def unload_adapter(self, name: str, timeout_s: float) -> None:
        """Remove an adapter, as soon as its running requests have ended."""
        await self._post("/unload_lora_adapter", {"lora_name": name}, timeout_s)

    async def _generate(self, asked: ServerRequest, further: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        try:
            return await self._post("/generate", generation_payload(asked) | further, timeout_s)
        except ServerError as error:
            # A server that was started again has its weights, and has to be given the adapter anew.
            if asked.adapter is not None and error.kind is FailureKind.REFUSED and asked.adapter in str(error):
                raise ServerError(FailureKind.STALE, self.url, f"it lacks adapter {asked.adapter}: {error}") from error
            raise

    async def _load(self, path: str, payload: dict[str, Any], timeout_s: float) -> None:
        # Not with `flush_cache`: the server asserts that the flush succeeds, and its scheduler dies if it fails.
        answer = await self._post(path, payload | {"flush_cache": False}, timeout_s)
        if answer.get("success") is not True:
            raise ServerError(FailureKind.FAILED, self.url, f"{path}: weights not loaded: {answer.get('message')}")

    async def _post(self, path: str, payload: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        return await self._json("POST", path, payload, timeout_s)

    async def _json(self, method: str, path: str, payload: dict[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        response = await self._request(method, path, payload, timeout_s)
        try:
            answer: Any = response.json() if response.content else {}
        except ValueError as error:
            raise ServerError(FailureKind.FAILED, self.url, f"{path}: the answer is no JSON: {error}") from error
        if not isinstance(answer, dict):
            found = type(answer).__name__
            raise ServerError(FailureKind.FAILED, self.url, f"{path}: found {found}, expected an object")
        return answer

    async def _request(self, method: str, path: str, payload: Any, timeout_s: float) -> httpx.Response:
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_S), pool=None)
        try:
            response = await self._client.request(method, self.url + path, json=payload, timeout=timeout)
        except httpx.ConnectTimeout as error:
            raise ServerError(FailureKind.UNREACHABLE, self.url, "no connection in time") from error
        except httpx.TimeoutException as error:
            raise ServerError(FailureKind.FAILED, self.url, f"{path}: no answer in {timeout_s:g} s") from error
        except httpx.TransportError as error:
            text = f"{path}: {type(error).__name__} {error}".rstrip()
            raise ServerError(FailureKind.UNREACHABLE, self.url, text) from error
        if response.is_success:
            return response
        # 408 and 429 say that the server is busy, as a 5xx does.
        busy = response.status_code >= 500 or response.status_code in (408, 429)
        kind = FailureKind.FAILED if busy else FailureKind.REFUSED
        raise ServerError(kind, self.url, f"{path}: HTTP {response.status_code} {response.text[:500]}")
