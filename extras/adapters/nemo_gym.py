"""NeMo Gym: the judge as a resources server, whose `/verify` rewards one answer (nemo-gym 0.4).

    rows = nemo_gym_rows(problem_rows(ProblemsConfig(...)))   # write them as JSON Lines: `jsonl_fpath` of a data set
    KernelServer.run_webserver()                              # docs/examples/nemo_gym/app.py

A row has the prompt and the problem; any agent of NeMo Gym that sends one prompt to the model serves. A fault of the
machine is the status 503 of `/verify`: the rollout fails, and no reward is given.
"""

# The peer need not be installed where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from fastapi import HTTPException
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)

from extras.adapters.problem_rows import problem_of_row
from extras.adapters.scoring import Scorer, open_scorer
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError, InputError
from tasks.rollout.config import EpisodeConfig

_CUT_OFF = "max_output_tokens"


class KernelServerConfig(BaseResourcesServerConfig):
    """Settings of the server in NeMo Gym's YAML."""

    judge_url: str | None = None
    """Address of a judge server; None: the judge runs in this process."""
    workers: int = 2
    """Kernels that a judge in this process judges at once."""
    reward: str = "kernelbench"
    """Name of the reward (kernels_eval.rewards)."""


class KernelVerifyRequest(BaseVerifyRequest):
    """A row of `nemo_gym_rows` with the model's answer."""

    problem_source: str
    problem_id: str = "problem"
    level: int = 1


class KernelVerifyResponse(KernelVerifyRequest, BaseVerifyResponse):
    """The reward, and what the judge found."""

    status: str
    compiled: bool
    correct: bool
    speedup: float | None
    message: str | None


class KernelServer(SimpleResourcesServer):
    """NeMo Gym's server with our judge behind it."""

    config: KernelServerConfig

    @cached_property
    def scorer(self) -> Scorer:
        """Scorer of all requests, made with the first."""
        judge = JudgeConfig(workers=self.config.workers)
        return open_scorer(self.config.judge_url, judge, EpisodeConfig(reward=self.config.reward))

    async def verify(self, body: KernelVerifyRequest) -> KernelVerifyResponse:
        """Judge an answer. The status is 422 for a problem that is none, 503 if the machine failed."""
        row, answer = body.model_dump(), body.response
        cut_off = answer.incomplete_details is not None and answer.incomplete_details.reason == _CUT_OFF
        tokens = None if answer.usage is None else answer.usage.output_tokens
        try:
            scored = await self.scorer.score_async(problem_of_row(row), answer.output_text, tokens, cut_off)
        except InputError as error:
            raise HTTPException(422, str(error)) from error
        except InfrastructureError as error:
            raise HTTPException(503, str(error)) from error
        verdict = scored.verdict
        if scored.reward is None:
            raise HTTPException(503, f"the kernel was not judged: {verdict.error_message}")
        return KernelVerifyResponse(
            **row,
            reward=scored.reward,
            status=verdict.status.value,
            compiled=verdict.compiled,
            correct=verdict.correct,
            speedup=verdict.speedup,
            message=verdict.error_message,
        )


def nemo_gym_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of extras.adapters.problem_rows in NeMo Gym's form."""
    return [
        {"responses_create_params": {"input": row["prompt"]}}
        | {name: row[name] for name in ("problem_id", "problem_source", "level")}
        for row in rows
    ]
