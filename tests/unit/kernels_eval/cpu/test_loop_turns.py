"""Turns of loops at a problem's own sizes, and how evenly programs share them."""

import pytest

from kernels_eval.cpu.loop_turns import SharedLoop, longer_loops, shared_loop
from kernels_eval.trace.schema import KernelSource, LaunchKernel, ModuleName, Plain

MODULES = {"tl": ModuleName(kind="module", name="triton.language")}
PROGRAMS, FEW, MANY = 132, 66, 2112


def launch(rows: int, **numbers: int) -> LaunchKernel:
    arguments = {name: Plain(value=value) for name, value in {"M": rows, **numbers}.items()}
    return LaunchKernel(kernel=0, arguments=arguments, grid=(PROGRAMS, 1, 1))


def kernel(body: str) -> KernelSource:
    lines = body.replace("\n", "\n    ")
    source = f"def kernel(x_ptr, M, N, FLAG: tl.constexpr):\n    {lines}\n"
    return KernelSource(number=0, name="kernel", source=source, line=1, globals=dict(MODULES))


def found(body: str, counted: float = FEW / PROGRAMS) -> SharedLoop | None:
    return shared_loop(launch(FEW, N=64, FLAG=1), launch(MANY, N=4096, FLAG=1), kernel(body), counted)


STRIDED = "for row in range(tl.program_id(0), M, tl.num_programs(0)):\n    pass"
NAMED = "pid = tl.program_id(0).to(tl.int32)\nstep = tl.num_programs(0)\nfor row in tl.range(pid, M, step, num_stages=2):\n    pass"
CHUNKS = (
    "each = tl.cdiv(M, tl.num_programs(0))\nfirst = tl.program_id(0) * each\n"
    "for row in range(first, tl.minimum(first + each, M)):\n    pass"
)
CONSTANT = "if FLAG:\n    pass\n" + STRIDED


@pytest.mark.parametrize("body", [STRIDED, NAMED, CHUNKS, CONSTANT])
def test_programs_without_one_of_the_cut_rows_have_some_of_the_problem_s_own(body: str) -> None:
    assert found(body) == SharedLoop(1.0, MANY / FEW)


def test_programs_that_have_none_there_either_stay_idle() -> None:
    loop = found("for row in range(tl.program_id(0) * 64, M, 64 * 132):\n    pass", 2 / 132)
    assert loop == SharedLoop(33 / 132, 33 / 2)


@pytest.mark.parametrize(
    "body",
    [
        f"if tl.program_id(0) < 66:\n    {STRIDED}".replace("    pass", "        pass"),
        f"if tl.program_id(0) >= 66:\n    return\n{STRIDED}",
        STRIDED.replace("pass", "if row < N:\n        x = 1"),
        STRIDED.replace("pass", "for column in range(0, row):\n        x = 1"),
        STRIDED.replace("tl.program_id(0)", "tl.load(x_ptr)"),
        STRIDED.replace("pass", "break"),
        f"{STRIDED}\n{STRIDED}",
        "row = tl.program_id(0)\nwhile row < M:\n    row += tl.num_programs(0)",
        "for row in range(M):\n    pass",
    ],
)
def test_what_may_leave_programs_out_proves_nothing(body: str) -> None:
    assert found(body) is None


@pytest.mark.parametrize("counted", [0.05, 0.4, 0.6, 1.0])
def test_what_was_counted_has_to_be_what_the_loop_says(counted: float) -> None:
    assert found(STRIDED, counted) is None


def test_rows_that_are_computed_twice_there_are_turns_too() -> None:
    loop = found("for row in range(tl.program_id(0), M, 66):\n    pass")
    assert loop is not None
    assert loop.turns == pytest.approx((132 * 32 - 66) / 66, rel=0.05)


@pytest.mark.parametrize(
    ("body", "times"),
    [
        ("for start in range(0, N, 64):\n    pass", 64.0),
        ("for start in range(0, tl.cdiv(N, 64)):\n    for again in range(N):\n        pass", 4096.0),
        ("for start in range(0, N, N):\n    pass", 1.0),
        ("for start in range(8):\n    pass", 1.0),
        (STRIDED, 1.0),
        ("for start in range(tl.load(x_ptr)):\n    pass", 1.0),
    ],
)
def test_how_many_more_turns_a_program_takes(body: str, times: float) -> None:
    assert longer_loops(launch(FEW, N=64, FLAG=1), launch(MANY, N=4096, FLAG=1), kernel(body)) == times
