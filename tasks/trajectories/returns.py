"""Returns: a turn's value, computed from the rewards of its episode."""

from collections.abc import Sequence


def turn_returns(rewards: Sequence[float | None], gamma: float) -> list[float | None]:
    """Return R_t = Σ_{i ≥ t} γ^(i−t) · r_i for each turn of one episode, in turn order.

    Each turn is trained on its own return: a slow kernel early does not outrank a fast one late. Source: Baronio et al.
    2025 (Kevin), section 3. A reward of None is a turn without a result (infrastructure error): its return is None too,
    and it adds nothing to the returns of the turns before it.
    """
    returns: list[float | None] = []
    following = 0.0
    for reward in reversed(rewards):
        if reward is None:
            returns.append(None)
            continue
        following = reward + gamma * following
        returns.append(following)
    return returns[::-1]
