"""Turn limits by level, and extensions that have to be earned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.verdict import Status, Verdict
from tasks.rollout.config import EpisodeConfig, HorizonConfig
from tasks.rollout.episode_tasks import improves, turn_limit

FAILED = Verdict(status=Status.COMPILE_ERROR)
REJECTED = Verdict(status=Status.REJECTED, compiled=True, rejection_reason="library_call")
RUNS = Verdict(status=Status.INCORRECT, compiled=True)


def correct(speedup: float | None) -> Verdict:
    return Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=speedup)


VERDICTS = st.sampled_from(
    [FAILED, REJECTED, RUNS, correct(None), correct(0.5), correct(1.0), correct(2.0), correct(4.0)]
)
EPISODES = st.builds(
    EpisodeConfig,
    max_turns=st.integers(1, 5),
    horizon=st.builds(
        HorizonConfig, level_turns=st.lists(st.integers(1, 5), max_size=3).map(tuple), extension=st.integers(0, 4)
    ),
)


def test_levels_have_limits_of_their_own() -> None:
    episode = EpisodeConfig(max_turns=3, horizon=HorizonConfig(level_turns=(1, 2, 5)))
    assert [turn_limit([], level, episode) for level in (0, 1, 2, 3, 4)] == [1, 1, 2, 5, 5]
    assert [turn_limit([], level, EpisodeConfig(max_turns=3)) for level in (1, 9)] == [3, 3]


@pytest.mark.parametrize(
    ("verdicts", "limit"),
    [
        ([], 1),
        ([FAILED], 1),
        ([REJECTED], 1),
        ([RUNS], 2),
        ([RUNS, RUNS], 2),
        ([RUNS, correct(0.5)], 3),
        ([RUNS, correct(0.5), correct(2.0)], 3),  # bounded
    ],
)
def test_an_extension_is_earned_turn_by_turn(verdicts: list[Verdict], limit: int) -> None:
    assert turn_limit(verdicts, 1, EpisodeConfig(max_turns=1, horizon=HorizonConfig(extension=2))) == limit


def test_better_than_all_before_not_than_the_last_one() -> None:
    assert not improves([correct(2.0), RUNS, correct(1.0)])
    assert improves([correct(2.0), RUNS, correct(2.5)])


@given(verdicts=st.lists(VERDICTS, max_size=12), level=st.integers(1, 4), episode=EPISODES)
def test_an_episode_that_keeps_to_the_limit_is_bounded(
    verdicts: list[Verdict], level: int, episode: EpisodeConfig
) -> None:
    base = turn_limit([], level, episode)
    played = 0
    while played < len(verdicts) and (played == 0 or played < turn_limit(verdicts[:played], level, episode)):
        played += 1
    assert played <= base + episode.horizon.extension
    assert played >= min(base, len(verdicts))
    # Every turn beyond the limit came after one that was the best so far.
    for turn in range(base, played):
        best_before = max((quality(verdict) for verdict in verdicts[: turn - 1]), default=(0, 0.0))
        assert quality(verdicts[turn - 1]) > best_before


def quality(verdict: Verdict) -> tuple[int, float]:
    """Written again: nothing < compiled within the rules < correct, faster is better."""
    if verdict.correct:
        return (2, verdict.speedup or 0.0)
    return (1, 0.0) if verdict.compiled and not verdict.rejection_reason else (0, 0.0)
