"""The range of a reward function, asked of the function itself: what the worst and the best verdict would earn."""

from kernels_eval.rewards import reward_bounds

_ROUNDING = 1e-9


def reward_range(reward: str) -> dict[str, float]:
    """Return `minimum_reward` and `maximum_reward` of the registered function, the parameters of the suites."""
    lowest, highest = reward_bounds(reward)
    return {"minimum_reward": lowest - _ROUNDING, "maximum_reward": highest + _ROUNDING}
