"""An engine of the user's own: what it lacks or raises is one line that names it, and its answers pass unchanged."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.errors import InputError
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig, SamplingConfig
from tasks.rollout.engines import FinishReason, Generation, GenerationRequest
from tasks.rollout.engines.kind import kind_of

POLICY = CheckpointRef(uri="/nowhere", digest="d")
ENGINE = """
from tasks.rollout.engines import Generation

class Fixed:
    context_tokens, cohort_size = 64, 1
    async def generate(self, requests, sampling):
        for index, _ in enumerate(requests):
            yield index, Generation((1, 2), (0.0, -1.0), "stop", 0.5)
    async def close(self): ...

class Short(Fixed):
    async def generate(self, requests, sampling):
        yield 0, Generation((1, 2), (0.0,), "stop", 0.5)

class Broken(Fixed):
    async def generate(self, requests, sampling):
        raise RuntimeError("mine")
        yield

def fixed(policy, tokenizer, config): return Fixed()
def short(policy, tokenizer, config): return Short()
def broken(policy, tokenizer, config): return Broken()
def lacking(policy, tokenizer, config): return object()
def raising(policy, tokenizer, config): raise KeyError("vocabulary")
"""


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what opens one of the engines above."""
    (tmp_path / "engines_of_mine.py").write_text(ENGINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def open_one(name: str) -> Any:
        config = RolloutConfig(engine=f"engines_of_mine:{name}")
        return kind_of(config)(POLICY, None, config)

    return open_one


def answers(engine: Any, count: int = 1) -> list[tuple[int, Generation]]:
    requests: Sequence[GenerationRequest] = [GenerationRequest(str(n), (5,), n) for n in range(count)]

    async def gathered() -> list[tuple[int, Generation]]:
        stream: AsyncIterator[tuple[int, Generation]] = engine.generate(requests, SamplingConfig())
        return [answer async for answer in stream]

    return asyncio.run(gathered())


def test_answers_pass_unchanged(opened: Any) -> None:
    engine = opened("fixed")
    assert (engine.context_tokens, engine.cohort_size) == (64, 1)
    assert answers(engine, 2) == [(n, Generation((1, 2), (0.0, -1.0), FinishReason.STOP, 0.5)) for n in (0, 1)]
    asyncio.run(engine.close())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lacking", "engines_of_mine:lacking returned object without context_tokens"),
        ("raising", "engines_of_mine:raising raised KeyError: 'vocabulary' .*engines_of_mine.py, line"),
    ],
)
def test_what_does_not_open_is_named(opened: Any, name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        opened(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("short", "found 1 logprobs for 2 tokens, expected as many"),
        ("broken", "engines_of_mine:broken raised RuntimeError: mine"),
    ],
)
def test_what_fails_while_it_samples_is_named(opened: Any, name: str, words: str) -> None:
    engine = opened(name)
    with pytest.raises(InputError, match=words):
        answers(engine)
