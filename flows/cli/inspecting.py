"""`kernelmill judge inspect` looks at a kernel, `kernelmill judge explain` at the category of a verdict."""

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli import groups
from flows.cli.judging import JudgeConfigOption, judge_settings, raise_fault, read_sources
from flows.cli.options import SetOption
from kernels_eval.errors import InputError

if TYPE_CHECKING:
    from kernels_eval.inspection.figures import CallFigures, LaunchFigures
    from kernels_eval.inspector import Inspection


def add_to(app: typer.Typer) -> None:
    """Add the commands to their group."""
    groups.judge.command("inspect")(inspect)
    groups.judge.command("explain")(explain)


def inspect(
    problem: Annotated[Path, typer.Argument(help="Problem in KernelBench's format.")],
    kernel: Annotated[
        Path | None,
        typer.Argument(help="Kernel: Python source that defines ModelNew. Left out: PROBLEM holds both."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    config: JudgeConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Judge KERNEL, then say what it does with the GPU, what slows it down and what to do; or why it fails."""
    from kernels_eval import Judge, Problem
    from kernels_eval.inspector import inspect_kernel

    source, kernel_source, stated = read_sources("inspect", problem, kernel)
    settings = judge_settings(config, [*stated, *(set_ or [])])
    with Judge(settings) as judge:
        found = inspect_kernel(judge, Problem(problem_id=problem.stem, source=source), kernel_source)
    raise_fault(found.verdict, str(problem))
    typer.echo(found.model_dump_json(indent=2) if as_json else "\n".join(lines_of(found)))


def explain(
    category: Annotated[
        str | None, typer.Argument(help="Category of a verdict, such as `data_race`, or a status.")
    ] = None,
) -> None:
    """Say what an error category of a verdict means, its usual cause and what to do; all of a status, or all."""
    from kernels_eval.error_categories import EXPLANATIONS, ErrorCategory, category_of

    statuses = list(dict.fromkeys(each.status for each in EXPLANATIONS.values()))
    if category is None or category in statuses:
        width = max(map(len, ErrorCategory))
        for status in statuses if category is None else [category]:
            of_status = {name: each for name, each in EXPLANATIONS.items() if each.status == status}
            lines = [f"  {name:{width}}  {each.meaning}" for name, each in of_status.items()]
            typer.echo("\n".join([status, *lines]))
        return
    found = category_of(category)
    if found is None:
        near = difflib.get_close_matches(category, list(ErrorCategory))
        hint = f"did you mean {' or '.join(near)}?" if near else "`kernelmill judge explain` lists all."
        raise InputError(f"explain: {category[:60]!r} is no error category of the judge; {hint}")
    status, meaning, cause, remedy = EXPLANATIONS[found]
    lines = [f"{found} ({status}): {meaning}"]
    lines += [f"  usual cause: {cause}"] if cause else []
    lines += [f"  what to do:  {remedy}"] if remedy else []
    typer.echo("\n".join(lines))


def lines_of(found: "Inspection") -> list[str]:
    """Return an inspection as lines for a terminal."""
    from kernels_eval.error_categories import EXPLANATIONS, category_of

    verdict = found.verdict
    failure = found.failure
    if failure is not None and not verdict.correct:
        where = f", line {failure.line}" if failure.line else ""
        lines = [f"{verdict.status} ({failure.category}{where}): {failure.cause}"]
        known = category_of(failure.category)
        remedy = failure.remedy or (EXPLANATIONS[known].remedy if known is not None else "")
        return lines + ([f"  → {remedy}"] if remedy else [])
    speed = f", {verdict.speedup:.2f} times eager ({verdict.timing_source})" if verdict.speedup is not None else ""
    lines = [f"{verdict.status}{speed}"]
    if verdict.profile is not None and verdict.candidate_ms is not None:
        profile = verdict.profile
        lines.append(
            f"  a call, measured on {verdict.hardware}: {1e3 * verdict.candidate_ms:.1f} us, "
            f"{profile.gigabytes_per_s:,.0f} GB/s of what is needed, {profile.roofline_share:.0%} of the roofline; "
            f"{profile.launches:g} launches, {profile.own_share:.0%} of the time in own kernels"
        )
    if failure is not None:
        return [*lines, f"  not counted: {failure.category.replace('_', ' ')}: {failure.cause}"]
    if found.figures is not None:
        lines += _of_call(found.figures)
    lines += [f"! {warning}" for warning in verdict.warnings]
    for issue in found.issues:
        where = f"{issue.kernel}, line {issue.line}: " if issue.kernel else ""
        lines += [f"✗ {issue.kind}: {where}{issue.message}", f"  → {issue.remedy}"]
    return lines if found.issues else [*lines, "✓ no issues"]


def _of_call(figures: "CallFigures") -> list[str]:
    moved, needed = figures.moved_bytes / 1e6, figures.needed.bytes / 1e6
    lines = [
        f"  a call, estimated for {figures.hardware}: {figures.microseconds:.1f} us, {figures.gaps_share:.0%} of it "
        f"between launches; {moved:,.1f} MB moved, {needed:,.1f} MB needed"
    ]
    for launch in figures.launches:
        lines += _of_launch(launch)
    if figures.library_share:
        lines.append(f"  operators of PyTorch: {figures.library_share:.0%} of the time")
    return lines


def _of_launch(launch: "LaunchFigures") -> list[str]:
    products = f", {launch.gigaflops_per_s:,.0f} GFLOP/s" if launch.gigaflops_per_s else ""
    lines = [
        f"  {launch.kernel} (line {launch.line}): {launch.microseconds:.1f} us, bound by {launch.bound_by}, "
        f"{launch.gigabytes_per_s:,.0f} GB/s{products}, {launch.roofline_share:.0%} of the roofline",
        f"    {launch.programs:,.0f} programs of {launch.warps} warps, {launch.waves:.2f} waves; occupancy "
        f"{launch.occupancy:.0%}, limited by {launch.limited_by}",
    ]
    if launch.registers is not None:
        lines.append(
            f"    {launch.registers} registers a thread, {launch.spill_bytes or 0} bytes spilled, "
            f"{launch.shared_bytes or 0:,} bytes of shared memory a program"
        )
    return lines
