"""Shows Python source in HTML: a light highlighting, and which lines are new since the last version."""

import difflib
import re

from markupsafe import Markup, escape

_TOKENS = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r"|(?P<string>\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<decorator>@[\w.]+)"
    r"|(?P<keyword>\b(?:def|class|return|import|from|as|for|in|if|elif|else|while|with|not|and|or|is|None|True|False|lambda|pass|raise|range|self)\b)"
    r"|(?P<triton>\b(?:tl|triton|torch|nn|F)\.[\w.]+)"
    r"|(?P<number>\b\d[\w.]*)"
)


def highlighted(source: str, previous: str | None = None) -> Markup:
    """Return the source as `<span class="line">` elements; lines that `previous` lacks have the class `new`."""
    new = set[int]()
    if previous is not None:
        matcher = difflib.SequenceMatcher(None, previous.splitlines(), source.splitlines(), autojunk=False)
        for kind, _, _, start, end in matcher.get_opcodes():
            if kind in ("insert", "replace"):
                new.update(range(start, end))
    lines = _marked(source).split("\n")
    return Markup(
        "".join(
            f'<span class="line{" new" if number in new else ""}">{line or " "}</span>'
            for number, line in enumerate(lines)
        )
    )


def _marked(source: str) -> str:
    """Return escaped source with a span around each token; a token that covers several lines gets one a line."""
    parts: list[str] = []
    position = 0
    for match in _TOKENS.finditer(source.rstrip("\n")):
        parts.append(str(escape(source[position : match.start()])))
        kind = str(match.lastgroup)
        parts.append("\n".join(f'<i class="{kind}">{escape(piece)}</i>' for piece in match.group().split("\n")))
        position = match.end()
    parts.append(str(escape(source.rstrip("\n")[position:])))
    return "".join(parts)
