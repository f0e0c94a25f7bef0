"""Token ids of each turn's prompt: sampled tokens are carried on, never encoded again.

The prompt of turn t+1 is the prompt of turn t, its response, and the tokens that the chat template writes from there to
the next answer (end of turn, feedback, header). If the template rewrites earlier messages (a reasoning model's drops
earlier reasoning), the whole conversation is encoded anew, and `Prompt.extends_previous` is False.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tasks.models.chat import EscapedMessages, encode_prompt, render_conversation
from tasks.models.chat_templates import THINK_START, Message, Role

_PLACEHOLDER = "kernelmill-answer-goes-here"
_TAG_TOKENS = len(THINK_START) + 2
"""Tokens that hold the tag and the newlines after it, however it is cut."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A turn's prompt."""

    token_ids: tuple[int, ...]
    extends_previous: bool
    """True if it begins with the previous prompt and response, token for token; True for a first turn."""


def first_prompt(tokenizer: Any, messages: Sequence[Message], *, thinking: bool = False) -> Prompt:
    """Return the prompt of a first turn; `thinking`: templates of reasoning models ask for reasoning."""
    return Prompt(tuple(encode_prompt(tokenizer, messages, thinking=thinking)), extends_previous=True)


def next_prompt(
    tokenizer: Any,
    previous: Prompt,
    response_token_ids: Sequence[int],
    messages: Sequence[Message],
    *,
    thinking: bool = False,
) -> Prompt:
    """Return the prompt for `messages`; the last two are the newest answer and the user's reply."""
    escaped = EscapedMessages(tokenizer, messages)
    continuation = _template_continuation(tokenizer, escaped.messages, thinking)
    if continuation is None:
        return rewritten_prompt(tokenizer, messages, thinking=thinking)
    last = tokenizer.added_tokens_decoder.get(response_token_ids[-1]) if response_token_ids else None
    if last is not None and last.special:
        # The policy ended its turn: the template's end-of-turn token is there already. A response that was cut off may
        # end in text with which this token begins (`if a <`).
        continuation = continuation.removeprefix(str(last))
    added = escaped.encode(continuation)
    return Prompt((*previous.token_ids, *response_token_ids, *added), extends_previous=True)


def rewritten_prompt(tokenizer: Any, messages: Sequence[Message], *, thinking: bool = False) -> Prompt:
    """Return the prompt of a later turn whose `messages` do not continue those of the previous turn."""
    return replace(first_prompt(tokenizer, messages, thinking=thinking), extends_previous=False)


def opens_thought(tokenizer: Any, prompt: Prompt) -> bool:
    """True if a prompt opens the reasoning: the response is reasoning until it closes it."""
    end = str(tokenizer.decode(list(prompt.token_ids[-_TAG_TOKENS:]), skip_special_tokens=False))
    return end.rstrip("\n").endswith(THINK_START)


def response_text(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """Return a response's text without special tokens."""
    return str(tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _template_continuation(tokenizer: Any, messages: Sequence[Message], thinking: bool) -> str | None:
    """Return the template's text after the last answer; None if the template rewrites earlier text."""
    *earlier, answer, reply = messages
    prompt = render_conversation(tokenizer, earlier, for_generation=True, thinking=thinking)
    placeholder = Message(role=Role.ASSISTANT, content=_PLACEHOLDER)
    marked = render_conversation(tokenizer, [*earlier, placeholder, reply], for_generation=True, thinking=thinking)
    before, _, continuation = marked.partition(_PLACEHOLDER)
    if before != prompt:
        return None
    whole = render_conversation(tokenizer, messages, for_generation=True, thinking=thinking)
    # Templates may strip an answer's outer white space; dropping anything else is a rewrite.
    kept = whole.removeprefix(prompt).removesuffix(continuation)
    if len(prompt) + len(kept) + len(continuation) != len(whole) or kept.strip() != answer.content.strip():
        return None
    return continuation
