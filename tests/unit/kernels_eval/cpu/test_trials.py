"""One trial's helpers: the largest errors, sizes of outputs, and whose fault a senseless program is."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.correctness.outputs import Expected, ReferenceFailedError
from kernels_eval.cpu.trials import Errors, bytes_of, sensible
from kernels_eval.errors import InfrastructureError
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.verdict import Status

PAIRS = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=6)


@given(PAIRS)
def test_errors_are_the_largest_of_all_trials(pairs: list[tuple[float, float]]) -> None:
    errors = Errors()
    for absolute, relative in pairs:
        errors.add(absolute, relative)
    assert errors.absolute == max([0.0, *(absolute for absolute, _ in pairs)])
    assert errors.relative == max([0.0, *(relative for _, relative in pairs)])


def test_expected_outputs_take_the_bytes_of_their_elements() -> None:
    native = [torch.empty(3, 5, dtype=torch.float16), torch.empty(7, dtype=torch.int64), torch.empty(2, 0)]
    assert bytes_of(Expected(native, native, frozenset(), "a tensor")) == 3 * 5 * 2 + 7 * 8


@pytest.mark.parametrize(
    "raised",
    [
        CandidateFailedError(Status.REJECTED, "library_compute", "m"),
        InfrastructureError("the machine"),
        ReferenceFailedError("the problem"),
    ],
)
def test_failures_that_have_an_owner_keep_it(raised: Exception) -> None:
    with pytest.raises(type(raised)) as found:
        sensible(lambda: (_ for _ in ()).throw(raised))
    assert found.value is raised


@pytest.mark.parametrize("raised", [KeyError(3), OverflowError(), RecursionError(), AssertionError()])
def test_any_other_failure_is_the_candidates(raised: Exception) -> None:
    with pytest.raises(CandidateFailedError) as found:
        sensible(lambda: (_ for _ in ()).throw(raised))
    assert found.value.__cause__ is raised
    assert sensible(lambda: 3) == 3
