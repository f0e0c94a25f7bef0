"""Code in texts that people write: as it is, or in fenced blocks (three or more backticks on a line of their own)."""

import re
from typing import NamedTuple

_FENCE = re.compile(r"(`{3,})([^`]*)")


class Fenced(NamedTuple):
    """A text's fenced blocks, and the lines around them."""

    blocks: list[str]
    """Content of each block, ending with a newline."""
    around: str
    """Everything outside the blocks, a block without an end included."""


def fenced(text: str) -> Fenced:
    """Split a text at its fences. A block ends with as many backticks as it began with, or more."""
    blocks: list[str] = []
    around: list[str] = []
    opening: str | None = None
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        fence = _FENCE.fullmatch(line.strip())
        if opening is None and fence:
            opening, lines = fence[1], [line]
        elif opening is None:
            around.append(line)
        elif fence and len(fence[1]) >= len(opening) and not fence[2]:
            blocks.append("".join(lines[1:]))
            opening = None
        else:
            lines.append(line)
    return Fenced(blocks, "".join(around if opening is None else [*around, *lines]))
