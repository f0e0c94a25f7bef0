"""Updates of a run's past: what has to be made again where the optimizer's state was not written.

`update.checkpoint_interval` writes it with every so many policies. The ranks hold it from one update to the next; after
a kill the updates since the last policy that has it are made again, from batches that are there.
"""

from collections.abc import Mapping

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.agents.config import SOLVER
from tasks.agents.team import member_of
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.pipeline.store import read_manifest
from tasks.training.retention import has_optimizer, has_weights


class PastUpdate(FrozenModel):
    """An update that was made: the policy that it began with, its batch, and its iteration of the run."""

    policy: CheckpointRef
    batch: TrajectoryBatchRef
    iteration: int


def lacks_state(policy: CheckpointRef) -> bool:
    """True for the result of an update whose optimizer's state is not beside it, or not any more."""
    manifest = read_manifest(policy.path) or {}
    removed = any(name.startswith("optimizer/") for name in manifest.get("discarded", ()))
    return ("batch" in manifest.get("metadata", {}) or removed) and not has_optimizer(policy)


def updates_without_state(
    policy: CheckpointRef,
    policies: Mapping[int, CheckpointRef],
    batches: Mapping[int, TrajectoryBatchRef],
    agent: str = SOLVER,
) -> tuple[PastUpdate, ...]:
    """Return the updates that led to a policy since the last one that has its optimizer's state; none if it has.

    `policies`, `batches`: of the run, by weight version. Stops at a gap. `agent`: of a team, whose policy is meant.
    """
    past: list[PastUpdate] = []
    version, current = policy.weight_version, member_of(policy, agent)
    while lacks_state(current):
        version -= 1
        if version not in policies or version not in batches:
            break
        before = member_of(policies[version], agent)
        if before.digest != current.digest:  # an agent that has nothing to learn from a batch keeps its policy
            past.insert(0, PastUpdate(policy=before, batch=batches[version], iteration=version))
        current = before
    return tuple(past)


def check_past(policy: CheckpointRef, past: tuple[PastUpdate, ...]) -> None:
    """Raise InputError if these updates cannot be made again to get the optimizer's state of a policy."""
    first = past[0].policy if past else policy
    if lacks_state(first):
        raise InputError(
            f"{first.path}: this policy has no optimizer's state, and nothing can go on from it as before; begin at "
            "one whose weight version is a multiple of update.checkpoint_interval, or at the newest"
        )
    for update in past:
        for reference in (update.policy, update.batch):
            if not reference.path.is_dir() or (reference is first and not has_weights(first)):
                raise InputError(
                    f"{reference.path}: gone or without weights, expected what update {update.iteration} "
                    "was made of: it has to be made again for the optimizer's state"
                )
