"""Returns: a turn's value computed from the rewards of its episode. Pure functions of stored columns.

A reward of None is a turn without a result (infrastructure error). It ends the episode, its own return is None, and the
turns before it get the return of the episode as if it had ended one turn earlier.
"""

from collections.abc import Sequence

IMMEDIATE_SHARE = 0.3
FINAL_SHARE = 0.7
TURN_DISCOUNT = 0.9


def turn_returns(rewards: Sequence[float | None], gamma: float) -> list[float | None]:
    """Return R_t = Σ_{i ≥ t} γ^(i−t) · r_i for each turn of one episode, in turn order.

    Each turn is trained on its own return (Kevin, multi-turn RL for CUDA kernels), so that a slow kernel early does not
    outrank a fast one late.
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


def multi_agent_returns(immediate: Sequence[float], final: float, discount: float = TURN_DISCOUNT) -> list[float]:
    """Return 0.3 · immediate + 0.7 · final · 0.9^(turns remaining) for each turn of one multi-agent episode."""
    last = len(immediate) - 1
    return [
        IMMEDIATE_SHARE * reward + FINAL_SHARE * final * discount ** (last - turn)
        for turn, reward in enumerate(immediate)
    ]
