"""An inspection as lines for a terminal; the command itself is tested with the inspector."""

from flows.cli.inspecting import lines_of
from kernels_eval.inspection.failures import Failure
from kernels_eval.inspector import Inspection
from kernels_eval.verdict import Profile, Status, TimingSource, Verdict


def test_what_a_gpu_measured_stands_before_what_is_estimated() -> None:
    profile = Profile(
        kernels=(), launches=2, own_share=0.75, gigabytes_per_s=1234.4, teraflops_per_s=0, roofline_share=0.5
    )
    verdict = Verdict(
        status=Status.CORRECT, compiled=True, correct=True, speedup=1.5, candidate_ms=0.0123, reference_ms=0.01845,
        timing_source=TimingSource.GPU, hardware="NVIDIA H100", profile=profile,
    )  # fmt: skip
    measured = [
        "correct, 1.50 times eager (gpu)",
        "  a call, measured on NVIDIA H100: 12.3 us, 1,234 GB/s of what is needed, 50% of the roofline; "
        "2 launches, 75% of the time in own kernels",
    ]
    assert lines_of(Inspection(verdict=verdict)) == [*measured, "✓ no issues"]
    uncounted = Inspection(verdict=verdict, failure=Failure(category="not_run_without_gpu", cause="no GPU"))
    assert lines_of(uncounted) == [
        *measured,
        "  not counted: not run without gpu: no GPU",
    ]
