"""`kernelmill plan | verify`: resources and time that a configuration needs, and checks of this machine."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.options import ConfigArgument, ConfigOption, SetOption, config_path
from flows.settings.plurals import counted

if TYPE_CHECKING:
    from flows.capacity.memory import Shape
    from flows.capacity.planner import CapacityPlan
    from flows.capacity.speed import Assumptions
    from flows.settings.configuration import RunConfig


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("plan", rich_help_panel="Before a run")(plan)
    app.command("verify", rich_help_panel="Before a run")(verify)


def plan(
    config: ConfigArgument = None,
    config_option: ConfigOption = None,
    set_: SetOption = None,
    gpu: Annotated[str, typer.Option(help="GPU model: a100, h100, h200, rtx4090 or mi300x.")] = "h100",
    utilisation: Annotated[
        float | None,
        typer.Option(min=0.01, max=1.0, help="Share of the peak that training reaches while the GPU works."),
    ] = None,
    prompt_tokens: Annotated[
        int | None, typer.Option(min=1, max=1_000_000_000, help="Tokens of a problem with its instructions.")
    ] = None,
) -> None:
    """Print the steps of a run, whether it fits on GPUs, and an estimate of its speed. Exit code 1: it does not fit."""
    from rich.console import Console

    from flows.capacity.memory import taken_for
    from flows.capacity.planner import plan as plan_capacity
    from flows.capacity.speed import GPUS, Assumptions, describe
    from flows.checks.named_files import missing_files
    from flows.checks.settings import check_named_code, check_problems
    from flows.settings.configuration import load_configuration
    from kernels_eval.errors import InputError

    if gpu not in GPUS:
        raise InputError(f"--gpu: found {gpu}, expected one of {', '.join(GPUS)}")
    settings = load_configuration(config_path(config, config_option), set_ or [])
    check_named_code(settings)
    check_problems(settings)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{settings.run_id}[/bold]")
    for number, line in enumerate(describe(settings), start=1):
        console.print(f"  {number}. {line}")
    for named in missing_files(settings):
        console.print(f"  not here: {named}")
    if (other := taken_for(settings.model)) is not None:
        console.print(f"  not here: model.pretrained: {settings.model.pretrained}: its sizes are taken for {other}'s")
    if settings.update.gpus_per_rank == 0:
        for line in cpu_lines(settings):
            console.print(line)
        return
    given: dict[str, Any] = {"utilisation": utilisation, "prompt_tokens": prompt_tokens}
    assumed = Assumptions(**{name: value for name, value in given.items() if value is not None})
    found = plan_capacity(settings, GPUS[gpu], assumed)
    for line in capacity_lines(settings, found, assumed):
        console.print(line)
    if not found.fits:
        raise typer.Exit(1)


def verify(config: ConfigArgument = None, config_option: ConfigOption = None, set_: SetOption = None) -> None:
    """Check this machine and what a configuration names; print a fix for each problem. Exit code 1: not ready."""
    from rich.console import Console
    from rich.markup import escape

    from flows.checks.result import Outcome
    from flows.checks.verify import run_checks
    from flows.services.environment import set_defaults
    from flows.settings.configuration import load_configuration

    set_defaults()
    settings = load_configuration(config_path(config, config_option), set_ or [])
    console = Console(highlight=False, soft_wrap=True)
    marks = {Outcome.OK: "[green]✓[/green]", Outcome.NOTE: "[yellow]●[/yellow]", Outcome.FAILED: "[red]✗[/red]"}
    results = run_checks(settings)
    for result in results:
        console.print(f"{marks[result.outcome]} {result.name}: {escape(result.found)}")
        if result.fix:
            console.print(f"    → {escape(result.fix)}")
    wrong = sum(result.outcome is Outcome.FAILED for result in results)
    if wrong:
        console.print(f"not ready: {wrong} of {len(results)} checks failed")
        raise typer.Exit(1)
    console.print(f"ready for {settings.run_id}")


def cpu_lines(settings: "RunConfig") -> list[str]:
    """Return memory and time of a run without GPUs, as lines of text."""
    from flows.capacity.memory import GIB, shape_of, training_memory
    from flows.capacity.planner import training_job
    from flows.capacity.speed import expected_seconds

    shape = shape_of(settings.model)
    update = settings.update
    used = training_memory(training_job(settings, shape))
    tensors = sum(size for name, size in used.items() if name != "context")
    lines = [
        "",
        f"{shape.parameters / 1e6:.2f} million weights{_active(shape)}, no GPU: fits where {tensors / GIB:.1f} GiB "
        f"are free for each of {counted(update.ranks, 'rank')}, beside about 4 GiB for Ray, Prefect, "
        "the judge and PyTorch itself",
    ]
    if settings.model.pretrained is None:
        lines.append(f"about {expected_seconds(settings) / 60:.0f} min on two CPU cores")
    return lines


def capacity_lines(settings: "RunConfig", found: "CapacityPlan", assumed: "Assumptions") -> list[str]:
    """Return the capacity plan as lines of text."""
    from flows.capacity.overlap import overlap_line
    from flows.capacity.planner import LADDER

    lines = ["", *_update_lines(settings, found), *_generation_lines(found), *_sharing_lines(found)]
    lines.append(_disk_line(settings, found))
    update_s = found.update_s + found.host_step_s
    together = f", {found.iteration_s:.0f} s side by side" if found.rolls_out_beside else ""
    host = f" ({found.host_step_s:.0f} of them the optimizer's on the host)" if found.host_step_s else ""
    lines.append(
        f"speed, estimated: {found.training_tokens_s:,.0f} tokens/s trained"
        + ("" if found.generation_tokens_s is None else f", {found.generation_tokens_s:,.0f} tokens/s generated")
        + f"; an iteration: rollout {found.rollout_s:.0f} s, update {update_s:.0f} s{host} and "
        f"{found.saving_s:.0f} s to save it{together}; "
        f"the update's engine starts in {found.starting_s:.0f} s, {_often(*found.starts)}; "
        f"{counted(settings.iterations, 'iteration')}: "
        f"{found.iterations_s / 3600:.1f} h. "
        f"SFT: {'as long as its pairs make it' if found.sft_s is None else f'{found.sft_s:.0f} s without its pairs'}; "
        f"a held-out evaluation: {found.evaluation_s:.0f} s"
    )
    lines.append(
        f"  assumed: {assumed.utilisation:.0%} of the peak in training, {assumed.launch_s * 1e3:g} ms of the host for "
        f"a layer's pass, {assumed.bandwidth_share:.0%} of the bandwidth "
        f"in generation, prompts of {assumed.prompt_tokens} tokens, answers {assumed.answer_share:.0%} of the limit, "
        f"{assumed.judging_s:g} s to judge a kernel, at most {assumed.judged_per_gpu:g} a second on a GPU, "
        f"{assumed.saving / 1e9:g} GB/s to write and hash a checkpoint"
    )
    lines.append(overlap_line(settings))
    if not found.fits:
        lines.append("it does not fit; try in this order: " + " ".join(f"--set {setting}" for setting in LADDER))
    return lines


def _often(first: int, further: int) -> str:
    """Return in words how often an update's engine starts in the first iteration, and in each further one."""
    if further == first:  # nobody holds one
        return "once in each iteration" if first == 1 else f"{first} times in each iteration"
    if further:  # the last agent of an iteration is the first of the next
        return f"once, and {counted(further, 'more time')} in each iteration"
    return "once" if first == 1 else f"once for each of {first} agents"


