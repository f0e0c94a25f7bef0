"""Commands that moved into groups: their old names work for this release, with one line on standard error."""

from typing import Any

import typer
from typer.core import TyperGroup

MOVED = {
    "score": ("judge", "score"),
    "inspect": ("judge", "inspect"),
    "explain": ("judge", "explain"),
    "redteam": ("judge", "redteam"),
    "serve-judge": ("serve", "judge"),
    "serve-kernels": ("serve", "kernels"),
    "mcp": ("serve", "mcp"),
    "server": ("serve", "prefect"),
    "analyze": ("data", "analyze"),
    "show": ("data", "trajectory"),
    "rescore": ("data", "rescore"),
    "convert": ("policy", "convert"),
    "team": ("policy", "team"),
    "package": ("policy", "package"),
}
"""New words of a command by its old name. `serve` alone was what is `serve flows` now."""
_SERVED = ("flows", "judge", "kernels", "mcp", "prefect")


class Commands(TyperGroup):
    """The commands, which find those that moved by their old names too."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return name, command and remaining words for the words of a command line."""
        return super().resolve_command(ctx, _renamed(args))


def _renamed(words: list[str]) -> list[str]:
    first, rest = words[0], words[1:]
    if first in MOVED:
        new = MOVED[first]
    elif first == "serve" and (not rest or rest[0] not in (*_SERVED, "--help", "-h")):
        new = ("serve", "flows")
    else:
        return words
    typer.echo(f"kernelmill {first} is called kernelmill {' '.join(new)} now; the old name goes with 0.3", err=True)
    return [*new, *rest]
