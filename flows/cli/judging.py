"""`kernelmill judge score`, `serve judge | mcp`: judge kernels, serve the judge over HTTP or MCP."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli import groups
from flows.cli.options import SetOption
from kernels_eval.error_categories import ErrorCategory

if TYPE_CHECKING:
    from flows.settings.configuration import RunConfig
    from kernels_eval.config import JudgeConfig
    from kernels_eval.verdict import Verdict

JudgeConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="Run configuration; only its `judge` section is used.")
]
RequireSandboxOption = Annotated[
    bool,
    typer.Option("--require-sandbox", help="Refuse to start if this machine does not support the judge's sandbox."),
]
PROGRESS_INTERVAL_S = 10.0


def add_to(app: typer.Typer) -> None:
    """Add the commands to their groups."""
    groups.judge.command("score")(score)
    groups.serve.command("judge")(serve_judge)
    groups.serve.command("mcp")(mcp)


_WHOLE = ("judge.full_size_share=1.0",)
"""Every correct kernel that is scored is run at its problem's own size, unless `--set` says otherwise."""


def score(
    problem: Annotated[
        Path | None, typer.Argument(help="Problem in KernelBench's format, or FILE.jsonl#ID of a table.")
    ] = None,
    kernel: Annotated[
        Path | None,
        typer.Argument(
            help="Kernel: Python source that defines ModelNew. Left out: PROBLEM holds both (a red-team case)."
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend", help="triton, cuda, tilelang, cute, hip, or auto: by its imports.", show_default="triton"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole verdict as JSON.")] = False,
    batch: Annotated[
        Path | None,
        typer.Option("--batch", help="JSONL; each line has `problem_source`, `kernel_source`, optionally `backend`."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="JSONL file for the verdicts of --batch, in its order.")
    ] = None,
    config: JudgeConfigOption = None,
    set_: SetOption = None,
    require_sandbox: RequireSandboxOption = False,
) -> None:
    """Judge KERNEL against PROBLEM, or every line of --batch. Exit code 0: judged, whatever the verdict."""
    from kernels_eval.errors import InputError

    if sys.stdout is None:  # as `>&-` leaves it
        raise InputError("standard output is closed: the verdict has nowhere to go")
    if batch is not None:
        if problem is not None or as_json:
            raise InputError("score: --batch goes without PROBLEM.py, KERNEL.py and --json")
        if out is None:
            raise InputError("--out: expected a file for the verdicts of --batch")
        overrides = [*_WHOLE, *(set_ or [])]
        _score_batch(batch, out, judge_settings(config, overrides, backend=backend, require_sandbox=require_sandbox))
    elif problem is None:
        raise InputError("score: expected PROBLEM.py and KERNEL.py, or --batch IN.jsonl --out OUT.jsonl")
    elif out is not None:
        raise InputError(f"--out {out}: it belongs to --batch; the verdict on one kernel is printed, with --json whole")
    else:
        source, kernel_source, stated = read_sources("score", problem, kernel)
        overrides = [*_WHOLE, *stated, *(set_ or [])]
        settings = judge_settings(config, overrides, backend=backend, require_sandbox=require_sandbox)
        _score_one(problem, source, kernel_source, settings, as_json)


def serve_judge(
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any but a loopback address needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 18188,
    workers: Annotated[int | None, typer.Option(min=1, help="Kernels judged at the same time.")] = None,
    queue: Annotated[
        int, typer.Option(min=1, help="Kernels being judged or waiting; further requests get status 429.")
    ] = 1024,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the bearer token that clients must send. Default: KERNELMILL_JUDGE_TOKEN if set."),
    ] = None,
    config: JudgeConfigOption = None,
    set_: SetOption = None,
    require_sandbox: RequireSandboxOption = False,
) -> None:
    """Serve the judge over HTTP until Ctrl-C or SIGTERM: POST /eval, POST /eval/batch, GET /health; see /docs."""
    from kernels_eval.config import ServerConfig
    from kernels_eval.server.serving import read_token, serve

    settings = judge_settings(config, set_, workers=workers, require_sandbox=require_sandbox)
    token = read_token(token_file)
    access = "with a token" if token else "without a token"

    def report_address(address: str) -> None:
        typer.echo(f"judge: {address}   {settings.workers} workers, {access}   (docs: {address}/docs; Ctrl-C ends it)")

    serve(settings, ServerConfig(host=host, port=port, queue_limit=queue), token, report_address)


