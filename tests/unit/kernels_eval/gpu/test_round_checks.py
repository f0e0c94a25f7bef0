"""Checks of rounds and of times on a GPU."""

from typing import Any

import pytest

from kernels_eval.gpu.round_checks import LargestErrors, check_round
from kernels_eval.gpu.session import Round, RoundAnswer
from kernels_eval.sandbox.child import CandidateFailedError


class NoCalls:
    """A round without calls, in which nothing was touched."""

    count = 0

    def changed_inputs(self) -> set[int]:
        return set()

    def has_broken_guards(self) -> bool:
        return False


def check(**observed: Any) -> None:
    calls: Any = NoCalls()
    check_round(Round(RoundAnswer(kind="round", calls=(), **observed), host_s=1e-3), calls, (), LargestErrors())


def test_waiting_for_an_idle_device_is_no_work() -> None:
    check(unjoined_s=3e-6)


@pytest.mark.parametrize(
    ("observed", "category"),
    [({"unjoined_s": 22e-6}, "unjoined_stream"), ({"threads": 2}, "background_thread")],
)
def test_what_goes_on_after_the_call_is_refused(observed: dict[str, Any], category: str) -> None:
    with pytest.raises(CandidateFailedError) as failed:
        check(**observed)
    assert failed.value.category == category
