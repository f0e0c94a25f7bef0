"""`kernelmill compare`: several policies on the same held-out problems."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.stages import DEFAULT_CONFIG, ConfigOption, RefreshOption, SetOption, run_flow


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("compare", rich_help_panel="Training")(compare)


def compare(
    policies: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=FOLDER[@VERSION]...",
            help="Two or more: a policy's folder, or a run's (`runs/<run id>`; @0 is its SFT, without @ its newest). "
            "`NAME=@0` is a policy of this configuration's own run.",
        ),
    ],
    config: ConfigOption = DEFAULT_CONFIG,
    set_: SetOption = None,
    refresh: RefreshOption = None,
) -> None:
    """Measure each policy on the same held-out problems, and compare every pair, problem by problem."""
    from rich.console import Console

    from flows.cli.figures import comparison_table
    from flows.comparison import compare_flow
    from flows.run.policies import check_choices, chosen

    began = time.monotonic()
    choices = tuple(chosen(text) for text in policies)
    check_choices(choices)
    folder = Path(run_flow(lambda: compare_flow, config, set_ or [], frozenset(refresh or []), policies=choices))
    comparison = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    console = Console(highlight=False)
    console.print(comparison_table(comparison))
    console.print(f"done in {time.monotonic() - began:.0f} s: {folder / 'comparison.html'}", soft_wrap=True)
