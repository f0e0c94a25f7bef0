"""HTTP client of one SGLang server, in the rollout worker: requests, and the validation of responses.

Written against SGLang 0.5.11 to 0.5.17 (`http_server.py`, `io_struct.py`, `schedule_batch.py`). Tokens are read as the
server sampled them (`meta_info.output_token_logprobs`), its text is ignored. An inconsistent answer is a failure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

import httpx
from pydantic import BaseModel, Field, ValidationError

from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines import FinishReason, Response

_CONTROL_TIMEOUT_S, _CONNECT_TIMEOUT_S, _ABORT_TIMEOUT_S = 60.0, 10.0, 2.0
_HEALTH_TIMEOUT_S = 30.0
"""Longer than the server's own limit: its health check generates a token, and says 503 after 20 s without one."""


class FailureKind(StrEnum):
    """Kind of a failed attempt."""

    UNREACHABLE = "unreachable"
    """No connection, or a broken one: the process may be gone or restarted."""
    FAILED = "failed"
    """An error of the server, an aborted or nonsensical answer, or none in time: another attempt may succeed."""
    STALE = "stale"
    """The response comes from other weights than those asked for."""
    REFUSED = "refused"
    """The request itself is not accepted: no server will."""


class ServerError(Exception):
    """A failed attempt. Caught inside the engine, which retries or returns a fault."""

    def __init__(self, kind: FailureKind, url: str, text: str) -> None:
        super().__init__(f"{url}: {text}")
        self.kind = kind
        self.url = url


@dataclass(frozen=True, slots=True)
class SampledResponse(Response):
    """A response as a server gives it: log-probabilities are those after the temperature."""

    cached_tokens: int
    """Of the prompt, found in the radix cache."""


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One request to `/generate`."""

    rid: str
    """Id for `abort`. The server aborts every request with this prefix: all ids have the same length."""
    prompt_token_ids: tuple[int, ...]
    seed: int
    """Takes effect if the server runs with `--enable-deterministic-inference`."""
    sampling: SamplingConfig
    stop_token_ids: tuple[int, ...]
    weight_version: str


class SglangApi:
    """Endpoints of one server. Every method raises ServerError only."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.url = url.rstrip("/")
        self._client = client

    async def generate(self, asked: ServerRequest, timeout_s: float) -> SampledResponse:
        """Sample one response."""
        answer = await self._post("/generate", generation_payload(asked), timeout_s)
        return parse_generation(self.url, answer, asked)

    async def generate_and_score(
        self, asked: ServerRequest, timeout_s: float
    ) -> tuple[SampledResponse, tuple[float, ...]]:
        """Sample one response, and return beside it the log-probabilities of the prompt's tokens but the first."""
        answer = await self._post("/generate", generation_payload(asked) | {"logprob_start_len": 0}, timeout_s)
        return parse_generation(self.url, answer, asked), parse_scores(self.url, answer, asked.prompt_token_ids, 1)

    async def score(self, asked: ServerRequest, start: int, timeout_s: float) -> tuple[float, ...]:
        """Return the log-probabilities at T = 1 of the prompt's tokens from `start` (at least 1) on."""
        payload = generation_payload(asked) | {"logprob_start_len": start - 1}
        answer = await self._post("/generate", payload, timeout_s)
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


def generation_payload(asked: ServerRequest) -> dict[str, Any]:
    """Return the body of a `/generate` request. Sets every parameter of the distribution: servers have defaults."""
    sampling = asked.sampling
    return {
        "rid": asked.rid,
        "input_ids": list(asked.prompt_token_ids),
        "return_logprob": True,
        "stream": False,
        "sampling_params": {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "min_p": 0.0,
            "frequency_penalty": 0.0,
            "presence_penalty": 0.0,
            "repetition_penalty": 1.0,
            "min_new_tokens": 0,
            "max_new_tokens": sampling.max_new_tokens,
            "ignore_eos": False,
            "stop_token_ids": list(asked.stop_token_ids),
            "skip_special_tokens": False,
            "no_stop_trim": True,
            "sampling_seed": asked.seed,
        },
    }


