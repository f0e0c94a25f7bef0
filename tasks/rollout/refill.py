"""Dynamic refill: an iteration draws further problems until enough groups have a gradient, or a limit is reached.

A group whose samples all did equally well has no gradient; it stays in the data. The next draw is a function of the
results so far, in the order that seed and iteration give: a repeated rollout draws the same problems. The batch's
manifest records the draws (`metadata.refill`); the update's metrics and the report show them.
"""

import logging
import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from kernels_eval.frozen import FrozenModel
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.pipeline.store import recorded
from tasks.trajectories.groups import Compares, GroupKey, group_turns, question
from tasks.trajectories.returns import Credit, credited
from tasks.trajectories.schema import Termination

if TYPE_CHECKING:
    from tasks.rollout.config import RolloutConfig
    from tasks.rollout.episode import EpisodePlan
    from tasks.rollout.episode_loop import EpisodeLoop
    from tasks.trajectories.schema import Trajectory

MANIFEST_KEY = "refill"
MOST_PROBLEMS = 4
"""Limit if `update.most_problems` is not set: this many times `rollout.problems_per_iteration`."""

logger = logging.getLogger("kernelmill.rollout")


class Refill(FrozenModel):
    """Number of useful groups that an iteration should have, and its limit of problems."""

    groups: int
    problems: int
    """Largest number of problems to run."""
    compares: Compares
    """Peers that the update's estimator compares."""
    credit: Credit = "return"
    """Value by which they are compared (`update.credit`), with its discount."""
    credit_discount: float = 1.0


class RefillRecord(FrozenModel):
    """Result of a refill."""

    wanted: int
    useful: int
    missing: int
    problems: int
    """Problems that were run, the first draw included."""
    further: int
    """Problems that were drawn after the first draw."""
    rounds: int
    """Draws after the first."""


def refill_for(
    rollout: "RolloutConfig",
    wanted_groups: int | None,
    most_problems: int | None,
    compares: Compares,
    credit: Credit = "return",
    credit_discount: float = 1.0,
) -> Refill | None:
    """Return the refill that these settings of the update ask for; None if the estimator compares no peers.

    `wanted_groups` None: no refill. `most_problems` None: MOST_PROBLEMS times the first draw.
    """
    if wanted_groups is None or compares == "nothing":
        return None
    most = most_problems or MOST_PROBLEMS * rollout.problems_per_iteration
    discount = credit_discount if credit != "return" else 1.0
    return Refill(groups=wanted_groups, problems=most, compares=compares, credit=credit, credit_discount=discount)


def refill_record(batch: TrajectoryBatchRef) -> RefillRecord | None:
    """Return the record in a batch's manifest; None if no groups were wanted."""
    return recorded(batch, MANIFEST_KEY, RefillRecord, "a refill's record")


async def run_and_refill(
    episode_loop: "EpisodeLoop",
    draw: Callable[[int, int], Sequence["EpisodePlan"]],
    refill: Refill | None,
    first: int,
    there_are: int,
    gamma: float,
) -> tuple[list["Trajectory"], RefillRecord | None]:
    """Run `first` of the problems, then further ones as long as useful groups are missing.

    `draw(skip, number)` gives the episodes of so many problems, after the first `skip` of the iteration's order.
    """
    trajectories = await episode_loop.run(draw(0, first))
    if refill is None:
        return trajectories, None
    drawn = played = min(first, there_are)
    most = min(refill.problems, there_are)
    rounds = 0
    while (useful := useful_groups(trajectories, gamma, refill)) < refill.groups and played < most:
        number = min(further_problems(refill.groups, useful, played), most - played)
        trajectories += await episode_loop.run(draw(played, number))
        played, rounds = played + number, rounds + 1
    if useful < refill.groups:
        reason = "all that there are" if most == there_are else "as many as update.most_problems allows"
        logger.warning(
            "%d of %d wanted groups have variance after %d problems, %s", useful, refill.groups, played, reason
        )
    return trajectories, RefillRecord(
        wanted=refill.groups,
        useful=useful,
        missing=max(refill.groups - useful, 0),
        problems=played,
        further=played - drawn,
        rounds=rounds,
    )


def further_problems(wanted: int, useful: int, played: int) -> int:
    """Return the number of problems to draw next, from the rate of useful groups; at most as many as were run."""
    return min(math.ceil((wanted - useful) * played / max(useful, 1)), played)


def useful_groups(trajectories: Sequence["Trajectory"], gamma: float, refill: Refill) -> int:
    """Return the number of groups that the update would train on (tasks.trajectories.groups), without faulty turns.

    The update's penalties for length or divergence are not known here, nor the cut-off turns that it leaves out.
    """
    discount = gamma if refill.credit == "return" else refill.credit_discount
    found: dict[tuple[GroupKey, object], tuple[str, list[float]]] = {}
    for trajectory in trajectories:
        stopped = trajectory.termination is Termination.AGENT_STOPPED
        values = credited(trajectory.rewards, refill.credit, discount, stopped)
        for turn, value in zip(trajectory.turns, values, strict=True):
            if value is not None:
                place = (trajectory.group_id, turn.turn_index, turn.role)
                key = question(*place, turn.prompt_token_ids, refill.credit)
                # A first answer that several conversations have is one sample (tasks.update.dataset).
                answer = id(turn) if turn.turn_index == 0 else trajectory.trajectory_id
                found.setdefault((key, answer), (trajectory.trajectory_id, []))[1].append(value)
    returns = [fmean(values) for _, values in found.values()]
    names = [name for name, _ in found.values()]
    return group_turns(returns, [key for key, _ in found], names, refill.compares).useful
