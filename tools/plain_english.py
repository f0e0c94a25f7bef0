"""A checker of our English: sentences of at most 25 words, and no docstring of the form "X: what …".

    python tools/plain_english.py README.md docs/index.md     # pages
    python tools/plain_english.py tasks/rollout               # docstrings of modules

It prints `FILE:LINE: RULE: TEXT` for each finding and exits with 1 if there is one. In a page it reads prose and lists,
neither code, tables, headings nor HTML. A link counts as its text, code in backquotes as one word.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_WORDS = 25
_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`\"(\[*\d])|(?<=[.!?])$")
_RIDDLE = re.compile(r"^[^.\n:]{1,40}: (what|which|where|who|how|when|whether)\b", re.IGNORECASE)
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|cf|vs|No|Fig)\.")


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that breaks a rule."""

    line: int
    rule: str
    text: str


def long_sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph that have more than MOST_WORDS words."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split()))
    plain = re.sub(r"`[^`]*`", "`code`", plain)
    plain = _ABBREVIATION.sub(r"\1", plain)
    return [sentence for sentence in _END.split(plain) if sentence and len(_words(sentence)) > MOST_WORDS]


def page_findings(text: str) -> Iterator[Finding]:
    """Yield the long sentences of a page in Markdown, with the line on which their paragraph begins."""
    for line, paragraph in _paragraphs(text):
        for sentence in long_sentences(paragraph):
            yield Finding(line, f"{len(_words(sentence))} words", sentence)


def docstring_findings(source: str) -> Iterator[Finding]:
    """Yield the docstrings of a module, and texts below its fields, that begin as "X: what …"."""
    for node in ast.walk(ast.parse(source)):
        for child in ast.iter_child_nodes(node):
            value = child.value if isinstance(child, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and _RIDDLE.match(value.value):
                yield Finding(child.lineno, "X: what", value.value.splitlines()[0])


def findings(path: Path) -> list[Finding]:
    """Return the findings of a page or a module."""
    text = path.read_text(encoding="utf-8")
    return list(page_findings(text) if path.suffix == ".md" else docstring_findings(text))


def main(arguments: list[str]) -> int:
    """Check the files and folders that are named; return the exit code."""
    if not arguments:
        print(__doc__)
        return 2
    paths: list[Path] = []
    for name in map(Path, arguments):
        paths += sorted(name.rglob("*.py")) if name.is_dir() else [name]
    found = [(path, finding) for path in paths for finding in findings(path)]
    for path, finding in found:
        print(f"{path}:{finding.line}: {finding.rule}: {finding.text}")
    return int(bool(found))


def _words(sentence: str) -> list[str]:
    return [word for word in sentence.split() if re.search(r"\w", word)]


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each paragraph and list item outside code, tables, headings and HTML."""
    begun, lines, is_code = 1, list[str](), False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        is_fence = stripped.startswith("```")
        is_item = re.match(r"([-*]|\d+\.)\s", stripped) is not None
        is_other = is_code or is_fence or stripped.startswith(("|", "#", "<", "!["))
        is_indented_code = line.startswith("    ") and not lines
        if not stripped or is_item or is_other or is_indented_code:
            if lines:
                yield begun, " ".join(lines)
            lines = []
        if stripped and not is_other and not is_indented_code:
            begun = begun if lines else number
            lines.append(re.sub(r"^([-*]|\d+\.)\s+", "", stripped))
        is_code ^= is_fence


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
