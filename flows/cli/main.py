"""The command `kernelmill`: its command groups, and the conversion of errors to one line and an exit code.

Exit codes: 0 success; 1 the machine failed (the same command continues the run); 2 invalid input; 130 Ctrl-C.
Imports are light: a command imports its dependencies when it runs.
"""

import sys
from importlib.metadata import version
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console

from flows.cli import converting, data, judging, planning, serving, stages, trajectories
from kernels_eval.errors import InfrastructureError, InputError

INTERRUPTED = 130
"""Exit code of typer after Ctrl-C."""

app = typer.Typer(
    name="kernelmill",
    help="Trains language models to write fast, correct GPU kernels: SFT, multi-turn RL, held-out evaluation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (stages, planning, judging, serving, trajectories, data, converting):
    group.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernelmill {version('kernelmill')}")
        raise typer.Exit


@app.callback()
def _options(  # pyright: ignore[reportUnusedFunction]  # typer calls it
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


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
            errors.print("stopped; the same command continues from here")
        return stop.code if isinstance(stop.code, int) else (0 if stop.code is None else 1)
    except ModuleNotFoundError as error:
        extra = _extra_of(error.name or "")
        if extra is None:
            raise
        needed = f"this command needs {error.name}: pip install 'kernelmill[{extra}]'"
        errors.print(f"[red]error:[/red] {_one_line(needed)}")
        return 2
    except InputError as error:
        errors.print(f"[red]error:[/red] {_one_line(error)}", markup=True)
        return 2
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        errors.print(f"[red]error:[/red] {_one_line(where + ': ' + first['msg'])}")
        return 2
    except InfrastructureError as error:
        errors.print(f"[red]failed:[/red] {_one_line(error)} The same command continues from here.")
        return 1
    return result if isinstance(result, int) else 0


def _extra_of(module: str) -> str | None:
    """Return the optional extra of this package that installs a missing module; None if none does."""
    import re
    from importlib.metadata import PackageNotFoundError, requires

    package = re.sub(r"[-_.]+", "-", module.partition(".")[0]).lower()
    try:
        declared = requires("kernelmill") or []
    except PackageNotFoundError:
        return None
    found = re.compile(rf"""{re.escape(package)}\b.*;.*extra == ['"](\w+)['"]""")
    return next((match[1] for line in declared if (match := found.match(line))), None)


def _one_line(error: object) -> str:
    from rich.markup import escape

    return escape(" ".join(str(error).split()))


if __name__ == "__main__":
    main()
