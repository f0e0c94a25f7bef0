"""Settings of rollouts: episodes, engine, sampling, rewards."""

import os
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from kernels_eval.config import JudgeConfig
from kernels_eval.doors import Door
from kernels_eval.frozen import AddedLater, FrozenModel, Operational
from kernels_eval.rewards import RewardText
from tasks.agents.config import AgentConfig, AgentName, check_agents
from tasks.rollout.prompt_texts import FirstTemplate, LaterTemplate, SystemMessage

ENGINE = Door(
    "engine",
    {
        "openai": "tasks.rollout.engines.openai.kind:ENGINE",
        "sglang": "tasks.rollout.engines.sglang.kind:ENGINE",
        "transformers": "tasks.rollout.engines.local.kind:ENGINE",
    },
    "a function (policy, tokenizer, config) -> Engine",
)


EPISODE_TASK = Door(
    "task",
    {name: f"tasks.rollout.episode_tasks:{name.upper()}" for name in ("kernelbench", "kernelbench_multiturn")},
    "an EpisodeTask (tasks.rollout.episode_tasks)",
    lambda found: callable(getattr(found, "termination", None)),
)


PROMPT = Door(
    "prompt",
    {name: f"tasks.rollout.prompts:{name}" for name in ("instruct", "source")},
    "a function (problem, language, example) -> text",
)
FEEDBACK = Door(
    "feedback",
    {name: f"tasks.rollout.feedback:{name}" for name in ("full", "brief", "none")},
    "a function (verdict, reward) -> text",
)
CURRICULUM = Door(
    "curriculum",
    {"rising": "tasks.rollout.curriculum:next_state"},
    "a function (state, rate, config, most_turns, levels) -> CurriculumState",
)


class SamplingConfig(FrozenModel):
    """Sampling of tokens. Training needs T = 1, top-p = 1, top-k off: anything else is off-policy."""

    temperature: float = Field(default=1.0, ge=0)
    """0: greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    """0: off."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Limit of one turn's response."""

    @property
    def is_on_policy(self) -> bool:
        """True if tokens are drawn from the policy's own distribution: T = 1, nothing cut off."""
        return self.temperature == 1 and self.top_p == 1 and self.top_k == 0


class HorizonConfig(FrozenModel):
    """Turn limits by problem level, and their extension (tasks.rollout.episode_tasks)."""

    level_turns: tuple[Annotated[int, Field(ge=1, le=32)], ...] = ()
    """Turn limit of problems of level 1, 2, …; the last one holds for higher levels too. Empty: `max_turns` for all."""
    extension: int = Field(default=0, ge=0, le=32)
    """Turns, at most, that an episode gets beyond its limit while each one improves on all before it."""


