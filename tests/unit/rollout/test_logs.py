"""The lines' format, as it is documented."""

import math
import re
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.verdict import Status, TimingSource, Verdict
from tasks.agents.config import SOLVER
from tasks.rollout.logs import trajectory_summary, turn_line
from tasks.trajectories.schema import Termination, Trajectory, Turn

FAST = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=1.2, candidate_ms=3.12)
LINE = re.compile(
    r"\[Turn (\d+)\] (.+): Compile:([✓✗]) Correct:([✓✗]) Runtime:(-|\d+\.\d+ms) Speedup:(-|\d+\.\d\dx(?: \(roofline\))?) "
    r"Reward:(-|-?\d+\.\d{3})"
)
NUMBER = st.floats(1e-6, 1e6)
VERDICTS = st.builds(
    Verdict,
    status=st.sampled_from(Status),
    compiled=st.booleans(),
    correct=st.booleans(),
    speedup=st.none() | NUMBER,
    candidate_ms=st.none() | NUMBER,
    timing_source=st.none() | st.sampled_from(TimingSource),
)
REWARDS = st.none() | st.floats(0, 5)


def turn(index: int, verdict: Verdict, reward: float | None) -> Turn:
    return Turn(
        index,
        SOLVER,
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


def trajectory(*turns: Turn) -> Trajectory:
    return Trajectory("r", 1, "d", "kernelbench_1", "d", "train", 1, "g", "t", 0, turns, Termination.TURN_LIMIT)


def test_turn_line() -> None:
    line = "[Turn 2] kernelbench_1: Compile:✓ Correct:✓ Runtime:3.12ms Speedup:1.20x Reward:1.200"
    assert turn_line("kernelbench_1", turn(1, FAST, 1.2)) == line


def test_an_estimate_bears_its_mark() -> None:
    estimated = FAST.model_copy(update={"timing_source": TimingSource.ROOFLINE})
    assert "Speedup:1.20x (roofline)" in turn_line("p", turn(0, estimated, 1.2))


def test_a_fault_has_no_numbers() -> None:
    line = turn_line("p", turn(0, Verdict(status=Status.INFRASTRUCTURE_ERROR), None))
    assert line == "[Turn 1] p: Compile:✗ Correct:✗ Runtime:- Speedup:- Reward:-"


@given(
    index=st.integers(0, 31),
    problem=st.from_regex(r"[a-zA-Z0-9_:-]{1,20}", fullmatch=True),
    verdict=VERDICTS,
    reward=REWARDS,
)
def test_any_line_can_be_read_back(index: int, problem: str, verdict: Verdict, reward: float | None) -> None:
    match = LINE.fullmatch(turn_line(problem, turn(index, verdict, reward)))
    assert match is not None
    number, name, compiled, correct, runtime, speedup, score = match.groups()
    assert (int(number), name) == (index + 1, problem)
    assert (compiled == "✓", correct == "✓") == (verdict.compiled, verdict.correct)
    if verdict.candidate_ms is None:
        assert runtime == "-"
    else:
        assert math.isclose(float(runtime.removesuffix("ms")), verdict.candidate_ms, rel_tol=0.06)
    if verdict.speedup is None:
        assert speedup == "-"
    else:
        assert abs(float(speedup.split("x")[0]) - verdict.speedup) <= 0.0051
        assert speedup.endswith("(roofline)") == (verdict.timing_source is TimingSource.ROOFLINE)
    assert score == "-" if reward is None else abs(float(score) - reward) <= 0.0005001


def test_summary() -> None:
    episode = trajectory(turn(0, Verdict(status=Status.TIMEOUT), 0.0), turn(1, FAST, 1.2))
    assert trajectory_summary(episode, 0.4).split("\n") == [
        "=== Final Trajectory Summary for kernelbench_1 ===",
        "Total turns: 2 (turn_limit)",
        "Turn rewards: [0.000, 1.200]",
        "Aggregated return: 0.4800",
        "Final correctness: ✓",
        "Final speedup: 1.20x",
    ]


@given(st.lists(st.tuples(VERDICTS, st.floats(0, 5)), min_size=1, max_size=6), st.none() | VERDICTS)
def test_any_summary_has_its_six_lines(judged: list[tuple[Verdict, float]], fault: Verdict | None) -> None:
    turns = [turn(place, verdict, reward) for place, (verdict, reward) in enumerate(judged)]
    rewards = [reward for _, reward in judged]
    if fault is not None:
        turns.append(turn(len(turns), fault, None))
    head, total, scores, aggregated, correct, speed = trajectory_summary(trajectory(*turns), 0.4).split("\n")
    assert head == "=== Final Trajectory Summary for kernelbench_1 ==="
    assert total.startswith(f"Total turns: {len(turns)} ")
    assert len(scores.split(",")) == len(turns)
    expected = sum(0.4**place * reward for place, reward in enumerate(rewards))
    assert abs(float(aggregated.removeprefix("Aggregated return: ")) - expected) <= 0.00005001
    assert re.fullmatch(r"Aggregated return: \d+\.\d{4}", aggregated)
    assert correct[-1] in "✓✗"
    assert speed.startswith("Final speedup: ")
