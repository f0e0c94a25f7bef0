"""From conversations to token ids, through the tokenizer's own chat template.

Used for SFT and for the prompt of each turn, so that both see the same tokens. What a policy has sampled is never sent
through here again: rollouts hand on token ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernels_eval.errors import InputError
from tasks.models.messages import Message


@dataclass(frozen=True)
class EncodedConversation:
    """Token ids of a whole conversation; `loss_mask[i]` is True where token i is to be learnt."""

    token_ids: list[int]
    loss_mask: list[bool]

    @property
    def trained_tokens(self) -> int:
        """Number of tokens with loss."""
        return sum(self.loss_mask)


def encode_prompt(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Return the token ids that ask the policy for its next turn (the template with its generation prompt)."""
    return list(
        tokenizer(render_conversation(tokenizer, messages, for_generation=True), add_special_tokens=False)["input_ids"]
    )


def encode_conversation(tokenizer: Any, messages: Sequence[Message]) -> EncodedConversation:
    """Return the template's token ids, with loss on trained messages: their content and their end-of-turn token.

    Raises InputError where no message is trained, a trained message is empty, or the template changes its content.
    """
    if not any(message.trained for message in messages):
        raise InputError("conversation: expected at least one message with trained=True, found none")
    text = render_conversation(tokenizer, messages, for_generation=False)
    spans = _trained_spans(tokenizer, text, messages)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    loss_mask = [
        end > start and any(first <= start < last for first, last in spans) for start, end in encoded["offset_mapping"]
    ]
    return EncodedConversation(token_ids=list(encoded["input_ids"]), loss_mask=loss_mask)


def render_conversation(tokenizer: Any, messages: Sequence[Message], *, for_generation: bool) -> str:
    """Return the template's text of a conversation; with its generation prompt where the policy is to go on."""
    # enable_thinking: templates of reasoning models then write an empty thought in both forms; the others ignore it.
    return tokenizer.apply_chat_template(
        [{"role": message.role.value, "content": message.content} for message in messages],
        tokenize=False,
        add_generation_prompt=for_generation,
        enable_thinking=False,
    )


def _trained_spans(tokenizer: Any, text: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Find where the trained messages stand in the rendered text: half-open ranges of characters."""
    end_of_turn = str(tokenizer.eos_token or "")
    spans: list[tuple[int, int]] = []
    cursor = 0
    for index, message in enumerate(messages):
        if not message.trained:
            continue
        content = message.content.strip()  # many templates strip
        if not content:
            raise InputError(f"message {index}: expected content to learn, found an empty trained message")
        prompt = render_conversation(tokenizer, messages[:index], for_generation=True) if index else ""
        # Templates that rewrite earlier turns (dropping old thoughts) do not start with the prompt: search from the last span.
        start = text.find(content, max(cursor, len(prompt)) if text.startswith(prompt) else cursor)
        if start < 0:
            raise InputError(f"message {index}: the chat template changes its content; its loss cannot be placed")
        cursor = start + len(content)
        # White space around the content belongs to it, where the template kept it.
        before = message.content[: len(message.content) - len(message.content.lstrip())]
        after = message.content[len(message.content.rstrip()) :]
        if text.endswith(before, 0, start):
            start -= len(before)
        if text.startswith(after, cursor):
            cursor += len(after)
        if end_of_turn and text.startswith(end_of_turn, cursor):
            cursor += len(end_of_turn)
        spans.append((start, cursor))
    return spans
