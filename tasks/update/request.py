"""The request for one update: from the flow, through the stage, to every rank."""

from typing import Annotated

from kernels_eval.frozen import Operational
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.pipeline.stage import StageRequest
from tasks.update.config import UpdateConfig
from tasks.update.past import PastUpdate


class UpdateRequest(StageRequest):
    """One update of a policy on a validated batch. Equal decisive parts give equal weights."""

    policy: CheckpointRef
    """The policy to update."""
    reference: CheckpointRef | None
    """Reference policy of the KL term, if it has weight."""
    batch: TrajectoryBatchRef
    config: UpdateConfig
    iteration: int
    """Iteration of the run, from 0."""
    total_iterations: int
    """Iterations over which the learning rate falls."""
    seed: int
    roles: tuple[str, ...] = ()
    """Roles of the agents that this policy writes for, whose turns it learns from; all if empty."""
    writes_state: Annotated[bool, Operational] = True
    """Write the optimizer's state beside the policy, if `update.optimizer_state` says so."""
    past: Annotated[tuple[PastUpdate, ...], Operational] = ()
    """Updates to make again if the ranks do not hold the state of a policy that was published without it."""
    keeps_ranks: Annotated[bool, Operational] = True
    """The next update on these ranks goes on from this one: no other agent's comes in between. Else the state is
    written in any case, unless this engine is small enough to stay beside another agent's."""
    of: Annotated[str, Operational] = ""
    """End of the stage's label, such as ` of the generator`."""