def parse_generation(url: str, answer: dict[str, Any], asked: ServerRequest) -> SampledResponse:
    """Return the response in an answer of `/generate`, checked against the request."""

    def failure(text: str, kind: FailureKind = FailureKind.FAILED) -> ServerError:
        return ServerError(kind, url, f"/generate: {text}")

    meta = _parsed(url, answer).meta_info
    finish, limit = meta.finish_reason, asked.sampling.max_new_tokens
    if meta.weight_version is not None and meta.weight_version != asked.weight_version:
        raise failure(f"sampled from weights {meta.weight_version}, expected {asked.weight_version}", FailureKind.STALE)
    if finish.type == "abort":
        raise failure(f"aborted: {finish.message}")
    token_ids = tuple(token for _, token, _ in meta.output_token_logprobs)
    logprobs = tuple(min(logprob, 0.0) for logprob, _, _ in meta.output_token_logprobs)
    if not 1 <= len(token_ids) <= limit:
        raise failure(f"found {len(token_ids)} tokens, expected 1 to {limit}")
    if "output_ids" in answer and answer["output_ids"] != list(token_ids):
        raise failure("output_ids and output_token_logprobs hold different tokens")
    if finish.type == "stop" and finish.matched != token_ids[-1]:
        # Also for NaN logits: the server then replaces the token, and reports a matched text.
        raise failure(f"stopped at {finish.matched!r}, but the last token is {token_ids[-1]}")
    if not set(token_ids[:-1]).isdisjoint(asked.stop_token_ids):
        raise failure("tokens after the end of turn")  # they would be trained on
    # The server looks at the limit first: an end of turn that is also the last token allowed is `length` to it.
    if finish.type == "stop" or token_ids[-1] in asked.stop_token_ids:
        reason = FinishReason.STOP
    elif len(token_ids) == limit:
        reason = FinishReason.LENGTH
    else:
        raise failure(f"cut off at {len(token_ids)} tokens, expected {limit}")
    return SampledResponse(token_ids, logprobs, reason, meta.cached_tokens)


def parse_scores(url: str, answer: dict[str, Any], token_ids: Sequence[int], start: int) -> tuple[float, ...]:
    """Return the log-probabilities of `token_ids[start:]` from an answer that begins one token earlier."""
    scored = _parsed(url, answer).meta_info.input_token_logprobs[1:]  # the first entry has no log-probability
    logprobs = [min(logprob, 0.0) for logprob, _, _ in scored if logprob is not None]
    if [token for _, token, _ in scored] != list(token_ids[start:]) or len(logprobs) != len(scored):
        raise ServerError(FailureKind.FAILED, url, "/generate: input_token_logprobs are of other tokens than asked for")
    return tuple(logprobs)


_TokenId = Annotated[int, Field(ge=0, strict=True)]
_Logprob = Annotated[float, Field(le=1e-6, allow_inf_nan=False)]


class _FinishReason(BaseModel):
    type: Literal["stop", "length", "abort"]
    matched: Any = None
    message: Any = None


class _MetaInfo(BaseModel):
    finish_reason: _FinishReason
    output_token_logprobs: list[tuple[_Logprob, _TokenId, Any]]
    input_token_logprobs: list[tuple[_Logprob | None, _TokenId, Any]] = Field(default_factory=list)
    cached_tokens: int = 0
    weight_version: str | None = None


class _Answer(BaseModel):
    meta_info: _MetaInfo


def _parsed(url: str, answer: dict[str, Any]) -> _Answer:
    try:
        return _Answer.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = f"/generate: {'.'.join(map(str, first['loc']))}"
        raise ServerError(FailureKind.FAILED, url, f"{place}: {first['msg']}") from error