class EpisodeConfig(FrozenModel):
    """The shape of one episode. Sources: Kevin (multi-turn RL for CUDA kernels) for γ and turns."""

    task: Annotated[str, EPISODE_TASK] = "kernelbench_multiturn"
    """Turn limit and end of an episode: `kernelbench` (single turn), `kernelbench_multiturn`, or an `EpisodeTask` of
    your own: `my_tasks:TWO_TURNS` (docs/doors.md)."""
    max_turns: int = Field(default=3, ge=1, le=32)
    agents: dict[AgentName, AgentConfig] = Field(default_factory=dict[AgentName, AgentConfig])
    """Agents that write the turns, by role, e.g. a generator and an optimizer. Empty: one policy writes all of them."""
    horizon: HorizonConfig = HorizonConfig()
    gamma: float = Field(default=0.4, ge=0, le=1)
    """Discount of a later turn's reward in an earlier turn's return."""
    reward: RewardText = "kernelbench"
    """A function of the verdict, with optional terms on the answer: `kernelbench - 0.2*length + 0.05*format`. A name,
    or a function of your own: `my_rewards:fast` (docs/doors.md)."""
    success_reward: float = 1.3
    """A correct turn with at least this reward ends the episode."""
    max_zero_turns: int = Field(default=2, ge=1)
    """This many turns in a row with reward 0 end the episode."""
    prompt: Annotated[str, PROMPT] = "instruct"
    """`instruct`: instructions around the problem; `source`: the problem's source alone (small models from scratch). Or
    a function of your own: `my_prompts:terse` (docs/doors.md)."""
    system_message: Annotated[SystemMessage | None, AddedLater] = None
    """Text file with a system message, or the text; none: no message. May have `{{ language }}`."""
    prompt_template: Annotated[FirstTemplate | None, AddedLater] = None
    """Text file with the first request in place of the style's, or the text. Has `{{ problem }}`, and may have
    `{{ language }}` and `{{ example }}` (docs/rollouts.md)."""
    retry_template: Annotated[LaterTemplate | None, AddedLater] = None
    """Text file with the request for a better kernel, or the text. Has `{{ feedback }}`, and may have `{{ wish }}` and
    `{{ language }}`."""
    feedback: Annotated[str, FEEDBACK] = "full"
    """Feedback on the earlier verdict in a later turn's prompt: `full`, `brief`, `none`, or a function of your own:
    `my_feedback:cause` (docs/doors.md)."""
    history_tokens: int = Field(default=0, ge=0)
    """Tokens that earlier turns may take up in a prompt; what is more is compressed (tasks.rollout.prompts). 0: no
    limit."""
    thinking: bool = False
    """Ask models that can reason (Qwen3) to do so; if false, the prompt asks them not to."""

    @field_validator("agents")
    @classmethod
    def _hold_together(cls, found: dict[str, AgentConfig], info: ValidationInfo) -> dict[str, AgentConfig]:
        check_agents(found, info.data.get("max_turns", 1))
        return found


class CurriculumConfig(FrozenModel):
    """Curriculum from easy to hard: training begins with one turn and the lowest level (tasks.rollout.curriculum)."""

    enabled: bool = False
    stages: Annotated[str, CURRICULUM, AddedLater] = "rising"
    """The next stage: one limit after another rises by one, or a function of your own: `my_curricula:sawtooth`
    (docs/doors.md)."""
    success_rate: float = Field(default=0.6, ge=0, le=1)
    """Share of trajectories ending with a correct kernel at which the next stage begins."""
    iterations: int = Field(default=2, ge=1)
    """Iterations in a row on one stage whose mean has to reach it."""
    first: Literal["turns", "levels"] = "turns"
    """Limit that rises to its maximum first."""


class SglangConfig(FrozenModel):
    """SGLang servers: start, supervision, requests, and the check after each change of weights."""

    servers: Annotated[int, Operational] = Field(default=1, ge=1, le=256)
    """Servers that the pipeline starts if `rollout.sglang_urls` names none."""
    gpus_per_server: Annotated[float, Operational] = Field(default=1.0, ge=0)
    """GPUs that Ray reserves for each; tensor parallelism needs its flag as well (`--tp-size`)."""
    command: tuple[str, ...] | None = None
    """Command of a server, usually the interpreter of another environment. Model, address and port are added. None:
    SGLang is looked for in the folder that the environment variable KERNELMILL_SGLANG names, in `.sglang`, in
    `/opt/sglang`, and in this Python (tasks.rollout.engines.sglang.installation)."""
    flags: tuple[str, ...] = ()
    """Further arguments, e.g. `--mem-fraction-static`, `0.4`. They override the defaults, which suit this machine's GPU
    and the SGLang that is found (tasks.rollout.engines.sglang.installation)."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables added to the server's environment. By default CUDA_HOME is found by its compiler, a folder of packages
    goes on PYTHONPATH, and nothing is downloaded."""
    start_timeout_s: Annotated[float, Operational] = Field(default=300.0, gt=0)
    """Limit until Ray has a process for a server, and until it answers, with its model loaded and kernels compiled."""
    concurrency: int = Field(default=256, ge=1)
    """Concurrent requests per server; further ones wait in the client."""
    request_timeout_s: float = Field(default=600.0, gt=0)
    """Limit for a complete response; exceeding it counts as a failure of that server."""
    attempts: int = Field(default=4, ge=1)
    """Attempts per response, each at another server if there is one."""
    backoff_s: Annotated[float, Operational] = Field(default=0.5, ge=0)
    """Wait before the second attempt; doubled before each further one, with random jitter."""
    push: Literal["auto", "disk", "tensors"] = "auto"
    """Way in which new weights reach a server. `disk`: it reads the checkpoint's folder. `tensors`: the process that
    rolls out reads it and hands the tensors over, in GPU memory if it has a GPU (`rollout.gpus`), by value otherwise.
    `auto`: in GPU memory if a server that the pipeline started uses the same GPU, from disk otherwise."""
    adapter_rank: int = Field(default=0, ge=0)
    """Highest rank of adapters that servers take. With it they hold the base of the policy (`update.lora`), after an
    update they get the adapter alone, and agents on one base share the servers. 0: they get the merged weights."""
    canary_prompts: int = Field(default=4, ge=1, le=64)
    """Fixed prompts on which each server is compared with the checkpoint after each change of weights."""
    canary_threshold: float = Field(default=0.1, gt=0)
    """Largest mean absolute difference of log-probabilities. bfloat16 against float32 gives about 0.04."""
    canary_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type in which the checkpoint is loaded for the comparison."""

    @property
    def memory_share(self) -> float | None:
        """Share of a GPU's memory for weights and cache, if a server has a part of a GPU only. None: SGLang decides."""
        return round(0.8 * self.gpus_per_server, 3) if 0 < self.gpus_per_server < 1 else None


