"""Texts of the user's own in prompts: a system message, and templates for the first and later requests.

A setting holds a text, which ends with a line's end, or the name of a file. A file is read when the configuration is:
the run keeps its text, so that changes of the file change no run. Placeholders have two braces, `{{ problem }}`, so
that code in a template may have single ones.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

_PLACEHOLDER = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_MOST_BYTES = 2**20


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with each placeholder's value, without the line's end at its end."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template).removesuffix("\n")


def _text_with(needed: tuple[str, ...], known: tuple[str, ...]) -> BeforeValidator:
    """Return the validator of a text that has the needed placeholders and none but the known ones."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        text = value if value.endswith("\n") else _content(Path(value))
        found = [match[1] for match in _PLACEHOLDER.finditer(text)]
        if unknown := next((name for name in found if name not in known), None):
            raise ValueError(f"placeholders {_listed(known)} in its text, which has {_listed((unknown,))}")
        if missing := next((name for name in needed if name not in found), None):
            raise ValueError(f"the placeholder {_listed((missing,))} in its text, which has {_listed(found)}")
        return text

    return BeforeValidator(read)


def _content(path: Path) -> str:
    """Return the text of a file, with one line's end at its end. Raises ValueError with what was expected."""
    expected = "the name of a text file, or a text that ends with a line's end"
    try:
        if not path.is_file():
            raise ValueError(f"{expected}; there is no such file")
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"a text file of at most {_MOST_BYTES} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("a file of UTF-8 text") from error
    except OSError as error:
        raise ValueError(f"{expected}; this file: {error.strerror}") from error
    if not text.strip():
        raise ValueError("a file with a text in it, and it is empty")
    return text.rstrip("\n") + "\n"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"{{{{ {name} }}}}" for name in dict.fromkeys(names)) or "none"


SystemMessage = Annotated[str, _text_with((), ("language",))]
"""A system message. `{{ language }}`: the kernels' language, such as Triton."""
FirstTemplate = Annotated[str, _text_with(("problem",), ("problem", "language", "example"))]
"""The request for a first kernel. `{{ problem }}`: the problem's source; `{{ example }}`: a fenced block with a kernel
that adds two tensors, as style `instruct` shows it; `{{ language }}`."""
LaterTemplate = Annotated[str, _text_with(("feedback",), ("feedback", "wish", "language"))]
"""The request for a better kernel. `{{ feedback }}`: the judge's, in the style `rollout.episode.feedback`;
`{{ wish }}`: `Make it faster` after a correct kernel, else `Mend it`; `{{ language }}`."""
