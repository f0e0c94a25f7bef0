"""Loss masks of every family: exactly what a policy would have sampled, in exactly the template's tokens."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from tasks.models.chat import (
    check_system_message,
    encode_conversation,
    encode_prompt,
    encode_samples,
    render_conversation,
    template_family,
)
from tasks.models.chat_templates import Message, Role

Tokenizers = Callable[[str], Any]
END = {"qwen2.5": "<|im_end|>", "qwen3": "<|im_end|>", "llama3": "<|eot_id|>", "llama3.1": "<|eot_id|>"}
CODE = "```python\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x\n```"
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=30) | st.sampled_from(
    [CODE, "    four spaces  ", "\n\nlines\n\n", "e\u0301 decomposed", "日本 \U0001f600", "\t tab", "  ", "a  \n  b"]
)
CONTENT = TEXT.map(lambda text: text.replace("<", "(") or "x")
THOUGHT = CONTENT.map(lambda text: text.strip() or "hm")


def say(role: str, content: str, trained: bool = False) -> Message:
    return Message(role=Role(role), content=content, trained=trained)


def trained_texts(tokenizer: Any, token_ids: list[int], loss_mask: list[bool]) -> list[str]:
    """Return the decoded text of each run of trained tokens."""
    runs = itertools.groupby(zip(token_ids, loss_mask, strict=True), key=lambda pair: pair[1])
    return [tokenizer.decode([token for token, _ in run]) for trained, run in runs if trained]


@st.composite
def conversations(draw: Any) -> list[Message]:
    messages = [say("system", draw(CONTENT))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 4))):
        messages.append(say("user", draw(CONTENT)))
        answer = draw(CONTENT.filter(lambda text: bool(text.strip())))
        messages.append(say("assistant", answer, draw(st.booleans())))
    if not any(message.trained for message in messages):
        messages[-1] = messages[-1].model_copy(update={"trained": True})
    return messages


def normal(text: str) -> str:
    import unicodedata

    return unicodedata.normalize("NFC", text)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("family", list(END))
@given(messages=conversations())
def test_exactly_the_trained_answers_are_trained(
    family_tokenizer: Tokenizers, family: str, messages: list[Message]
) -> None:
    tokenizer = family_tokenizer(family)
    encoded = encode_conversation(tokenizer, messages)
    rendered = tokenizer.apply_chat_template(
        [{"role": message.role.value, "content": message.content} for message in messages], tokenize=True
    )["input_ids"]
    assert encoded.token_ids == rendered, "the tokens are the template's"
    found = trained_texts(tokenizer, encoded.token_ids, encoded.loss_mask)
    trained = [message.content for message in messages if message.trained]
    expected = [(text.strip() if family.startswith("llama") else normal(text)) + END[family] for text in trained]
    # A first newline can be in one token with the header's: that token is the prompt's.
    assert [text.lstrip() for text in found] == [text.lstrip() for text in expected]
    for text, wanted in zip(found, expected, strict=True):
        assert text == wanted or wanted[0].isspace()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(thought=st.none() | THOUGHT, answer=THOUGHT, earlier=st.lists(st.tuples(CONTENT, THOUGHT, THOUGHT), max_size=2))
def test_qwen3_keeps_the_thought_that_is_trained(
    family_tokenizer: Tokenizers, thought: str | None, answer: str, earlier: list[tuple[str, str, str]]
) -> None:
    tokenizer = family_tokenizer("qwen3")
    messages: list[Message] = []
    for question, past_thought, past_answer in earlier:
        messages += [say("user", question), say("assistant", f"<think>\n{past_thought}\n</think>\n\n{past_answer}")]
    written = answer if thought is None else f"<think>\n{thought}\n</think>\n\n{answer}"
    messages += [say("user", "go on"), say("assistant", written, trained=True)]
    encoded = encode_conversation(tokenizer, messages)
    assert trained_texts(tokenizer, encoded.token_ids, encoded.loss_mask) == [normal(written) + "<|im_end|>"]
    # What comes before is the prompt that rollouts give, with or without thinking.
    untrained = tokenizer.decode(encoded.token_ids[: encoded.loss_mask.index(True)])
    prompt = tokenizer.decode(encode_prompt(tokenizer, messages[:-1], thinking=thought is not None))
    assert untrained == prompt


def test_a_model_that_always_thinks_has_the_tag_in_its_prompt(family_tokenizer: Tokenizers) -> None:
    tokenizer = family_tokenizer("qwen3-thinking")
    messages = [say("user", "go"), say("assistant", "<think>\nhm\n</think>\n\ncode", trained=True)]
    encoded = encode_conversation(tokenizer, messages)
    assert trained_texts(tokenizer, encoded.token_ids, encoded.loss_mask) == ["hm\n</think>\n\ncode<|im_end|>"]
    untrained = tokenizer.decode(encoded.token_ids[: encoded.loss_mask.index(True)])
    assert untrained == tokenizer.decode(encode_prompt(tokenizer, messages[:-1]))


@pytest.mark.parametrize("family", ["qwen2.5", "llama3", "llama3.1"])
def test_other_families_leave_thoughts_alone(family_tokenizer: Tokenizers, family: str) -> None:
    tokenizer = family_tokenizer(family)
    answer = "<think>\nhm\n</think>\n\ncode"
    messages = [say("user", "go"), say("assistant", answer, True), say("user", "on"), say("assistant", answer, True)]
    encoded = encode_conversation(tokenizer, messages)
    assert trained_texts(tokenizer, encoded.token_ids, encoded.loss_mask) == [answer + END[family]] * 2


def test_an_earlier_thought_that_the_template_drops_is_not_silently_lost(family_tokenizer: Tokenizers) -> None:
    tokenizer = family_tokenizer("qwen3")
    first, second = "<think>\nhm\n</think>\n\none", "<think>\nhm\n</think>\n\ntwo"
    messages = [say("user", "go"), say("assistant", first, True), say("user", "on"), say("assistant", second, True)]
    with pytest.raises(InputError, match="message 1: the chat template drops the reasoning"):
        encode_conversation(tokenizer, messages)
    samples = encode_samples(tokenizer, messages)
    assert [trained_texts(tokenizer, sample.token_ids, sample.loss_mask) for sample in samples] == [
        [first + "<|im_end|>"],
        [second + "<|im_end|>"],
    ]
    assert "hm\n</think>\n\none" not in tokenizer.decode(samples[1].token_ids)


def test_one_sample_where_nothing_is_rewritten(family_tokenizer: Tokenizers) -> None:
    messages = [say("user", "go"), say("assistant", "one", True), say("user", "on"), say("assistant", "two", True)]
    for family in ("qwen2.5", "llama3.1"):
        tokenizer = family_tokenizer(family)
        assert encode_samples(tokenizer, messages) == [encode_conversation(tokenizer, messages)]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("qwen2.5", "qwen"),
        ("qwen3", "qwen3"),
        ("qwen3-thinking", "qwen3"),
        ("llama3", "llama3"),
        ("llama3.1", "llama3"),
    ],
)
def test_families_are_found_by_what_they_write(family_tokenizer: Tokenizers, template: str, name: str) -> None:
    assert template_family(family_tokenizer(template)).name == name


def test_names_that_people_use(family_tokenizer: Tokenizers) -> None:
    for name in ("llama", "llama3", "llama3.1", "kernelllm"):
        assert template_family(family_tokenizer("llama3.1"), name).name == "llama3"
    assert template_family(family_tokenizer("qwen2.5"), "qwen").name == "qwen"
    with pytest.raises(InputError, match="family llama3"):
        template_family(family_tokenizer("qwen2.5"), "llama3")
    with pytest.raises(InputError, match="family qwen,"):
        template_family(family_tokenizer("qwen3"), "qwen")
    with pytest.raises(InputError, match="'gemma'"):
        template_family(family_tokenizer("qwen3"), "gemma")


def test_an_unknown_template_is_refused(family_tokenizer: Tokenizers) -> None:
    import copy

    tokenizer = copy.deepcopy(family_tokenizer("mistral"))
    tokenizer.chat_template = tokenizer.chat_template.replace(" + eos_token", " + ' '")
    messages = [say("user", "go"), say("assistant", "one", True)]
    with pytest.raises(InputError, match="loss mask is not known: no special token ends an answer"):
        encode_conversation(tokenizer, messages)


def test_a_template_that_strays_from_its_family_is_refused(family_tokenizer: Tokenizers) -> None:
    """It behaves on the probes, and then writes something of its own into a longer conversation."""
    import copy

    tokenizer = copy.deepcopy(family_tokenizer("llama3"))
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "{%- for message in messages -%}",
        "{%- for message in messages -%}{%- if loop.index0 == 4 -%}{{- 'remember: ' -}}{%- endif -%}",
    )
    messages = [say("user", "a"), say("assistant", "b", True)] * 2 + [say("user", "c"), say("assistant", "d", True)]
    with pytest.raises(InputError, match=r"expected the form of the family llama3, found .*remember: "):
        encode_conversation(tokenizer, messages)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([say("user", "a"), say("assistant", "b")], "trained=True"),
        ([say("user", "a", True), say("assistant", "b")], "assistant's messages only"),
        ([say("user", "a"), say("assistant", " \n ", True)], "empty trained message"),
        ([say("user", "a"), say("assistant", "<think>hm", True)], "expected the end of its reasoning"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    family_tokenizer: Tokenizers, messages: list[Message], expected: str
) -> None:
    with pytest.raises(InputError, match=expected):
        encode_conversation(family_tokenizer("qwen3"), messages)


@pytest.mark.parametrize(
    ("condition", "sentence"),
    [
        ("{% if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}", "takes no"),
        ("{% if message.role != 'system' %}", "leaves a system message out"),
    ],
)
def test_a_template_without_a_system_message_is_refused(
    family_tokenizer: Tokenizers, condition: str, sentence: str
) -> None:
    tokenizer = copy.deepcopy(family_tokenizer("qwen2.5"))
    check_system_message(tokenizer)
    end = "" if "raise" in condition else "{% endif %}"
    tokenizer.chat_template = f"{{% for message in messages %}}{condition}{{{{ message.content }}}}{end}{{% endfor %}}"
    with pytest.raises(InputError, match=sentence):
        check_system_message(tokenizer)


def test_an_empty_mask_is_an_error(family_tokenizer: Tokenizers) -> None:
    """As on tokenizers that report no offsets."""

    class Blind:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def __call__(self, text: str, **options: Any) -> Any:
            encoded = self.inner(text, **options)
            return {"input_ids": encoded["input_ids"], "offset_mapping": [(0, 0)] * len(encoded["input_ids"])}

    messages = [say("user", "a"), say("assistant", "b", True)]
    with pytest.raises(InputError, match="loss mask is empty"):
        encode_conversation(Blind(family_tokenizer("qwen2.5")), messages)


def test_the_beginning_of_text_is_there_once(family_tokenizer: Tokenizers) -> None:
    tokenizer = family_tokenizer("llama3.1")
    messages = [say("user", "a"), say("assistant", "b", True)]
    assert encode_conversation(tokenizer, messages).token_ids.count(tokenizer.bos_token_id) == 1
    assert encode_prompt(tokenizer, messages[:1]).count(tokenizer.bos_token_id) == 1
    assert render_conversation(tokenizer, messages[:1], for_generation=True).count("<|begin_of_text|>") == 1


def test_our_own_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> None:
    from tasks.models.tokenizer import train_tokenizer

    tokenizer = train_tokenizer([CODE] * 9, 320, tmp_path_factory.mktemp("tokenizer"))
    assert template_family(tokenizer).name == "chatml"
    messages = [say("user", "go\n"), say("assistant", CODE, True), say("user", "on"), say("assistant", "two", True)]
    encoded = encode_conversation(tokenizer, messages)
    assert trained_texts(tokenizer, encoded.token_ids, encoded.loss_mask) == [CODE + "<|im_end|>", "two<|im_end|>"]
