"""OpenEnv: the conversation with the judge as an environment behind OpenEnv's server, and its client (OpenEnv 0.10).

    app = kernel_app(ProblemsConfig(...), KernelSettings(...))    # docs/examples/openenv_server.py serves it
    with KernelClient(base_url="http://127.0.0.1:8000").sync() as client:
        result = client.reset(split="train", index=3)             # result.observation.messages: the prompt
        result = client.step(KernelAction(answer=policy(result.observation.messages)))

An episode's rewards add up to that of its best turn: each step gives what it improves. Rewards and returns of all turns
are in the observation. A fault of the machine is an error of the step; the client raises it, and no reward is given.
"""

# The peer need not be installed where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
import random
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from openenv.core import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field

from extras.adapters.kernel_episode import ChatMessage, KernelEpisode, Step
from extras.adapters.problem_rows import problem_of_row, problem_rows
from extras.adapters.scoring import KernelSettings, Scorer, open_scorer
from kernels_eval.errors import InputError
from tasks.problems.config import ProblemsConfig
from tasks.problems.row import Split

Rows = Mapping[str, Sequence[dict[str, Any]]]
"""Rows of `problem_rows` by split."""


class KernelAction(Action):
    """An answer of the policy: text with a kernel in a code block."""

    answer: str
    tokens: int | None = None
    """Length of the answer, where the reward has a term `length`."""
    truncated: bool = False
    """True if the answer was cut off at its limit."""


class KernelObservation(Observation):
    """The conversation so far, and the judge's verdict on the last answer."""

    problem_id: str
    level: int
    messages: list[ChatMessage]
    """Messages that the policy continues, as chat templates take it."""
    status: str | None = None
    """Status of the last verdict; None before the first answer."""
    correct: bool = False
    speedup: float | None = None
    turn_rewards: list[float | None] = Field(default_factory=list[float | None])
    turn_returns: list[float | None] = Field(default_factory=list[float | None])
    """Discounted return of each turn, for trainers that credit each turn."""


class KernelEnvironment(Environment[KernelAction, KernelObservation, State]):
    """One session: an episode on one problem at a time. Its tasks are the problems of each split."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, rows: Rows, scorer: Scorer) -> None:
        """Have no episode until `reset`. The scorer, and the judge behind it, serves all sessions."""
        super().__init__()
        self._rows = rows
        self._scorer = scorer
        self._episode: KernelEpisode | None = None
        self._state = State(episode_id=None, step_count=0)

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = Split.TRAIN.value,
        index: int | None = None,
        **_: Any,
    ) -> KernelObservation:
        """Begin an episode on a problem: the one at `index` of a split, or one that the seed draws."""
        rows = self._tasks(split)
        place = random.Random(seed).randrange(len(rows)) if index is None else index
        self._episode = KernelEpisode(problem_of_row(self._task(split, place)), self._scorer)
        self._state = State(episode_id=episode_id or uuid.uuid4().hex, step_count=0)
        return self._observed(None)

    async def step_async(self, action: KernelAction, timeout_s: float | None = None, **_: Any) -> KernelObservation:
        """Judge an answer. Raises InfrastructureError if the machine failed, InputError before `reset`."""
        episode = self._open_episode()
        return self._observed(await episode.answer_async(action.answer, action.tokens, action.truncated))

    def step(self, action: KernelAction, timeout_s: float | None = None, **_: Any) -> KernelObservation:
        """Judge an answer, blocking. Raises as `step_async`."""
        return self._observed(self._open_episode().answer(action.answer, action.tokens, action.truncated))

    @property
    def state(self) -> State:
        """Episode and number of steps."""
        return self._state

    def list_splits(self) -> list[str]:
        """Return the splits of the problem set."""
        return list(self._rows)

    def num_tasks(self, split: str) -> int:
        """Return the number of problems of a split."""
        return len(self._tasks(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return one problem without its source."""
        row = self._task(split, index)
        return {"id": row["problem_id"], "index": index, "level": row["level"]}

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Return all problems of a split without their sources."""
        return self.get_task_range(split)

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Return the problems of a slice."""
        return [self.get_task(split, index) for index in range(len(self._tasks(split)))[start:stop]]

    def _tasks(self, split: str) -> Sequence[dict[str, Any]]:
        rows = self._rows.get(split)
        if not rows:
            raise InputError(f"split: found {split!r}, expected one of {', '.join(self._rows)}")
        return rows

    def _task(self, split: str, index: int) -> dict[str, Any]:
        rows = self._tasks(split)
        if not 0 <= index < len(rows):
            raise IndexError(f"index: found {index}, expected 0 to {len(rows) - 1} of split {split}")
        return rows[index]

    def _open_episode(self) -> KernelEpisode:
        if self._episode is None:
            raise InputError("no episode has begun: reset comes before step")
        return self._episode

    def _observed(self, step: Step | None) -> KernelObservation:
        episode = self._open_episode()
        found: dict[str, Any] = {}
        if step is not None:
            self._state = State(episode_id=self._state.episode_id, step_count=len(episode.steps))
            verdict = step.scored.verdict
            found = {
                "done": step.reply is None,
                "reward": episode.gain,
                "status": verdict.status.value,
                "correct": verdict.correct,
                "speedup": verdict.speedup,
                "turn_rewards": episode.rewards,
                "turn_returns": episode.returns,
            }
        problem = episode.problem
        return KernelObservation(problem_id=problem.problem_id, level=problem.level, messages=episode.messages, **found)


class KernelClient(EnvClient[KernelAction, KernelObservation, State]):
    """Client of a server of `kernel_app`, one session each."""

    def _step_payload(self, action: KernelAction) -> dict[str, Any]:
        return action.model_dump()

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[KernelObservation]:
        told = {"done": payload.get("done", False), "reward": payload.get("reward")}
        observation = KernelObservation.model_validate(payload["observation"] | told)
        return StepResult(observation=observation, **told)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State.model_validate(payload)


def kernel_app(
    problems: ProblemsConfig, settings: KernelSettings, sessions: int = 64, scorer: Scorer | None = None
) -> FastAPI:
    """Return the FastAPI application: our problems of both splits, one judge, so many sessions at a time."""
    backend = settings.judge.backend
    every = {split.value: problem_rows(problems, settings.episode, split, backend) for split in Split}
    rows = {split: found for split, found in every.items() if found}
    judging = scorer or open_scorer(settings.judge_url, settings.judge, settings.episode)
    return create_fastapi_app(
        lambda: KernelEnvironment(rows, judging),
        KernelAction,
        KernelObservation,
        max_concurrent_envs=sessions,
        env_name="kernelmill",
    )
