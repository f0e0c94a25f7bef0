"""How many turns an episode may have: a limit for each level of problems, extended while the verdict improves.

Pure functions of what the judge said, so that the length of a stored episode can be explained from its verdicts.
"""

from collections.abc import Sequence

from kernels_eval.verdict import Verdict
from tasks.rollout.config import EpisodeConfig


def turn_limit(verdicts: Sequence[Verdict], level: int, episode: EpisodeConfig) -> int:
    """Return how many turns an episode that has had these verdicts may have; at most limit + extension."""
    limit = base_limit(level, episode)
    allowed = limit
    # Each turn from the limit on has to earn the next one.
    while allowed < limit + episode.horizon.extension and allowed <= len(verdicts) and improves(verdicts[:allowed]):
        allowed += 1
    return allowed


def base_limit(level: int, episode: EpisodeConfig) -> int:
    """Return the turn limit of a problem of this level, without extension."""
    limits = episode.horizon.level_turns
    return limits[min(max(level, 1), len(limits)) - 1] if limits else episode.max_turns


def improves(verdicts: Sequence[Verdict]) -> bool:
    """True where the last verdict is better than every one before it; a first one has to have compiled."""
    *earlier, last = (quality(verdict) for verdict in verdicts)
    return last > max(earlier, default=(0, 0.0))


def quality(verdict: Verdict) -> tuple[int, float]:
    """Return (0 nothing, 1 compiled, 2 correct; the speedup of a correct kernel): larger is better."""
    if verdict.correct:
        return 2, verdict.speedup or 0.0
    return (1, 0.0) if verdict.compiled and verdict.rejection_reason is None else (0, 0.0)
