"""The prefix rule: each prompt begins with the previous prompt and response, or says that it does not."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.models.chat import encode_prompt, render_conversation
from tasks.models.chat_templates import Message, Role
from tasks.rollout.turn_tokens import first_prompt, next_prompt, response_text

Tokenizers = Callable[[str], Any]
CONTENT = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=30).map(
    lambda text: text.strip() or "x"
)
THOUGHT = st.none() | CONTENT.map(lambda text: text.replace("\n", " ").strip() or "hm")
TURNS = st.lists(st.tuples(THOUGHT, CONTENT, CONTENT, st.booleans()), min_size=1, max_size=4)


def must_break(family: str, thinking: bool, thought: str | None) -> bool:
    """Whether the family's template rewrites an answer once it is followed by a question: from its documented behaviour."""
    if family == "qwen3-thinking":
        return True  # the tag that the prompt opened is dropped
    # Qwen3: an empty thought in the prompt, or the answer's own thought, is dropped; others keep everything.
    return family == "qwen3" and (not thinking or thought is not None)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("family", ["own", "qwen2.5", "qwen3", "qwen3-thinking", "llama3", "llama3.1"])
@given(turns=TURNS)
def test_a_prompt_extends_the_one_before_or_says_that_it_does_not(
    small_tokenizer: Any,
    family_tokenizer: Tokenizers,
    family: str,
    thinking: bool,
    turns: list[tuple[str | None, str, str, bool]],
) -> None:
    tokenizer = small_tokenizer if family == "own" else family_tokenizer(family)
    messages = [Message(role=Role.USER, content="problem\n")]
    prompt = first_prompt(tokenizer, messages, thinking=thinking)
    assert prompt.extends_previous
    for thought, answer, reply, ended_itself in turns:
        said = answer if thought is None else f"<think>\n{thought}\n</think>\n\n{answer}"
        # A response as it is sampled: not always as the tokenizer would cut it.
        response = [
            token for part in (said[:2], said[2:]) for token in tokenizer(part, add_special_tokens=False)["input_ids"]
        ]
        response += [tokenizer.eos_token_id] if ended_itself else []
        text = response_text(tokenizer, response)
        messages += [Message(role=Role.ASSISTANT, content=text), Message(role=Role.USER, content=reply)]
        following = next_prompt(tokenizer, prompt, response, messages, thinking=thinking)
        assert following.extends_previous == (not must_break(family, thinking, thought))
        begin = (*prompt.token_ids, *response)
        # A declared break is a real one: nothing that could be carried on is given up.
        assert (following.token_ids[: len(begin)] == begin) == following.extends_previous
        rendered = render_conversation(tokenizer, messages, for_generation=True, thinking=thinking)
        # Qwen's tokenizers normalise what they encode, not what was sampled.
        assert normal(tokenizer.decode(following.token_ids)) == normal(rendered)
        prompt = following


