"""Encodes conversations as token ids, through the tokenizer's own chat template.

SFT and the prompt of each turn get the same tokens; tokens that the policy has sampled are never encoded again. The
template's family (`tasks.models.chat_templates`) decides which tokens are trained: those that a policy would have
sampled, i.e. the answer with its reasoning and its end-of-turn token.

Control tokens: a problem's source, a kernel or a compiler's message can contain the text of a token that only the chat
template may write (`<|im_end|>` in a string), which would end a turn. `EscapedMessages` replaces such text by a
placeholder character while the template writes the conversation; the result is then cut at the template's own control
tokens, and the stretches between are encoded as ordinary text with the original restored.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

from jinja2 import TemplateError

from kernels_eval.errors import InputError, first_line
from tasks.models.chat_templates import (
    THINK_END,
    THINK_START,
    Message,
    Piece,
    Role,
    TemplateFamily,
    conversation_pieces,
    recognised_family,
    split_thought,
)
from tasks.models.generic_template import GenericTemplate, find_generic_template, generic_pieces, samples_of

Template = TemplateFamily | GenericTemplate
"""Form of a tokenizer's chat template, as `template_family` finds it."""

GENERIC = "generic"
"""Name of every template that is recognised by probes alone."""
_FIRST_PLACEHOLDER = 0xF0000
"""Start of Unicode's plane of characters without a meaning."""


class EscapedMessages:
    """One conversation without control tokens in its messages, and the encoding of its rendered text."""

    def __init__(self, tokenizer: Any, messages: Sequence[Message]) -> None:
        self._tokenizer = tokenizer
        text = "".join(message.content for message in messages)
        found = [control for control in _control_texts(tokenizer) if control in text]
        free = (chr(code) for code in range(_FIRST_PLACEHOLDER, _FIRST_PLACEHOLDER + 0xFFFE) if chr(code) not in text)
        self._placeholders = dict(zip(found, free, strict=False))
        self.messages: Sequence[Message] = messages
        """For the template: without the text of control tokens."""
        if found:
            self.messages = [
                message.model_copy(
                    update={"content": self._pattern.sub(lambda match: self._placeholders[match[0]], message.content)}
                )
                for message in messages
            ]

    def unescaped(self, text: str) -> str:
        """Return a stretch of the template's text with the original texts of control tokens."""
        for control, placeholder in self._placeholders.items():
            text = text.replace(placeholder, control)
        return text

    def encode(self, text: str) -> list[int]:
        """Return the token ids of the template's text."""
        return [
            token
            for stretch, options in self._stretches(text)
            for token in self._tokenizer(stretch, add_special_tokens=False, **options)["input_ids"]
        ]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the token ids of the template's text, and where each stands in the unescaped text."""
        token_ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        begin = 0
        for stretch, options in self._stretches(text):
            encoded = self._tokenizer(stretch, add_special_tokens=False, return_offsets_mapping=True, **options)
            token_ids += encoded["input_ids"]
            offsets += [(begin + start, begin + end) for start, end in encoded["offset_mapping"]]
            begin += len(stretch)
        return token_ids, offsets

    def _stretches(self, text: str) -> Iterator[tuple[str, dict[str, bool]]]:
        """Cut the template's text into stretches that are encoded separately, each with its tokenizer options."""
        if not self._placeholders:
            yield text, {}
            return
        for place, stretch in enumerate(self._pattern.split(text)):
            if place % 2:  # one of the template's control tokens
                yield stretch, {}
            elif stretch:
                yield self.unescaped(stretch), {"split_special_tokens": True}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"({'|'.join(map(re.escape, _control_texts(self._tokenizer)))})")


def _control_texts(tokenizer: Any) -> list[str]:
    """Return the texts of a tokenizer's control tokens, longer ones first."""
    texts = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    return sorted(texts, key=lambda text: (-len(text), text))


@dataclass(frozen=True)
class EncodedConversation:
    """Token ids of a whole conversation; `loss_mask[i]` is True if token i is trained."""

    token_ids: list[int]
    loss_mask: list[bool]


def encode_prompt(tokenizer: Any, messages: Sequence[Message], *, thinking: bool = False) -> list[int]:
    """Return the token ids that ask the policy for its next turn (the template with its generation prompt)."""
    escaped = EscapedMessages(tokenizer, messages)
    text = render_conversation(tokenizer, escaped.messages, for_generation=True, thinking=thinking)
    return escaped.encode(text)


