"""Prompts of a run as text: the token ids of its tables, decoded by the tokenizer of its policies.

`tokenizers` reads the file alone: importing transformers takes longer than everything else that the viewer does.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError
from tasks.agents.team import lead_of
from tasks.models.chat_templates import FAMILIES, TemplateFamily
from tasks.pipeline.references import CheckpointRef
from tasks.trajectories.conversation import ConversationEntry, messages_in

_FILE = "tokenizer.json"


class PromptReader:
    """Decodes the prompts of one run."""

    def __init__(self, run: Path) -> None:
        file = _tokenizer_of(run)
        self._tokenizer = None if file is None else _load(file)

    @property
    def can_read(self) -> bool:
        """False if the run has no tokenizer that can be read."""
        return self._tokenizer is not None

    def messages(self, token_ids: Sequence[int]) -> list[ConversationEntry]:
        """Return the messages of a stretch of a prompt; without a tokenizer none."""
        if self._tokenizer is None or not token_ids:
            return []
        try:
            text = self._tokenizer.decode(list(token_ids), skip_special_tokens=False)
        except (OverflowError, TypeError):  # not token ids: the table is damaged
            return []
        return messages_in(text, _family_of(text)) or [ConversationEntry("prompt", text)]


def _family_of(text: str) -> TemplateFamily | None:
    """Return a family with the delimiters of a text: those of one name differ in what is between messages only."""
    return next((family for family in FAMILIES.values() if family.opening in text and family.header_end in text), None)


def _tokenizer_of(run: Path) -> Path | None:
    """Return the file of a run's newest tokenizer. Members of a team share theirs."""
    for folder in sorted((run / "checkpoints").glob("policy-*"), reverse=True):
        try:
            file = lead_of(CheckpointRef(uri=str(folder.resolve()), digest="")).path / _FILE
        except InputError:  # a team whose file is damaged
            continue
        if file.is_file():
            return file
    return None


@functools.lru_cache(16)
def _load(file: Path) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(file))
    except Exception:  # noqa: BLE001  # the library raises its base class for any damage
        return None
