"""`kernelmill score`: the judge on one kernel, or on many."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("score", rich_help_panel="Judge")(score)


def score(
    problem: Annotated[Path | None, typer.Argument(help="Problem in KernelBench's format.")] = None,
    kernel: Annotated[Path | None, typer.Argument(help="Kernel: Python source that defines ModelNew.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole verdict as JSON.")] = False,
    batch: Annotated[
        Path | None, typer.Option("--batch", help="JSONL, each line with `problem_source` and `kernel_source`.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="JSONL of verdicts, in the order of --batch.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Run configuration; its `judge` is used.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", "-s", metavar="A.B=VALUE")] = None,
) -> None:
    """Judge PROBLEM and KERNEL, or every line of --batch. Exit code 0: judged, whatever the verdict."""
    from flows.configuration import RunConfig, apply_override, check_configuration, load_configuration
    from kernels_eval.errors import InputError

    if config is not None:
        settings = load_configuration(config, set_ or [])
    elif set_:
        values: dict[str, Any] = {}
        for override in set_:
            apply_override(values, override)
        settings = check_configuration(values, "--set")
    else:
        settings = RunConfig()
    if batch is not None:
        if out is None:
            raise InputError("--out: expected a file for the verdicts of --batch")
        items = _read_batch(batch)
        from kernels_eval import Judge

        with Judge(settings.judge) as judge:
            verdicts = judge.evaluate_many(items)
        from tasks.store import write_atomically

        write_atomically(out, "".join(verdict.model_dump_json() + "\n" for verdict in verdicts))
        typer.echo(f"{len(verdicts)} verdicts: {out}")
        return
    if problem is None or kernel is None:
        raise InputError("score: expected PROBLEM.py and KERNEL.py, or --batch IN.jsonl --out OUT.jsonl")
    pair = _problem(_read(problem), str(problem)), _read(kernel)
    from kernels_eval import Judge

    with Judge(settings.judge) as judge:
        verdict = judge.evaluate(*pair)
    if as_json:
        typer.echo(verdict.model_dump_json(indent=2))
        return
    speed = f", speed-up {verdict.speedup:.2f} ({verdict.timing_source})" if verdict.speedup is not None else ""
    reason = verdict.rejection_reason or verdict.error_message
    typer.echo(f"{verdict.status}{speed}" + (f": {reason}" if reason else ""))


def _problem(source: str, where: str) -> Any:
    from kernels_eval.problem import Problem, check_problem_source

    check_problem_source(source, where)
    return Problem(problem_id=Path(where).stem, source=source)


def _read(path: Path) -> str:
    from kernels_eval.errors import InputError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


def _read_batch(path: Path) -> list[tuple[Any, str]]:
    from kernels_eval.errors import InputError

    items: list[tuple[Any, str]] = []
    for number, line in enumerate(_read(path).splitlines(), start=1):
        try:
            row = json.loads(line)
            problem, kernel = row["problem_source"], row["kernel_source"]
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}:{number}: expected JSON with problem_source and kernel_source: {error!r}"
            ) from error
        items.append((_problem(problem, f"{path}:{number}"), kernel))
    return items
