"""Text of strangers (messages, names) without what a terminal or a reader would obey: escapes and control characters.

A terminal that gets an escape sequence changes its title, the clipboard or what was printed before; characters that
turn the direction of text show code in another order than it has.
"""

import re

_SEQUENCES = re.compile(
    "(?:\x1b\\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)?"  # OSC … BEL or ST: title, clipboard, links
    "|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\\\|\x9c)?"  # DCS, SOS, PM, APC … ST
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    "|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain_text(text: str) -> str:
    """Return a text without escape sequences, control characters but line feed and tab, and changes of direction."""
    return text if text.isascii() and text.isprintable() else _CONTROLS.sub("", _SEQUENCES.sub("", text))
