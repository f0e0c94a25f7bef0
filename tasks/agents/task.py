"""The forming of a team as a Prefect task."""

from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.stage import Stage, stage_task


@stage_task("team", code="tasks.agents.team", label="team {weight_version}{of}", ignored=("of",))
def form_team(stage: Stage, members: dict[str, CheckpointRef], weight_version: int, of: str = "") -> CheckpointRef:
    """Publish the policies of the agents as one team, by agent. `of`: end of the stage's label."""
    from tasks.agents.team import publish_team

    return publish_team(members, stage.destination, weight_version)
