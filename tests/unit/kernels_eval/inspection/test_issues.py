"""Issues that a profile on a GPU shows. Those that are counted: tests/integration/kernels_eval/test_inspector.py."""

import pytest

from kernels_eval.inspection.issues import issues_of_profile
from kernels_eval.verdict import MOST_KERNELS, IssueKind, KernelTime, Profile, Resources

USED = (Resources(kernel="k", architecture="cuda:90", registers=32, spills=0),)


def profile(*microseconds: float, launches: float | None = None) -> Profile:
    kernels = tuple(
        KernelTime(name=f"k{number}", launches=1, microseconds=spent, is_own=True)
        for number, spent in enumerate(microseconds)
    )
    return Profile(
        kernels=kernels,
        launches=len(kernels) if launches is None else launches,
        own_share=1.0,
        gigabytes_per_s=1000.0,
        teraflops_per_s=0.0,
        roofline_share=0.5,
    )


@pytest.mark.parametrize(
    ("measured", "call_us", "expected"),
    [
        (profile(4.0, 4.0), 16.0, {IssueKind.MANY_LAUNCHES}),
        (profile(4.0, 4.0), 10.0, set()),
        (profile(4.0), 16.0, set()),  # the gap before a single launch cannot be saved
        (profile(*[1.0] * MOST_KERNELS), 100.0, set()),  # the profile names no more, and they may take the rest
    ],
)
def test_launches_are_an_issue_where_much_of_the_call_passes_between_them(
    measured: Profile, call_us: float, expected: set[IssueKind]
) -> None:
    assert {issue.kind for issue in issues_of_profile(measured, USED, call_us)} == expected


def test_a_spill_is_told_with_its_kernel() -> None:
    spilled = Resources(kernel="other", architecture="cuda:90", registers=255, spills=64)
    (issue,) = issues_of_profile(profile(10.0), (*USED, spilled), 11.0)
    assert (issue.kind, issue.kernel, issue.value) == (IssueKind.SPILLS, "other", 64)
    assert "64 bytes" in issue.message