def _active(shape: "Shape") -> str:
    """Return what share of a mixture of experts a token passes through, to be said behind its weights."""
    return f" ({shape.active_parameters / shape.parameters:.0%} of them active for a token)" if shape.experts else ""


def _update_lines(settings: "RunConfig", found: "CapacityPlan") -> list[str]:
    from flows.capacity.memory import GIB

    gpu, update = found.gpu, settings.update
    parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in found.training.items())
    lines = [
        f"{found.shape.parameters / 1e9:.2f} billion weights{_active(found.shape)} on {found.gpus} × {gpu.name} "
        f"(update {found.update_gpus:g}, generation {found.generation_gpus:g}, judge {found.judge_gpus:g})",
        f"update: ZeRO-{found.stage} on {counted(update.ranks, 'rank')}: {_verdict(found.training_fits)}: "
        f"{sum(found.training.values()) / GIB:.1f} GiB per rank, of "
        f"{gpu.memory_gib * min(update.gpus_per_rank, 1.0):.0f}: {parts}",
        "  lowest ZeRO stage that fits on these ranks: "
        + ("none" if found.lowest_stage is None else f"{found.lowest_stage}"),
        "  fewest ranks at any stage: " + ("more than 64" if found.fewest_ranks is None else f"{found.fewest_ranks}"),
    ]
    if found.sft:
        lines.append(
            f"SFT on the same ranks: {_verdict(found.sft_fits)}: {sum(found.sft.values()) / GIB:.1f} GiB per rank, of "
            f"{gpu.memory_gib * min(update.gpus_per_rank, 1.0):.0f}"
            + ("" if found.sft_fits else "; sft.lora={rank: 16} trains adapters alone")
        )
    if found.share_of_longest > update.tokens_per_rank:
        lines.append(
            f"  the longest sequence puts {found.share_of_longest:,} tokens on a rank, "
            f"more than update.tokens_per_rank = {update.tokens_per_rank:,}: "
            "it trains by itself; more ranks share it with a larger update.context_parallel"
        )
    return lines


