"""verifiers: our problems as a taskset, and the conversation with the judge as an environment (verifiers 0.4, `v1`).

A package for the environments hub is one module that exports both: docs/examples/verifiers_environment. The policy is
called through verifiers' own client; prime-rl trains on the traces. A trace has one reward, that of its best turn; the
rewards and returns of its turns are in `trace.info`. A fault of the machine fails the episode (`EnvError`): verifiers
repeats it (`--env.retries`), and prime-rl trains on no failed one.
"""

# The peer need not be installed where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownParameterType=false
from collections.abc import Iterator

import verifiers.v1 as vf

from extras.adapters.kernel_episode import KernelEpisode
from extras.adapters.problem_rows import problem_rows
from extras.adapters.scoring import Scorer, open_scorer
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError
from kernels_eval.problem import Problem
from tasks.problems.config import ProblemsConfig
from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig


class KernelTasksetConfig(vf.TasksetConfig):
    """Problems, and the shape of an episode on them."""

    problems: ProblemsConfig = ProblemsConfig()
    split: Split = Split.TRAIN
    episode: EpisodeConfig = EpisodeConfig()


class KernelTaskData(vf.TaskData):
    """One problem with its first prompt."""

    problem_id: str
    problem_source: str
    level: int


class KernelTask(vf.Task[KernelTaskData, vf.State, vf.TaskConfig]):
    """Write a kernel for one problem."""


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """The problems of one split."""

    def load(self) -> Iterator[KernelTask]:
        """Yield the tasks in the order of the problem set."""
        config = self.config
        for row in problem_rows(config.problems, config.episode, config.split):
            data = KernelTaskData(
                id=row["problem_id"],
                name=row["problem_id"],
                prompt=row["prompt"][-1]["content"],
                system_prompt=row["prompt"][0]["content"] if len(row["prompt"]) > 1 else None,
                problem_id=row["problem_id"],
                problem_source=row["problem_source"],
                level=row["level"],
            )
            yield KernelTask(data, config.task)


class KernelEnvConfig(vf.EnvConfig):
    """The seat of the policy, and the judge."""

    writer: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    """The policy: a plain chat, without tools and without code of its own to run."""
    judge_url: str | None = None
    """Address of a judge server; None: the judge runs beside the environment."""
    judge: JudgeConfig = JudgeConfig()
    """Settings of a judge beside the environment."""


class KernelEnv(vf.Env[KernelEnvConfig]):
    """Write a kernel, read the judge's feedback, write a better one."""

    _scorer: Scorer | None = None

    async def start(self) -> None:
        """Open the judge. Raises InputError for a reward with a term `length`: a reply comes without its tokens."""
        episode: EpisodeConfig = self.taskset.config.episode
        if "length" in episode.reward:
            raise InputError(f"reward {episode.reward}: expected one without `length`: replies come as text")
        self._scorer = open_scorer(self.config.judge_url, self.config.judge, episode)

    async def stop(self) -> None:
        """Close the judge."""
        if self._scorer is not None:
            self._scorer.close()

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        """Run one episode. Raises InfrastructureError if the machine failed on a turn."""
        data = task.data
        assert isinstance(data, KernelTaskData)
        assert self._scorer is not None
        problem = Problem(problem_id=data.problem_id, source=data.problem_source, level=data.level)
        episode = KernelEpisode(problem, self._scorer)
        async with agents.writer.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                step = await episode.answer_async(segment.last_reply)
                if step.reply is None:
                    break
                segment = await interaction.turn(step.reply["content"])
        if episode.steps:
            record(interaction.trace, episode)


def record(trace: vf.Trace, episode: KernelEpisode) -> None:
    """Write an episode's reward, metrics and turns into its trace. Raises InfrastructureError if it has no reward."""
    episode.check_judged()
    verdicts = [step.scored.verdict for step in episode.steps]
    trace.record_reward("kernel", episode.reward)
    trace.record_metric("turns", float(len(verdicts)))
    trace.record_metric("correct", float(any(verdict.correct for verdict in verdicts)))
    trace.record_metric("speedup", max((verdict.speedup or 0.0 for verdict in verdicts), default=0.0))
    trace.info["turn_rewards"] = episode.rewards
    trace.info["turn_returns"] = episode.returns
    trace.info["turn_statuses"] = [verdict.status.value for verdict in verdicts]


__all__ = ["KernelEnv", "KernelTaskset"]
