"""From conversations to token ids, through the tokenizer's own chat template.

Used for SFT and for the prompt of each turn, so that both see the same tokens. What a policy has sampled is never sent
through here again: rollouts hand on token ids. Which tokens are trained is decided by the template's family
(`tasks.models.families`): exactly what a policy would have sampled, i.e. the answer with its reasoning and its end-of-turn
token; no header, no empty thought that the prompt brings, nothing after the end of the turn.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernels_eval.errors import InputError
from tasks.models.control_tokens import Shield
from tasks.models.families import Piece, TemplateFamily, conversation_pieces, template_family
from tasks.models.messages import Message, Role


@dataclass(frozen=True)
class EncodedConversation:
    """Token ids of a whole conversation; `loss_mask[i]` is True where token i is to be learnt."""

    token_ids: list[int]
    loss_mask: list[bool]

    @property
    def trained_tokens(self) -> int:
        """Number of tokens with loss."""
        return sum(self.loss_mask)


def encode_prompt(tokenizer: Any, messages: Sequence[Message], *, thinking: bool = False) -> list[int]:
    """Return the token ids that ask the policy for its next turn (the template with its generation prompt)."""
    shield = Shield(tokenizer, messages)
    text = render_conversation(tokenizer, shield.messages, for_generation=True, thinking=thinking)
    return shield.encode(text)


def encode_conversation(
    tokenizer: Any, messages: Sequence[Message], family: TemplateFamily | None = None
) -> EncodedConversation:
    """Return the template's token ids, with loss on trained messages: their content and their end-of-turn token.

    `family`: what `template_family` found, where many conversations are encoded; it is looked for otherwise.
    Raises InputError where the template is of no known family, no message is trained, a trained message is empty or not the
    assistant's, or the template drops a part of it.
    """
    trained = [message for message in messages if message.trained]
    if not trained:
        raise InputError("conversation: expected at least one message with trained=True, found none")
    if any(message.role is not Role.ASSISTANT for message in trained):
        raise InputError("conversation: expected trained=True on the assistant's messages only")
    shield = Shield(tokenizer, messages)
    text = render_conversation(tokenizer, shield.messages, for_generation=False)
    pieces = conversation_pieces(family or template_family(tokenizer), text, shield.messages)
    token_ids, offsets = shield.encode_with_offsets(text)
    loss_mask = _loss_mask(
        offsets, _trained_spans([replace(piece, text=shield.restored(piece.text)) for piece in pieces])
    )
    if not any(loss_mask):
        raise InputError("conversation: the loss mask is empty: the tokenizer's tokens do not fit its chat template")
    return EncodedConversation(token_ids=token_ids, loss_mask=loss_mask)


def encode_samples(
    tokenizer: Any, messages: Sequence[Message], family: TemplateFamily | None = None
) -> list[EncodedConversation]:
    """Return what SFT trains on: the conversation as one sample, or, where the template rewrites earlier answers, one
    sample for each trained answer, ending with it, as the policy will meet it in rollouts.
    """
    family = family or template_family(tokenizer)
    trained = [index for index, message in enumerate(messages) if message.trained]
    if not family.reasons or len(trained) < 2:
        # What follows the only trained answer is cut off where it would make the template rewrite that answer.
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


def render_conversation(
    tokenizer: Any, messages: Sequence[Message], *, for_generation: bool, thinking: bool = False
) -> str:
    """Return the template's text of a conversation; with its generation prompt where the policy is to go on.

    `thinking`: whether templates of reasoning models ask for reasoning; where not, they write an empty thought into the
    generation prompt. Other templates ignore it.
    """
    return tokenizer.apply_chat_template(
        [{"role": message.role.value, "content": message.content} for message in messages],
        tokenize=False,
        add_generation_prompt=for_generation,
        enable_thinking=thinking,
    )


def _trained_spans(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """Return where the trained pieces stand in the text: half-open ranges of characters."""
    ends = list(itertools.accumulate(len(piece.text) for piece in pieces))
    return [(end - len(piece.text), end) for piece, end in zip(pieces, ends, strict=True) if piece.trained]


def _loss_mask(offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> list[bool]:
    """Return which tokens lie in a span. A token that begins before it belongs to the prompt.

    Tokenizers that trim offsets (Llama 3's) report a token of white space alone as an empty range at its end: it counts
    where its end does.
    """
    return [any(first <= start and first < end <= last for first, last in spans) for start, end in offsets]
