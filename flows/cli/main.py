"""The command `kernelmill`: its groups, and the one place where an error becomes a line and an exit code.

Exit codes: 0 done; 1 the machine failed (the same command goes on from here); 2 bad input; 130 stopped by Ctrl-C.
Imports stay light here: a group imports what it needs when it runs.
"""

import sys

import typer
from pydantic import ValidationError
from rich.console import Console

from flows.cli import comparing, data, inspection, judging, planning, serving, stages, trajectories
from kernels_eval.errors import InfrastructureError, InputError

INTERRUPTED = 130
"""What typer makes of Ctrl-C."""

app = typer.Typer(
    name="kernelmill",
    help="Trains language models to write fast, correct GPU kernels: SFT, multi-turn RL, held-out evaluation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
stages.add_to(app)
comparing.add_to(app)
planning.add_to(app)
judging.add_to(app)
serving.add_to(app)
inspection.add_to(app)
trajectories.add_to(app)
data.add_to(app)


def main() -> None:
    """Run the command line."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        result = app(args=arguments, prog_name="kernelmill", standalone_mode=True)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            errors.print("stopped; the same command goes on from here")
        return stop.code if isinstance(stop.code, int) else (0 if stop.code is None else 1)
    except InputError as error:
        errors.print(f"[red]error:[/red] {_one_line(error)}", markup=True)
        return 2
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        errors.print(f"[red]error:[/red] {_one_line(where + ': ' + first['msg'])}")
        return 2
    except InfrastructureError as error:
        errors.print(f"[red]failed:[/red] {_one_line(error)} The same command goes on from here.")
        return 1
    return result if isinstance(result, int) else 0


def _one_line(error: object) -> str:
    from rich.markup import escape

    return escape(" ".join(str(error).split()))


if __name__ == "__main__":
    main()
