"""Programs at the full size, which is not run: when small sizes speak for it, and which sizes do otherwise."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kernels_eval.cpu.full_size import FullSize, SeenProgram
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.tensor_bytes import TensorForm
from kernels_eval.trace.schema import FIRST_OWN, FIRST_WEIGHT, TRACING_ANSWER, KernelSource, TraceAnswer
from kernels_eval.verdict import Status

FULL, SMALL, LARGE = 4096, 8, 16
Arguments = Callable[[int], dict[str, int]]


def view(storage: int, rows: int) -> dict[str, Any]:
    return {"kind": "view", "storage": storage, "dtype": "float32", "shape": [rows, 4], "strides": [4, 1], "offset": 0}


def program(rows: int, arguments: Arguments, grid: Callable[[int], int]) -> TraceAnswer:
    plain = {name: {"kind": "plain", "value": value} for name, value in arguments(rows).items()}
    tensors = {"x": view(0, rows), "w": view(FIRST_WEIGHT, 4), "out": view(FIRST_OWN, rows)}
    zeros = {"kind": "operate", "name": "zeros_like", "overload": "default", "arguments": [view(0, rows)]}
    launch = {"kind": "launch", "kernel": 0, "arguments": tensors | plain, "grid": [grid(rows), 1, 1]}
    raw = {
        "kind": "trace",
        "structure": "a tensor",
        "commands": [{**zeros, "results": [view(FIRST_OWN, rows)]}, launch],
        "outputs": [{"view": view(FIRST_OWN, rows)}],
    }
    answer = TRACING_ANSWER.validate_python(raw)
    assert isinstance(answer, TraceAnswer)
    return answer


def full_size(
    arguments: Arguments,
    grid: Callable[[int], int] = lambda rows: rows,
    body: str = "pass",
    has_read: bool = False,
) -> FullSize:
    """Return the full size of host code that launches one kernel with these arguments."""
    source = f"def kernel(x, w, out, BLOCK: tl.constexpr, M, n):\n    {body}\n"
    asked = [FULL]

    def traced() -> tuple[TraceAnswer, None, None]:
        if arguments(asked[-1]) == {}:
            raise CandidateFailedError(Status.RUNTIME_ERROR, "exception", "not at this size")
        return program(asked[-1], arguments, grid), None, None

    def forms(size: int) -> list[TensorForm]:
        return [TensorForm(dtype="float32", shape=(size, 4))]

    session: Any = SimpleNamespace(
        traced=traced,
        ask=lambda inputs, has_values: asked.append(inputs[0].shape[0]),
        kernels=[KernelSource(number=0, name="kernel", source=source, line=1)],
        uploads={},
        has_read=has_read,
        weight_bytes=[64],
    )
    reference: Any = SimpleNamespace(full_size=FULL, full_forms=forms(FULL), forms=forms)
    seen = [SeenProgram(program(rows, arguments, grid), rows) for rows in (SMALL, LARGE)]
    if has_read:  # the rest of a program, after a value was read
        seen = [SeenProgram(each.trace.model_copy(update={"commands": ()}), each.size) for each in seen]
    return FullSize(session, reference, *seen)


def other_sizes(arguments: Arguments, **more: Any) -> Any:
    return full_size(arguments, **more).other_sizes(SecretSeed(b"test"))


def plain(rows: int) -> dict[str, int]:
    return {"BLOCK": 64, "M": rows, "n": 3}


def test_a_program_in_proportion_needs_no_other_size() -> None:
    assert other_sizes(plain) is None


def test_other_constants_at_the_full_size_are_judged_where_they_are_the_same() -> None:
    assert other_sizes(lambda rows: {**plain(rows), "BLOCK": 64 if rows < 100 else 128}) == (128, 256)
    assert other_sizes(lambda rows: {**plain(rows), "BLOCK": 64 if rows < FULL else 128}) == ()


def test_a_flag_is_judged_where_it_is_set() -> None:
    assert other_sizes(lambda rows: {**plain(rows), "n": rows // 300}) == (256, 512)


def test_an_argument_that_stops_growing_is_judged_where_it_has_stopped() -> None:
    assert other_sizes(lambda rows: {**plain(rows), "n": min(rows, 40)}) == (64, 128)


def test_host_code_that_reads_values_is_compared_by_programs_without_values() -> None:
    found = full_size(plain)
    assert found.other_sizes(SecretSeed(b"test")) is None
    reading = full_size(plain, has_read=True)
    assert reading.other_sizes(SecretSeed(b"test")) is None


def test_a_size_branch_is_judged_past_its_bound() -> None:
    assert other_sizes(plain, body="if M > 1000: pass") == (1001, 2002)
    assert other_sizes(plain, body="if M > 3000: pass") == ()


def test_a_grid_that_does_not_grow_steadily_is_judged_at_the_full_size() -> None:
    assert other_sizes(plain, grid=lambda rows: rows if rows in (SMALL, LARGE, FULL) else 1) == ()


def test_host_code_that_fails_at_the_full_size_has_no_program_there() -> None:
    found = full_size(lambda rows: {} if rows == FULL else plain(rows))
    assert found.trace is None
    assert found.launches == []
    assert found.other_sizes(SecretSeed(b"test")) == ()


def test_launches_and_what_they_are_given() -> None:
    found = full_size(plain, grid=lambda rows: -(-rows // 64))
    zeros, kernel = found.launches
    assert (zeros.kernel, zeros.dram_bytes) == ("aten.zeros_like", 2 * 4 * 4 * FULL)
    assert (kernel.kernel, kernel.programs, kernel.signature["BLOCK"]) == ("kernel", FULL // 64, "constexpr")
    assert found.given_bytes == [0, 4 * 4 * FULL + 64]


@pytest.mark.parametrize("secret", [b"a", b"b", b"c"])
def test_the_size_in_between_is_drawn_and_changes_nothing_for_honest_programs(secret: bytes) -> None:
    assert full_size(plain, grid=lambda rows: -(-rows // 32)).other_sizes(SecretSeed(secret)) is None


@pytest.mark.parametrize(
    ("tile", "expected"), [(1, None), (4, None), (16, 48), (64, 144), (100, 216), (FULL // 2, FULL)]
)
def test_programs_that_were_alone_get_neighbours_at_another_size(tile: int, expected: int | None) -> None:
    found = full_size(lambda rows: {"M": rows}, grid=lambda rows: -(-rows // tile))
    assert found.seen_size == LARGE
    assert found.size_with_neighbours() == expected
