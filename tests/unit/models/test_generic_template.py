"""Chat templates of no known family: what probes prove, what is trained, and what is refused with its reason."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from tasks.models.chat import EncodedConversation, encode_prompt, encode_samples, template_family
from tasks.models.chat_templates import Message, Role
from tasks.models.generic_template import GenericTemplate

Tokenizers = Callable[[str], Any]
FAMILIES = {
    "mistral": GenericTemplate("</s>", rewrites=False, channels=False),
    "gemma3": GenericTemplate("<end_of_turn>", rewrites=False, channels=False),
    "phi3.5": GenericTemplate("<|end|>", rewrites=False, channels=False),
    "phi4": GenericTemplate("<|im_end|>", rewrites=False, channels=False),
    "gpt-oss": GenericTemplate("<|return|>", rewrites=True, channels=True),
    "glm4.5": GenericTemplate("<|user|>", rewrites=False, channels=False),
    "glm4.7": GenericTemplate("<|user|>", rewrites=False, channels=False),
    "qwen3.8": GenericTemplate("<|im_end|>", rewrites=False, channels=False),
    "deepseek-v3.1": GenericTemplate("<｜end▁of▁sentence｜>", rewrites=False, channels=False),
    "deepseek-r1-distill": GenericTemplate("<｜end▁of▁sentence｜>", rewrites=True, channels=False),
}
LEADS = {"gpt-oss": "<|channel|>final<|message|>", "glm4.5": "\n"}
ANALYSIS = "<|channel|>analysis<|message|>"
CONTENT = st.text("ab <|>_\n.é", min_size=1, max_size=12).filter(
    lambda text: bool(text.strip()) and "<|" not in text and text == text.strip()
)
MANY = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def say(role: str, content: str, trained: bool = False) -> Message:
    return Message(role=Role(role), content=content, trained=trained)


def trained_texts(tokenizer: Any, sample: EncodedConversation) -> list[str]:
    runs = itertools.groupby(zip(sample.token_ids, sample.loss_mask, strict=True), key=lambda pair: pair[1])
    return [tokenizer.decode([token for token, _ in run]) for trained, run in runs if trained]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_probes_prove(family_tokenizer: Tokenizers, family: str) -> None:
    tokenizer = family_tokenizer(family)
    assert template_family(tokenizer) == FAMILIES[family]
    assert template_family(tokenizer, "generic") == FAMILIES[family]


def test_known_families_can_be_treated_as_any_other(family_tokenizer: Tokenizers) -> None:
    messages = [say("user", "go"), say("assistant", "one", True), say("user", "on"), say("assistant", "two", True)]
    for family in ("qwen2.5", "qwen3", "llama3", "llama3.1"):
        tokenizer = family_tokenizer(family)
        known, found = (
            encode_samples(tokenizer, messages, template_family(tokenizer, name)) for name in (None, "generic")
        )
        assert [trained_texts(tokenizer, sample) for sample in known] == [
            trained_texts(tokenizer, sample) for sample in found
        ]


@MANY
@pytest.mark.parametrize("family", FAMILIES)
@given(turns=st.lists(st.tuples(CONTENT, CONTENT), min_size=1, max_size=3))
def test_answers_are_trained_as_they_are_sampled(
    family_tokenizer: Tokenizers, family: str, turns: list[tuple[str, str]]
) -> None:
    tokenizer = family_tokenizer(family)
    form = FAMILIES[family]
    messages = [
        message for question, answer in turns for message in (say("user", question), say("assistant", answer, True))
    ]
    samples = encode_samples(tokenizer, messages)
    assert len(samples) == (len(turns) if form.rewrites else 1)
    found = [text for sample in samples for text in trained_texts(tokenizer, sample)]
    expected = [LEADS.get(family, "") + answer + form.end_of_turn for _, answer in turns]
    # A newline of the prompt can be in one token with the answer's first newline or space.
    assert [text.lstrip() for text in found] == [text.lstrip() for text in expected]
    # Before the last trained answer stands the prompt of a rollout, token for token.
    prompt = encode_prompt(tokenizer, messages[:-1])
    if family == "deepseek-r1-distill":  # the empty block that follows begins with a newline, as the prompt ends
        assert tokenizer.decode(samples[-1].token_ids).startswith(tokenizer.decode(prompt))
    else:
        assert samples[-1].token_ids[: len(prompt)] == prompt


@pytest.mark.parametrize(
    ("family", "prompted", "sampled"),
    [
        ("qwen3.5", "<think>\n", "hm\n</think>\n\ncode<|im_end|>"),
        ("qwen3.8", "<think>\n", "hm\n</think>\n\ncode<|im_end|>"),
        ("glm4.5", "<|assistant|>", "\n<think>hm</think>\ncode<|user|>"),
        ("glm4.7", "<|assistant|><think>", "hm</think>code<|user|>"),
        ("deepseek-v3.1", "<think>", "hm</think>\n\ncode<｜end▁of▁sentence｜>"),
        ("gpt-oss", "assistant", f"{ANALYSIS}hm<|end|><|start|>assistant<|channel|>final<|message|>code<|return|>"),
        ("deepseek-r1-distill", "<think>\n", "hm\n</think>\n\ncode<｜end▁of▁sentence｜>"),
    ],
)
def test_reasoning_is_trained_where_it_is_new_and_dropped_where_it_is_old(
    family_tokenizer: Tokenizers, family: str, prompted: str, sampled: str
) -> None:
    tokenizer = family_tokenizer(family)
    thoughtful = "<think>\nhm\n</think>\n\ncode"
    messages = [say("user", "go"), say("assistant", thoughtful, True), say("user", "on")]
    messages.append(say("assistant", thoughtful, True))
    samples = encode_samples(tokenizer, messages, template_family(tokenizer, "generic"))
    assert [trained_texts(tokenizer, sample) for sample in samples] == [[sampled], [sampled]]
    for sample, length in zip(samples, (1, 3), strict=True):
        before = tokenizer.decode(sample.token_ids[: sample.loss_mask.index(True)])
        assert before == tokenizer.decode(encode_prompt(tokenizer, messages[:length], thinking=True))
        assert before.endswith(prompted)
        assert ("hm" in before) == (family == "qwen3.8" and length == 3), "Qwen3.8 keeps what was thought before"


@pytest.mark.parametrize("family", ["qwen3.5", "qwen3.8", "glm4.5", "glm4.7", "deepseek-v3.1", "deepseek-r1-distill"])
def test_without_reasoning_an_empty_block_belongs_to_the_prompt(family_tokenizer: Tokenizers, family: str) -> None:
    tokenizer = family_tokenizer(family)
    messages = [say("user", "go"), say("assistant", "code", True)]
    (sample,) = encode_samples(tokenizer, messages, template_family(tokenizer, "generic"))
    before = tokenizer.decode(sample.token_ids[: sample.loss_mask.index(True)])
    assert before.rstrip().endswith("</think>")
    assert "think" not in "".join(trained_texts(tokenizer, sample))


def test_control_tokens_in_a_kernel_end_no_turn(family_tokenizer: Tokenizers) -> None:
    tokenizer = family_tokenizer("gemma3")
    answer = 'x = "<end_of_turn>"'
    messages = [say("user", "<start_of_turn>"), say("assistant", answer, True)]
    (sample,) = encode_samples(tokenizer, messages)
    assert trained_texts(tokenizer, sample) == [answer + "<end_of_turn>"]
    assert sample.token_ids.count(tokenizer.convert_tokens_to_ids("<end_of_turn>")) == 2, "of the turns alone"


CHANGES = [
    ("<end_of_turn>\\n", "\\n", "no special token ends an answer"),
    ("message.content | trim", "message.content | upper", "no special token ends an answer"),
    ("'<start_of_turn>model\\n'", "'<start_of_turn>assistant\\n'", "does not continue its own generation prompt"),
    ("loop.index0 % 2 == 0", "loop.index0 == 0", "it fails on a conversation of several turns: roles must alternate"),
    ("message.content | trim", "message.content[:12]", "changes the answer"),
]


@pytest.mark.parametrize(("old", "new", "reason"), CHANGES)
def test_a_template_is_refused_with_the_reason(family_tokenizer: Tokenizers, old: str, new: str, reason: str) -> None:
    tokenizer = copy.deepcopy(family_tokenizer("gemma3"))
    assert old in tokenizer.chat_template
    tokenizer.chat_template = tokenizer.chat_template.replace(old, new)
    with pytest.raises(InputError, match=f"its loss mask is not known: .*{reason}"):
        template_family(tokenizer)


def test_a_template_that_behaves_on_probes_alone_is_refused_where_it_strays(family_tokenizer: Tokenizers) -> None:
    tokenizer = copy.deepcopy(family_tokenizer("phi4"))
    tokenizer.chat_template = tokenizer.chat_template.replace("message.content", "message.content | replace('x', 'y')")
    with pytest.raises(InputError, match="message 1: the template changes the answer: found 'y"):
        encode_samples(tokenizer, [say("user", "go"), say("assistant", "x = 1", True)])
    roles = family_tokenizer("gemma3")
    with pytest.raises(InputError, match="message 2: the chat template fails: roles must alternate"):
        encode_samples(roles, [say("user", "go"), say("user", "on"), say("assistant", "one", True)])


@pytest.mark.parametrize(("family", "field"), [("gpt-oss", "thinking"), ("qwen3.8", "reasoning_content")])
def test_reasoning_that_the_template_would_write_into_the_answer_is_refused(
    family_tokenizer: Tokenizers, family: str, field: str
) -> None:
    tokenizer = copy.deepcopy(family_tokenizer(family))
    tokenizer.chat_template = tokenizer.chat_template.replace(field, "unknown_field")
    messages = [say("user", "go"), say("assistant", "<think>\nhm\n</think>\n\ncode", True)]
    with pytest.raises(InputError, match="message 1: the template writes an answer's reasoning into the answer itself"):
        encode_samples(tokenizer, messages)


def test_a_system_prompt_that_moves_with_the_last_question_is_refused(family_tokenizer: Tokenizers) -> None:
    messages = [say("system", "be brief"), say("user", "go"), say("assistant", "code", True)]
    with pytest.raises(InputError, match="does not continue its own generation prompt"):
        encode_samples(family_tokenizer("mistral"), messages)


@pytest.mark.parametrize(
    ("family", "answer", "message"),
    [
        ("phi4", "<think>hm", "expected the end of its reasoning"),
        ("phi4", " \n", "found an empty trained message"),
    ],
)
def test_answers_that_cannot_be_trained_are_named(
    family_tokenizer: Tokenizers, family: str, answer: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        encode_samples(family_tokenizer(family), [say("user", "go"), say("assistant", answer, True)])
