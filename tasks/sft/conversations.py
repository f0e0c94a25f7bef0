"""The SFT data set as token sequences: read, encoded with the policy's chat template, split for validation."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import ValidationError
from transformers import PreTrainedTokenizerFast

from kernels_eval.errors import InputError
from kernels_eval.expectations import refusal
from tasks.models.chat import encode_samples, template_family
from tasks.models.chat_templates import Message
from tasks.models.tokenizer import train_tokenizer
from tasks.pipeline.tables import PAIRS_FILE, read_table
from tasks.training.batches import TrainedSequence

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SftSequences:
    """Encoded conversations; `dropped` counts those that were too long."""

    training: tuple[TrainedSequence, ...]
    validation: tuple[TrainedSequence, ...]
    dropped: int


def read_conversations(folder: Path, roles: Sequence[str] = ()) -> list[list[Message]]:
    """Return the conversations of an SFT data set that training uses, all or those that agents of these roles answer.

    Raises InputError if there are none.
    """
    path = folder / PAIRS_FILE
    pairs = read_table(path, columns=["messages", "used", *(["role"] if roles else [])])
    chosen = pl.col("used") & pl.col("role").is_in(list(roles)) if roles else pl.col("used")
    rows = pairs.filter(chosen)["messages"].to_list()
    if not rows:
        of = f" of {' or '.join(roles)}" if roles else ""
        raise InputError(f"{path}: expected at least one pair{of} with used=true, found none among {len(pairs)}")
    try:
        return [[Message(**message) for message in conversation] for conversation in rows]
    except (ValidationError, TypeError) as error:
        cause = refusal(error) if isinstance(error, ValidationError) else error
        raise InputError(f"{path}: messages: expected role, content and trained: {cause}") from error


def learn_tokenizer(
    conversations: Sequence[Sequence[Message]], vocabulary: int, folder: Path
) -> PreTrainedTokenizerFast:
    """Learn a new model's tokenizer from all messages; save and return it. Equal conversations give an equal one."""
    texts = (message.content for conversation in conversations for message in conversation)
    return train_tokenizer(texts, vocabulary, folder)


def encode_conversations(
    tokenizer: Any,
    conversations: Sequence[Sequence[Message]],
    max_tokens: int,
    validation_fraction: float,
    seed: int,
    template: str | None = None,
) -> SftSequences:
    """Encode all conversations; drop and log those of more than `max_tokens`, set a share aside for validation.

    A conversation is several sequences if the chat template rewrites earlier answers (`encode_samples`).
    `template`: the family that the chat template must be of; none: any that is known.
    """
    family = template_family(tokenizer, template)
    encoded = [sample for conversation in conversations for sample in encode_samples(tokenizer, conversation, family)]
    sequences = [
        TrainedSequence(np.asarray(sample.token_ids, dtype=np.int32), np.asarray(sample.loss_mask))
        for sample in encoded
        if len(sample.token_ids) <= max_tokens
    ]
    if not sequences:
        raise InputError(
            f"sft.max_tokens: all {len(encoded)} conversations are longer than {max_tokens} tokens; raise it"
        )
    dropped = len(encoded) - len(sequences)
    if dropped:
        text = "sft.max_tokens: %d of %d conversations have more than %d and are left out"
        _log.warning(text, dropped, len(encoded), max_tokens)
    aside = int(len(sequences) * validation_fraction)
    order = np.random.default_rng([seed, 1]).permutation(len(sequences))
    return SftSequences(
        training=tuple(sequences[place] for place in sorted(order[aside:])),
        validation=tuple(sequences[place] for place in sorted(order[:aside])),
        dropped=dropped,
    )


def step_rows(step: int, batch_size: int, conversations: int, seed: int) -> tuple[list[int], int]:
    """Return the conversations of one step and the epoch it begins in, from an endless stream of shuffled epochs.

    A function of its arguments alone: a resumed run goes on exactly as it would have.
    """
    rows: list[int] = []
    place = step * batch_size
    epoch = first_epoch = place // conversations
    offset = place % conversations
    while len(rows) < batch_size:
        order = np.random.default_rng([seed, 2, epoch]).permutation(conversations)
        rows.extend(int(row) for row in order[offset : offset + batch_size - len(rows)])
        epoch, offset = epoch + 1, 0
    return rows, first_epoch
