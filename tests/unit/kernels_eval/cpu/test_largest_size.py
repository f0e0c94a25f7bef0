"""The largest size that a correct kernel is run at once more, from the time of a small trial."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.cost.launch import Launch
from kernels_eval.cpu.largest_size import SeenRun, fitting_sizes, growth, largest_size, tensor_bytes
from kernels_eval.sandbox.tensor_bytes import TensorForm
from kernels_eval.trace.schema import FIRST_OWN, TRACING_ANSWER, TraceAnswer

SEEN = SeenRun(size=16, seconds=0.01, growth=1.0, full_bytes=1 << 20)


@pytest.mark.parametrize(
    ("change", "full_size", "expected"),
    [
        ({}, 1024, 1024),  # 0.64 s
        ({"seconds": 0.05}, 1024, 1024),  # 3.2 s
        ({"seconds": 0.1}, 1024, 512),
        ({"seconds": 1.0}, 1024, 64),
        ({"seconds": 3.0}, 1024, None),
        ({"growth": 2.0}, 1024, 256),
        ({"growth": 3.0}, 1024, 64),
        ({"full_bytes": 300 << 20}, 1024, 512),  # an eighth of the memory
        ({"full_bytes": 3 << 40}, 1024, None),
        ({"seconds": 0.1}, 1000, 500),
        ({"seconds": 0.0}, 17, 17),  # the clock has not ticked
        ({"seconds": 0.0}, 1 << 20, 1 << 16),
        ({}, 16, None),
    ],
)
def test_the_full_size_or_the_largest_part_of_it_that_fits(
    change: dict[str, Any], full_size: int, expected: int | None
) -> None:
    assert largest_size(replace(SEEN, **change), full_size, budget_s=5.0, memory_mb=2048) == expected


@pytest.mark.parametrize(
    ("seen", "full_size", "expected"),
    [
        (SEEN, 1024, ()),
        (replace(SEEN, seconds=0.1), 1024, (256, 512)),
        (replace(SEEN, seconds=3.0), 1024, (8, 16)),
        (None, 1024, ()),
        (SEEN, None, ()),
    ],
)
def test_sizes_that_fit(seen: SeenRun | None, full_size: int | None, expected: tuple[int, ...]) -> None:
    assert fitting_sizes((8, 16), seen, full_size, budget_s=5.0, memory_mb=2048) == expected


@given(st.floats(1e-4, 10), st.floats(1, 3), st.integers(17, 1 << 20), st.floats(0.1, 100))
def test_no_size_is_estimated_above_the_budget(
    seconds: float, exponent: float, full_size: int, budget_s: float
) -> None:
    size = largest_size(replace(SEEN, seconds=seconds, growth=exponent), full_size, budget_s, memory_mb=1 << 20)
    if size is not None:
        assert 16 < size <= full_size
        assert seconds * (size / 16) ** exponent <= budget_s
        return
    assert seconds * (min(full_size, 32) / 16) ** exponent > budget_s or full_size < 32


def launch(traffic: float, programs: float) -> Launch:
    return Launch(kernel="kernel", programs=programs, dram_bytes=0, l2_bytes=traffic)


@pytest.mark.parametrize(
    ("small", "large", "expected"),
    [
        (launch(1e6, 10), launch(2e6, 20), 1.0),
        (launch(1e6, 10), launch(4e6, 40), 2.0),
        (launch(1e6, 10), launch(1.1e6, 10), 1.0),  # never below proportion
        (launch(1e6, 10), launch(1e9, 10), 3.0),
        (launch(0, 0), launch(1e6, 1), 1.0),
    ],
)
def test_the_growth_of_the_work(small: Launch, large: Launch, expected: float) -> None:
    assert growth([small], [large], 2.0) == pytest.approx(expected, abs=0.05)


def test_tensors_of_a_call_are_its_inputs_uploads_and_allocations() -> None:
    def view(storage: int, rows: int) -> dict[str, Any]:
        return {"kind": "view", "storage": storage, "dtype": "float16", "shape": [rows, 4], "strides": [4, 1]}

    made = {"kind": "operate", "name": "empty", "overload": "memory_format", "arguments": []}
    raw = {
        "kind": "trace",
        "structure": "a tensor",
        "commands": [
            {"kind": "upload", "storage": FIRST_OWN, "start": 0, "size": 100},
            {**made, "results": [view(FIRST_OWN + 1, 8), None]},
            {**made, "name": "zero_", "results": [view(FIRST_OWN + 1, 8)]},
        ],
        "outputs": [],
    }
    trace = TRACING_ANSWER.validate_python(raw)
    assert isinstance(trace, TraceAnswer)
    assert tensor_bytes(trace, [TensorForm(dtype="float32", shape=(8, 4)), 3, None]) == 128 + 100 + 64
