"""Turns that are compared, and groups that have a gradient, against a count one group at a time."""

from hypothesis import given
from hypothesis import strategies as st

from tasks.trajectories.groups import GroupKey, group_turns

EPISODES = st.lists(
    st.tuples(st.sampled_from("ab"), st.lists(st.sampled_from([0.0, 0.3, 2.3]), min_size=1, max_size=3)), max_size=8
)


def turns_of(episodes: list[tuple[str, list[float]]]) -> tuple[list[float], list[GroupKey], list[str]]:
    """Return returns, keys and trajectories of the turns of episodes (group, returns)."""
    turns = [
        (value, (group, index, "solver"), f"{group}-{number}")
        for number, (group, returns) in enumerate(episodes)
        for index, value in enumerate(returns)
    ]
    return [turn[0] for turn in turns], [turn[1] for turn in turns], [turn[2] for turn in turns]


@given(episodes=EPISODES)
def test_a_turns_peers_are_those_of_its_group_and_turn(episodes: list[tuple[str, list[float]]]) -> None:
    found = group_turns(*turns_of(episodes), "turns")
    useful = 0
    for key in {(group, index) for group, returns in episodes for index in range(len(returns))}:
        scores = [returns[key[1]] for group, returns in episodes if group == key[0] and key[1] < len(returns)]
        useful += len(set(scores)) > 1
        assert ((*key, "solver") in found.single) == (len(scores) == 1)
        assert ((*key, "solver") in found.constant) == (len(scores) > 1 and len(set(scores)) == 1)
    assert found.useful == useful
    assert found.scores == turns_of(episodes)[0]


@given(episodes=EPISODES)
def test_a_trajectorys_turns_share_its_return(episodes: list[tuple[str, list[float]]]) -> None:
    found = group_turns(*turns_of(episodes), "trajectories")
    assert found.scores == [returns[0] for _, returns in episodes for _ in returns]
    firsts = {name: [returns[0] for group, returns in episodes if group == name] for name in "ab"}
    assert found.useful == sum(len(set(scores)) > 1 for scores in firsts.values())
    assert {key[1] for key in found.peers} <= {-1}


def test_without_peers_every_group_is_useful() -> None:
    found = group_turns([1.0, 1.0, 0.5], [("a", 0, "solver"), ("a", 0, "solver"), ("b", 0, "solver")], "xyz", "nothing")
    assert (found.number, found.useful) == (2, 2)


def test_roles_are_not_compared_with_each_other_and_rounding_is_no_difference() -> None:
    keys = [("a", 0, "generator"), ("a", 0, "generator"), ("a", 0, "optimizer"), ("a", 0, "optimizer")]
    found = group_turns([0.1 + 0.2, 0.3, 0.0, 1.0], keys, ["x", "y", "x", "y"], "turns")
    assert found.constant == {("a", 0, "generator")}
    assert found.useful == 1