ANY_ANSWER = st.lists(
    st.sampled_from(["", " ", "\n", "\n\n  ", "\t", "\r\n", "日本", "\U0001f600", "e\u0301", "x = 1", "```python\nx\n```", "```",
                     "so ```x``` is it", "<think>", "</think>", "<|im_end|>", "<|eot_id|>", "\U000f0000"]),
    max_size=5,
).map("".join)  # fmt: skip


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("family", ["own", "qwen2.5", "qwen3", "qwen3-thinking", "llama3", "llama3.1"])
@given(
    system=st.none() | ANY_ANSWER,
    turns=st.lists(st.tuples(ANY_ANSWER, ANY_ANSWER, st.booleans()), min_size=1, max_size=3),
)
def test_so_it_is_whatever_is_said(
    small_tokenizer: Any,
    family_tokenizer: Tokenizers,
    family: str,
    thinking: bool,
    system: str | None,
    turns: list[tuple[str, str, bool]],
) -> None:
    """White space, half fences, tags and control tokens as text, nothing at all: the rule holds, or the break is declared."""
    tokenizer = small_tokenizer if family == "own" else family_tokenizer(family)
    messages = [Message(role=Role.SYSTEM, content=system)] if system is not None else []
    messages.append(Message(role=Role.USER, content=turns[0][1]))
    prompt = first_prompt(tokenizer, messages, thinking=thinking)
    for answer, reply, ended_itself in turns:
        response = tokenizer(answer, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        response = [*response, tokenizer.eos_token_id] if ended_itself or not response else response
        text = response_text(tokenizer, response)
        messages += [Message(role=Role.ASSISTANT, content=text), Message(role=Role.USER, content=reply)]
        following = next_prompt(tokenizer, prompt, response, messages, thinking=thinking)
        thought = text if "</think>" in text else None
        assert following.extends_previous == (not must_break(family, thinking, thought))
        begin = (*prompt.token_ids, *response)
        if following.extends_previous:
            assert following.token_ids[: len(begin)] == begin
        else:
            assert following.token_ids == tuple(encode_prompt(tokenizer, messages, thinking=thinking))
        # Headers are the template's: one of the next answer, and where all is told anew, one of each before it.
        asked = tokenizer.decode(
            following.token_ids[len(begin) :] if following.extends_previous else following.token_ids
        )
        told = 0 if following.extends_previous else sum(message.role is Role.ASSISTANT for message in messages)
        assert asked.count(HEADERS[family]) == 1 + told
        prompt = following


HEADERS = {"llama3": "<|start_header_id|>assistant", "llama3.1": "<|start_header_id|>assistant"} | dict.fromkeys(
    ("own", "qwen2.5", "qwen3", "qwen3-thinking"), "<|im_start|>assistant"
)


def normal(text: str) -> str:
    import unicodedata

    return unicodedata.normalize("NFC", text)


def test_dropped_reasoning_is_not_in_the_next_prompt(family_tokenizer: Tokenizers) -> None:
    tokenizer = family_tokenizer("qwen3")
    messages = [Message(role=Role.USER, content="problem")]
    prompt = first_prompt(tokenizer, messages, thinking=True)
    answer = "<think>\nhm\n</think>\n\ncode"
    response = [*tokenizer(answer)["input_ids"], tokenizer.eos_token_id]
    messages += [Message(role=Role.ASSISTANT, content=answer), Message(role=Role.USER, content="wrong")]
    following = next_prompt(tokenizer, prompt, response, messages, thinking=True)
    assert not following.extends_previous
    assert "hm" not in tokenizer.decode(following.token_ids)


def test_what_is_not_text_is_carried_on_too(small_tokenizer: Any) -> None:
    """Half a UTF-8 character and a special token inside a response cannot be encoded again; their ids stay."""
    half = small_tokenizer("é", add_special_tokens=False)["input_ids"][:1]
    response = [*half, small_tokenizer.convert_tokens_to_ids("<|im_start|>"), small_tokenizer.eos_token_id]
    messages = [Message(role=Role.USER, content="problem")]
    prompt = first_prompt(small_tokenizer, messages)
    text = response_text(small_tokenizer, response)
    assert "<|im_start|>" not in text
    messages += [Message(role=Role.ASSISTANT, content=text), Message(role=Role.USER, content="again")]
    following = next_prompt(small_tokenizer, prompt, response, messages)
    assert following.extends_previous
    assert following.token_ids[: len(prompt.token_ids) + 3] == (*prompt.token_ids, *response)


@pytest.mark.parametrize("family", ["own", "qwen2.5", "qwen3", "llama3.1"])
@pytest.mark.parametrize("end", ["<", "<|", "<|im_end|", "\n"])
def test_a_response_that_is_cut_off_where_a_control_token_could_begin(
    small_tokenizer: Any, family_tokenizer: Tokenizers, family: str, end: str
) -> None:
    tokenizer = small_tokenizer if family == "own" else family_tokenizer(family)
    messages = [Message(role=Role.USER, content="problem\n")]
    prompt = first_prompt(tokenizer, messages, thinking=True)
    response = tokenizer(f"if a {end}", add_special_tokens=False)["input_ids"]
    messages += [
        Message(role=Role.ASSISTANT, content=response_text(tokenizer, response)),
        Message(role=Role.USER, content="again\n"),
    ]
    following = next_prompt(tokenizer, prompt, response, messages, thinking=True)
    assert following.extends_previous
    begin = (*prompt.token_ids, *response)
    assert following.token_ids[: len(begin)] == begin
    assert following.token_ids[len(begin)] == tokenizer.eos_token_id


def test_an_empty_response(small_tokenizer: Any) -> None:
    messages = [Message(role=Role.USER, content="problem")]
    prompt = first_prompt(small_tokenizer, messages)
    messages += [Message(role=Role.ASSISTANT, content=""), Message(role=Role.USER, content="again")]
    following = next_prompt(small_tokenizer, prompt, [small_tokenizer.eos_token_id], messages)
    assert small_tokenizer.decode(following.token_ids) == render_conversation(
        small_tokenizer, messages, for_generation=True
    )