def _generation_lines(found: "CapacityPlan") -> list[str]:
    if found.cache_tokens is None:
        return []
    enough = found.cache_tokens >= found.wanted_cache_tokens
    return [
        f"generation: {_verdict(found.cache_tokens >= found.longest)}: a server's cache holds "
        f"{max(found.cache_tokens, 0):,} tokens, {found.sequences} sequences of up to {found.longest:,} need "
        f"{found.wanted_cache_tokens:,}" + ("" if enough else " (some wait, or are recomputed)")
    ]


def _sharing_lines(found: "CapacityPlan") -> list[str]:
    """Return the memory of the host and of what shares GPUs with the update; purposes that take none are left out."""
    from flows.capacity.memory import GIB

    def listed(parts: dict[str, float]) -> str:
        return ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items() if size)

    lines = [f"host memory, estimated: {sum(found.host.values()) / GIB:.0f} GiB: {listed(found.host)}"]
    if any(found.beside.values()):
        lines.append(f"GPU memory beside the update, estimated, GiB: {listed(found.beside)}")
    if found.gpus == 1:
        fits = found.one_gpu_bytes <= found.gpu.memory_gib * GIB
        lines.append(f"  all on one GPU: {_verdict(fits)}: {found.one_gpu_bytes / GIB:.1f} of {found.gpu.memory_gib:g}")
    return lines


def _disk_line(settings: "RunConfig", found: "CapacityPlan") -> str:
    from flows.capacity.memory import GIB

    left = found.disk_bytes
    return (
        f"disk: {found.checkpoint_bytes / GIB:,.0f} GiB a checkpoint; "
        f"{f'{left / 2**40:,.1f} TiB' if left >= 2**39 else f'{left / GIB:,.0f} GiB'} of "
        f"the first policy and {counted(settings.iterations, 'iteration')} stay in {settings.runs_dir}/store with "
        f"update.weights_interval = {settings.update.weights_interval} and "
        f"update.checkpoint_interval = {settings.update.checkpoint_interval}"
    )


def _verdict(fits: bool) -> str:
    return "fits" if fits else "does NOT fit"
