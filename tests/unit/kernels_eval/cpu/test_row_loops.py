"""Loops of kernels whose length depends on a size."""

import pytest

from kernels_eval.cpu.row_loops import loop_growth, may_read_rows_again
from kernels_eval.trace.schema import TRACING_ANSWER, KernelSource, LaunchKernel, TraceAnswer

LOOPS = {
    "over the rows": ("for r in range(M):\n        pass", True),
    "over tiles of rows": ("for r in range(0, tl.cdiv(M, 64)):\n        pass", True),
    "by a name": ("tiles = tl.cdiv(M, 64)\n    last = tiles - 1\n    for r in range(last):\n        pass", True),
    "while rows are left": ("r = 0\n    while r < M:\n        r += 64", True),
    "over columns": ("for r in range(N):\n        pass", False),
    "none": ("r = M", False),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("programs", [(8, 4096), (1, 64), (4, 4)])
def test_loops_over_rows_in_more_programs_are_seen(loop: str, programs: tuple[int, int]) -> None:
    body, is_over_rows = LOOPS[loop]
    source = f"def kernel(M, N):\n    {body}\n"
    kernels = [KernelSource(number=0, name="kernel", source=source, line=1)]
    small, true = (looping(rows, count) for rows, count in zip((16, 4096), programs, strict=True))
    assert may_read_rows_again(small, true, kernels) is (is_over_rows and programs[0] < programs[1])


def looping(rows: int, programs: int) -> TraceAnswer:
    arguments = {"M": {"kind": "plain", "value": rows}, "N": {"kind": "plain", "value": 256}}
    launch = {"kind": "launch", "kernel": 0, "arguments": arguments, "grid": [programs, 1, 1]}
    answer = TRACING_ANSWER.validate_python(
        {"kind": "trace", "structure": "a tensor", "kernels": [], "commands": [launch], "outputs": []}
    )
    assert isinstance(answer, TraceAnswer)
    return answer


@pytest.mark.parametrize(
    ("loop", "times"),
    [
        ("for r in range(M):", 256.0),
        ("for r in range(0, tl.cdiv(M, 64)):", 256.0),
        ("for r in range(N):", 1.0),
        ("for tile in range(tl.program_id(0), M, tl.num_programs(0)):", 1.0),
        ("for tile in range(pid, M, 64):", 1.0),
        ("while N < M:", 256.0),
    ],
)
def test_how_much_longer_a_loop_gets(loop: str, times: float) -> None:
    small, large = (looping(rows, 4).commands[0] for rows in (16, 4096))
    assert isinstance(small, LaunchKernel)
    assert isinstance(large, LaunchKernel)
    source = f"def kernel(M, N):\n    pid = tl.program_id(0)\n    {loop}\n        pass\n"
    assert loop_growth(small, large, source) == times
