"""Requests and verdicts in KernelBench's names say the same as ours."""

import pytest
from pydantic import ValidationError

from kernels_eval.config import CHANGEABLE
from kernels_eval.server.schemas import EvalSettings, KernelBenchRequest, in_kernelbench_names
from kernels_eval.verdict import Status, TimingSource, Verdict


def test_a_request_in_kernelbenchs_names_is_ours() -> None:
    given = {"original_model_src": "p", "custom_model_src": "k", "num_correct_trials": 5, "num_perf_trials": 100}
    own = KernelBenchRequest.model_validate(given | {"measure_performance": True}).as_own()
    assert (own.problem_source, own.kernel_source) == ("p", "k")
    assert own.settings is not None
    assert own.settings.given() == {"trials": 5}


def test_a_request_may_change_what_one_kernel_may_change() -> None:
    assert set(EvalSettings.model_fields) == set(CHANGEABLE) - {"backend"}  # which has a field of its own


def test_settings_that_were_not_given_are_the_servers() -> None:
    assert EvalSettings().given() == {}
    assert EvalSettings.model_validate({"trials": 2}).given() == {"trials": 2}
    with pytest.raises(ValidationError):
        EvalSettings.model_validate({"workers": 2})


def test_a_correct_verdict_has_both_times() -> None:
    verdict = Verdict(status=Status.CORRECT, compiled=True, correct=True, candidate_ms=1.0, reference_ms=2.0,
                      timing_source=TimingSource.ROOFLINE)  # fmt: skip
    found = in_kernelbench_names(verdict)
    assert (found.correctness, found.runtime, found.ref_runtime) == (True, 1.0, 2.0)
    assert found.metadata == {"hardware": verdict.hardware, "timing_source": "roofline"}


@pytest.mark.parametrize(
    ("status", "key"),
    [
        (Status.COMPILE_ERROR, "compilation_error"),
        (Status.INCORRECT, "correctness_issue"),
        (Status.TIMEOUT, "runtime_error"),
    ],
)
def test_an_error_stands_under_kernelbenchs_key(status: Status, key: str) -> None:
    found = in_kernelbench_names(Verdict(status=status, error_category="category", error_message="text"))
    assert (found.runtime, found.ref_runtime, found.correctness) == (-1.0, -1.0, False)
    assert (found.metadata[key], found.metadata[f"{key}_name"]) == ("text", "category")
