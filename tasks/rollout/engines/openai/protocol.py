"""`/completions` with token ids: the request, and the validation of its answer.

Two forms of an answer hold the ids of the sampled tokens. vLLM writes `token_id:N` in place of each token's text
(`return_tokens_as_token_ids`); llama.cpp has `id` and `logprob` in `logprobs.content`. Any other answer is refused:
its text, encoded again, may be other tokens than were sampled.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from kernels_eval.expectations import refusal
from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines import FinishReason, GenerationRequest, Response

_PREFIX = "token_id:"


class AnswerError(Exception):
    """An answer that cannot be used."""


def payload(
    model: str, request: GenerationRequest, sampling: SamplingConfig, stop_token_ids: tuple[int, ...]
) -> dict[str, Any]:
    """Return the body of a request. What OpenAI's protocol does not know is vLLM's and llama.cpp's."""
    return {
        "model": model,
        "prompt": list(request.prompt_token_ids),
        "max_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "seed": request.seed % 2**31,
        "logprobs": 1,
        "stream": False,
        "return_tokens_as_token_ids": True,
        "skip_special_tokens": False,
        "stop_token_ids": list(stop_token_ids),
    }


def parse(answer: Any, sampling: SamplingConfig, stop_token_ids: tuple[int, ...]) -> Response:
    """Return the response in an answer. Raises AnswerError if it is none, or has no token ids and log-probabilities.

    A server that leaves the end of turn out of its answer gets it appended, with log-probability 0.
    """
    try:
        choice = _Answer.model_validate(answer).choices[0]
    except ValidationError as error:
        raise AnswerError(refusal(error)) from error
    token_ids, logprobs = _sampled(choice.logprobs)
    if choice.finish_reason == "stop" and not set(token_ids[-1:]) & set(stop_token_ids):
        token_ids, logprobs = [*token_ids, stop_token_ids[0]], [*logprobs, 0.0]
    if not set(token_ids[:-1]).isdisjoint(stop_token_ids):
        raise AnswerError("found tokens after the end of turn")
    if not 1 <= len(token_ids) <= sampling.max_new_tokens + (choice.finish_reason == "stop"):
        raise AnswerError(f"found {len(token_ids)} tokens, expected 1 to {sampling.max_new_tokens}")
    reason = FinishReason.STOP if token_ids[-1] in stop_token_ids else FinishReason.LENGTH
    return Response(tuple(token_ids), tuple(min(value, 0.0) for value in logprobs), reason)


class _Token(BaseModel):
    id: Annotated[int, Field(ge=0, strict=True)]
    logprob: Annotated[float, Field(le=1e-6, allow_inf_nan=False)]


class _Logprobs(BaseModel):
    tokens: list[str] = []
    token_logprobs: list[Annotated[float, Field(le=1e-6, allow_inf_nan=False)]] = []
    content: list[_Token] | None = None


class _Choice(BaseModel):
    finish_reason: Literal["stop", "length"]
    logprobs: _Logprobs | None = None


class _Answer(BaseModel):
    choices: Annotated[list[_Choice], Field(min_length=1)]


def _sampled(found: _Logprobs | None) -> tuple[list[int], list[float]]:
    if found is not None and found.content is not None:
        return [token.id for token in found.content], [token.logprob for token in found.content]
    names = [] if found is None else found.tokens
    ids = [name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)]
    if found is None or len(ids) != len(names) or not all(name.isdecimal() for name in ids):
        raise AnswerError(
            "the answer has no token ids and log-probabilities; expected a server that knows "
            "`return_tokens_as_token_ids` (vLLM), or llama.cpp"
        )
    if len(found.token_logprobs) != len(ids):
        raise AnswerError(f"found {len(found.token_logprobs)} log-probabilities of {len(ids)} tokens")
    return [int(name) for name in ids], found.token_logprobs
