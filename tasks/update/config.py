"""Settings of the policy update."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from kernels_eval.frozen import AddedLater, Experimental, FileContent, FrozenModel, Operational
from tasks.training.config import Beta, EngineConfig, LoraConfig
from tasks.trajectories.returns import CARRIED_DISCOUNT, Credit
from tasks.update.doors import ADVANTAGE, CORRECTION, KL_ESTIMATOR, POLICY_LOSS, Estimator

Aggregation = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"]


class CorrectionConfig(FrozenModel):
    """Corrections for a sampler whose numerics are not the trainer's (tasks.update.corrections)."""

    weights: Annotated[str, CORRECTION] = "token_tis"
    """Importance weight of a token: truncated ratio of it or its sequence; `icepop` drops tokens out of range."""
    upper: float | None = Field(default=None, gt=0)
    """Largest weight; none: 2 for TIS, 5 for IcePop."""
    lower: float | None = Field(default=None, ge=0)
    """Smallest weight; none: 0 for TIS, 0.5 for IcePop."""
    rejection: Literal["none", "token", "sequence", "geometric"] = "none"
    """Leave out tokens, or sequences by the product (`sequence`) or geometric mean (`geometric`) of their ratios."""
    rejection_upper: float = Field(default=2.0, gt=0)
    """Largest ratio of the sampler's probability to the trainer's that is kept (with `k3`: the largest divergence)."""
    rejection_lower: float | None = Field(default=None, gt=0)
    """Smallest ratio that is kept; none: 1 / `rejection_upper`."""
    rejection_estimator: Literal["k1", "k3"] = "k1"
    veto: float | None = Field(default=1e-4, gt=0, lt=1)
    """A sequence with any token of a smaller ratio is left out; none: no veto."""
    tolerance: float = Field(default=1e-3, ge=0)
    """Mean difference of log-probabilities up to which the sampler counts as having the trainer's numerics."""


class CriticConfig(FrozenModel):
    """The value model that an update trains beside the policy if its estimator needs one (`advantage: gae`, PPO)."""

    pretrained: Annotated[str | None, FileContent] = None
    """Hugging Face folder that the critic's body starts from; none: the policy's."""
    learning_rate: float = Field(default=1e-3, gt=0)
    value_clip: float | None = Field(default=0.5, gt=0)
    """How far a value may move from the one before the update; none: as far as it likes."""
    weight_decay: float = Field(default=0.0, ge=0)
    gradient_clip: float = Field(default=1.0, gt=0)


