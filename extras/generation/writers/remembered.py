"""Writer that remembers: each answer is appended to a file as it comes, and an interrupted evaluation asks no question
twice. Answers of a server cost money.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from extras.adapters.kernel_episode import ChatMessage
from extras.generation.writers import Draft, Writer
from tasks.agents.config import SOLVER
from tasks.pipeline.json_file import json_lines


class RememberedWriter:
    """A writer in front of another one. For one event loop."""

    def __init__(self, writer: Writer, file: Path) -> None:
        """`file`: JSON lines; those of an earlier process count, a last line that was cut off does not."""
        self._writer = writer
        self._known = dict(_lines(file, writer.digest))
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("a", encoding="utf-8")

    @property
    def name(self) -> str:
        """Name for people."""
        return self._writer.name

    @property
    def digest(self) -> str:
        """Digest of everything that decides the answers."""
        return self._writer.digest

    async def write(self, messages: Sequence[ChatMessage], seed: int, agent: str = SOLVER) -> Draft:
        """Answer one conversation, from the file if it was asked before."""
        key = hashlib.sha256(
            json.dumps([self.digest, list(messages), seed, *([] if agent == SOLVER else [agent])]).encode()
        ).hexdigest()
        if key not in self._known:
            self._known[key] = await self._writer.write(messages, seed, agent)
            self._file.write("\n" + json.dumps({"digest": self.digest, "key": key, **asdict(self._known[key])}))
            self._file.flush()
        return self._known[key]

    async def close(self) -> None:
        """Close the file and the other writer."""
        self._file.close()
        await self._writer.close()


def _lines(file: Path, digest: str) -> list[tuple[str, Draft]]:
    found: list[tuple[str, Draft]] = []
    for stored in json_lines(file):
        with suppress(KeyError, TypeError):  # of another version
            if stored.pop("digest") == digest:
                found.append((stored.pop("key"), Draft(**stored)))
    return found
