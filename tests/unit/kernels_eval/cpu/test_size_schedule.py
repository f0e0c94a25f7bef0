"""Leading sizes to run at, and size branches of kernels that small sizes would not show."""

from types import SimpleNamespace
from typing import Any

import pytest

from kernels_eval.correctness.tolerance import UNWRITTEN
from kernels_eval.cost.launch import Launch
from kernels_eval.cpu.size_schedule import (
    first_sizes,
    follow_up,
    larger_sizes,
    size_needed,
    size_of,
)
from kernels_eval.sandbox.tensor_bytes import TensorForm
from kernels_eval.trace.schema import TRACING_ANSWER, KernelSource, TraceAnswer
from kernels_eval.verdict import Status, Verdict


def reference(**facts: Any) -> Any:
    known = {
        "can_be_reduced": True,
        "has_long_rows": False,
        "has_products": False,
        "has_square_input": False,
        "loses_equal_sizes": False,
        "full_size": 4096,
    }
    return SimpleNamespace(**(known | facts))


@pytest.mark.parametrize(
    ("facts", "sizes"),
    [
        ({}, (8, 16)),
        ({"has_products": True}, (32, 64)),
        ({"has_long_rows": True}, (2, 4)),
        ({"can_be_reduced": False}, ()),
        ({"full_size": 16}, ()),
        ({"full_size": 1000}, (8, 24)),
        ({"full_size": 300}, (12, 20)),
        ({"full_size": 1001}, (9, 17)),
        ({"full_size": 150, "has_products": True}, (34, 66)),
        ({"full_size": 17}, ()),
        ({"has_products": True, "full_size": 64}, ()),
    ],
)
def test_first_sizes(facts: dict[str, Any], sizes: tuple[int, ...]) -> None:
    assert first_sizes(reference(**facts)) == sizes


@pytest.mark.parametrize(
    ("facts", "sizes", "category", "ahead", "expected"),
    [
        ({}, (), "out_of_bounds", None, None),  # the full size was run already
        ({}, (8, 16), None, None, None),
        ({}, (8, 16), None, (128, 256), (128, 256)),
        ({}, (8, 16), "wrong_values", None, None),
        ({}, (8, 16), "out_of_bounds", None, (32, 64)),
        ({}, (32, 64), "empty_grid", None, (256, 512)),
        ({}, (256, 512), "empty_grid", None, None),
        ({"full_size": 1001}, (9, 17), "out_of_bounds", None, (33, 65)),
        ({"full_size": 512}, (32, 64), "empty_grid", None, None),
        ({"has_square_input": True}, (8, 16), "wrong_values", None, ()),
        ({"has_square_input": True}, (8, 16), None, None, None),
        ({"loses_equal_sizes": True}, (8, 16), "library_compute", None, ()),
        ({"loses_equal_sizes": True}, (8, 16), "wrong_values", None, None),
    ],
)
def test_larger_sizes_after_a_failure_that_small_ones_may_cause(
    facts: dict[str, Any], sizes: Any, category: str | None, ahead: Any, expected: Any
) -> None:
    verdict = Verdict(status=Status.INCORRECT, error_category=category)
    assert larger_sizes(reference(**facts), sizes, verdict, ahead) == expected


ASSERTION = "AssertionError:  (line 12: assert n % 512 == 0)"
RAISED = "ValueError: no whole tiles (line 3: raise ValueError('no whole tiles'); called from line 20: y = f(x))"


