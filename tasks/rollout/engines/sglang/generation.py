"""`/generate` of an SGLang server: the request, and the validation of its answer.

Written against SGLang 0.5.11 to 0.5.17 (`io_struct.py`, `schedule_batch.py`). Tokens are read as the server sampled
them (`meta_info.output_token_logprobs`), its text is ignored. An inconsistent answer is a failure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from kernels_eval.expectations import refusal
from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines import FinishReason, Response


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
    adapter: str | None = None
    """Name of the adapter on these weights that answers; None: the weights alone."""


def generation_payload(asked: ServerRequest) -> dict[str, Any]:
    """Return the body of a `/generate` request. Sets every parameter of the distribution: servers have defaults."""
    sampling = asked.sampling
    adapter = {} if asked.adapter is None else {"lora_path": asked.adapter}
    return adapter | {
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
        raise ServerError(FailureKind.FAILED, url, f"/generate: {refusal(error)}") from error
