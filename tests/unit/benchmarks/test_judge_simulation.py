"""The simulation of the judge: what virtual time does to blocking code, and batches whose time can be computed by hand."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_eval import Problem

FOLDER = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def scaling() -> Iterator[Any]:
    sys.path.insert(0, str(FOLDER))
    try:
        import judge_simulation  # pyright: ignore[reportMissingImports]

        yield judge_simulation
    finally:
        sys.path.remove(str(FOLDER))


def batch(scaling: Any, count: int, cpu_s: float, problems: int = 1, wait_s: float = 0.0, start: int = 0) -> list[Any]:
    made = [Problem(problem_id=f"p{number}", source=f"# {number}") for number in range(problems)]
    return [scaling.Kernel(made[n % problems], f"{n}", cpu_s, wait_s) for n in range(start, start + count)]


def costs(scaling: Any, reference_s: float = 0.0, dispatch_s: float = 0.0) -> Any:
    return scaling.Costs((), reference_s, dispatch_s)


def test_one_worker_takes_the_sum_and_two_take_half(scaling: Any):
    kernels = batch(scaling, 12, 0.2)
    assert scaling.simulate_local(kernels, costs(scaling), 1, 1).seconds == pytest.approx(2.4)
    two = scaling.simulate_local(kernels, costs(scaling), 2, 2)
    assert (two.seconds, two.efficiency) == (pytest.approx(1.2), pytest.approx(1.0))


def test_more_workers_than_cores_are_no_faster(scaling: Any):
    assert scaling.simulate_local(batch(scaling, 12, 0.2), costs(scaling), 4, 2).seconds == pytest.approx(1.2)


def test_a_reference_is_built_once_by_each_worker_that_needs_it(scaling: Any):
    found = scaling.simulate_local(batch(scaling, 12, 0.2, problems=2), costs(scaling, reference_s=0.1), 2, 2)
    assert found.seconds == pytest.approx(6 * 0.2 + 0.1), "each worker keeps to one of the two problems"


def test_a_kernel_that_hangs_delays_no_other(scaling: Any):
    """A worker in reserve takes its place after a while."""
    hanging = batch(scaling, 1, 0.0, wait_s=10.0, start=100)
    found = scaling.simulate_local([*hanging, *batch(scaling, 20, 0.1)], costs(scaling), 1, 1)
    assert found.seconds == pytest.approx(10.0)
    assert found.judged == 21
    assert found.tail > 0.7, "everything else had ended long before"


def test_equal_kernels_are_judged_once(scaling: Any):
    kernels = batch(scaling, 3, 0.2)
    found = scaling.simulate([*kernels, *kernels], costs(scaling), nodes=1, workers=1)
    assert found.judged == 3


def test_a_slow_sender_limits_any_number_of_nodes(scaling: Any):
    kernels = batch(scaling, 400, 0.01, problems=50)
    found = scaling.simulate(kernels, costs(scaling, dispatch_s=0.05), nodes=8, workers=4)
    assert found.seconds == pytest.approx(400 * 0.05, abs=0.2)
    assert found.limit == "dispatcher"


def test_two_nodes_are_twice_as_fast_with_many_problems(scaling: Any):
    kernels = batch(scaling, 800, 0.1, problems=100)
    one, two = (scaling.simulate(kernels, costs(scaling), nodes, workers=4).seconds for nodes in (1, 2))
    assert one == pytest.approx(800 * 0.1 / 4)
    assert one / two == pytest.approx(2.0, abs=0.1)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.01, 3.0), st.floats(0.0, 3.0)), min_size=1, max_size=25),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_no_batch_is_faster_than_its_work_or_its_longest_kernel(
    scaling: Any, services: list[tuple[float, float]], workers: int, nodes: int
):
    kernels = [
        scaling.Kernel(Problem(problem_id=f"p{n % 3}", source=f"# {n % 3}"), str(n), *service)
        for n, service in enumerate(services)
    ]
    found = scaling.simulate(kernels, costs(scaling), nodes, workers)
    assert found.judged == len(kernels)
    least = max(sum(cpu for cpu, _ in services) / (nodes * workers), max(cpu + wait for cpu, wait in services))
    assert least - 1e-6 <= found.seconds <= sum(cpu + wait for cpu, wait in services) + 1e-6
    assert 0 < found.efficiency <= 1 + 1e-9


def test_what_waits_for_nothing_ends_the_simulation(scaling: Any):
    async def forever() -> None:
        await asyncio.get_running_loop().create_future()

    with scaling.virtual_time() as loop, pytest.raises(RuntimeError, match="nothing is left to happen"):
        loop.run_until_complete(forever())
