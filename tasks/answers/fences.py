"""Fenced blocks in what models and people write: as CommonMark has them, and the ways in which models break them.

A **mark** is a run of three or more backticks or tildes that may open or close a block: on a line of its own, in a list
or a quotation, after the last code line, after the words before a block, with code or words behind it. Which marks
belong together is not decided here: `spans` has every pair, and whoever looks for a program takes the pair that is one.
`fenced` decides as CommonMark does.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kernels_eval.syntax import syntax_tree

# All repetitions are bounded: lines are hostile text.
_OWN_LINE = re.compile(
    r"(?P<before>\s{0,40}(?:>[ \t]?){0,9}[ \t]{0,40}(?:(?:[-*+]|\d{1,3}[.)])[ \t]{1,9})?)"
    r"(?P<fence>`{3,}|~{3,})(?P<info>.*)",
    re.DOTALL,
)
_AT_END = re.compile(r"(?P<fence>(?<!`)`{3,}|(?<!~)~{3,})[ \t]{0,4}(?P<info>[\w+.-]{0,20})$")
_INLINE_CODE = re.compile(r"(?:[\w+.-]+[ \t]+)?((?:import|from|class|def|@|#)[ \t\w].*)", re.DOTALL)
"""Code behind a mark, after the name of a language; other words there are no code."""
_MOST_MARKS = 30
"""Marks of which all pairs are looked at; with more, neighbours alone."""


_STATEMENTS = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)


class Mark(NamedTuple):
    """A run of backticks or tildes in a line."""

    line: int
    fence: str
    before: str
    """Text of the line before it."""
    info: str
    """Text of the line behind it, without white space around it."""
    own_line: bool
    """Nothing but the signs of a list or of quotations stands before it."""

    @property
    def may_open(self) -> bool:
        """True if a block may begin behind it."""
        return "`" not in self.info or self.fence[0] == "~"

    @property
    def closes_strictly(self) -> bool:
        """True if it closes a block in CommonMark."""
        return self.own_line and not self.info

    @property
    def has_code(self) -> bool:
        """True if code follows in its line."""
        return _INLINE_CODE.fullmatch(self.info) is not None

    @property
    def may_close(self) -> bool:
        """True if a block may end before it: nothing follows, or words do."""
        if not self.own_line:
            return not self.info and not self.before.lstrip().startswith("#")
        return not self.info or " " in self.info


class Fenced(NamedTuple):
    """Blocks of a text, and the lines around them."""

    blocks: list[str]
    """Content of each block, ending with a newline."""
    around: str
    """Everything outside the blocks, a block without an end included."""
    open_block: str | None = None
    """Content of the block without an end."""


def marks_of(lines: Sequence[str]) -> list[Mark]:
    """Return the marks in the lines of a text, at most one a line."""
    found: list[Mark] = []
    for number, line in enumerate(lines):
        if "```" not in line and "~~~" not in line:
            continue
        line = line.rstrip()
        if own := _OWN_LINE.fullmatch(line):
            found.append(Mark(number, own["fence"], own["before"], own["info"].strip(), own_line=True))
        elif end := _AT_END.search(line):
            found.append(Mark(number, end["fence"], line[: end.start()], end["info"], own_line=False))
    return found


def fenced(text: str) -> Fenced:
    """Split a text at its fences. A block ends with as many signs as it began with, or more, and not within another."""
    lines = text.split("\n")
    blocks: list[str] = []
    around: list[str] = []
    opening: Mark | None = None
    place = 0
    for mark in marks_of(lines):
        if opening is None:
            if mark.own_line and mark.may_open:
                opening = mark
                around += lines[place : mark.line]
        elif mark.closes_strictly and _closes(opening, mark):
            blocks.append(content(lines, opening, mark.line))
            opening, place = None, mark.line + 1
    rest = lines[place:] if opening is None else lines[opening.line :]
    open_block = None if opening is None else content(lines, opening, _end(lines))
    return Fenced(blocks, "\n".join([*around, *rest]), open_block)


def spans(lines: Sequence[str], *, may_be_open: bool) -> Iterator[tuple[Mark, int, str]]:
    """Yield (opening mark, line of the end, text of that line that belongs to the block) for every pair of marks.

    `may_be_open`: blocks without an end too, which reach to the last line.
    """
    marks, end = marks_of(lines), _end(lines)
    reach = len(marks) if len(marks) <= _MOST_MARKS else 3
    for place, opening in enumerate(marks):
        if not opening.may_open:
            continue
        for closing in marks[place + 1 : place + 1 + reach]:
            if closing.may_close and _closes(opening, closing):
                yield opening, closing.line, "" if closing.own_line else closing.before.rstrip()
        if may_be_open and place >= len(marks) - _MOST_MARKS:
            yield opening, max(end, opening.line), ""


def content(lines: Sequence[str], opening: Mark, end: int, last: str = "", *, inline: bool = False) -> str:
    """Return what stands between an opening mark and a line, without the indentation of the block.

    `last`: text of the end's line that belongs to the block. `inline`: code behind the mark belongs to it too.
    """
    inner = [*lines[opening.line + 1 : end], *([last] if last else [])]
    if ">" in opening.before and opening.own_line:
        depth = opening.before.count(">")
        inner = [re.sub(rf"^\s*(?:>[ \t]?){{1,{depth}}}", "", line) for line in inner]
    indent = len(opening.before) if opening.own_line and ">" not in opening.before else 0
    if indent and all(not line[:indent].strip() for line in inner):
        inner = [line[indent:] for line in inner]
    if inline and (code := _INLINE_CODE.fullmatch(opening.info)):
        inner.insert(0, code[1])
    return "\n".join([*inner, ""])


def parsed(source: str) -> ast.Module | None:
    """Return a text's syntax tree; None if it is no Python."""
    try:
        return syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def python_blocks(text: str, places: Sequence[int]) -> list[tuple[int, int]]:
    """Return (begin, end) of fenced blocks that are Python and have one of the places in them."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    found: list[tuple[int, int]] = []
    for opening, end, last in spans(lines, may_be_open=False):
        begin, stop = starts[opening.line + 1], starts[end]
        if any(begin <= place < stop for place in places):
            tree = parsed(content(lines, opening, end, last))
            if tree is not None and any(isinstance(node, _STATEMENTS) for node in tree.body):
                found.append((begin, stop))
    return found


def _end(lines: Sequence[str]) -> int:
    """Return the number of lines without the empty ones at the end."""
    return max((number for number, line in enumerate(lines, start=1) if line.strip()), default=0)


def _closes(opening: Mark, closing: Mark) -> bool:
    return closing.fence[0] == opening.fence[0] and len(closing.fence) >= len(opening.fence)
