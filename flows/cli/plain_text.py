"""Output on terminals that cannot show every character: what has a likeness in ASCII is written so, the rest as `?`."""

import codecs
import sys
from io import TextIOWrapper

_NAME = "kernelmill-likeness"
_LIKENESS = {
    "✓": "+", "✗": "x", "●": "*", "■": "#", "→": "->", "×": "x", "…": "...", "–": "-", "—": "-", "−": "-", "±": "+-",
    "≤": "<=", "≥": ">=", "≈": "~", "·": "-", "─": "-", "━": "-", "│": "|", "┃": "|", "█": "#", "Δ": "d", "µ": "u",
    "“": '"', "”": '"', "‘": "'", "’": "'", "²": "^2",
}  # fmt: skip


def write_what_can_be_shown() -> None:
    """Have standard output and error replace characters that their encoding lacks, instead of failing."""
    codecs.register_error(_NAME, _replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not stream.encoding.lower().replace("-", "").startswith("utf"):
            stream.reconfigure(errors=_NAME)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_LIKENESS.get(character, "?") for character in text), error.end
