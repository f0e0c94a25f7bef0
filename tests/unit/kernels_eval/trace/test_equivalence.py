"""When a program is another one over again, and when it uses memory of an earlier call."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.trace.equivalence import fingerprint, uses_older_storage
from kernels_eval.trace.schema import FIRST_OWN, TRACING_ANSWER, TraceAnswer


def view(storage: int, rows: int = 8) -> dict[str, Any]:
    return {"kind": "view", "storage": storage, "dtype": "float32", "shape": [rows], "strides": [1], "offset": 0}


def program(first: int, rows: int = 8, older: int | None = None, **constants: int | bool) -> dict[str, Any]:
    plain = {name: {"kind": "plain", "value": value} for name, value in constants.items()}
    out = view(first, rows)
    given = {"x": view(0, rows), "out": out if older is None else view(older, rows), **plain}
    return {
        "kind": "trace",
        "structure": "a tensor",
        "kernels": [],
        "commands": [
            {"kind": "operate", "name": "empty_like", "overload": "default", "arguments": [view(0, rows)], "results": [out]},
            {"kind": "launch", "kernel": 0, "arguments": given, "grid": [rows, 1, 1]},
            {"kind": "free", "storages": [first + 7]},
        ],
        "outputs": [{"view": out}],
    }  # fmt: skip


def trace(raw: dict[str, Any]) -> TraceAnswer:
    answer = TRACING_ANSWER.validate_python(raw)
    assert isinstance(answer, TraceAnswer)
    return answer


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_numbers_of_new_storages_do_not_count(first: int, second: int) -> None:
    assert fingerprint(program(FIRST_OWN + first), b"") == fingerprint(program(FIRST_OWN + second), b"")


def test_shapes_constants_uploads_and_old_results_count() -> None:
    base = fingerprint(program(FIRST_OWN, BLOCK=4), b"")
    assert base != fingerprint(program(FIRST_OWN, rows=9, BLOCK=4), b"")
    assert base != fingerprint(program(FIRST_OWN, BLOCK=5), b"")
    assert base != fingerprint(program(FIRST_OWN, BLOCK=4), b"other constants")
    older = program(FIRST_OWN, BLOCK=4)
    older["outputs"] = [{"view": view(FIRST_OWN + 3)}]
    assert base != fingerprint(older, b"")


def test_memory_of_an_earlier_call_is_seen() -> None:
    assert not uses_older_storage(trace(program(FIRST_OWN)))
    assert uses_older_storage(trace(program(FIRST_OWN + 5, older=FIRST_OWN)))


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda older: {"kind": "sequence", "items": [older]},
        lambda older: {"kind": "sequence", "items": [{"kind": "sequence", "items": [older]}]},
        lambda older: {"kind": "descriptor", "base": older, "shape": [8], "strides": [1], "block_shape": [8], "padding": "zero"},
    ],
    ids=["a tuple", "a tuple in a tuple", "a descriptor"],
)  # fmt: skip
def test_memory_of_an_earlier_call_is_seen_within_an_argument(wrapped: Callable[[Any], Any]) -> None:
    for older, is_older in ((FIRST_OWN, False), (FIRST_OWN + 5, True), (0, False)):
        raw = program(FIRST_OWN)
        raw["commands"][1]["arguments"]["kept"] = wrapped(view(older))
        assert uses_older_storage(trace(raw)) is is_older


def test_memory_of_an_earlier_call_is_seen_where_pytorch_copies_it() -> None:
    copy = {"kind": "operate", "name": "clone", "overload": "default", "results": [view(FIRST_OWN + 1)]}
    for older, is_older in ((FIRST_OWN, False), (FIRST_OWN + 5, True), (0, False)):
        raw = program(FIRST_OWN)
        raw["commands"].append({**copy, "arguments": [view(older)]})
        assert uses_older_storage(trace(raw)) is is_older
