"""Which turns are compared with which, and which groups of them teach something: those of at least two samples that differ.

The update leaves other groups out of its loss; the rollout may draw further problems until there are enough groups (tasks.rollout.refill).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.update.config import Advantage

GroupKey = tuple[str, int, str]
"""(group, turn, role): samples that answered the same question."""
WITHOUT_BASELINE = ("reinforce_pp", "gae")
"""Estimators that compare with no peers: groups of one and groups without variance are trained on as well."""
OF_TRAJECTORY = ("grpo", "dr_grpo", "rloo")
"""Estimators for which all turns of a trajectory share its return."""
_SMALLEST_DIFFERENCE = 1e-9


@dataclass(frozen=True)
class Groups:
    """Turns by whom they are compared with."""

    scores: NDArray[np.float64]
    """[B] What each turn is compared by: its own return, or its trajectory's."""
    peers: list[GroupKey]
    """Each turn's group: its own key, or where trajectories are compared, that of all turns (turn −1)."""
    number: int
    """How many groups there are."""
    single: frozenset[GroupKey]
    """Groups of one trajectory, which have no baseline."""
    constant: frozenset[GroupKey]
    """Groups of several trajectories with equal scores, which have no gradient."""

    @property
    def useful(self) -> int:
        """Number of groups that are neither."""
        return self.number - len(self.single) - len(self.constant)


def group_turns(
    returns: NDArray[np.float64], keys: Sequence[GroupKey], trajectories: Sequence[str], advantage: Advantage
) -> Groups:
    """Compare turns as an estimator does: their returns [B], keys and trajectories. Estimators without peers leave no group out."""
    scores, peers = _scores(returns, keys, trajectories, advantage)
    rows_of: dict[GroupKey, list[int]] = {}
    for row, key in enumerate(peers):
        rows_of.setdefault(key, []).append(row)
    single: set[GroupKey] = set()
    constant: set[GroupKey] = set()
    if advantage not in WITHOUT_BASELINE:
        for key, rows in rows_of.items():
            if len({trajectories[row] for row in rows}) == 1:
                single.add(key)
            elif np.ptp(scores[rows]) < _SMALLEST_DIFFERENCE:
                constant.add(key)
    return Groups(scores, peers, len(rows_of), frozenset(single), frozenset(constant))


def _scores(
    returns: NDArray[np.float64], keys: Sequence[GroupKey], trajectories: Sequence[str], advantage: Advantage
) -> tuple[NDArray[np.float64], list[GroupKey]]:
    """Return each turn's score and its peers.

    A trajectory's return is that of its first turn, which holds the discounted rewards of the later ones.
    """
    if advantage not in OF_TRAJECTORY:
        return returns, list(keys)
    first: dict[tuple[str, str], tuple[int, float]] = {}
    for row, (_, turn, role) in enumerate(keys):
        key = (trajectories[row], role)
        if key not in first or turn < first[key][0]:
            first[key] = (turn, float(returns[row]))
    scores = np.array([first[trajectories[row], key[2]][1] for row, key in enumerate(keys)])
    return scores, [(group, -1, role) for group, _, role in keys]
