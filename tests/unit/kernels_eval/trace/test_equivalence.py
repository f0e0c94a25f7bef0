"""When a program is another one over again, and when it uses memory of an earlier call."""

from typing import Any

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
