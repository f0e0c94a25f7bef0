"""Too little memory halves the token budget, once; nothing else does."""

from collections.abc import Iterator
from typing import Any

import pytest

from kernels_eval.errors import InfrastructureError
from tasks.training.config import EngineConfig
from tasks.training.faults import OutOfMemoryError, with_smaller_batches


def run_with(budget: int, enough: int, error: Exception) -> tuple[list[dict[str, Any]], list[int]]:
    """The message, and the budgets that were tried, where `enough` tokens fit."""
    tried: list[int] = []

    def run(config: EngineConfig) -> Iterator[dict[str, Any]]:
        tried.append(config.tokens_per_rank)
        if config.tokens_per_rank > enough:
            raise error
        yield {"done": 1, "total": 1}

    return list(with_smaller_batches(EngineConfig(tokens_per_rank=budget), run)), tried


def test_the_budget_is_halved_once_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    said, tried = run_with(1000, 500, OutOfMemoryError("out of memory with 1000"))
    assert tried == [1000, 500]
    assert said == [{"done": 0, "total": 1, "token_budget": 500.0}, {"done": 1, "total": 1}]
    assert "out of memory with 1000; going on with 500 tokens a micro-batch" in caplog.text


@pytest.mark.parametrize(
    ("budget", "enough", "error"),
    [(1000, 499, OutOfMemoryError("m")), (100, 50, OutOfMemoryError("m")), (1000, 500, InfrastructureError("m"))],
    ids=["not-twice", "not-below-the-smallest", "not-for-a-dead-rank"],
)
def test_otherwise_the_error_is_the_answer(budget: int, enough: int, error: Exception) -> None:
    with pytest.raises(type(error)):
        run_with(budget, enough, error)
