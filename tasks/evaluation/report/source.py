"""Source with syntax colour as HTML: escaped text, a span around each token, and nothing that the text could add.

The classes are those of `style.css`. Kernels are hostile text: beyond `MOST_CHARACTERS` they are shown without colour,
so that no source makes a page slow.
"""

import difflib
import functools
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup, escape
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

MOST_CHARACTERS = 50_000
MOST_LINES = 2_000
"""Longer sources are not compared: the time for that grows with the square of their lines."""
_LEXER = PythonLexer()
_CLASSES = (
    (Comment, "comment"),
    (String, "string"),
    (Name.Decorator, "decorator"),
    (Keyword, "keyword"),
    (Operator.Word, "keyword"),
    (Name.Builtin.Pseudo, "keyword"),
    (Name.Function, "defined"),
    (Name.Class, "defined"),
    (Name.Namespace, "defined"),
    (Number, "number"),
)


def highlighted(source: str, previous: str | None = None) -> Markup:
    """Return the source as `<span class="line">` elements; lines that `previous` lacks have the class `new`."""
    new = set[int]()
    if previous is not None and comparable(previous, source):
        matcher = difflib.SequenceMatcher(None, previous.splitlines(), source.splitlines(), autojunk=False)
        for kind, _, _, start, end in matcher.get_opcodes():
            if kind in ("insert", "replace"):
                new.update(range(start, end))
    return Markup(
        "".join(
            f'<span class="line{" new" if number in new else ""}">{line or " "}</span>'
            for number, line in enumerate(coloured_lines(source))
        )
    )


def comparable(*sources: str) -> bool:
    """Return True if the sources are short enough for a comparison line by line."""
    return all(source.count("\n") < MOST_LINES for source in sources)


def coloured_lines(source: str) -> list[str]:
    """Return the HTML of each line; a token that covers several lines has a span on each."""
    parts: list[str] = []
    for name, text in _tokens(source.rstrip("\n")):
        pieces = [str(escape(piece)) for piece in text.split("\n")]
        parts.append("\n".join(f'<i class="{name}">{piece}</i>' if name and piece else piece for piece in pieces))
    return "".join(parts).split("\n")


def _tokens(source: str) -> Iterator[tuple[str, str]]:
    """Yield (class, text) of each token; the texts together are the source. No class: plain text."""
    if len(source) > MOST_CHARACTERS:
        yield "", source
        return
    for _, kind, text in _LEXER.get_tokens_unprocessed(source):
        yield _class_of(kind), text


@functools.cache
def _class_of(kind: Any) -> str:
    return next((name for parent, name in _CLASSES if kind in parent), "")
