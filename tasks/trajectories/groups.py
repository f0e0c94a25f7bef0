"""Groups of turns: which turns an advantage estimator compares, and which groups have a gradient.

A group is useful if it has at least two trajectories and their scores differ. The update leaves other groups out of its
loss (tasks.update.dataset); the rollout may draw further problems instead (tasks.rollout.refill).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.trajectories.returns import Credit

Compares = Literal["turns", "trajectories", "nothing"]
"""Peers that an advantage estimator compares: turns at the same place, whole trajectories by their return, or none, so
that groups of one and groups without variance are trained on as well."""
GroupKey = tuple[str, int, str]
"""(group, turn, role): samples that answered the same question."""
SMALLEST_SPREAD = 1e-9
"""Scores of a group that differ by less count as equal."""


@dataclass(frozen=True)
class Groups:
    """B turns with the scores and the peers that they are compared by."""

    scores: list[float]
    """[B] The turn's own return, or its trajectory's."""
    peers: list[GroupKey]
    """[B] Each turn's group: its own key, or if trajectories are compared, that of all turns (turn −1)."""
    number: int
    """Number of groups."""
    single: frozenset[GroupKey]
    """Groups of one trajectory, which have no baseline."""
    constant: frozenset[GroupKey]
    """Groups of several trajectories with equal scores, which have no gradient."""

    @property
    def useful(self) -> int:
        """Number of groups that are neither single nor constant."""
        return self.number - len(self.single) - len(self.constant)


SHARED_KEY = "samples_per_kernel"
"""Key of a batch's metadata: the number of conversations that go on from one first answer, which they all have."""


def question(group: str, turn_index: int, role: str, prompt_token_ids: Sequence[int], credit: Credit) -> GroupKey:
    """Return the key by which a turn finds its peers.

    They are the turns at the same place of a problem's conversations. With the credit `counterfactual`, after the first
    turn only those with the same prompt: what others made of the same kernel is the baseline of what was made of it.
    """
    if credit == "counterfactual" and turn_index > 0:
        return (f"{group} {hash(tuple(prompt_token_ids))}", turn_index, role)
    return (group, turn_index, role)


def group_turns(
    returns: Sequence[float], keys: Sequence[GroupKey], trajectories: Sequence[str], compares: Compares
) -> Groups:
    """Group turns, each with a return, a key and a trajectory id; estimators without peers leave no group out."""
    scores, peers = _scores(returns, keys, trajectories, compares)
    rows_of: dict[GroupKey, list[int]] = {}
    for row, key in enumerate(peers):
        rows_of.setdefault(key, []).append(row)
    single: set[GroupKey] = set()
    constant: set[GroupKey] = set()
    if compares != "nothing":
        for key, rows in rows_of.items():
            of_group = [scores[row] for row in rows]
            if len({trajectories[row] for row in rows}) == 1:
                single.add(key)
            elif max(of_group) - min(of_group) < SMALLEST_SPREAD:
                constant.add(key)
    return Groups(scores, peers, len(rows_of), frozenset(single), frozenset(constant))


def _scores(
    returns: Sequence[float], keys: Sequence[GroupKey], trajectories: Sequence[str], compares: Compares
) -> tuple[list[float], list[GroupKey]]:
    """Return each turn's score and its peers. A trajectory's return is that of its first turn."""
    if compares != "trajectories":
        return list(returns), list(keys)
    first: dict[tuple[str, str], tuple[int, float]] = {}
    for row, (_, turn, role) in enumerate(keys):
        key = (trajectories[row], role)
        if key not in first or turn < first[key][0]:
            first[key] = (turn, returns[row])
    scores = [first[trajectories[row], role][1] for row, (_, _, role) in enumerate(keys)]
    return scores, [(group, -1, role) for group, _, role in keys]