class UpdateConfig(EngineConfig):
    """One RL update: engine and ranks (tasks.training), which SFT uses too; advantages, loss, optimizer."""

    advantage: Annotated[str, ADVANTAGE] = "turn_rloo"
    """`turn_*`: a return and a baseline for each turn. `grpo`, `dr_grpo`, `rloo`: the trajectory's return
    for all of its turns. `reinforce_pp` needs no groups; `gae` trains a critic (PPO). Or an estimator of your own:
    `my_estimators:median` (docs/doors.md)."""
    credit: Credit = "carried"
    """Value of a turn. `carried`: discounted mean of the rewards from it on, the last one carried on to the turns that
    were not needed: a better kernel is never worth less. `return`: discounted sum of the played turns' rewards, as they
    are stored; an early end costs the turns that it saves. `final`: 0.3 of its own reward and 0.7 of the last one,
    discounted by the turns between; `final_of_all_turns`: the same, and the tester's turns count in the discount.
    `improvement`: what it added to the best reward before it, and, discounted, what
    later turns added. `counterfactual`: the same, compared after the first turn with what others made of the same
    kernel alone (`rollout.samples_per_kernel`). Or a function of your own: `my_credits:last` (docs/doors.md)."""
    credit_discount: float = Field(default=CARRIED_DISCOUNT, ge=0, le=1)
    """Discount from turn to turn of every credit but `return`, whose own is `rollout.episode.gamma`."""
    gamma: Annotated[float, Experimental] = Field(default=1.0, ge=0, le=1)
    """Discount from token to token (`reinforce_pp`, `gae`); the discount from turn to turn is the rollout's."""
    gae_lambda: Annotated[float, Experimental] = Field(default=1.0, ge=0, le=1)
    critic: Annotated[CriticConfig, Experimental] = CriticConfig()
    policy_loss: Annotated[str, POLICY_LOSS] = "ppo_clip"
    """Loss per token, or one of your own: `my_losses:quantile` (docs/doors.md)."""
    aggregation: Annotated[Aggregation, Experimental] = "token_mean"
    clip_low: Annotated[float | None, Experimental] = Field(default=None, gt=0)
    """None: the loss's own: ppo_clip 0.2, gspo 3e-4, cispo 1.0, dppo 0.2."""
    clip_high: Annotated[float | None, Experimental] = Field(default=None, gt=0)
    """None: the loss's own: ppo_clip 0.28, gspo 4e-4, cispo 4.0, dppo 0.28."""
    dual_clip: Annotated[float | None, Experimental] = Field(default=3.0, gt=1)
    """Bound on the loss of tokens with a negative advantage (`ppo_clip`)."""
    kl_coefficient: float = Field(default=0.01, ge=0)
    kl_estimator: Annotated[str, KL_ESTIMATOR, Experimental] = "k3_k2"
    """`k3_k2`: the value of k3, at most 10 a token, with the gradient of k2 (k3's own gradient is not the KL's)."""
    kl_in: Annotated[Literal["loss", "reward"], Experimental] = "loss"
    """`reward`: the divergence of the policy that sampled is taken off the returns before advantages are computed."""
    entropy_coefficient: float = Field(default=0.001, ge=0)
    imitation: Annotated[float, AddedLater] = Field(default=0.0, ge=0)
    """Weight of a second loss, the negative log-likelihood of the best correct answer that the batch holds for each
    prompt (tasks.update.imitation). 0: none."""
    correction: Annotated[CorrectionConfig, Experimental] = CorrectionConfig()
    old_log_probs: Annotated[Literal["auto", "sampler", "trainer"], Experimental] = "auto"
    """Denominator of the loss's ratio. `sampler`: what was stored, uncorrected. `trainer`: the policy scores
    the batch first. `auto`: `trainer` if the sampler's numerics differ (probed on a
    few sequences)."""
    overlong: Annotated[Literal["keep", "mask", "penalise"], Experimental] = "keep"
    """Responses cut off at the sampler's limit: kept, left out, or with a return that falls near `overlong_limit`."""
    overlong_limit: Annotated[int | None, Experimental] = Field(default=None, ge=1, validate_default=True)
    """Response tokens at which the penalty is 1 (`penalise`)."""
    overlong_buffer: Annotated[int, Experimental] = Field(default=512, ge=1)
    """Tokens before the limit at which the penalty begins."""
    wanted_groups: int | None = Field(default=None, ge=1)
    """Groups with variance that an iteration should have: the rollout draws further problems until they are there, or
    `most_problems` were played. With `turn_*` each turn of a problem is a group. None: the problems of the first
    draw, whatever comes of them; so it is too with an estimator that compares no groups."""
    most_problems: int | None = Field(default=None, ge=1)
    """Problems that an iteration may play for `wanted_groups`; none: four times `rollout.problems_per_iteration`."""
    learning_rate: float = Field(default=1e-3, gt=0)
    schedule: Literal["constant", "cosine"] = "cosine"
    """Over the optimizer steps of the whole run; `constant` for open-ended scheduled iterations."""
    schedule_iterations: int | None = Field(default=None, ge=1)
    """Iterations over which `cosine` falls; further ones keep its last rate. If a finished run goes on with the number
    that it had, its iterations are not computed again. None: all iterations."""
    final_learning_rate_fraction: float = Field(default=0.05, ge=0, le=1)
    warmup_steps: int = Field(default=0, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: float = Field(default=0.0, ge=0)
    gradient_clip: float = Field(default=1.0, gt=0)
    optimizer_steps: int = Field(default=8, ge=1)
    """Optimizer steps an iteration: the batch's groups are dealt out to this many steps."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the batch."""
    lora: LoraConfig | None = None
    """None: all weights are trained."""
    optimizer_state: bool = True
    """Publish the optimizer's state with each policy. False: weights alone, 15 of 107 GiB of an 8B policy. Each
    iteration then begins with a new optimizer, also in a run that is not interrupted, and of bfloat16 weights changes
    below their rounding are lost between iterations: for a single iteration, or float32 weights."""
    save_interval: Annotated[int | None, Operational] = Field(default=None, ge=1)
    """Optimizer steps between interim checkpoints, which a killed update goes on from; none: it begins again."""
    checkpoint_interval: Annotated[int, Operational] = Field(default=1, ge=1)
    """Iterations from one policy that has its optimizer's state to the next; the run's last one has it too. The ranks
    hold it in between, and after a kill they make the updates since again. 1: all have it."""
    weights_interval: Annotated[int, Operational] = Field(default=1, ge=1)
    """Iterations from one policy that keeps its weights to the next. The others, but for the newest two, policy 0 and
    the best (highest mean return of the training batch that it wrote), keep their metrics only. 1: all keep them."""
    best_metric: Annotated[Literal["loss", "kl", "return_mean"] | None, Operational] = None
    """Metric of the best interim checkpoint: lowest loss or KL, highest mean return; none: only the newest are kept."""

    @field_validator("overlong_limit")
    @classmethod
    def _known_where_it_is_needed(cls, found: int | None, info: ValidationInfo) -> int | None:
        if found is None and info.data.get("overlong") == "penalise":
            raise ValueError("a number of response tokens with update.overlong = penalise")
        return found

    @property
    def estimator(self) -> Estimator:
        """The advantage estimator, with what it declares."""
        return ADVANTAGE.load(self.advantage)

    @property
    def engine(self) -> EngineConfig:
        """The engine's settings alone: SFT runs on them, and repeats nothing if one of RL's own changes."""
        return EngineConfig.model_validate(self.model_dump(include=set(EngineConfig.model_fields)))
