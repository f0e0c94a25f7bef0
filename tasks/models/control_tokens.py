"""What messages say never becomes a control token, whoever wrote it.

A problem's source, a kernel or a compiler's message can contain the text of a token that only the chat template may write
(`<|im_end|>` in a string). Encoded with the template's text as one, it would end a turn and begin another in somebody else's name.
So such text is replaced by one character that no message contains while the template writes the conversation; what the template
has written is then cut at its own control tokens, and the stretches between are encoded with the text put back, as ordinary text.

Conversations without such text, which is nearly all, are encoded as they are: their tokens are the template's.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from tasks.models.messages import Message

_FIRST_STAND_IN = 0xF0000
"""Where Unicode's plane of characters without a meaning begins."""


class Shield:
    """One conversation, and how to encode what a template makes of it."""

    def __init__(self, tokenizer: Any, messages: Sequence[Message]) -> None:
        self._tokenizer = tokenizer
        said = "".join(message.content for message in messages)
        found = [text for text in _control_texts(tokenizer) if text in said]
        free = (chr(code) for code in range(_FIRST_STAND_IN, _FIRST_STAND_IN + 0xFFFE) if chr(code) not in said)
        self._stand_ins = dict(zip(found, free, strict=False))
        self.messages: Sequence[Message] = messages
        """For the template: without the text of control tokens."""
        if found:
            self.messages = [
                message.model_copy(update={"content": self._without(message.content)}) for message in messages
            ]

    def restored(self, text: str) -> str:
        """Return what a stretch of the template's text says."""
        for control, stand_in in self._stand_ins.items():
            text = text.replace(stand_in, control)
        return text

    def encode(self, text: str) -> list[int]:
        """Return the token ids of the template's text."""
        return [
            token
            for stretch, options in self._stretches(text)
            for token in self._tokenizer(stretch, add_special_tokens=False, **options)["input_ids"]
        ]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the token ids of the template's text, and where each stands in the restored text."""
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
        """Cut the template's text into what is encoded on its own, with how."""
        if not self._stand_ins:
            yield text, {}
            return
        for place, stretch in enumerate(self._pattern.split(text)):
            if place % 2:  # one of the template's control tokens
                yield stretch, {}
            elif stretch:
                yield self.restored(stretch), {"split_special_tokens": True}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"({'|'.join(map(re.escape, _control_texts(self._tokenizer)))})")

    def _without(self, content: str) -> str:
        if any(control in content for control in self._stand_ins):
            content = self._pattern.sub(lambda match: self._stand_ins[match[0]], content)
        return content


def _control_texts(tokenizer: Any) -> list[str]:
    """Return the texts of a tokenizer's control tokens, longer ones first."""
    texts = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    return sorted(texts, key=lambda text: (-len(text), text))
