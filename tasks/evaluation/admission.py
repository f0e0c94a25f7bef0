"""Admission of a suite: room that its problems leave RL to learn, judged from a finished run.

A suite that SFT has used up shows nothing: whatever follows differs by noise. Five figures say whether there is room.
Four are of the standard held-out problems before RL. The curve is of training batches.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

PASS_AT_1 = (0.3, 0.7)
"""Share of right first answers before RL."""
BEST_OF_ABOVE = 0.15
"""Least distance of pass@k, with the largest k that was measured, from pass@1."""
ROOM = 0.15
"""Least distance of the best kernels that are sampled from greedy answers, in final reward."""
_FEWEST_ITERATIONS = 8
"""Iterations from which on halves of a curve mean anything."""


class Criterion(NamedTuple):
    """One condition of admission."""

    name: str
    found: float | None
    """None: not measured."""
    expected: str
    is_met: bool | None
    """None: not measured."""


def admission(
    heldout: Mapping[str, Any], iterations: Sequence[Mapping[str, Any]], greedy: Mapping[str, Any] | None = None
) -> list[Criterion]:
    """Return the conditions, from `heldout`, `iterations` and `heldout_greedy` of a summary."""
    before = heldout["before"]
    first = before.get("first_correct")
    low, high = PASS_AT_1
    largest = max((int(name[5:]) for name in before if name.startswith("pass_") and name[5:].isdigit()), default=1)
    above = None if largest == 1 else _difference(before.get(f"pass_{largest}"), before.get("correct"))
    turns = before.get("turns") or []
    repair = (turns[1].get("repair") or {}) if len(turns) > 1 else {}
    interval = repair.get("gain_ci")
    room = _difference(before.get("found_reward"), None if greedy is None else greedy["before"].get("mean_reward"))
    late = late_gain([each["mean_reward"] for each in iterations if each.get("mean_reward") is not None])
    return [
        Criterion(
            "right first answers after SFT", first, f"{low} to {high}", None if first is None else low <= first <= high
        ),
        Criterion(
            f"pass@{largest} less pass@1",
            above,
            f"{BEST_OF_ABOVE} or more",
            None if above is None else above >= BEST_OF_ABOVE,
        ),
        Criterion(
            "second turn: P(right | repair) − P(right | fresh)",
            repair.get("gain"),
            "interval above 0",
            None if interval is None else interval[0] > 0,
        ),
        Criterion(
            "best of all samples less greedy answers, final reward",
            room,
            f"{ROOM} or more",
            None if room is None else room >= ROOM,
        ),
        Criterion(
            "reward of training batches, last quarter less third", late, "above 0", None if late is None else late > 0
        ),
    ]


def late_gain(rewards: Sequence[float]) -> float | None:
    """Return the mean of the last quarter of a curve less that of the third; None of a curve that is too short."""
    if len(rewards) < _FEWEST_ITERATIONS:
        return None
    half, quarter = len(rewards) // 2, len(rewards) // 4
    return fmean(rewards[-quarter:]) - fmean(rewards[half : len(rewards) - quarter])


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
