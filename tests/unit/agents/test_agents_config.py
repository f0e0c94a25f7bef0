"""Agents hold a conversation together: each turn has one writer, and each writer has weights."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernels_eval.frozen import decisive_part
from tasks.agents.config import SOLVER, AgentConfig, author_of, owner_of, owners
from tasks.rollout.config import EpisodeConfig

PAIR = {"generator": AgentConfig(turns="first"), "optimizer": AgentConfig(turns="later", shown="kernel")}


def test_without_agents_the_solver_writes_everything() -> None:
    assert [author_of({}, turn) for turn in range(4)] == [SOLVER] * 4
    assert owners({}) == {SOLVER: (SOLVER,)}
    assert owner_of({}, SOLVER) == SOLVER


def test_first_and_later_turns() -> None:
    assert [author_of(PAIR, turn) for turn in range(4)] == ["generator", "optimizer", "optimizer", "optimizer"]


def test_several_agents_of_later_turns_take_turns() -> None:
    agents = {**PAIR, "tuner": AgentConfig(turns="later")}
    assert [author_of(agents, turn) for turn in range(5)] == ["generator", "optimizer", "tuner", "optimizer", "tuner"]


@given(st.permutations(["generator", "optimizer", "tuner"]))
def test_the_order_in_the_file_does_not_matter(names: list[str]) -> None:
    agents = {**PAIR, "tuner": AgentConfig(turns="later")}
    shuffled = {name: agents[name] for name in names}
    assert [author_of(shuffled, turn) for turn in range(5)] == [author_of(agents, turn) for turn in range(5)]
    assert owners(shuffled) == owners(agents)


def test_shared_weights_are_trained_on_the_turns_of_all_who_have_them() -> None:
    agents = {**PAIR, "optimizer": AgentConfig(turns="later", weights="generator")}
    assert owners(agents) == {"generator": ("generator", "optimizer")}
    assert owner_of(agents, "optimizer") == "generator"


def test_who_is_not_trained_owns_weights_without_roles() -> None:
    agents = {**PAIR, "generator": AgentConfig(turns="first", trained=False)}
    assert owners(agents) == {"generator": (), "optimizer": ("optimizer",)}


@pytest.mark.parametrize(
    ("agents", "expected"),
    [
        ({"a": {"turns": "later"}}, "one agent that writes the first turn"),
        ({"a": {"turns": "first"}, "b": {"turns": "first"}}, "one agent that writes the first turn"),
        ({"a": {"turns": "all"}, "b": {"turns": "first"}}, "found a, b"),
        ({"a": {"turns": "first"}}, "an agent that writes later turns"),
        ({"a": {"turns": "all", "weights": "z"}}, "a.weights to name an agent with weights of its own, found 'z'"),
        ({"a": {"turns": "first", "weights": "b"}, "b": {"turns": "later", "weights": "a"}}, "a.weights to name"),
        (
            {"a": {"turns": "first"}, "b": {"turns": "later", "weights": "a", "pretrained": "m"}},
            "b to have a pretrained model or the weights of a, found both",
        ),
        ({"a": {"trained": False}}, "an agent that is trained"),
        (
            {"a": {"turns": "first"}, "b": {"turns": "later", "weights": "a", "trained": False}},
            "b to be trained, or to have weights of its own",
        ),
        ({"a": {"pretrained": "m"}}, "model.pretrained in place of a.pretrained"),
        ({"A": {}}, "match"),
        ({"a": {"shows": "kernel"}}, "shows"),
    ],
)
def test_agents_that_cannot_talk_are_refused(agents: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        EpisodeConfig.model_validate({"agents": agents})


def test_one_turn_needs_no_second_agent() -> None:
    EpisodeConfig.model_validate({"max_turns": 1, "agents": {"a": {"turns": "first"}}})


def test_a_pretrained_model_counts_by_its_content() -> None:
    agents = {"a": {"turns": "first", "pretrained": "here"}, "b": {"turns": "later"}}
    episode = EpisodeConfig.model_validate({"agents": agents})
    part = decisive_part(episode, of_file=lambda name: f"content of {name}")
    assert part["agents"]["a"]["pretrained"] == "content of here"
