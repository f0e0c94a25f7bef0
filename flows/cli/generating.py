"""`kernelmill generate`, `kernelmill serve kernels`: a PyTorch module in, a verified kernel out; once, or over HTTP."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.checks.output import check_output
from flows.cli import groups
from flows.cli.judging import settings_of
from flows.cli.options import BaseUrlOption, ModelOption, SetOption

if TYPE_CHECKING:
    from extras.generation.config import SearchConfig
    from extras.generation.in_model import InModel
    from extras.generation.result import GeneratedKernel
    from extras.generation.search import Attempt, Choice
    from extras.generation.writers import Writer
    from flows.settings.configuration import RunConfig
    from kernels_eval.problem import Problem

NOTHING_FASTER = 3
"""Exit code of `generate` if the original is returned."""
NEWEST_RUN = "runs/latest"
_PATIENCE_S = 120.0
"""Time in which a server that fails is asked again for one answer."""
_SERVICE_PATIENCE_S = 900.0
"""The same in the service, which nobody watches."""
_DRAFTS = 4
"""Answers drawn for each that is judged, with a tester."""
_ANSWER_TOKENS = 8192
"""Limit of an answer where no configuration has one."""

PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="CKPT",
        help="Folder of a policy, a package, or a run (@VERSION or newest). Its run's settings hold without --config.",
        show_default=NEWEST_RUN,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Run configuration; its sections `rollout` and `judge` are used."),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this group."""
    app.command("generate", rich_help_panel="Kernels on demand")(generate)
    groups.serve.command("kernels")(serve_kernels)