class OpenAiConfig(FrozenModel):
    """A server of OpenAI's completions protocol that holds the policy already: for evaluation (docs/rollouts.md)."""

    url: str = ""
    """Address with its version, such as `http://127.0.0.1:8000/v1`."""
    model: str = ""
    """Name of the model there; empty: the first that it lists."""
    key_variable: Annotated[str, Operational] = "OPENAI_API_KEY"
    """Environment variable with its key, where it asks for one."""
    concurrency: Annotated[int, Operational] = Field(default=64, ge=1)
    """Concurrent requests; further ones wait in the client."""
    request_timeout_s: Annotated[float, Operational] = Field(default=600.0, gt=0)
    """Limit for a complete response."""
    attempts: Annotated[int, Operational] = Field(default=4, ge=1)
    """Attempts per response."""

    @property
    def key(self) -> str:
        """The key; empty if there is none."""
        return os.environ.get(self.key_variable, "")


class JudgeActorsConfig(FrozenModel):
    """Ray actors that judge (tasks.rollout.judge_actors), one judge each."""

    count: int = Field(default=0, ge=0, le=1024)
    """Actors, one for each device or group of cores; 0: the process that rolls out judges itself, with
    `judge.workers`."""
    workers: int = Field(default=1, ge=1, le=512)
    """Kernels that one actor judges concurrently (instead of `judge.workers`)."""
    cpus: float = Field(default=0, ge=0)
    """CPUs that Ray reserves for each. On a cluster, more than its nodes have means that kernels wait for a judge in
    vain."""
    gpus: float = Field(default=0, ge=0)
    """GPUs that Ray reserves for each."""


class RolloutJudgeConfig(FrozenModel):
    """Judge of answers that are trained on. Held-out answers are judged as `judge` says, in any case."""

    device: Literal["as_judge", "cpu"] = "as_judge"
    """`cpu`: in Triton's interpreter and with estimated speeds, many at a time, also where held-out answers are
    measured on a GPU, which times one kernel after the other. `as_judge`: `judge.device`."""
    workers: Annotated[int | None, Operational] = Field(default=None, ge=1, le=512)
    """Kernels judged at the same time. None: `judge.workers`."""

    def applied_to(self, judge: JudgeConfig) -> JudgeConfig:
        """Return the judge's settings with these changes."""
        changes: dict[str, Any] = {"device": "cpu"} if self.device == "cpu" else {}
        if self.workers is not None:
            changes["workers"] = self.workers
        return judge.model_copy(update=changes)


