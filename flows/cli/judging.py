"""`kernelmill score`: the judge on one kernel, or on a file of them."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kernels_eval.config import JudgeConfig
    from kernels_eval.verdict import Verdict

REQUIRE_SANDBOX_HELP = "Refuse to start where this machine cannot keep candidates in."
_TELL_S = 10.0


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("score", rich_help_panel="Judge")(score)


def score(
    problem: Annotated[Path | None, typer.Argument(help="Problem in KernelBench's format.")] = None,
    kernel: Annotated[Path | None, typer.Argument(help="Kernel: Python source that defines ModelNew.")] = None,
    backend: Annotated[str | None, typer.Option("--backend", help="triton or cuda.", show_default="triton")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole verdict as JSON.")] = False,
    batch: Annotated[
        Path | None,
        typer.Option("--batch", help="JSONL, each line with `problem_source`, `kernel_source` and maybe `backend`."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="JSONL of verdicts, in the order of --batch.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Run configuration; its `judge` is used.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", "-s", metavar="A.B=VALUE")] = None,
    require_sandbox: Annotated[bool, typer.Option("--require-sandbox", help=REQUIRE_SANDBOX_HELP)] = False,
) -> None:
    """Judge KERNEL against PROBLEM, or every line of --batch. Exit code 0: judged, whatever the verdict."""
    from kernels_eval.errors import InputError

    if require_sandbox:
        set_ = [*(set_ or []), "judge.require_sandbox=true"]
    if batch is not None:
        if problem is not None or as_json:
            raise InputError("score: --batch goes without PROBLEM.py, KERNEL.py and --json")
        if out is None:
            raise InputError("--out: expected a file for the verdicts of --batch")
        _score_batch(batch, out, judge_settings(config, set_, backend))
    elif problem is None or kernel is None:
        raise InputError("score: expected PROBLEM.py and KERNEL.py, or --batch IN.jsonl --out OUT.jsonl")
    else:
        _score_one(problem, kernel, judge_settings(config, set_, backend), as_json)


def judge_settings(config: Path | None, overrides: list[str] | None, backend: str | None = None) -> "JudgeConfig":
    """Return the judge's settings from a run configuration, if there is one, and overrides."""
    from flows.configuration import apply_override, check_configuration, load_configuration

    overrides = [*(overrides or []), *([f"judge.backend={backend}"] if backend else [])]
    if config is not None:
        return load_configuration(config, overrides).judge
    values: dict[str, Any] = {}
    for override in overrides:
        apply_override(values, override)
    return check_configuration(values, "--set" if overrides else "defaults").judge


def _score_one(problem: Path, kernel: Path, settings: "JudgeConfig", as_json: bool) -> None:
    from kernels_eval import Judge, Problem
    from kernels_eval.batch import read_source
    from kernels_eval.problem import check_problem_source

    source, kernel_source = read_source(problem), read_source(kernel)
    check_problem_source(source, str(problem))
    with Judge(settings) as judge:
        verdict = judge.evaluate(Problem(problem_id=problem.stem, source=source), kernel_source)
    if as_json:
        typer.echo(verdict.model_dump_json(indent=2))
    else:
        speed = f", speed-up {verdict.speedup:.2f} ({verdict.timing_source})" if verdict.speedup is not None else ""
        reasons = [reason for reason in (verdict.rejection_reason, verdict.error_message) if reason]
        typer.echo(": ".join([f"{verdict.status}{speed}", *reasons]))
    _raise_fault(verdict, str(problem))


def _score_batch(batch: Path, out: Path, settings: "JudgeConfig") -> None:
    from kernels_eval.batch import judge_file

    told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= _TELL_S:
            told = time.monotonic()
            typer.echo(f"{done} of {total}", err=True)

    verdicts = judge_file(batch, out, settings, tell)
    correct = sum(verdict.correct for verdict in verdicts)
    typer.echo(f"{len(verdicts)} verdicts, {correct} correct: {out}")
    for number, verdict in enumerate(verdicts, start=1):
        if verdict.error_category != "reference_failed":  # trying again would not help; the line says so
            _raise_fault(verdict, f"{batch}:{number}")


def _raise_fault(verdict: "Verdict", where: str) -> None:
    """A verdict that says nothing of the kernel is an exit code too."""
    from kernels_eval.errors import InfrastructureError, InputError

    if not verdict.is_fault:
        return
    if verdict.error_category == "reference_failed":
        raise InputError(f"{where}: {verdict.error_message}")
    raise InfrastructureError(f"{where}: could not be judged: {verdict.error_message}.")
