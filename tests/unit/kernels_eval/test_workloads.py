"""Workloads of a problem: read from its source, and their verdicts as one."""

import math
from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.cells import joined, merged
from kernels_eval.errors import InputError
from kernels_eval.problem import check_problem_source
from kernels_eval.verdict import Status, Verdict
from kernels_eval.workloads import MOST, workloads_of

SOURCE = """import torch
batch_size, dim = 16, 1024  # größer
dtype: torch.dtype = torch.float32
scale = (1.0 +
         1.0)
WORKLOADS = [{"dim": 1000, "batch_size": 2**0 * 4}, {"dtype": "torch.bfloat16", "scale": 0.5}]
class Model(torch.nn.Module): ...
def get_inputs(): return [torch.randn(batch_size, dim, dtype=dtype) * scale]
def get_init_inputs(): return []
""".replace("2**0 * 4", "4")
RIGHT = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=2.0, candidate_ms=1.0, reference_ms=2.0)
WRONG = Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values", error_message="output[0]: 1")
FAULT = Verdict(status=Status.INFRASTRUCTURE_ERROR, error_category="worker_died", error_message="gone")


def names(source: str) -> dict[str, object]:
    scope: dict[str, object] = {}
    exec(source.partition("class Model")[0], scope)
    return scope


def test_each_workload_is_the_problem_with_other_constants():
    first, second = workloads_of(SOURCE, "x")
    assert first.name == "dim=1000, batch_size=4"
    found = names(first.source)
    assert (found["batch_size"], found["dim"], found["scale"]) == (4, 1000, 2.0)
    found = names(second.source)
    assert str(found["dtype"]) == "torch.bfloat16"
    assert (found["scale"], found["dim"]) == (0.5, 1024)
    assert "größer" in second.source


def test_a_problem_without_a_list_has_no_workloads():
    assert workloads_of(SOURCE.replace("WORKLOADS =", "OTHERS ="), "x") == ()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("[]", f"expected a list of 1 to {MOST} objects .* found 0"),
        ("[1]", "found \\[1\\]"),
        ("[{}]", "found \\[\\{\\}\\]"),
        ("{'dim': 3}", "found \\{'dim': 3\\}"),
        ("[dim]", "found what is no constant"),
        ("[{'width': 3}]", "names of constants .*batch_size, dim.* found 'width'"),
        ("[{'dim': None}]", "dim: expected a number, a text or a list, found None"),
        (f"[{{'dim': 3}}] * {MOST}", "found what is no constant"),
        (str([{"dim": n} for n in range(MOST + 1)]), f"found {MOST + 1}"),
    ],
)
def test_a_bad_list_is_told_with_the_problem(value: str, words: str):
    source = SOURCE.replace(SOURCE.splitlines()[5], f"WORKLOADS = {value}")
    with pytest.raises(InputError, match=f"mine.py: WORKLOADS: .*{words}"):
        check_problem_source(source, "mine.py")


@given(st.lists(st.floats(min_value=0, max_value=math.inf), min_size=1, max_size=8))
def test_the_speed_is_the_geometric_mean_and_no_cell_carries_it(speedups: list[float]):
    verdict = merged(["n"] * len(speedups), [RIGHT.model_copy(update={"speedup": each}) for each in speedups])
    held = [min(max(each, 0.01), 100.0) for each in speedups]
    assert verdict.correct
    assert verdict.speedup == pytest.approx(math.prod(held) ** (1 / len(held)))
    assert [cell.speedup for cell in verdict.cells] == speedups
    assert verdict.candidate_ms == pytest.approx(len(speedups))


def test_one_wrong_cell_makes_the_whole_wrong_and_is_named():
    verdict = merged(["n=1", "n=2"], [RIGHT, WRONG])
    assert (verdict.status, verdict.correct, verdict.speedup) == (Status.INCORRECT, False, None)
    assert verdict.error_message == "at n=2: output[0]: 1"
    assert [cell.status for cell in verdict.cells] == [Status.CORRECT, Status.INCORRECT]


def test_a_fault_of_the_machine_is_one_of_the_whole():
    assert merged(["a", "b"], [WRONG, FAULT]).is_fault


def test_unknown_times_stay_unknown():
    verdict = merged(["a", "b"], [RIGHT, RIGHT.model_copy(update={"speedup": None, "reference_ms": None})])
    assert (verdict.correct, verdict.speedup, verdict.reference_ms) == (True, None, None)


def test_the_whole_is_there_once_all_cells_are_and_cancelling_it_cancels_them():
    workloads = workloads_of(SOURCE, "x")
    cells: list[Future[Verdict]] = [Future(), Future()]
    whole = joined(workloads, cells)
    cells[1].set_result(RIGHT)
    assert not whole.done()
    cells[0].set_result(RIGHT)
    assert whole.result().speedup == pytest.approx(2.0)
    cells = [Future(), Future()]
    assert joined(workloads, cells).cancel()
    assert all(cell.cancelled() for cell in cells)
    cells = [Future(), Future()]
    whole = joined(workloads, cells)
    cells[0].set_exception(ValueError("mine"))
    cells[1].set_result(RIGHT)
    assert isinstance(whole.exception(), ValueError)