class JudgingPlace(FrozenModel):
    """Place of the judge, for stages that judge without rolling out."""

    gpus: Annotated[float, Operational] = 0
    """`rollout.gpus`."""
    judge_actors: Annotated[JudgeActorsConfig, Operational] = JudgeActorsConfig()
    all_cpus: Annotated[bool, Operational] = False
    """Judge in the rollout's process, with as many workers as its machine has CPUs to spare."""


class RolloutConfig(FrozenModel):
    """Generation of the trajectories of one iteration."""

    engine: Annotated[str, ENGINE] = "transformers"
    """The policy's sampler, or one of your own: `my_engine:open_engine` (docs/doors.md)."""
    sglang_urls: Annotated[tuple[str, ...], Operational] = ()
    """Servers to use; empty: the pipeline starts its own."""
    sglang: SglangConfig = SglangConfig()
    openai: Annotated[OpenAiConfig, AddedLater] = OpenAiConfig()
    staleness: int = Field(default=0, ge=0, le=8)
    """Iterations by which the policy that writes a rollout is older than the one that is updated on it: policy
    max(0, i - staleness) writes rollout i. From 1 on, rollouts go on while the policy is updated."""
    problems_per_iteration: int = Field(default=64, ge=1)
    samples_per_problem: int = Field(default=8, ge=1)
    """Size of a group. A group of one has no baseline and is dropped by the update."""
    samples_per_kernel: int = Field(default=1, ge=1)
    """Conversations that go on from the same first answer: what later turns make of one kernel can be compared
    (`update.credit: counterfactual`). Held-out evaluation has one."""
    batch_size: int = Field(default=256, ge=1)
    """Sequences that the embedded engine decodes together."""
    threads: int = Field(default=2, ge=1)
    """CPU threads of the embedded engine, and of the checkpoint with which SGLang's servers are compared."""
    judge_patience_s: Annotated[float, Operational] = Field(default=600.0, gt=0)
    """A kernel that has waited longer for its verdict, the judge's queue included, is handed over once more, then given
    up."""
    judge: Annotated[RolloutJudgeConfig, AddedLater] = RolloutJudgeConfig()
    judge_actors: Annotated[JudgeActorsConfig, Operational] = JudgeActorsConfig()
    generation_patience_s: Annotated[float, Operational] = Field(default=3600.0, gt=0)
    """Limit for a response, the engine's queue included; after it the request is retried once, then given up."""
    watch_after_s: Annotated[float, Operational] = Field(default=120.0, gt=0)
    """Time after which a sample that waits for engine or judge is logged, and logged again."""
    trajectory_logs: Annotated[str | None, Operational] = None
    """Folder for a JSON file a turn and a trajectory (tasks.trajectories.json_logs), on the machine that rolls out;
    none: no files."""
    gpus: float = Field(default=0, ge=0)
    """GPUs of the process that generates (the embedded engine)."""
    sampling: SamplingConfig = SamplingConfig()
    episode: EpisodeConfig = EpisodeConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    focus: Annotated[float, AddedLater] = Field(default=0.0, ge=0, le=1)
    """Preference for families of problems whose groups had right and wrong answers in earlier iterations. 0: none; 1:
    a family that never had one is seldom drawn."""

    @field_validator("samples_per_kernel")
    @classmethod
    def _shares_evenly(cls, shared: int, info: ValidationInfo) -> int:
        samples = info.data.get("samples_per_problem", shared)
        if samples % shared:
            raise ValueError(f"a number that divides rollout.samples_per_problem = {samples}")
        return shared

    def apart_from_iterations(self, **changes: Any) -> "RolloutConfig":
        """Return the settings of a rollout whose policy is given: what orders the iterations is no part of its key."""
        return self.model_copy(update={"samples_per_kernel": 1, "staleness": 0, "focus": 0.0, **changes})

    @property
    def judging_place(self) -> JudgingPlace:
        """Place of the judge."""
        return JudgingPlace(gpus=self.gpus, judge_actors=self.judge_actors)
