"""`kernelmill judge redteam`: test the judge with kernels that cheat and honest ones, without a GPU or on one."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from flows.cli import groups
from flows.cli.judging import JudgeConfigOption, judge_settings
from flows.cli.options import SetOption

if TYPE_CHECKING:
    from kernels_eval.config import JudgeConfig
    from kernels_eval.redteam.case import Case
    from kernels_eval.redteam.check import Score
    from kernels_eval.redteam.gains import AttackReport, AttackResult

_COMPILE_TIMEOUT_S = 15.0
"""Time of a first call on a GPU: an endless kernel costs no more."""


def add_to(app: typer.Typer) -> None:
    """Add the command to its group."""
    groups.judge.command("redteam")(redteam)


def redteam(
    device: Annotated[
        Literal["cpu", "cuda"],
        typer.Option("--device", help="cuda: attacks on a judge on a GPU, each with its gain over an honest kernel."),
    ] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the score and every outcome as JSON.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="File for the same JSON; on a GPU it is written after every case.")
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="Judge only cases whose class, group or name contains this text.")
    ] = None,
    budget_s: Annotated[
        float | None, typer.Option("--budget-s", min=0.0, help="On a GPU: seconds after which no further case begins.")
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile honest kernels too (one more minute).", show_default="no")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--cases", help="Folder with hacks/, honest/ and gpu/, which has both for a GPU. Default: tests/redteam."
        ),
    ] = None,
    config: JudgeConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Judge cheating kernels and honest ones of unusual style; print the score. Exit code 1: one was judged wrongly."""
    from flows.checks.output import check_output
    from kernels_eval.errors import InputError
    from kernels_eval.redteam.suite import FOLDER

    settings = judge_settings(config, set_)
    if out is not None:
        check_output("--out", out)
    folder = folder or FOLDER
    if device == "cuda":
        if compiled:
            raise InputError("--compile: expected without --device cuda, where every kernel is compiled")
        misses = _on_gpu(_chosen(folder / "gpu", only, beside=True), settings, budget_s, out, as_json)
    else:
        if budget_s is not None:
            raise InputError("--budget-s: expected with --device cuda alone")
        misses = _without_gpu(_chosen(folder, only), settings, compiled, out, as_json)
    if misses:
        raise typer.Exit(1)


def _chosen(folder: Path, only: str | None, beside: bool = False) -> "list[Case]":
    """Return the cases of a folder whose class, group or name contains a text; all honest ones too if `beside`."""
    from kernels_eval.errors import InputError
    from kernels_eval.redteam.suite import load_cases

    cases = load_cases(folder)
    chosen = [case for case in cases if only is None or only in case.group or only in case.name]
    if all(case.is_honest for case in chosen) if beside else not chosen:
        raise InputError(f"--only: no case has {only!r} in its class, group or name")
    return [case for case in cases if case in chosen or (beside and case.is_honest)]


def _without_gpu(
    cases: "Sequence[Case]", settings: "JudgeConfig", compiled: bool, out: Path | None, as_json: bool
) -> bool:
    """Judge cases in Triton's interpreter; returns True if one was judged wrongly."""
    from kernels_eval import Judge
    from kernels_eval.redteam.check import run_cases

    fixed = {"device": "cpu", "backend": "triton", "cache_dir": None, "compile": "correct" if compiled else "never"}
    with Judge(settings.model_copy(update=fixed)) as judge:
        score = run_cases(judge, cases)
    values = {"caught_share": score.caught_share, "wrongly_refused_share": score.wrongly_refused_share}
    rates = {"hack_rates": score.hack_rates, "honest_rates": score.honest_rates}
    listed = {name: [rate.model_dump() for rate in found] for name, found in rates.items()}
    content = {**values, **listed, **score.model_dump(mode="json")}
    if out is not None:
        _write(out, content)
    if as_json:
        typer.echo(json.dumps(content, indent=2))
    else:
        _print_score(score)
    return bool(score.misses)


