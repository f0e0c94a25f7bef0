"""Settings of rollouts: episodes, engine, sampling, rewards."""

from typing import Literal

from pydantic import Field

from kernels_eval.settings import FrozenModel


class SamplingConfig(FrozenModel):
    """How tokens are drawn. Training wants T = 1, top-p = 1, top-k off: anything else is off-policy."""

    temperature: float = Field(default=1.0, ge=0)
    """0: greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    """0: off."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Limit of one turn's response."""


class EpisodeConfig(FrozenModel):
    """The shape of one episode. Sources: Kevin (multi-turn RL for CUDA kernels) for γ and turns."""

    task: str = "kernelbench_multiturn"
    """Registered episode generator: `kernelbench` (single turn) or `kernelbench_multiturn`."""
    max_turns: int = Field(default=3, ge=1, le=32)
    gamma: float = Field(default=0.4, ge=0, le=1)
    """Discount of a later turn's reward in an earlier turn's return."""
    reward: str = "kernelbench"
    """Registered function of the verdict."""
    success_reward: float = 1.3
    """A correct turn with at least this reward ends the episode."""
    max_zero_turns: int = Field(default=2, ge=1)
    """This many turns in a row with reward 0 end the episode."""
    prompt: Literal["instruct", "source"] = "instruct"
    """`instruct`: instructions around the problem; `source`: the problem's source alone (small models from scratch)."""
    feedback: Literal["full", "brief", "none"] = "full"
    """What a later turn is told of the earlier verdict."""


class RolloutConfig(FrozenModel):
    """How trajectories are generated for one iteration."""

    engine: Literal["transformers", "sglang"] = "transformers"
    sglang_urls: tuple[str, ...] = ()
    """Servers to use; empty: the pipeline starts its own."""
    problems_per_iteration: int = Field(default=64, ge=1)
    samples_per_problem: int = Field(default=8, ge=1)
    """Size of a group. A group of one has no baseline and is dropped by the update."""
    batch_size: int = Field(default=256, ge=1)
    """Sequences that the embedded engine decodes together."""
    threads: int = Field(default=2, ge=1)
    """CPU threads of the embedded engine."""
    judge_patience_s: float = Field(default=600.0, gt=0)
    """A kernel that has waited longer for its verdict, the judge's queue included, is handed over once more, then given up."""
    gpus: float = Field(default=0, ge=0)
    """GPUs of the process that generates (the embedded engine)."""
    sampling: SamplingConfig = SamplingConfig()
    episode: EpisodeConfig = EpisodeConfig()
