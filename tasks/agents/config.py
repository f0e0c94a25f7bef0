"""Settings of agents: the turns that each writes, what it is shown, and whose weights it has.

Without agents one policy, the `solver`, writes every turn and sees the whole conversation: the same as one agent with
the default settings.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from kernels_eval.frozen import FileContent, FrozenModel

SOLVER = "solver"
"""Role of the one policy that writes all turns."""
SLACK = 0.05
"""Difference of rewards by which a kernel is not clearly better: estimates and measurements vary by less."""
AgentName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class AgentConfig(FrozenModel):
    """One agent of a conversation. The tester is none: it follows rules, and is the judge."""

    turns: Literal["all", "first", "later"] = "all"
    """Turns that it writes. Where several agents write later turns, they take turns, in the order of their names."""
    shown: Literal["history", "problem", "kernel"] = "history"
    """Content of its prompt. `history`: the conversation so far, in which all answers are its own. `problem`: the
    problem alone. `kernel`: the problem, the best kernel so far, and what the judge found: verdict and issues."""
    instructions: str = ""
    """Text at the beginning of its prompt, before what the style `rollout.episode.prompt` writes."""
    may_stop: bool = False
    """It may answer `stop` instead of a kernel: the episode ends with the best kernel so far."""
    weights: AgentName | None = None
    """Name of another agent whose weights it shares. None: it has its own."""
    trained: bool = True
    """Its turns are trained on, in SFT and RL."""
    pretrained: Annotated[str | None, FileContent] = None
    """Model that its own weights start from. None: `model.pretrained`."""


Agents = Mapping[str, AgentConfig]


def with_solver(agents: Agents) -> Agents:
    """Return the agents; where there are none, the solver alone."""
    return agents or {SOLVER: AgentConfig()}


def author_of(agents: Agents, turn_index: int) -> str:
    """Return the role that writes a turn of a conversation (0: the first)."""
    named = with_solver(agents)
    kinds = ("all", "first") if turn_index == 0 else ("all", "later")
    writers = sorted(name for name, agent in named.items() if agent.turns in kinds)
    return writers[max(turn_index - 1, 0) % len(writers)]


def owner_of(agents: Agents, role: str) -> str:
    """Return the agent whose weights a role has: itself, unless it shares another's."""
    return with_solver(agents)[role].weights or role


def owners(agents: Agents) -> dict[str, tuple[str, ...]]:
    """Return by agent with weights of its own: the roles that train them, in the order of names; none if untrained."""
    named = with_solver(agents)
    return {
        owner: tuple(role for role in sorted(named) if owner_of(agents, role) == owner and named[role].trained)
        for owner in sorted({owner_of(agents, role) for role in named})
    }


def trained_roles(agents: Agents) -> tuple[str, ...]:
    """Return the roles whose turns are trained on, in the order of names."""
    named = with_solver(agents)
    return tuple(role for role in sorted(named) if named[role].trained)


def check_agents(agents: Agents, max_turns: int) -> None:
    """Raise ValueError, with what was expected, for agents that cannot hold a conversation together."""
    if not agents:
        return
    first = [name for name, agent in agents.items() if agent.turns in ("all", "first")]
    if len(first) != 1:
        raise ValueError(f"one agent that writes the first turn (turns: all or first), found {_listed(first)}")
    if max_turns > 1 and all(agent.turns == "first" for agent in agents.values()):
        raise ValueError("an agent that writes later turns (turns: all or later), or rollout.episode.max_turns: 1")
    for name, agent in agents.items():
        if agent.weights is None:
            continue
        if agent.weights not in agents or agents[agent.weights].weights is not None:
            raise ValueError(f"{name}.weights to name an agent with weights of its own, found {agent.weights!r}")
        if agent.pretrained is not None:
            raise ValueError(f"{name} to have a pretrained model or the weights of {agent.weights}, found both")
    if not any(agent.trained for agent in agents.values()):
        raise ValueError("an agent that is trained, found none")
    if len(owners(agents)) > 1:
        return
    # With one policy for all, RL and SFT are those of a run without agents: they train on every turn.
    for name, agent in agents.items():
        if not agent.trained:
            raise ValueError(f"{name} to be trained, or to have weights of its own: its turns are the one policy's")
        if agent.pretrained is not None:
            raise ValueError(f"model.pretrained in place of {name}.pretrained: there is one policy for all agents")


def _listed(names: list[str]) -> str:
    return ", ".join(sorted(names)) or "none"
