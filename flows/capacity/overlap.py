"""Stages that compute at the same time: rollouts and evaluations, while the ranks update a policy.

With `rollout.staleness` of 1 and more they do. Without it, evaluations do where generation and judge have GPUs apart
from the ranks'. A judge that times kernels on a GPU of the ranks would measure the ranks' work too: it never does so.
"""

from flows.capacity.sharing import servers_of
from flows.settings.configuration import RunConfig


def times_beside_ranks(config: RunConfig) -> bool:
    """Return True if the judge may time kernels on a GPU on which ranks compute."""
    ranks, judges = config.update.gpus_per_rank, config.rollout.judge_actors
    if config.judge.device == "cpu" or ranks == 0:
        return False
    judged_by = "judge" if judges.count else "rollout"
    groups = {kind: number for number, group in enumerate(config.ray.placement) for kind in group}
    of_judge = groups.get(judged_by, groups.get("rollout"))
    reserved = judges.gpus if judges.count else config.rollout.gpus
    if reserved > 0 and "update" in groups and of_judge is not None and of_judge != groups["update"]:
        return False  # on other nodes
    return not (reserved > 0 and max(reserved, ranks) >= 1)


def goes_on_beside_updates(config: RunConfig) -> bool:
    """Return True if rollouts and evaluations have a line of their own beside the updates."""
    if times_beside_ranks(config):
        return False
    generating = servers_of(config) * config.rollout.sglang.gpus_per_server + config.rollout.gpus
    return config.rollout.staleness > 0 or (config.update.gpus_per_rank >= 1 and generating > 0)


def overlap_line(config: RunConfig) -> str:
    """Return a sentence on what computes beside the updates."""
    if config.rollout.staleness:
        return (
            f"rollout i is written by policy max(0, i - {config.rollout.staleness}), and goes on beside updates; "
            "so do evaluations"
        )
    if goes_on_beside_updates(config):
        return "evaluations go on beside updates; rollouts would with rollout.staleness = 1"
    if times_beside_ranks(config):
        return (
            "rollouts, evaluations and updates take turns: the judge times on a GPU of the ranks; "
            "with rollout.gpus or rollout.judge_actors.gpus = 1 it would have one of its own"
        )
    return "rollouts, evaluations and updates take turns; they would not with rollout.staleness = 1"
