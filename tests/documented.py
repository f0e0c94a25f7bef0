"""The commands that the documentation shows: what tests/unit/docs parses, and tests/e2e/test_documentation.py executes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
PROGRAMS = ("kernelmill", "make", "prefect", "python", "bash", "pip", "ray", "kubectl", "docker", "mkdocs")
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    (\S.*)$", re.MULTILINE)
_INLINE = re.compile(r"`(kernelmill [a-z-]+[^`]*)`")
_PLACEHOLDER = re.compile(r"…|\[[\w-]|<\w| \| |\bCONFIG\b")
"""A line that shows a form rather than a command."""


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield (page, words) of every command, those in sentences too; without redirections."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [
            line for kind, block in _FENCED.findall(text) if kind in ("", "bash", "sh") for line in block.splitlines()
        ]
        lines += _INDENTED.findall(_FENCED.sub("", text)) + _INLINE.findall(text)
        for line in lines:
            words = _words(line)
            if words:
                yield str(page.relative_to(ROOT)), words


def _words(line: str) -> list[str]:
    first = line.strip().split(" ")[0].rpartition("/")[2]
    if first not in PROGRAMS or _PLACEHOLDER.search(line.split("#")[0]):
        return []
    words = shlex.split(line, comments=True)
    if ">" in words:
        words = words[: words.index(">")]
    return [first, *(word for word in words[1:] if word != "&")]
