"""`kernelmill policy team`: a team of policies from several runs, e.g. for a swap test."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli import groups


def add_to(app: typer.Typer) -> None:
    """Add the command of this group."""
    groups.policy.command("team")(team)


def team(
    destination: Annotated[Path, typer.Argument(help="Folder to write; it must not exist.")],
    members: Annotated[
        list[str],
        typer.Argument(
            metavar="AGENT=FOLDER[@VERSION][:NAME]...",
            help="An agent and its policy: a policy's folder, or a run's, with a version. NAME: the agent of that "
            "team whose weights are meant, if it is another one.",
        ),
    ],
) -> None:
    """Put policies together as a team, which `compare`, `evaluate` and `generate` take wherever they take a policy."""
    from flows.checks.output import check_output
    from flows.run.state import policy_at
    from kernels_eval.errors import InputError
    from tasks.agents.team import member_of, publish_team
    from tasks.pipeline.references import CheckpointRef

    if destination.exists():
        raise InputError(f"{destination}: exists; expected the name of a new folder")
    check_output("DESTINATION", destination, folder=True)
    found: dict[str, CheckpointRef] = {}
    for text in members:
        agent, equals, rest = text.partition("=")
        folder, _, name = rest.partition(":")
        if not (agent and equals and folder):
            raise InputError(f"{text}: expected AGENT=FOLDER, AGENT=FOLDER@VERSION or AGENT=FOLDER:NAME")
        if agent in found:
            raise InputError(f"{agent}: expected one policy for each agent, found two")
        policy, _ = policy_at(folder, agent)
        found[agent] = member_of(policy, name or agent)
    version = max(member.weight_version for member in found.values())
    publish_team(found, destination, version)
    typer.echo(f"{destination}: a team of {', '.join(sorted(found))}")
