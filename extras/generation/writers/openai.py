"""Writer on any server with OpenAI's chat completions: a closed model, vLLM, SGLang, llama.cpp.

Failures that may pass (no connection, time-outs, 408, 409, 429, 5xx, an answer that is none) are asked again with
growing pauses, as long as `patience_s`: a server that is killed and started again loses no conversation.
"""

import asyncio
import hashlib
import json
import logging
import random
import time
from collections.abc import Sequence
from typing import Any, Literal

import httpx
from pydantic import BaseModel, Field, ValidationError

from extras.adapters.kernel_episode import ChatMessage
from extras.generation.writers import Draft, RefusedConversationError
from kernels_eval.errors import InfrastructureError, InputError, first_line
from kernels_eval.loopback import is_on_loopback
from tasks.agents.config import SOLVER
from tasks.rollout.config import SamplingConfig

logger = logging.getLogger("kernelmill.generation")
KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable with the key that the server asks for; unset: none is sent."""
_FIRST_WAIT_S, _LONGEST_WAIT_S, _CONNECT_TIMEOUT_S = 0.5, 30.0, 10.0
_BUSY = frozenset({408, 409, 425, 429})


class OpenAIWriter:
    """A model behind `POST {base_url}/chat/completions`. For one event loop."""

    def __init__(
        self,
        base_url: str,
        model: str,
        sampling: SamplingConfig,
        *,
        key: str | None = None,
        at_once: int = 32,
        timeout_s: float = 600.0,
        patience_s: float = 900.0,
    ) -> None:
        """`base_url` usually ends in `/v1`. `timeout_s`: of one request; `patience_s`: of an answer, retries included.

        Raises InputError if the address is none.
        """
        if not base_url.startswith(("http://", "https://")):
            raise InputError(f"--openai-base-url: expected an address, e.g. http://127.0.0.1:8000/v1, found {base_url}")
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._model, self._sampling = model, sampling
        self._patience_s = patience_s
        self._limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
        self._reported = ("", 0.0)
        self._places = asyncio.Semaphore(at_once)
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=None),
            timeout=httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S, pool=None),
            trust_env=not is_on_loopback(base_url),
        )

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model

    @property
    def digest(self) -> str:
        """Digest of address, model and sampling: the weights behind a name are not known."""
        parts = [self._url, self._model, self._sampling.model_dump_json()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    async def write(self, messages: Sequence[ChatMessage], seed: int, agent: str = SOLVER) -> Draft:
        """Answer one conversation."""
        async with self._places:
            deadline, wait_s = time.monotonic() + self._patience_s, _FIRST_WAIT_S
            while True:
                try:
                    reply = await self._client.post(self._url, json=self._request(messages, seed))
                    if reply.is_success:
                        return _draft(reply)
                    failure, wait_s = self._failure(reply), max(wait_s, _announced_s(reply))
                except httpx.HTTPError as error:
                    failure = f"{type(error).__name__} {error}".rstrip()
                except _NoAnswerError as error:
                    failure = str(error)
                if time.monotonic() + wait_s > deadline:
                    raise InfrastructureError(f"{self._url}: no answer in {self._patience_s:g} s: {failure}")
                self._report(failure, wait_s)
                await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _report(self, failure: str, wait_s: float) -> None:
        """Log a failure once for all conversations that meet it."""
        if (failure, wait_s) != self._reported:
            self._reported = failure, wait_s
            logger.warning("%s: asked again in %.1f s: %s", self._model, wait_s, failure)

    def _request(self, messages: Sequence[ChatMessage], seed: int) -> dict[str, Any]:
        sampling = self._sampling
        return {
            "model": self._model,
            "messages": list(messages),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            self._limit_name: sampling.max_new_tokens,
            "seed": seed,
        }

    def _failure(self, reply: httpx.Response) -> str:
        """Return the reason of a failure that may pass. Raises InputError for one that does not."""
        text = f"HTTP {reply.status_code} {' '.join(reply.text.split())[:500]}"
        if reply.status_code in _BUSY or reply.status_code >= 500:
            return text
        if self._limit_name == "max_tokens" and "max_completion_tokens" in reply.text:
            self._limit_name = "max_completion_tokens"  # newer models of OpenAI's know no other name
            return text
        if reply.status_code in (400, 413, 422):
            raise RefusedConversationError(f"{self._url}: {text}")
        raise InputError(f"{self._url}: refused: {text}")


class _NoAnswerError(Exception):
    """The server's reply is no completion."""


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


def _draft(reply: httpx.Response) -> Draft:
    try:
        found = _Completion.model_validate(json.loads(reply.content))
    except (ValueError, RecursionError, ValidationError) as error:
        raise _NoAnswerError(f"not a completion: {first_line(error)}") from error
    choice, usage = found.choices[0], found.usage or _Usage()
    return Draft(
        text=(choice.message.content or "").encode("utf-8", "replace").decode(),  # JSON may hold lone surrogates
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        truncated=choice.finish_reason == "length",
    )


def _announced_s(reply: httpx.Response) -> float:
    announced = reply.headers.get("Retry-After", "")
    return min(float(announced), _LONGEST_WAIT_S) if announced.isdecimal() else 0.0
