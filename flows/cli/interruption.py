"""Message after Ctrl-C: the stages that are kept, and the command that goes on."""

import os
import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from flows.cli.console import ConsoleListener


@contextmanager
def telling_how_to_go_on(console: Console, drawn: ConsoleListener) -> Generator[None]:
    """Print, after Ctrl-C in the block, what is finished and the command that goes on."""
    try:
        yield
    except KeyboardInterrupt:
        finished = drawn.finished_stages
        last = f" and will not be repeated, the last one is {finished[-1]}" if finished else ""
        stages = {0: "no stage is", 1: "1 stage is"}.get(len(finished), f"{len(finished)} stages are")
        console.print(f"{stages} finished{last}. To go on:", soft_wrap=True)
        console.print(f"  {same_command()}", markup=False, soft_wrap=True)
        raise


def same_command() -> str:
    """Return the command of this process, as it can be typed again."""
    if os.environ.get("MAKELEVEL"):
        return "make train, with the same arguments as before"
    program, *arguments = sys.argv
    is_installed = Path(program).name == "kernelmill"
    return (
        shlex.join([program] if is_installed else [sys.executable, "-m", "flows.cli.main"])
        + f" {shlex.join(arguments)}"
    )
