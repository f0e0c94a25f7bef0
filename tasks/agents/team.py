"""Teams: a folder that stands for several policies, one for each agent with weights of its own.

`agents.json` names the folder (relative to the team's own), digest and weight version of each. The members stay where
they were published: an agent that was not trained in an iteration is the same folder in the next team. A team's digest
is that of its members. Stages take a team wherever they take a policy.

`metrics.parquet` of a team has the rows of its members' updates, with a column `agent`.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from kernels_eval.errors import InputError
from tasks.agents.config import SOLVER
from tasks.pipeline.digests import file_digest
from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.store import PARTS, digest_of, measured, publish, published_digest, write_atomically
from tasks.pipeline.tables import METRICS_FILE, write_table

TEAM_FILE = "agents.json"


def is_team(policy: CheckpointRef) -> bool:
    """True if the folder names several policies."""
    return (policy.path / TEAM_FILE).is_file()


def members_of(policy: CheckpointRef) -> dict[str, CheckpointRef]:
    """Return the policies of a team by agent; of a single policy itself, as the solver's.

    Raises InputError if the team's file cannot be read.
    """
    if not is_team(policy):
        return {SOLVER: policy}
    file = policy.path / TEAM_FILE
    try:
        return {
            agent: CheckpointRef(
                uri=os.path.normpath(policy.path / member["folder"]),
                digest=member["digest"],
                weight_version=member["weight_version"],
            )
            for agent, member in json.loads(file.read_text(encoding="utf-8")).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: expected folder, digest and weight_version of each agent: {error}") from error


def member_of(policy: CheckpointRef, agent: str) -> CheckpointRef:
    """Return one agent's policy; a single policy is everybody's. Raises InputError if the team has no such agent."""
    members = members_of(policy)
    if not is_team(policy):
        return policy
    if agent not in members:
        raise InputError(f"{policy.path}: no agent {agent!r} with weights of its own; it has {', '.join(members)}")
    return members[agent]


def lead_of(policy: CheckpointRef) -> CheckpointRef:
    """Return the policy whose tokenizer and architecture stand for all: members of a team share their tokenizer."""
    return next(iter(members_of(policy).values()))


def publish_team(members: Mapping[str, CheckpointRef], destination: Path, weight_version: int) -> CheckpointRef:
    """Publish a team of these policies, by agent; `weight_version`: RL iterations behind the team.

    Raises InputError if they do not share a tokenizer: one agent's answer is another one's prompt, token by token.
    """
    folder = destination.resolve()
    _check_tokenizers(members)
    placed = {
        agent: (os.path.relpath(member.path.resolve(), folder), member) for agent, member in sorted(members.items())
    }
    metadata = {"agents": list(placed), PARTS: [part for part, _ in placed.values()]}
    with publish(destination, metadata, {TEAM_FILE: _digest, METRICS_FILE: measured}) as partial:
        write_team_file(placed, partial)
        metrics = _metrics(members)
        if metrics is not None:
            write_table(metrics, partial / METRICS_FILE)
    return CheckpointRef(uri=str(destination), digest=published_digest(destination), weight_version=weight_version)


def write_team_file(placed: Mapping[str, tuple[str, CheckpointRef]], folder: Path) -> None:
    """Write `agents.json` into a folder; `placed`: by agent, its policy's folder relative to that one, and it."""
    named = {
        agent: {"folder": part, "digest": member.digest, "weight_version": member.weight_version}
        for agent, (part, member) in placed.items()
    }
    write_atomically(folder / TEAM_FILE, json.dumps(named, indent=1))


def _check_tokenizers(members: Mapping[str, CheckpointRef]) -> None:
    tokenizers: dict[str, str] = {}
    for agent, member in members.items():
        file = member.path / "tokenizer.json"
        tokenizers[agent] = file_digest(file) if file.is_file() else ""
    first, *others = tokenizers
    different = next((agent for agent in others if tokenizers[agent] != tokenizers[first]), None)
    if different is not None:
        raise InputError(f"agents {first} and {different}: expected the same tokenizer, found different ones")


def _digest(file: Path) -> str:
    members = json.loads(file.read_text(encoding="utf-8"))
    return digest_of({agent: member["digest"] for agent, member in members.items()})


def _metrics(members: Mapping[str, CheckpointRef]) -> pl.DataFrame | None:
    """Return the rows of the members' last training, in the order of steps; of SFT and RL never both."""
    newest = max(member.weight_version for member in members.values())
    tables = [
        pl.read_parquet(member.path / METRICS_FILE).with_columns(pl.lit(agent).alias("agent"))
        for agent, member in sorted(members.items())
        if member.weight_version == newest and (member.path / METRICS_FILE).is_file()
    ]
    return pl.concat(tables, how="diagonal_relaxed").sort("step", maintain_order=True) if tables else None
