"""Requests to a server, and the checks of its answers."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.rollout.config import SamplingConfig
from tasks.rollout.engines import FinishReason
from tasks.rollout.engines.sglang.generation import (
    FailureKind,
    ServerError,
    ServerRequest,
    generation_payload,
    parse_generation,
    parse_scores,
)

EOS = 9
ASKED = ServerRequest("a" * 32, (5, 6, 7), 123, SamplingConfig(max_new_tokens=4), (EOS,), "v1")


def answer(ids: tuple[int, ...] = (1, 2, EOS), finish: Any = None, **meta: Any) -> dict[str, Any]:
    """As SGLang 0.5.13 writes it."""
    finish = finish or {"type": "stop", "matched": ids[-1]}
    return {
        "text": "",
        "output_ids": list(ids),
        "meta_info": {
            "id": "a" * 32,
            "finish_reason": finish,
            "prompt_tokens": 3,
            "weight_version": "v1",
            "cached_tokens": 2,
            "input_token_logprobs": [],
            "output_token_logprobs": [[-0.25, token, None] for token in ids],
        }
        | meta,
    }


def trouble(found: dict[str, Any]) -> FailureKind:
    with pytest.raises(ServerError, match="http://s") as caught:
        parse_generation("http://s", found, ASKED)
    return caught.value.kind


def test_a_response_ends_with_the_end_of_turn() -> None:
    sampled = parse_generation("http://s", answer(), ASKED)
    assert sampled.token_ids == (1, 2, EOS)
    assert sampled.logprobs == (-0.25, -0.25, -0.25)
    assert sampled.finish_reason is FinishReason.STOP
    assert sampled.cached_tokens == 2


def test_nothing_comes_after_the_end_of_turn() -> None:
    """It would be trained on."""
    assert trouble(answer((1, EOS, 2, EOS))) is FailureKind.FAILED
    assert trouble(answer((EOS, 2, 3, 4), {"type": "length", "length": 4})) is FailureKind.FAILED


def test_the_limit_is_the_limit() -> None:
    sampled = parse_generation("http://s", answer((1, 2, 3, 4), {"type": "length", "length": 4}), ASKED)
    assert sampled.finish_reason is FinishReason.LENGTH


def test_an_end_of_turn_at_the_limit_is_an_end_of_turn() -> None:
    """The server says length there, the embedded engine stop: the policy did end its turn."""
    sampled = parse_generation("http://s", answer((1, 2, 3, EOS), {"type": "length", "length": 4}), ASKED)
    assert sampled.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (answer(finish={"type": "abort", "message": "Aborted"}), FailureKind.FAILED),
        (answer(finish={"type": "stop", "matched": "NaN happened"}), FailureKind.FAILED),
        (answer((1, 2), {"type": "length", "length": 2}), FailureKind.FAILED),
        (answer((1, 2, 3, 4, EOS)), FailureKind.FAILED),
        (answer(weight_version="v0"), FailureKind.STALE),
        (answer(output_token_logprobs=[]), FailureKind.FAILED),
        (answer(output_token_logprobs=None), FailureKind.FAILED),
        (answer(output_token_logprobs=[[None, 1, None], [-1, 2, None], [-1, EOS, None]]), FailureKind.FAILED),
        (answer(output_token_logprobs=[[0.5, 1, None], [-1, 2, None], [-1, EOS, None]]), FailureKind.FAILED),
        (answer(output_token_logprobs=[[-1, 1, None], [-1, 3, None], [-1, EOS, None]]), FailureKind.FAILED),
        ({"text": "hello"}, FailureKind.FAILED),
        (answer() | {"output_ids": [1, 2]}, FailureKind.FAILED),
    ],
)
def test_what_does_not_hold_together_is_no_response(found: dict[str, Any], expected: FailureKind) -> None:
    assert trouble(found) is expected


JUNK = st.sampled_from([None, 0, -1, 10**9, -2.5, float("nan"), float("inf"), "x", [], {}, [[]], {"type": "stop"}])


@settings(max_examples=300)
@given(data=st.data())
def test_no_damage_to_an_answer_gives_a_response_that_is_none(data: st.DataObject) -> None:
    found = copy.deepcopy(answer())
    for _ in range(data.draw(st.integers(1, 3))):
        spot: Any = found
        while isinstance(spot, dict | list) and spot:
            keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(spot[key], dict | list) or data.draw(st.booleans()):
                spot[key] = copy.deepcopy(data.draw(JUNK))
                break
            spot = spot[key]
    try:
        sampled = parse_generation("http://s", found, ASKED)
    except ServerError:
        return
    assert 1 <= len(sampled.token_ids) == len(sampled.logprobs) <= 4
    assert all(value <= 0 for value in sampled.logprobs)
    assert (sampled.finish_reason is FinishReason.LENGTH) == (
        len(sampled.token_ids) == 4 and sampled.token_ids[3] != EOS
    )


def test_nothing_is_left_to_a_servers_defaults() -> None:
    payload = generation_payload(ASKED)
    assert payload["input_ids"] == [5, 6, 7]
    assert payload["return_logprob"] is True
    sampling = payload["sampling_params"]
    assert (sampling["temperature"], sampling["top_p"], sampling["top_k"], sampling["min_p"]) == (1, 1, -1, 0)
    assert (sampling["repetition_penalty"], sampling["frequency_penalty"], sampling["presence_penalty"]) == (1, 0, 0)
    assert sampling["stop_token_ids"] == [EOS]
    assert sampling["sampling_seed"] == 123
    limited = ServerRequest("r", (1,), 0, SamplingConfig(temperature=0.5, top_k=7, top_p=0.9), (), "v")
    assert generation_payload(limited)["sampling_params"]["top_k"] == 7


def test_scores_are_those_of_the_tokens_asked_for() -> None:
    scored = answer(input_token_logprobs=[[None, 6, None], [-1.5, 7, None], [-2.5, 8, None]])
    assert parse_scores("http://s", scored, (5, 6, 7, 8), 2) == (-1.5, -2.5)
    for wrong, tokens in ((scored, (5, 6, 7, 4)), (scored, (5, 6, 7)), (answer(), (5, 6, 7)), ({}, (5, 6))):
        with pytest.raises(ServerError):
            parse_scores("http://s", wrong, tokens, 2)
