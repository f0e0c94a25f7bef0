"""The trial of kernels of which a single program ran: made where the grid grows, unless it would take long."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels_eval.cpu import neighbours
from kernels_eval.cpu.trials import Errors
from kernels_eval.reference.inputs import SecretSeed


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """Sizes of the trials that are made."""
    sizes: list[int | None] = []
    monkeypatch.setattr(neighbours, "start", lambda session, inputs: SimpleNamespace(trace="trace"))
    monkeypatch.setattr(
        neighbours, "finish", lambda session, trace, expected, strict, errors: errors.add(0.5, float(expected or 0))
    )
    return sizes


def run(sizes: list[int | None], size: int | None, seconds: float, full_size: int = 4096) -> Errors:
    def draw(at: int | None, *_: Any, own: bool) -> list[Any]:
        assert not own, "values are secret"
        sizes.append(at)
        return [torch.zeros(1)]

    reference: Any = SimpleNamespace(
        full_size=full_size, draw=draw, with_expected=lambda inputs, at, *_: (inputs, at or full_size)
    )
    session: Any = SimpleNamespace(ask=lambda inputs, has_values: None, strict=True)
    true: Any = SimpleNamespace(size_with_neighbours=lambda: size, seen_size=64)
    errors = Errors()
    neighbours.run_with_neighbours(session, reference, true, SecretSeed(b"s" * 16), errors, seconds)
    return errors


def test_a_program_without_neighbours_gets_some(drawn: list[int | None]) -> None:
    errors = run(drawn, 128, 0.1)
    assert drawn == [128]
    assert errors.absolute == 0.5, "its errors count"


def test_where_the_grid_has_neighbours_nothing_is_run(drawn: list[int | None]) -> None:
    run(drawn, None, 0.1)
    assert drawn == []


def test_the_full_size_is_drawn_as_the_problem_draws_it(drawn: list[int | None]) -> None:
    run(drawn, 4096, 0.001)
    assert drawn == [None]


def test_a_long_trial_is_left_to_the_runs_at_the_full_size(drawn: list[int | None]) -> None:
    run(drawn, 64 * 11, 0.1)  # estimated 1.1 s
    assert drawn == []
    run(drawn, 64 * 9, 0.1)
    assert drawn == [64 * 9]
