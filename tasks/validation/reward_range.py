"""The range of a reward function, asked of the function itself: what the worst and the best verdict would earn."""

from kernels_eval.rewards import reward_of
from kernels_eval.verdict import Status, TimingSource, Verdict

_WORST = Verdict(status=Status.COMPILE_ERROR)
_BEST = Verdict(
    status=Status.CORRECT, compiled=True, correct=True, speedup=1e9, timing_source=TimingSource.GPU, candidate_ms=1e-9
)
_ROUNDING = 1e-9


def reward_range(reward: str) -> dict[str, float]:
    """Return `minimum_reward` and `maximum_reward` of the registered function, the parameters of the suites."""
    return {
        "minimum_reward": reward_of(reward, _WORST) - _ROUNDING,
        "maximum_reward": reward_of(reward, _BEST) + _ROUNDING,
    }