def generate(
    module: Annotated[
        Path, typer.Argument(metavar="MODULE.py", help="PyTorch module in KernelBench's format: Model, get_inputs, …")
    ],
    policy: PolicyOption = None,
    openai_base_url: BaseUrlOption = None,
    model: ModelOption = None,
    budget: Annotated[int, typer.Option(min=1, max=4096, help="Answers that may be judged.")] = 32,
    seconds: Annotated[float | None, typer.Option(min=0.001, max=1e7, help="Wall time of the search.")] = None,
    conversations: Annotated[int, typer.Option(min=1, max=256, help="Conversations at the same time.")] = 8,
    turns: Annotated[
        int | None,
        typer.Option(min=1, max=32, help="Answers of a conversation; 1: no refinement.", show_default="as configured"),
    ] = None,
    min_speedup: Annotated[
        float, typer.Option(min=0.01, help="Least speed-up over the original in eager mode.")
    ] = 1.05,
    seed: Annotated[int, typer.Option(min=0, max=2**62, help="Decides a policy's draws.")] = 0,
    tester: Annotated[
        Path | None,
        typer.Option("--tester", metavar="FOLDER", help="Tester that chooses among drafts (`kernelmill tester`)."),
    ] = None,
    drafts: Annotated[
        int | None,
        typer.Option(min=2, max=64, help="Answers drawn for each that is judged.", show_default="4 with --tester"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File for ModelNew.", show_default="MODULE_kernel.py in this folder")
    ] = None,
    in_model: Annotated[
        str | None,
        typer.Option(
            "--in", metavar="MODEL.py:CLASS", help="Also judge a whole model with the kernel in place of one class."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Write a fast kernel for MODULE.py: search, judge, verify. Exit code 3: nothing beats the original."""
    from extras.generation.config import SearchConfig
    from extras.generation.result import Outcome
    from kernels_eval.errors import InputError
    from kernels_eval.jsonl import read_source
    from kernels_eval.problem import Problem, check_problem_source

    out = out or Path(f"{module.stem}_kernel.py")
    check_output("--out", out, read=[module])
    if drafts is not None and tester is None:
        raise InputError("--drafts: expected --tester as well, which chooses among them")
    choice = None if tester is None else _choice_of(tester, drafts or _DRAFTS)
    problem = Problem(problem_id=module.stem, source=read_source(module))
    check_problem_source(problem.source, str(module))
    whole = None if in_model is None else _model_of(in_model)
    overrides = [*(set_ or []), *([] if turns is None else [f"rollout.episode.max_turns={turns}"])]
    settings, writer = open_model(policy, openai_base_url, model, config, overrides)
    search = SearchConfig(
        budget=budget, seconds=seconds, conversations=conversations, min_speedup=min_speedup, seed=seed
    )
    found, inside = asyncio.run(_generated(problem, writer, settings, search, choice, whole))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(found.source, encoding="utf-8")
    if as_json:
        shown = found.model_dump(mode="json")
        if inside is not None:
            shown["in_model"] = {**inside.model_dump(mode="json"), "helps": inside.helps}
        typer.echo(json.dumps(shown, indent=2))
    else:
        typer.echo(f"{found.line}: {out}")
        if inside is not None:
            typer.echo(f"{in_model}: {inside.line}")
    if found.outcome is Outcome.ORIGINAL or not (inside is None or inside.helps):
        raise typer.Exit(NOTHING_FASTER)


def serve_kernels(
    policy: PolicyOption = None,
    openai_base_url: BaseUrlOption = None,
    model: ModelOption = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any but a loopback address needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 18190,
    folder: Annotated[Path, typer.Option(help="Jobs and verdicts are kept here; a restart goes on with them.")] = Path(
        "kernels"
    ),
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Jobs worked on at the same time.")] = 2,
    queue: Annotated[
        int, typer.Option(min=1, help="Jobs waiting or under way; further requests get status 429.")
    ] = 256,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the bearer token that clients must send. Default: KERNELMILL_KERNELS_TOKEN."),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Serve `generate` over HTTP until Ctrl-C or SIGTERM: POST /v1/kernels, GET /health; see /docs."""
    from extras.generation.config import TOKEN_VARIABLE, ServiceConfig
    from extras.generation.service.serving import serve
    from kernels_eval.server.serving import read_token

    check_output("--folder", folder, folder=True)
    token = read_token(token_file, TOKEN_VARIABLE)
    settings, writer = open_model(policy, openai_base_url, model, config, set_ or [], _SERVICE_PATIENCE_S)
    access = "with a token" if token else "without a token"

    def report_address(address: str) -> None:
        typer.echo(f"kernels: {address}   {writer.name}, {access}   (docs: {address}/docs; Ctrl-C ends it)")

    service = ServiceConfig(host=host, port=port, jobs_at_once=jobs, queue_limit=queue)
    serve(writer, settings.rollout.episode, settings.judge, service, folder, token, report_address)


def open_model(
    policy: str | None,
    base_url: str | None,
    model: str | None,
    config: Path | None,
    overrides: list[str],
    patience_s: float = _PATIENCE_S,
) -> "tuple[RunConfig, Writer]":
    """Return the settings and the model of the command's options. Raises InputError if they do not fit together."""
    from extras.generation.writers.openai import KEY_VARIABLE, OpenAIWriter
    from extras.generation.writers.policy import PolicyWriter
    from flows.run.state import policy_at, policy_name
    from kernels_eval.errors import InputError

    if (base_url is None) != (model is None):
        raise InputError("--openai-base-url and --model belong together: expected both or neither")
    if base_url is not None and policy is not None:
        raise InputError("--policy and --openai-base-url: expected one of them")
    limit = f"rollout.sampling.max_new_tokens={_ANSWER_TOKENS}"
    if base_url is not None and model is not None:
        settings = settings_of(config, overrides if config is not None else [limit, *overrides])
        key = os.environ.get(KEY_VARIABLE) or None
        return settings, OpenAIWriter(base_url, model, settings.rollout.sampling, key=key, patience_s=patience_s)
    if policy is None and not Path(NEWEST_RUN).is_dir():
        raise InputError(
            f"generate: expected --policy, or --openai-base-url and --model: there is no run in {NEWEST_RUN}"
        )
    checkpoint, of_run = policy_at(policy or NEWEST_RUN)
    config = config or of_run
    settings = settings_of(config, overrides if config is not None else [limit, *overrides])
    return settings, PolicyWriter(checkpoint, settings.rollout, policy_name(policy or NEWEST_RUN, checkpoint))


def _model_of(named: str) -> "tuple[Problem, str]":
    """Return the model of `MODEL.py:CLASS`, and the class."""
    from extras.generation.in_model import check_model
    from kernels_eval.errors import InputError
    from kernels_eval.jsonl import read_source
    from kernels_eval.problem import Problem

    file, colon, name = named.rpartition(":")
    if not colon or not name.isidentifier():
        raise InputError(f"--in {named}: expected the form MODEL.py:CLASS")
    model = Problem(problem_id=Path(file).stem, source=read_source(Path(file)))
    check_model(model, name, f"--in {file}")
    return model, name


def _choice_of(tester: Path, drafts: int) -> "Choice":
    from extras.generation.search import Choice
    from extras.tester.training import load_tester

    return Choice(drafts, load_tester(tester).correct)


@asynccontextmanager
async def _closing(writer: "Writer") -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await writer.close()


async def _generated(
    problem: "Problem",
    writer: "Writer",
    settings: "RunConfig",
    search: "SearchConfig",
    choice: "Choice | None",
    whole: "tuple[Problem, str] | None",
) -> "tuple[GeneratedKernel, InModel | None]":
    """Return what was found; and, if a whole model is given and a kernel was, the model with it."""
    from extras.adapters.scoring import Scorer
    from extras.generation.generate import generate as generate_kernel
    from extras.generation.in_model import check_in_model
    from extras.generation.search import episode_for_search
    from kernels_eval import Judge
    from tasks.rollout.prompts import judge_for

    backend = settings.judge.backend
    episode = episode_for_search(settings.rollout.episode)
    judged = 0
    best: float | None = None

    def show(attempt: "Attempt") -> None:
        nonlocal judged, best
        judged += 1
        verdict = attempt.verdict
        if verdict.correct and verdict.speedup is not None:
            best = max(best or 0.0, verdict.speedup)
        typer.echo(_progress_line(attempt, judged, search.budget, best), err=True)

    async with _closing(writer):
        with (
            Judge(judge_for(episode, settings.judge)) as judge,
            Scorer(judge, episode, backend) as scorer,
        ):
            found = await generate_kernel(problem, writer, scorer, judge, search, show, choice=choice)
            if whole is None or found.kernel_source is None or found.verdict is None:
                return found, None
            return found, await check_in_model(*whole, found.kernel_source, found.verdict, judge)


def _progress_line(attempt: "Attempt", judged: int, budget: int, best: float | None) -> str:
    from kernels_eval.verdict import TimingSource

    verdict = attempt.verdict
    mark = "" if verdict.timing_source is TimingSource.GPU else " (estimate)"
    cause = verdict.rejection_reason or verdict.error_category
    found = f" {verdict.speedup:.2f}x{mark}" if verdict.speedup is not None else f" {cause}" if cause else ""
    so_far = "" if best is None else f"; best {best:.2f}x{mark}"
    return (
        f"[{judged}/{budget}] {attempt.at_s:.0f} s, conversation {attempt.conversation + 1} turn {attempt.turn}: "
        f"{verdict.status.value}{found}{so_far}"
    )