def encode_conversation(
    tokenizer: Any, messages: Sequence[Message], family: Template | None = None
) -> EncodedConversation:
    """Return the template's token ids, with loss on trained messages: their content and their end-of-turn token.

    `family`: what `template_family` found, where many conversations are encoded; default: looked up. Raises InputError
    if the template is unusable, no message is trained, a trained message is empty or not the assistant's, or
    the template drops a part of it.
    """
    trained = [message for message in messages if message.trained]
    if not trained:
        raise InputError("conversation: expected at least one message with trained=True, found none")
    if any(message.role is not Role.ASSISTANT for message in trained):
        raise InputError("conversation: expected trained=True on the assistant's messages only")
    escaped = EscapedMessages(tokenizer, messages)
    pieces = _pieces(tokenizer, escaped.messages, family or template_family(tokenizer))
    text = "".join(piece.text for piece in pieces)
    token_ids, offsets = escaped.encode_with_offsets(text)
    loss_mask = _loss_mask(
        offsets, _trained_spans([replace(piece, text=escaped.unescaped(piece.text)) for piece in pieces])
    )
    if not any(loss_mask):
        raise InputError("conversation: the loss mask is empty: the tokenizer's tokens do not fit its chat template")
    return EncodedConversation(token_ids=token_ids, loss_mask=loss_mask)


def end_of_turn(tokenizer: Any, family: Template) -> int:
    """Return the token with which the template ends an answer: the last one that training has a loss on."""
    messages = [
        Message(role=Role.USER, content="question"),
        Message(role=Role.ASSISTANT, content="answer", trained=True),
    ]
    encoded = encode_conversation(tokenizer, messages, family)
    return [token for token, kept in zip(encoded.token_ids, encoded.loss_mask, strict=True) if kept][-1]


def encode_samples(
    tokenizer: Any, messages: Sequence[Message], family: Template | None = None
) -> list[EncodedConversation]:
    """Return SFT's samples: the conversation as one sample, or, if the template rewrites earlier answers, one
    sample for each trained answer, ending with it, as in rollouts.
    """
    family = family or template_family(tokenizer)
    if isinstance(family, GenericTemplate):
        return [encode_conversation(tokenizer, sample, family) for sample in samples_of(family, messages)]
    trained = [index for index, message in enumerate(messages) if message.trained]
    if not family.reasons or len(trained) < 2:
        # Cut off later messages that would make the template rewrite the only trained answer.
        end = trained[0] + 1 if family.reasons and trained else len(messages)
        return [encode_conversation(tokenizer, messages[:end], family)]
    return [
        encode_conversation(
            tokenizer,
            [
                message.model_copy(update={"trained": place == last})
                for place, message in enumerate(messages[: last + 1])
            ],
            family,
        )
        for last in trained
    ]


def template_family(tokenizer: Any, name: str | None = None) -> Template:
    """Return the family of a tokenizer's chat template, or what probes prove about one of no known family.

    `name`: the family that it must be of (`generic`: recognised by probes alone). Raises InputError if it is another
    one, or its loss mask cannot be known.
    """
    family = None if name == GENERIC else recognised_family(tokenizer, name)
    if family is not None:
        return family
    try:
        return find_generic_template(_renderer(tokenizer), _control_texts(tokenizer))
    except InputError as error:
        called = getattr(tokenizer, "name_or_path", "") or "the tokenizer"
        raise InputError(f"chat template of {called}: its loss mask is not known: {error}") from error


def _pieces(tokenizer: Any, messages: Sequence[Message], family: Template) -> list[Piece]:
    if isinstance(family, GenericTemplate):
        return generic_pieces(family, _renderer(tokenizer), messages)
    return conversation_pieces(family, render_conversation(tokenizer, messages, for_generation=False), messages)


def _renderer(tokenizer: Any) -> Callable[[Sequence[Message], bool, bool], str]:
    def render(messages: Sequence[Message], for_generation: bool, thinking: bool) -> str:
        return render_conversation(tokenizer, messages, for_generation=for_generation, thinking=thinking)

    return render


