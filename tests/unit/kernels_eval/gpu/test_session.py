"""Validation of the answers of a candidate's process on a GPU."""

from typing import Any

import pytest
from pydantic import ValidationError

from kernels_eval.gpu.session import CANDIDATE_ANSWER, RoundAnswer

CALL = {"structure": "one object", "outputs": [{"kind": "tensor", "dtype": "float32", "shape": [2, 3]}]}
KERNEL = {"name": "row_softmax", "duration_ns": 1000, "stream": 0}


def answered(**fields: Any) -> Any:
    return CANDIDATE_ANSWER.validate_python({"kind": "round", "calls": [CALL], **fields})


def test_a_round() -> None:
    answer = answered(unjoined_s=1e-6, kernels=[KERNEL], threads=1)
    assert isinstance(answer, RoundAnswer)
    assert answer.calls[0].outputs[0].shape == (2, 3)
    assert answer.kernels[0].duration_ns == 1000


@pytest.mark.parametrize(
    "fields",
    [
        {"unjoined_s": float("nan")},
        {"threads": -1},
        {"kernels": [{**KERNEL, "duration_ns": -1}]},
        {"kernels": [{**KERNEL, "name": "k" * 2001}]},
        {"calls": [CALL] * 513},
        {"calls": [{**CALL, "outputs": [{"kind": "tensor", "dtype": "quint8", "shape": [2]}]}]},
        {"calls": [{**CALL, "outputs": [{"kind": "tensor", "dtype": "float32", "shape": [-2]}]}]},
        {"kind": "graded"},
    ],
)
def test_a_round_that_cannot_be(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        answered(**fields)


@pytest.mark.parametrize(("status", "category"), [("correct", "exception"), ("rejected", "Not a category")])
def test_a_failure_that_cannot_be(status: str, category: str) -> None:
    failure = {"kind": "failed", "status": status, "category": category, "message": "boo"}
    with pytest.raises(ValidationError):
        CANDIDATE_ANSWER.validate_python(failure)