def _on_gpu(
    cases: "Sequence[Case]", settings: "JudgeConfig", budget_s: float | None, out: Path | None, as_json: bool
) -> bool:
    """Judge attacks on a GPU, by one worker; returns True if one gained, or was judged otherwise than expected."""
    from kernels_eval import Judge
    from kernels_eval.redteam.gains import AttackReport, pairs_of, run_attacks

    pairs = pairs_of(cases)
    limit_s = min(settings.compile_timeout_s, _COMPILE_TIMEOUT_S)
    fixed = {"device": "cuda", "backend": "triton", "cache_dir": None, "workers": 1, "compile_timeout_s": limit_s}

    def keep(report: AttackReport, result: "AttackResult") -> None:
        if out is not None:
            _write(out, _content(report))
        typer.echo(attack_line(result), err=as_json)

    with Judge(settings.model_copy(update=fixed)) as judge:
        report = run_attacks(judge, pairs, budget_s, keep)
    if as_json:
        typer.echo(json.dumps(_content(report), indent=2))
    else:
        for line in attack_summary(report):
            typer.echo(line)
    return bool(report.misses)


def _content(report: "AttackReport") -> dict[str, Any]:
    return {"by_class": report.by_class, **report.model_dump(mode="json")}


def _write(path: Path, content: dict[str, Any]) -> None:
    from tasks.pipeline.store import write_atomically

    write_atomically(path, json.dumps(content, indent=2))


def attack_line(result: "AttackResult") -> str:
    """Return the line on one attack or honest kernel."""
    from kernels_eval.plain_text import plain_text

    parts = [
        ("MISS: " if result.is_miss else "") + result.outcome,
        " then ".join(f"{gain:.3f}" for gain in result.gains),
        f"{result.group}: {result.name}",
        f"({result.seconds:.1f} s, {result.status})" if result.status else "",
        f"{1e3 * result.candidate_ms:.2f} us" if result.candidate_ms is not None else "",
        " ".join(plain_text(f"{result.category or ''} {result.message or ''}").split())[:160],
    ]
    return "  ".join(part for part in parts if part)


def attack_summary(report: "AttackReport") -> list[str]:
    """Return lines with the outcomes by class, the honest kernels that were refused, and what was not run."""
    from kernels_eval.redteam.gains import GAIN_LIMIT, AttackOutcome

    lines = [f"on {report.hardware or 'a GPU'}, JUDGE_VERSION {report.judge_version}, {report.seconds:.0f} s"]
    for group, counts in report.by_class.items():
        gains = [attack.gain for attack in report.attacks if attack.group == group and attack.gain is not None]
        most = f"   largest gain {max(gains):.3f}" if gains else ""
        shown = ", ".join(f"{counts[outcome]} {outcome}" for outcome in AttackOutcome if outcome in counts)
        lines.append(f"  {group:26s} {shown}{most}")
    accepted = sum(not result.is_miss for result in report.honest)
    lines.append(f"honest kernels accepted    {accepted} of {len(report.honest)}")
    lines.append(f"gain: speed-up over the honest kernel's of the same problem; accepted up to {GAIN_LIMIT:g}")
    left = [attack.name for attack in report.attacks if attack.outcome == AttackOutcome.NOT_RUN]
    if left:
        lines.append(f"not run for lack of time   {len(left)}: {'; '.join(left)}")
    lines += [attack_line(miss) for miss in report.misses]
    return lines


def _print_score(score: "Score") -> None:
    for rate in score.hack_rates:
        typer.echo(f"  {rate.group:32s} caught  {rate.cases - rate.misses:3d} of {rate.cases:3d}")
    for rate in score.honest_rates:
        typer.echo(f"  honest/{rate.group:25s} refused {rate.misses:3d} of {rate.cases:3d}")
    typer.echo(f"hacks caught          {score.hacks_caught} of {score.hacks} ({score.caught_share:.1%})")
    refused = score.honest - score.honest_passed
    typer.echo(f"honest wrongly refused {refused} of {score.honest} ({score.wrongly_refused_share:.1%})")
    typer.echo(f"sandbox               {score.sandbox}")
    for miss in score.misses:
        speed = f" at {miss.speedup:.2f}" if miss.speedup is not None else ""
        typer.echo(
            f"MISS  {miss.group:16s} {miss.name}: {miss.status}{speed} {miss.category or ''} {miss.message or ''}"
        )
