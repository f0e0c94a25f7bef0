"""A small policy, made once; an engine and a judge that fail at random: what the episode loop is attacked with."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernels_eval.errors import InfrastructureError
from kernels_eval.problem import Problem
from kernels_eval.verdict import Status, Verdict
from tasks.models.config import ModelConfig
from tasks.problems.row import ProblemRow, Split
from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines import FinishReason, Generation, GenerationRequest
from tasks.rollout.prompts import answer_text


@pytest.fixture(scope="session")
def small_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tasks.models.tokenizer import train_tokenizer

    texts = [f"class Model:\n    x = {n}\n    y = torch.relu(x)\n```python\n```\n" for n in range(20)]
    return train_tokenizer(texts, 320, tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def small_policy(small_tokenizer: Any) -> Any:
    """Random weights, scaled up so that its distributions are not flat."""
    import torch

    from tasks.models.policy import new_policy

    config = ModelConfig(vocabulary=320, layers=2, hidden=32, intermediate=64, heads=4, key_value_heads=2, head_dim=8)
    model = new_policy(config, small_tokenizer, seed=3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    return model


@pytest.fixture(scope="session")
def small_policy_folder(small_policy: Any, small_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tasks.models.policy import save_policy

    folder = tmp_path_factory.mktemp("policy")
    save_policy(small_policy, small_tokenizer, folder)
    return folder


@pytest.fixture(scope="session")
def simulation() -> SimpleNamespace:
    """The names below, for tests that have no other way to import them."""
    return SimpleNamespace(
        FAULT=FAULT,
        FaultyEngine=FaultyEngine,
        FaultyJudge=FaultyJudge,
        problem_rows=problem_rows,
        reward_on=reward_on,
        verdict_on=verdict_on,
    )


FAULT = Verdict(status=Status.INFRASTRUCTURE_ERROR, error_message="lost worker")


def problem_rows(count: int, split: Split = Split.TRAIN) -> list[ProblemRow]:
    return [
        ProblemRow(
            problem=Problem(
                problem_id=f"p{n}", source="class Model:\n" + f"    x = {n}\n" * (1 + n % 4), level=1 + n % 3
            ),
            split=split,
        )
        for n in range(count)
    ]


class FaultyEngine:
    """Answers in random order; faults, forgets and repeats requests with the given probability."""

    cohort_size = 64

    def __init__(self, tokenizer: Any, fault_rate: float = 0.0, seed: int = 0, context_tokens: int = 4096) -> None:
        self.tokenizer = tokenizer
        self.fault_rate = fault_rate
        self.random = random.Random(seed)
        self.context_tokens = context_tokens
        self.requests: list[GenerationRequest] = []
        self.concurrent = 0

    async def generate(
        self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
    ) -> AsyncIterator[tuple[int, Generation]]:
        self.requests += requests
        order = list(range(len(requests)))
        self.random.shuffle(order)
        for index in order:
            await asyncio.sleep(0)
            draw = self.random.random()
            if draw < self.fault_rate / 3:
                continue  # forgotten
            if draw < 2 * self.fault_rate / 3:
                yield index, Generation((), (), FinishReason.FAULT, 0.1, error="connection reset")
                continue
            yield index, self.respond(requests[index])
            if draw > 1 - self.fault_rate / 3:
                yield index, self.respond(requests[index])  # twice

    def respond(self, request: GenerationRequest) -> Generation:
        """A function of the request's seed alone."""
        generator = random.Random(request.seed)
        source = f"class ModelNew:\n    x = {generator.randrange(10)}\n"
        text = generator.choice([answer_text(source), answer_text(source), "no code", "```python\ncut off"])
        ids = self.tokenizer(text)["input_ids"]
        if text.startswith("```python\ncut"):
            return Generation(tuple(ids), (-0.5,) * len(ids), FinishReason.LENGTH, 0.1)
        return Generation((*ids, self.tokenizer.eos_token_id), (-0.5,) * (len(ids) + 1), FinishReason.STOP, 0.1)

    async def close(self) -> None:
        pass


class FaultyJudge:
    """Judges by the digit in the kernel; returns faults, raises, or stays silent with the given probability."""

    def __init__(self, fault_rate: float = 0.0, seed: int = 1) -> None:
        self.fault_rate = fault_rate
        self.random = random.Random(seed)
        self.calls = 0

    async def evaluate_async(self, problem: Problem, kernel_source: str) -> Verdict:
        self.calls += 1
        draw = self.random.random()
        await asyncio.sleep(0)
        if draw < self.fault_rate / 3:
            return FAULT
        if draw < 2 * self.fault_rate / 3:
            raise InfrastructureError("a worker died")
        if draw < self.fault_rate:
            await asyncio.sleep(3600)
        return verdict_on(kernel_source)


def verdict_on(kernel_source: str) -> Verdict:
    digit = int(kernel_source.split("x = ")[1].split("\n")[0])
    if digit < 3:
        return Verdict(status=Status.COMPILE_ERROR, error_category="syntax_error", error_message="bad")
    if digit < 5:
        return Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values")
    return Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=digit / 4, candidate_ms=1.0)


def reward_on(verdict: Verdict, answer: Any = None) -> float:
    """The kernelbench reward, written again."""
    assert not verdict.is_fault, "a fault must never be rewarded"
    if verdict.correct:
        return 0.3 + min(max((verdict.speedup or 1) - 1, 0), 2.0)
    return 0.1 if verdict.compiled else 0.0
