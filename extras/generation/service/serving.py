"""Service process: opens the store and the judge, listens, and serves until a signal.

`folder` holds `jobs.sqlite` (extras.generation.service.jobs), and `verdicts/`, the judge's cache: a job that is taken
up again judges no kernel twice.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from extras.adapters.scoring import Scorer
from extras.generation.config import TOKEN_VARIABLE, SearchConfig, ServiceConfig
from extras.generation.generate import generate, hardware_of
from extras.generation.result import GeneratedKernel
from extras.generation.search import Attempt, episode_for_search
from extras.generation.service.app import create_app
from extras.generation.service.jobs import JobStore
from extras.generation.service.runner import Runner
from extras.generation.writers import Writer
from kernels_eval.config import JudgeConfig
from kernels_eval.frozen import decisive_part, with_source
from kernels_eval.judge import Judge
from kernels_eval.problem import Problem
from kernels_eval.server.serving import check_reach, listening, serve_app
from kernels_eval.verdict import JUDGE_VERSION
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import judge_for


def serve(
    writer: Writer,
    episode: EpisodeConfig,
    judge_config: JudgeConfig,
    config: ServiceConfig,
    folder: Path,
    token: str | None,
    on_ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until SIGTERM or SIGINT. Calls `on_ready` with the address. Raises InputError if it cannot listen."""
    check_reach(config.host, token, TOKEN_VARIABLE)
    episode = episode_for_search(episode)
    judge_config = judge_for(episode, judge_config)
    if judge_config.cache_dir is None:
        judge_config = judge_config.model_copy(update={"cache_dir": str(folder / "verdicts")})
    with listening(config.host, config.port) as listener:
        store = JobStore(folder)
        try:
            with Judge(judge_config) as judge, Scorer(judge, episode, judge_config.backend) as scorer:

                async def work(
                    problem: Problem,
                    search: SearchConfig,
                    on_attempt: Callable[[Attempt], None],
                    earlier: Sequence[Attempt],
                ) -> GeneratedKernel:
                    return await generate(problem, writer, scorer, judge, search, on_attempt, earlier)

                runner = Runner(store, work, config, _identity(writer, episode, judge.config))
                app = create_app(runner, judge, writer, config, token, writer.close)
                serve_app(app, listener, config.shutdown_s, runner.announce_stop, on_ready)
        finally:
            store.close()


def _identity(writer: Writer, episode: EpisodeConfig, judge: JudgeConfig) -> str:
    """Return a digest of all that decides a result beside the problem: model, GPU, judge, form of conversations."""
    settings = [decisive_part(part, of_code=with_source) for part in (judge, episode)]
    parts = [writer.digest, hardware_of(judge), JUDGE_VERSION, *settings]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
