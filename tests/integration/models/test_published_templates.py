"""Published chat templates: our fixtures write the same text, and the generic path finds every answer in them or refuses.

What is found is checked on the decoded tokens, with words that tell questions, thoughts and answers apart.
"""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from imported import import_file
from published import COPIES, Published

from kernels_eval.errors import InputError
from tasks.models.chat import EncodedConversation, encode_prompt, encode_samples, render_conversation, template_family
from tasks.models.chat_templates import Message, Role
from tasks.models.generic_template import GenericTemplate

PackageFolder = Callable[[str], Path]
tokenizers = import_file(Path(__file__).parents[2] / "doubles" / "templated_tokenizer.py")
MANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
ANY_TEXT = st.text("ab_/\n .é`", max_size=8)
WORDS = st.text("ab_/\n .é`", max_size=6).map(str.strip)
MARKS = r"</?think>|<\|?/?[\w▁]+\|?>|\[e~\[|<｜[\w▁]+｜>|assistant|analysis|final|thought"
"""Text that a template writes around an answer and its reasoning: tags, special tokens, names of channels."""


def say(role: str, content: str, trained: bool = False) -> Message:
    return Message(role=Role(role), content=content, trained=trained)


@st.composite
def any_conversations(draw: st.DrawFn) -> list[Message]:
    """Conversations with white space at every edge, empty contents, reasoning well and badly formed."""
    messages = [say("system", draw(ANY_TEXT))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 4))):
        shape = draw(
            st.sampled_from(["{1}", "<think>\n{0}\n</think>\n\n{1}", "<think>{0}</think>{1}", "{0}</think>{1}"])
        )
        messages.append(say("user", draw(ANY_TEXT)))
        messages.append(say("assistant", shape.format(draw(ANY_TEXT), draw(ANY_TEXT))))
    return messages[: len(messages) - draw(st.integers(0, 1))]


@st.composite
def marked_conversations(draw: st.DrawFn, system: bool, reasoning: bool) -> list[Message]:
    """Conversations whose every text names itself: Q1 is in the first question, T1 and A1 in its answer."""
    messages = [say("system", "S0" + draw(WORDS))] if system and draw(st.booleans()) else []
    thoughtful = reasoning and draw(st.booleans())
    for turn in range(1, draw(st.integers(1, 4)) + 1):
        thought = f"<think>\nT{turn}{draw(WORDS)}\n</think>\n\n" if thoughtful else ""
        messages.append(say("user", f"Q{turn}{draw(WORDS)}"))
        messages.append(say("assistant", f"{thought}A{turn}{draw(WORDS)}", trained=True))
    return messages


def tokenizer_of(copy: Published, package_folder: PackageFolder) -> Any:
    name = copy.tokens or copy.fixture
    return tokenizers.templated_tokenizer(name, copy.text(package_folder(copy.package)))


def family_of(copy: Published, package_folder: PackageFolder, name: str | None = None) -> Any:
    return template_family(tokenizer_of(copy, package_folder), name)


@pytest.mark.slow
@pytest.mark.parametrize("copy", [copy for copy in COPIES if copy.fixture], ids=str)
@MANY
@given(messages=any_conversations(), thinking=st.booleans())
def test_a_fixture_writes_what_the_published_template_writes(
    package_folder: PackageFolder, copy: Published, messages: list[Message], thinking: bool
) -> None:
    asked = messages[-1].role is Role.USER
    ours, published = (
        re.sub(copy.own_words, "", render_conversation(tokenizer, messages, for_generation=asked, thinking=thinking))
        for tokenizer in (tokenizers.fixture_tokenizer(copy.fixture), tokenizer_of(copy, package_folder))
    )
    assert ours == published


