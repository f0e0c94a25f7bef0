"""A team on shared servers: they hold the agents' common base, and each agent is an adapter beside it."""

from collections.abc import Mapping
from typing import Any

from kernels_eval.errors import InputError
from tasks.agents.team import members_of
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig
from tasks.rollout.engines.sglang.engine import SglangEngine, open_for, run_on_thread
from tasks.rollout.engines.team import TeamServer
from tasks.training.adapter_files import adapter_base


class TeamOnOneBase(TeamServer):
    """Engines by agent, all on the same servers."""

    async def serve(self, policy: CheckpointRef, tokenizer: Any) -> None:
        """Switch every agent to its policy of this team. Raises InputError if their bases differ."""
        check_one_base(members_of(policy))
        await super().serve(policy, tokenizer)


def open_team(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> TeamOnOneBase:
    """Return an engine whose servers hold the base of this team and its adapters.

    Blocks until they are ready. Raises InputError if the agents' bases differ, InfrastructureError.
    """
    members = members_of(policy)
    check_one_base(members)
    return run_on_thread(_open(members, tokenizer, config))


async def _open(members: Mapping[str, CheckpointRef], tokenizer: Any, config: RolloutConfig) -> TeamOnOneBase:
    engines: dict[str, SglangEngine] = {}
    try:
        for agent, member in members.items():
            if not engines:
                engines[agent] = await open_for(member, tokenizer, config)
                continue
            engines[agent] = next(iter(engines.values())).beside()
            await engines[agent].serve(member, tokenizer)
    except BaseException:
        for engine in engines.values():
            await engine.close()
        raise
    return TeamOnOneBase(engines)


def check_one_base(members: Mapping[str, CheckpointRef]) -> None:
    """Raise InputError if these policies, by agent, are not one policy or its adapters: servers hold one base."""
    bases = {agent: base_digest(member) for agent, member in members.items()}
    first, *others = bases
    different = next((agent for agent in others if bases[agent] != bases[first]), None)
    if different is not None:
        raise InputError(
            f"rollout.sglang.adapter_rank: agents {first} and {different} have different bases, expected adapters of "
            "one policy (sft.shared: true, or sft: none and one pretrained model); or 0, for servers of their own"
        )


def base_digest(policy: CheckpointRef) -> str:
    """Return the digest of the policy that this one is an adapter of; its own if it is none."""
    base = adapter_base(policy.path)
    return policy.digest if base is None else base.digest