def mcp(
    folder: Annotated[Path, typer.Option(help="Files outside this folder are not read.")] = Path(),
    judge_url: Annotated[
        str | None, typer.Option(help="A judge server to use; default: a judge in this process.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Kernels judged at the same time.")] = None,
    config: JudgeConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Serve the judge to an editor's assistant: a Model Context Protocol server on stdin and stdout."""
    from extras.adapters.mcp import kernel_server  # imports the extra first: nothing is started without it

    if judge_url is not None:
        from kernels_eval.server.client import HttpJudge

        kernel_server(HttpJudge(judge_url), folder).run("stdio")
        return
    from kernels_eval import Judge

    with Judge(judge_settings(config, set_, workers=workers)) as judge:
        kernel_server(judge, folder).run("stdio")


def judge_settings(config: Path | None, overrides: list[str] | None, **options: object) -> "JudgeConfig":
    """Return a configuration's `judge` section, or the defaults, with overrides and the command's `options` if true."""
    overrides = [*(overrides or []), *(f"judge.{name}={json.dumps(value)}" for name, value in options.items() if value)]
    return settings_of(config, overrides).judge


def settings_of(config: Path | None, overrides: list[str]) -> "RunConfig":
    """Return a configuration, or the defaults, with overrides."""
    from flows.settings.configuration import apply_override, check_configuration, load_configuration

    if config is not None:
        return load_configuration(config, overrides)
    values: dict[str, Any] = {}
    for override in overrides:
        apply_override(values, override)
    return check_configuration(values, "--set" if overrides else "defaults")


def read_sources(command: str, problem: Path, kernel: Path | None) -> tuple[str, str, list[str]]:
    """Return the problem's source, the kernel's, and the overrides that a file with both states in its docstring."""
    from kernels_eval.errors import InputError
    from kernels_eval.jsonl import read_source
    from kernels_eval.problem import CANDIDATE_LINE, check_problem_source, split_source
    from kernels_eval.redteam.case import read_settings

    text, where = _problem_of_table(problem) or read_source(problem), str(problem)
    if kernel is None and CANDIDATE_LINE not in text.splitlines():
        raise InputError(
            f"{command}: expected PROBLEM.py and KERNEL.py, or one file with both and the line "
            f"`{CANDIDATE_LINE}` between them, found {where} without such a line"
        )
    source, kernel_source = (text, read_source(kernel)) if kernel is not None else split_source(text, where)
    check_problem_source(source, where)
    stated = {} if kernel is not None else read_settings(source, where)
    return source, kernel_source, [f"judge.{name}={value}" for name, value in stated.items()]


def _problem_of_table(place: Path) -> str | None:
    """Return the source of one problem of a table, of which a place such as `problems.jsonl#relu` names the id.

    None: the place is no table. Raises InputError for a table without such a problem.
    """
    name, _, wanted = str(place).partition("#")
    suffix = Path(name).suffix
    if suffix not in (".json", ".jsonl", ".parquet"):
        return None
    from kernels_eval.errors import InputError
    from tasks.problems.config import ProblemsConfig
    from tasks.problems.loaders import load_entries  # needs pyarrow, which the judge alone does without

    if not Path(name).exists():
        raise InputError(f"{place}: no such file: {name}")
    source = "parquet" if suffix == ".parquet" else "jsonl"
    entries = load_entries(ProblemsConfig(source=source, path=name, levels=tuple(range(1, 100))))
    found = next((entry.problem for entry in entries if wanted in (entry.problem.problem_id, entry.problem.name)), None)
    if found is None or not wanted:
        ids = ", ".join(entry.problem.problem_id for entry in entries[:5])
        raise InputError(
            f"{name}: expected {name}#ID with the id of a problem, such as {ids}; found {wanted or 'none'}"
        )
    return found.source


def _score_one(problem: Path, source: str, kernel_source: str, settings: "JudgeConfig", as_json: bool) -> None:
    from kernels_eval import Judge, Problem

    with Judge(settings) as judge:
        verdict = judge.evaluate(Problem(problem_id=problem.stem, source=source), kernel_source)
    if as_json:
        typer.echo(verdict.model_dump_json(indent=2))
    else:
        speed = f", speed-up {verdict.speedup:.2f} ({verdict.timing_source})" if verdict.speedup is not None else ""
        reasons = [reason for reason in (verdict.rejection_reason, verdict.error_message) if reason]
        category = f" ({verdict.error_category})" if verdict.error_category and not verdict.rejection_reason else ""
        typer.echo(": ".join([f"{verdict.status}{category}{speed}", *reasons]))
        if verdict.error_category and verdict.error_category in list(ErrorCategory):
            typer.echo(f"  its cause and remedy: kernelmill judge explain {verdict.error_category}")
        if verdict.error_category == ErrorCategory.SYNTAX_ERROR and kernel_source.lstrip().startswith("```"):
            typer.echo("  the kernel begins with a Markdown fence: the file has to hold the code alone")
        for cell in verdict.cells:
            gain = "" if cell.speedup is None else f", speed-up {cell.speedup:.2f}"
            typer.echo(f"at {cell.workload}: {cell.error_category or cell.status}{gain}")
        for warning in verdict.warnings:
            typer.echo(f"warning: {warning}")
    raise_fault(verdict, str(problem))


def _score_batch(batch: Path, out: Path, settings: "JudgeConfig") -> None:
    from flows.checks.output import check_output
    from kernels_eval.jsonl import judge_file

    check_output("--out", out, read=[batch])
    last = time.monotonic()

    def report_progress(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= PROGRESS_INTERVAL_S:
            last = time.monotonic()
            typer.echo(f"{done} of {total}", err=True)

    verdicts = judge_file(batch, out, settings, report_progress)
    correct = sum(verdict.correct for verdict in verdicts)
    faults = [(number, verdict) for number, verdict in enumerate(verdicts, start=1) if verdict.is_fault]
    unjudged = f", {len(faults)} not judged" if faults else ""
    typer.echo(f"{len(verdicts)} verdicts, {correct} correct{unjudged}: {out}")
    # The machine's first: the same command may judge those. A problem's fault stays.
    for number, verdict in sorted(faults, key=lambda item: item[1].error_category == ErrorCategory.REFERENCE_FAILED):
        raise_fault(verdict, f"{batch}:{number}")


def raise_fault(verdict: "Verdict", where: str) -> None:
    """Raise InputError or InfrastructureError if the verdict is a fault of the problem or of the judge."""
    from kernels_eval.errors import InfrastructureError, InputError

    if not verdict.is_fault:
        return
    if verdict.error_category == ErrorCategory.REFERENCE_FAILED:
        raise InputError(f"{where}: {verdict.error_message}")
    raise InfrastructureError(f"{where}: could not be judged: {verdict.error_message}.")
