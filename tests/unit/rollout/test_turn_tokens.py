"""The prefix rule: each prompt begins with the previous prompt and response, or says that it does not."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AddedToken

from tasks.models.chat import render_conversation
from tasks.models.messages import Message, Role
from tasks.rollout.turn_tokens import first_prompt, next_prompt, response_text

QWEN25 = (
    "{%- if messages[0].role != 'system' -%}{{- '<|im_start|>system\\nYou are Qwen.<|im_end|>\\n' -}}{%- endif -%}"
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
"""As Qwen2.5's: a newline after a turn's end."""
TRIMMED = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '<|endoftext|>\\n\\n' + message.content | trim + '<|im_end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant<|endoftext|>\\n\\n' -}}{%- endif -%}"
)
"""As Llama 3's: content is trimmed."""
QWEN3 = (
    "{%- for message in messages -%}"
    "{%- set content = message.content.split('</think>')[-1].lstrip('\\n') -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + (content if message.role == 'assistant' else message.content) + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}"
    "{%- if enable_thinking is false and not thinking_on -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}{%- endif -%}"
)
"""As Qwen3's: earlier reasoning is dropped, and an empty thought is written into the generation prompt."""
QWEN3_THINKING = QWEN3.replace("thinking_on", "true")


def with_template(tokenizer: Any, template: str | None) -> Any:
    import copy

    changed = copy.deepcopy(tokenizer)
    if template is not None:
        changed.chat_template = template
        changed.add_tokens([AddedToken(token, special=False, normalized=False) for token in ("<think>", "</think>")])
    return changed


CONTENT = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=30).map(
    lambda text: text.strip().replace("<", "(") or "x"
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("template", [None, QWEN25, TRIMMED, QWEN3_THINKING], ids=["own", "qwen2.5", "llama3", "qwen3"])
@given(turns=st.lists(st.tuples(CONTENT, CONTENT, st.booleans()), min_size=1, max_size=4))
def test_prompts_extend_each_other(
    small_tokenizer: Any, template: str | None, turns: list[tuple[str, str, bool]]
) -> None:
    tokenizer = with_template(small_tokenizer, template)
    messages = [Message(role=Role.USER, content="problem\n")]
    prompt = first_prompt(tokenizer, messages)
    assert prompt.extends_previous
    for answer, reply, ended_itself in turns:
        # A response as it is sampled: not always as the tokenizer would cut it.
        response = [*tokenizer(answer[:2])["input_ids"], *tokenizer(answer[2:])["input_ids"]]
        response += [tokenizer.eos_token_id] if ended_itself else []
        text = response_text(tokenizer, response)
        messages += [Message(role=Role.ASSISTANT, content=text), Message(role=Role.USER, content=reply)]
        following = next_prompt(tokenizer, prompt, response, messages)
        assert following.extends_previous
        assert following.token_ids[: len(prompt.token_ids) + len(response)] == (*prompt.token_ids, *response)
        assert tokenizer.decode(following.token_ids) == render_conversation(tokenizer, messages, for_generation=True)
        prompt = following


@pytest.mark.parametrize(
    ("template", "answer"),
    [(QWEN3, "code"), (QWEN3_THINKING, "<think>hm</think>\n\ncode")],
    ids=["empty thought", "thought"],
)
def test_a_template_that_rewrites_history_is_encoded_anew_and_says_so(
    small_tokenizer: Any, template: str, answer: str
) -> None:
    tokenizer = with_template(small_tokenizer, template)
    messages = [Message(role=Role.USER, content="problem")]
    prompt = first_prompt(tokenizer, messages)
    response = [*tokenizer(answer)["input_ids"], tokenizer.eos_token_id]
    messages += [Message(role=Role.ASSISTANT, content=answer), Message(role=Role.USER, content="wrong")]
    following = next_prompt(tokenizer, prompt, response, messages)
    assert not following.extends_previous
    assert tokenizer.decode(following.token_ids) == render_conversation(tokenizer, messages, for_generation=True)
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


def test_an_empty_response(small_tokenizer: Any) -> None:
    messages = [Message(role=Role.USER, content="problem")]
    prompt = first_prompt(small_tokenizer, messages)
    messages += [Message(role=Role.ASSISTANT, content=""), Message(role=Role.USER, content="again")]
    following = next_prompt(small_tokenizer, prompt, [small_tokenizer.eos_token_id], messages)
    assert small_tokenizer.decode(following.token_ids) == render_conversation(
        small_tokenizer, messages, for_generation=True
    )