@pytest.mark.slow
@pytest.mark.parametrize("copy", COPIES, ids=str)
def test_what_is_found_of_a_published_template(package_folder: PackageFolder, copy: Published) -> None:
    if isinstance(copy.found, str):
        with pytest.raises(InputError, match=f"its loss mask is not known: .*{re.escape(copy.found)}"):
            family_of(copy, package_folder)
        return
    assert family_of(copy, package_folder).name == copy.family
    assert family_of(copy, package_folder, "generic") == copy.found


@pytest.mark.slow
@pytest.mark.parametrize("copy", [copy for copy in COPIES if isinstance(copy.found, GenericTemplate)], ids=str)
@MANY
@given(data=st.data())
def test_answers_of_a_published_template_are_what_the_policy_samples(
    package_folder: PackageFolder, copy: Published, data: st.DataObject
) -> None:
    assert isinstance(copy.found, GenericTemplate)
    messages = data.draw(marked_conversations(system=not copy.system, reasoning=not copy.reasoning))
    tokenizer = tokenizer_of(copy, package_folder)
    for name in {"generic", None if copy.family != "generic" else "generic"}:
        samples = encode_samples(tokenizer, messages, template_family(tokenizer, name))
        answers = [index for index, message in enumerate(messages) if message.trained]
        spans = [(sample, span) for sample in samples for span in trained_spans(sample)]
        assert len(samples) in (1, len(answers))
        assert len(spans) == len(answers), "each answer is trained once"
        for turn, (index, (sample, span)) in enumerate(zip(answers, spans, strict=True), 1):
            check_span(tokenizer, copy.found.end_of_turn, sample, span, messages[: index + 1], turn)


def trained_spans(sample: EncodedConversation) -> list[tuple[int, int]]:
    places = itertools.groupby(range(len(sample.token_ids)), key=lambda place: sample.loss_mask[place])
    runs = [list(run) for trained, run in places if trained]
    return [(run[0], run[-1] + 1) for run in runs]


def check_span(
    tokenizer: Any, end: str, sample: EncodedConversation, span: tuple[int, int], messages: list[Message], turn: int
) -> None:
    """Check one trained stretch: it is the answer, its reasoning and its end, and follows the prompt of a rollout."""
    thought, _, answer = messages[-1].content.rpartition("</think>")
    thought = thought.removeprefix("<think>").strip()
    trained = tokenizer.decode(sample.token_ids[slice(*span)])
    before = tokenizer.decode(sample.token_ids[: span[0]])
    assert trained.endswith(answer.strip() + end)
    assert trained.count(end) == 1 + trained.partition(answer.strip())[0].count(end)
    assert thought in trained
    assert f"Q{turn}" in before
    assert f"A{turn}" not in before
    assert f"T{turn}" not in before
    rest = trained.replace(thought, "", 1).replace(answer.strip(), "", 1)
    assert re.sub(MARKS, "", rest).strip() == "", "nothing else is trained"

    prompt = encode_prompt(tokenizer, messages[:-1], thinking=bool(thought))
    if not thought and tokenizer.decode(prompt).rstrip().endswith("<think>"):
        # Asked to think, not having thought: the end of the empty block begins with a newline, as the prompt ends.
        assert before.startswith(tokenizer.decode(prompt))
    else:
        assert sample.token_ids[: len(prompt)] == prompt


@pytest.mark.slow
@pytest.mark.parametrize("copy", [copy for copy in COPIES if copy.system or copy.reasoning], ids=str)
def test_what_a_published_template_cannot_say_is_refused(package_folder: PackageFolder, copy: Published) -> None:
    tokenizer = tokenizer_of(copy, package_folder)
    thoughtful = say("assistant", "<think>\nhm\n</think>\n\ncode", True)
    refused = {copy.system: [say("system", "be brief"), say("user", "go"), say("assistant", "code", True)]}
    refused |= {copy.reasoning: [say("user", "go"), thoughtful]}
    for reason in filter(None, refused):
        with pytest.raises(InputError, match=re.escape(reason)):
            encode_samples(tokenizer, refused[reason])
