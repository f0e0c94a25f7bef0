"""Efficiency of a kernel's memory traffic and registers, counted and measured, and what a reward makes of it."""

from typing import Any

import pytest

from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.cost.occupancy import register_share
from kernels_eval.inspection.efficiency import counted_efficiency, measured_efficiency
from kernels_eval.inspection.figures import CallFigures, LaunchFigures, Work
from kernels_eval.rewards import reward_of
from kernels_eval.verdict import Efficiency, Issue, IssueKind, Profile, Resources, Status, Verdict

H100 = HARDWARE["h100"]


def launch(registers: int | None, share: float) -> LaunchFigures:
    figures: dict[str, Any] = dict.fromkeys(
        ("microseconds", "programs", "waves", "gigabytes_per_s", "gigaflops_per_s", "roofline_share", "sector_share",
         "lane_share", "lane_bytes", "occupancy"), 1.0,
    )  # fmt: skip
    return LaunchFigures(
        kernel="k", line=1, share=share, bound_by="memory", warps=4, limited_by="warps", registers=registers, **figures
    )


def call(moved: float, *launches: LaunchFigures) -> CallFigures:
    return CallFigures(
        launches=launches, microseconds=10.0, gaps_share=0.1, library_share=0.0, moved_bytes=moved,
        needed=Work(bytes=100.0), computed_flops=0.0, tensor_share=1.0, hardware="h100",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("registers", "share"), [(16, 1.0), (32, 1.0), (33, 0.8), (64, 0.5), (128, 0.25), (255, 0.125)]
)
def test_registers_leave_room_for_so_many_warps(registers: int, share: float) -> None:
    """An H100 has 65,536 registers for 64 warps of 32 threads; a warp's are given in units of 256."""
    assert register_share(registers, "cuda:90") == pytest.approx(share, abs=0.02)


def test_an_unknown_architecture_holds_nothing_against_a_kernel() -> None:
    assert register_share(255, "cuda:999") == 1.0


def test_counted_traffic_counts_below_the_issues_limit_too() -> None:
    found = counted_efficiency(call(125.0, launch(64, 0.6), launch(128, 0.2), launch(255, 0.05)), H100)
    assert found == Efficiency(memory=0.8, registers=0.25)  # the last launch takes too little of the call
    assert counted_efficiency(call(90.0, launch(None, 1.0)), H100) == Efficiency(memory=1.0, registers=1.0)


def test_on_a_gpu_the_roof_and_the_compiled_kernels_decide() -> None:
    profile = Profile(
        kernels=(), launches=1, own_share=1.0, gigabytes_per_s=1.0, teraflops_per_s=0.0, roofline_share=0.6
    )
    used = [Resources(kernel="a", architecture="cuda:90", registers=64), Resources(kernel="b", architecture="cuda:90")]
    assert measured_efficiency(profile, used) == Efficiency(memory=0.6, registers=0.5)
    beyond = profile.model_copy(update={"roofline_share": 1.2})
    assert measured_efficiency(beyond, ()) == Efficiency(memory=1.0, registers=1.0)


def correct(**fields: Any) -> Verdict:
    return Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=1.0, **fields)


def test_the_reward_of_agents_has_the_product() -> None:
    found = reward_of("four_part", correct(efficiency=Efficiency(memory=0.8, registers=0.5)))
    assert found == pytest.approx(0.4 * 0.5 + 0.3 + 0.2 * 0.4 + 0.1)


def test_a_verdict_from_before_keeps_its_reward() -> None:
    """Old tables have issues alone: with the limit of 1.5, twice the bytes were an issue and 1.2 times were not."""
    issue = Issue(kind=IssueKind.REDUNDANT_TRAFFIC, value=2.0, limit=1.5, message="", remedy="")
    assert reward_of("four_part", correct()) == pytest.approx(0.8)
    assert reward_of("four_part", correct(issues=(issue,))) == pytest.approx(0.7)
