"""Settings of the policy update."""

from typing import Literal

from pydantic import Field

from kernels_eval.settings import FrozenModel


class UpdateConfig(FrozenModel):
    """One RL update: advantages, loss, optimizer, ranks."""

    advantage: Literal["grpo", "dr_grpo", "rloo", "turn_rloo", "reinforce_pp", "gae"] = "turn_rloo"
    policy_loss: Literal["ppo_clip", "gspo", "cispo", "dppo"] = "ppo_clip"
    aggregation: Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"] = (
        "token_mean"
    )
    clip_low: float = Field(default=0.2, gt=0)
    clip_high: float = Field(default=0.28, gt=0)
    dual_clip: float | None = 3.0
    kl_coefficient: float = Field(default=0.01, ge=0)
    kl_estimator: Literal["k1", "k2", "k3", "low_var_kl", "k3_k2"] = "k3_k2"
    """`k3_k2`: the value of k3 with the gradient of k2 (k3's own gradient is not the KL's)."""
    entropy_coefficient: float = Field(default=0.0, ge=0)
    learning_rate: float = Field(default=1e-3, gt=0)
    schedule: Literal["constant", "cosine"] = "cosine"
    """Over the optimizer steps of the whole run; `constant` for open-ended scheduled iterations."""
    final_learning_rate_fraction: float = Field(default=0.05, ge=0, le=1)
    warmup_steps: int = Field(default=0, ge=0)
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = Field(default=0.0, ge=0)
    gradient_clip: float = Field(default=1.0, gt=0)
    optimizer_steps: int = Field(default=8, ge=1)
    """Optimizer steps an iteration: the batch's groups are dealt out to this many steps."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the batch."""
    tokens_per_rank: int = Field(default=8192, ge=64)
    """Token budget of one micro-batch."""
    ranks: int = Field(default=1, ge=1)
    """Data-parallel workers, each a Ray actor."""
    zero_stage: Literal[0, 1, 2, 3] = 2
    deepspeed: str | None = None
    """A DeepSpeed JSON that replaces the generated one."""
    gpus_per_rank: float = Field(default=0, ge=0)
    threads_per_rank: int = Field(default=2, ge=1)
    """CPU threads of one rank (pinned: ranks that share cores starve each other)."""
