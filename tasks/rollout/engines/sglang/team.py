"""A team on shared servers: they hold the agents' common base, and each agent is an adapter beside it."""

from collections.abc import Iterable, Mapping
from typing import Any

from kernels_eval.errors import InputError
from tasks.agents.team import members_of
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig
from tasks.rollout.engines.sglang.engine import SglangEngine, run_on_thread, serve_or_close, start_engine
from tasks.rollout.engines.team import TeamServer
from tasks.training.adapter_files import adapter_base


class TeamOnOneBase(TeamServer):
    """Engines by agent, all on the same servers."""

    def __init__(self, first: SglangEngine, agents: Iterable[str]) -> None:
        """`first`: an engine of the servers, which becomes that of the first agent."""
        self._sharing = {agent: first.beside() if number else first for number, agent in enumerate(agents)}
        super().__init__(self._sharing)

    async def serve(self, policy: CheckpointRef, tokenizer: Any) -> None:
        """Switch the agents to their policies of this team, one after the other, since their servers are the same.

        Raises InputError if their bases differ.
        """
        members = self.members(policy)
        check_one_base(members)
        for agent, engine in self._sharing.items():
            await engine.serve(members[agent], tokenizer)


def open_team(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> TeamOnOneBase:
    """Return an engine whose servers hold the base of this team and its adapters.

    Blocks until they are ready. Raises InputError if the agents' bases differ, InfrastructureError.
    """
    check_one_base(members_of(policy))
    return run_on_thread(_open(policy, tokenizer, config))


async def _open(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> TeamOnOneBase:
    members = members_of(policy)
    team = TeamOnOneBase(await start_engine(next(iter(members.values())), tokenizer, config), members)
    await serve_or_close(team, policy, tokenizer)
    return team


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