def render_conversation(
    tokenizer: Any, messages: Sequence[Message], *, for_generation: bool, thinking: bool = False
) -> str:
    """Return the template's text of a conversation; with its generation prompt if the policy is to continue it.

    `thinking`: templates of reasoning models ask for reasoning; if False, they write an empty reasoning block into the
    generation prompt. Other templates ignore it. Reasoning in an answer (`<think> … </think>`) is handed over in a
    field of its own where the template expects it there.
    """
    said = [_inline(message) for message in messages]
    if any(THINK_END in message["content"] for message in said) and _reads_reasoning_apart(tokenizer):
        said = [_apart(message) for message in said]
    return _rendered(tokenizer, said, for_generation=for_generation, thinking=thinking)


def _rendered(tokenizer: Any, said: Sequence[dict[str, str]], *, for_generation: bool, thinking: bool) -> str:
    # Two names of one switch: DeepSeek's and Kimi's templates read the second.
    return tokenizer.apply_chat_template(
        said, tokenize=False, add_generation_prompt=for_generation, enable_thinking=thinking, thinking=thinking
    )


def check_system_message(tokenizer: Any) -> None:
    """Raise InputError if the chat template takes no system message, or leaves it out (Gemma 2's refuses it)."""
    probe = [Message(role=Role.SYSTEM, content="probed system"), Message(role=Role.USER, content="probed question")]
    called = getattr(tokenizer, "name_or_path", "") or "the tokenizer"
    try:
        text = render_conversation(tokenizer, probe, for_generation=True)
    except (TemplateError, TypeError, ValueError) as error:
        raise InputError(f"chat template of {called}: it takes no system message: {first_line(error)}") from error
    if probe[0].content not in text:
        raise InputError(f"chat template of {called}: it leaves a system message out")


def _inline(message: Message) -> dict[str, str]:
    return {"role": message.role.value, "content": message.content}


def _apart(message: dict[str, str]) -> dict[str, str]:
    """Return a message with its reasoning in the fields that templates know it by."""
    if message["role"] != Role.ASSISTANT or THINK_END not in message["content"]:
        return message
    thought, answer = split_thought(message["content"])
    return message | {"content": answer} | (dict.fromkeys(_REASONING_FIELDS, thought) if thought else {})


def _reads_reasoning_apart(tokenizer: Any) -> bool:
    """True if the template takes reasoning from a field alone, and a `<think>` of the content as the answer's text.

    Tried once for each template of a tokenizer.
    """
    template = getattr(tokenizer, "chat_template", None)
    known = _TRIED.get(tokenizer)
    if known is None or known[0] != template:
        known = _TRIED[tokenizer] = (template, _tries_reasoning(tokenizer))
    return known[1]


def _tries_reasoning(tokenizer: Any) -> bool:
    inline = [_inline(message) for message in _REASONED]
    try:
        mixed, apart = (
            _rendered(tokenizer, said, for_generation=False, thinking=True)
            for said in (inline, [_apart(message) for message in inline])
        )
    except (TemplateError, TypeError, ValueError):  # a template that fails is refused where it is used
        return False
    return split_thought(_REASONED[1].content)[0] in apart and mixed.count(THINK_END) > apart.count(THINK_END)


_TRIED: WeakKeyDictionary[Any, tuple[Any, bool]] = WeakKeyDictionary()
"""Template, and whether it reads reasoning apart, by tokenizer."""
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
_REASONED = (
    Message(role=Role.USER, content="question"),
    Message(role=Role.ASSISTANT, content=f"{THINK_START}\nprobed reasoning\n{THINK_END}\n\nanswer"),
)
"""A conversation that shows where a template expects reasoning."""


def _trained_spans(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """Return the half-open character ranges of the trained pieces."""
    ends = list(itertools.accumulate(len(piece.text) for piece in pieces))
    return [(end - len(piece.text), end) for piece, end in zip(pieces, ends, strict=True) if piece.trained]


def _loss_mask(offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> list[bool]:
    """Return True for each token that lies in a span; one that begins before it belongs to the prompt.

    A token of white space alone, of which some tokenizers (Llama 3's) report only the end, counts where that lies.
    """
    return [any(first <= start and first < end <= last for first, last in spans) for start, end in offsets]
