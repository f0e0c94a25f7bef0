"""The log's format, as it is documented."""

from datetime import UTC, datetime

from kernels_eval.verdict import Status, TimingSource, Verdict
from tasks.rollout.turn_log import trajectory_summary, turn_line
from tasks.trajectories.schema import Termination, Trajectory, Turn, TurnRole

FAST = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=1.2, candidate_ms=3.12)


def turn(index: int, verdict: Verdict, reward: float | None) -> Turn:
    return Turn(
        index,
        TurnRole.SOLVER,
        (1,),
        (2,),
        (-0.1,),
        True,
        "stop",
        "x",
        "x",
        verdict,
        reward,
        0.1,
        0.2,
        datetime.now(UTC),
    )


def test_turn_line() -> None:
    line = "[Turn 2] kernelbench_1: Compile:✓ Correct:✓ Runtime:3.12ms Speedup:1.20x Reward:1.200"
    assert turn_line("kernelbench_1", turn(1, FAST, 1.2)) == line


def test_an_estimate_bears_its_mark() -> None:
    estimated = FAST.model_copy(update={"timing_source": TimingSource.ROOFLINE})
    assert "Speedup:1.20x (roofline)" in turn_line("p", turn(0, estimated, 1.2))


def test_a_fault_has_no_numbers() -> None:
    line = turn_line("p", turn(0, Verdict(status=Status.INFRASTRUCTURE_ERROR), None))
    assert line == "[Turn 1] p: Compile:✗ Correct:✗ Runtime:- Speedup:- Reward:-"


def test_summary() -> None:
    turns = (turn(0, Verdict(status=Status.TIMEOUT), 0.0), turn(1, FAST, 1.2))
    trajectory = Trajectory("r", 1, "d", "kernelbench_1", "d", "train", 1, "g", "t", 0, turns, Termination.TURN_LIMIT)
    assert trajectory_summary(trajectory, 0.4).split("\n") == [
        "=== Final Trajectory Summary for kernelbench_1 ===",
        "Total turns: 2 (turn_limit)",
        "Turn rewards: [0.000, 1.200]",
        "Aggregated return: 0.4800",
        "Final correctness: ✓",
        "Final speedup: 1.20x",
    ]
