"""Settings of held-out evaluation."""

from typing import Annotated

from pydantic import Field

from kernels_eval.frozen import FrozenModel, Operational

PRIMARY = "greedy mean_reward"
"""Primary outcome unless another is declared: the final reward of greedy answers."""
_PRIMARY = r"(greedy|sampled) (mean_reward|first_reward|best_reward|mean_return|correct|fast_1|geomean_speedup)"


class EvaluationConfig(FrozenModel):
    """Measurement of a policy on the held-out problems."""

    interval: Annotated[int | None, Operational] = Field(default=None, ge=1)
    """RL iterations from one held-out evaluation to the next; none: one before RL and one after it."""
    samples_per_problem: int = Field(default=4, ge=1)
    temperature: float = Field(default=1.0, ge=0)
    greedy: bool = True
    """Also measure one greedy answer a problem: sampling at a temperature flatters a policy that has become more
    certain."""
    full_size_share: float = Field(default=1.0, ge=0, le=1)
    """Share of the correct kernels that are run at the problem's own size too (as judge.full_size_share)."""
    pass_at: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1, 4), min_length=1)
    """k of pass@k (unbiased; at most the samples)."""
    fast_thresholds: tuple[float, ...] = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
    """p of fast_p: correct and faster than p times the reference."""
    primary: Annotated[str, Operational] = Field(default=PRIMARY, pattern=f"^{_PRIMARY}$")
    """The one outcome, on the standard held-out problems, that is judged by its interval; all other figures are
    exploratory. Declare it before the run. Kind of answers and figure: `greedy correct`, `sampled mean_return`."""
    bootstrap_resamples: int = Field(default=2000, ge=100)
    confidence: float = Field(default=0.95, gt=0, lt=1)
    seed: int = Field(default=12345, ge=0)

    def greedily(self) -> "EvaluationConfig":
        """Return the settings of the greedy measurement."""
        return self.model_copy(update={"samples_per_problem": 1, "temperature": 0.0, "pass_at": (1,)})