@pytest.mark.parametrize(
    ("category", "message", "shape", "sizes", "expected"),
    [
        ("exception", ASSERTION, (1024, 96), (8, 16), (64, 128)),
        ("exception", RAISED, (4096, 1000), (8, 16), (128, 256)),
        ("wrong_values", f"output[3] is nan; 2 elements are NaN: {UNWRITTEN}", (1024, 96), (8, 16), (32, 64)),
        ("wrong_values", "output[3] is 2, expected 1", (1024, 96), (8, 16), None),
        ("exception", "TypeError: no (line 3: y = x + None)", (1024, 96), (8, 16), None),
        ("wrong_values", f"3 elements are NaN: {UNWRITTEN}", (1024, 128), (8, 16), None),  # was in whole tiles
        ("exception", ASSERTION, (1024, 96), (64, 128), ()),  # judged again already
        ("exception", ASSERTION, (32, 96), (8, 16), ()),
        ("exception", ASSERTION, (1000, 100), (8, 24), ()),  # tiles divide no further at the full size
    ],
)
def test_a_kernel_for_whole_tiles_is_judged_where_they_divide_the_size(
    category: str, message: str, shape: tuple[int, int], sizes: Any, expected: Any
) -> None:
    form = TensorForm(dtype="float32", shape=shape)
    verdict = Verdict(status=Status.INCORRECT, error_category=category, error_message=message)
    facts = reference(full_size=shape[0], full_forms=[form, 3])
    assert larger_sizes(facts, sizes, verdict, None) == expected


def test_trials_alternate_between_the_sizes() -> None:
    assert [size_of((8, 16), trial) for trial in range(4)] == [8, 16, 8, 16]
    assert size_of((), 3) is None


def launch(programs: float, kernel: str = "kernel") -> Launch:
    return Launch(kernel=kernel, programs=programs)


@pytest.mark.parametrize(
    ("small", "guess", "exact", "products", "expected"),
    [
        (16, 4096, 4096, False, (None, False)),  # in proportion
        (16, 4096, 16, False, ((), True)),  # as many programs as for 16 rows: persistent
        (16, 4096, 1024, False, ((128, 256), True)),  # tiles of 4 rows
        (1, 256, 64, False, ((128, 256), True)),  # tiles of 64 rows
        (4, 1000, 2000, True, ((32, 64), False)),  # programs only estimated badly
        (4, 1000, 2000, False, (None, False)),
    ],
)
def test_follow_up(small: float, guess: float, exact: float, products: bool, expected: Any) -> None:
    library = launch(0, "aten.clone")
    found = follow_up(
        [library, launch(small)], [library, launch(guess)], [library, launch(exact)], (8, 16), 4096, products
    )
    assert found == expected


def program(grid: int, **arguments: int | float) -> TraceAnswer:
    plain = {name: {"kind": "plain", "value": value} for name, value in arguments.items()}
    command = {"kind": "launch", "kernel": 0, "arguments": plain, "grid": [grid, 1, 1]}
    raw = {"kind": "trace", "structure": "a tensor", "commands": [command], "outputs": []}
    answer = TRACING_ANSWER.validate_python(raw)
    assert isinstance(answer, TraceAnswer)
    return answer


def kernel(body: str, **constants: int) -> list[KernelSource]:
    plain = {name: {"kind": "plain", "value": value} for name, value in constants.items()}
    source = f"def kernel(M, BLOCK):\n    pid = tl.program_id(0)\n    {body}\n"
    return [KernelSource(number=0, name="kernel", source=source, line=1, globals=plain)]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("pass", None),
        ("if M > 1000: pass", 1001),
        ("if M * 2 > LIMIT: pass", 501),
        ("if BLOCK > 1000: pass", None),  # does not grow
        ("if M > 100000: pass", None),  # beyond the full size
        ("if M > 3: pass", None),  # taken at the small size already
        ("if pid == 77: pass", 309),  # a quarter as many programs as rows
        ("if tl.program_id(0) > 77: pass", 309),
        ("for row in range(pid, M, 4): tl.store(o, 1.0, mask=row < 1000)", 1001),
        ("for row in range(pid, BLOCK, 4): tl.store(o, 1.0, mask=row < 1000)", None),
        ("for row in range(pid, M, 4): tl.store(o, 1.0, mask=row < M)", None),
    ],
)
def test_size_branches(body: str, size: int | None) -> None:
    small, full = program(4, M=16, BLOCK=64), program(1024, M=4096, BLOCK=64)
    assert size_needed(small, full, kernel(body, LIMIT=500), 16) == size
