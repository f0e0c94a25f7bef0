"""Returns: a turn's value, computed from the rewards of its episode."""

from collections.abc import Callable, Sequence
from typing import Annotated

from kernels_eval.doors import Door
from kernels_eval.errors import InputError

CREDIT = Door(
    "credit",
    {
        "return": f"{__name__}:turn_returns",
        "carried": f"{__name__}:carried_returns",
        "final": f"{__name__}:final_returns",
        "final_of_all_turns": f"{__name__}:final_returns_of_all_turns",
        "improvement": f"{__name__}:improvement_returns",
        # Compared with other answers to the same kernel (tasks.trajectories.groups.question).
        "counterfactual": f"{__name__}:improvement_returns",
    },
    "a function (rewards, discount) -> values",
)
Credit = Annotated[str, CREDIT]
"""Value of a turn (`update.credit`): `return` is stored with it, the others are computed when it is trained on."""
CARRIED_DISCOUNT = 0.4
"""Default of `update.credit_discount`: Kevin's discount from turn to turn."""
_OWN_SHARE = 0.3
"""Share of a turn's own reward in the credit `final`; the rest is the episode's last reward."""


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


def carried_returns(rewards: Sequence[float | None], discount: float) -> list[float | None]:
    """Return (1 − γ)·Σ_{t ≤ i < T} γ^(i−t)·r_i + γ^(T−t)·r_T for each turn t, T being the last turn with a reward.

    The last reward is carried on to the turns that were not played: this is the mean of r_t, r_{t+1}, …, r_T, r_T, …
    without end, weighted by γ^(i−t). So an episode that ends early with a kernel is worth as much as one that holds
    this kernel to its limit, and a better kernel is never worth less. `turn_returns` sums the played turns alone: with
    γ = 0.4 a reward of 1.0 held for three turns sums to 1.56, one of 1.3 that ends the episode to 1.30.
    A turn without a reward has None.
    """
    values: list[float | None] = []
    following: float | None = None
    for reward in reversed(rewards):
        if reward is None:
            values.append(None)
            continue
        following = reward if following is None else (1 - discount) * reward + discount * following
        values.append(following)
    return values[::-1]


def final_returns(rewards: Sequence[float | None], discount: float) -> list[float | None]:
    """Return 0.3·r_t + 0.7·r_T·discount^(T−t) for each turn t of one episode, T being its last turn with a reward.

    Every agent of a conversation is paid for where it ends. A turn without a reward has None.
    """
    return _final(rewards, discount, lambda kernels: kernels)


def final_returns_of_all_turns(
    rewards: Sequence[float | None], discount: float, stopped: bool = False
) -> list[float | None]:
    """Return as `final_returns`, discounted by all turns that remain of the conversation, the tester's too.

    The tester answers each kernel, so that 2·(T−t) + 1 turns come after turn t: one after the last kernel. `stopped`:
    on turn T an agent stopped; there is no new kernel to test, so that 2·(T−t) come.
    """
    return _final(rewards, discount, lambda kernels: 2 * kernels + (0 if stopped else 1))


def _final(rewards: Sequence[float | None], discount: float, remaining: Callable[[int], int]) -> list[float | None]:
    """Return the credit `final`; `remaining`: from the kernels that follow to the turns that do."""
    known = [reward for reward in rewards if reward is not None]
    last, final = len(known) - 1, known[-1] if known else 0.0
    credits = iter(
        _OWN_SHARE * reward + (1 - _OWN_SHARE) * final * discount ** remaining(last - turn)
        for turn, reward in enumerate(known)
    )
    return [None if reward is None else next(credits) for reward in rewards]


def improvement_returns(rewards: Sequence[float | None], discount: float) -> list[float | None]:
    """Return Σ_{i ≥ t} discount^(i−t) · d_i for each turn, d_i being r_i less the best reward before turn i.

    d_0 = r_0. The best kernel so far is what an agent is given: d_i is what it added to it, negative if it made it
    worse, 0 if it kept it. The given kernel's reward is a baseline that does not depend on the turn's own answer.
    """
    best: float | None = None
    added: list[float | None] = []
    for reward in rewards:
        added.append(None if reward is None else reward if best is None else reward - best)
        best = best if reward is None else reward if best is None else max(best, reward)
    return turn_returns(added, discount)


def knows_stops(credit: Credit) -> bool:
    """True if a credit counts other turns after a stop. The others, users' own too, know rewards and discount alone."""
    return CREDIT.load(credit) is final_returns_of_all_turns


def credited(
    rewards: Sequence[float | None], credit: Credit, discount: float, stopped: bool = False
) -> list[float | None]:
    """Return the value of each turn of one episode by this credit; `discount`: from turn to turn.

    `stopped`: the episode ended with an agent's stop (`Termination.AGENT_STOPPED`).
    """
    function = CREDIT.load(credit)
    values = function(rewards, discount, stopped) if knows_stops(credit) else function(rewards, discount)
    if len(values) != len(rewards):
        raise InputError(f"update.credit: {credit} returned {len(values)} values for {len(rewards)} turns")
    return list(values)
