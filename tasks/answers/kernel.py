"""The kernel in a model's answer: the program that a person would take.

- Reasoning (tasks.answers.reasoning) is no part of the answer, nor are the tokens and tags that end it.
- Of all blocks that are Python and define `ModelNew`, the longest that launches a kernel; if none does, the longest. Of
  two equally long ones the later. A block is what stands between two marks (tasks.answers.fences), whichever they are.
- No such block: the last block that has a class `ModelNew` but is no Python, else the last block. The judge says what
  is wrong with it.
- No fence: the part of the answer that is Python and defines `ModelNew`.
- An answer that was cut off: a block without an end does not count, nor does code without a fence.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from tasks.answers.fences import content, fenced, parsed, spans
from tasks.answers.reasoning import without_reasoning

_NAME = "ModelNew"
_DEFINES = re.compile(rf"^[ \t>]*class\s+{_NAME}\b", re.MULTILINE)
_TOKEN = r"(?:<\|[^|<>\n]{1,40}\|>|<｜[^｜<>\n]{1,40}｜>|</?(?:s|eos|bos|answer|solution|final|output|end_of_turn)>)"
_TOKENS = re.compile(rf"^[ \t]{{0,9}}(?:{_TOKEN}[ \t]{{0,9}}){{1,5}}|(?:{_TOKEN}[ \t]{{0,9}}){{1,5}}$", re.MULTILINE)
_BEGINS_CODE = re.compile(r"(?:import|from|class|def)\b|[@\"#]")
_LAUNCHERS = {"load_inline", "load"}
_MOST_TRIES = 40
"""Candidates that are parsed, the longest first: an answer is hostile text, and rollouts wait for this."""


def extract_kernel(text: str, *, truncated: bool = False) -> str | None:
    """Return the kernel's source (ends with a newline), or None if the answer holds none.

    `truncated`: the answer reached its length limit.
    """
    answer = without_reasoning(text)
    if answer is None:
        return None
    answer = answer.removeprefix("\ufeff")
    forms = dict.fromkeys((answer, _TOKENS.sub("", answer)))
    found = _best(_candidates([form.split("\n") for form in forms], truncated=truncated))
    return found or _fallback(list(forms)[-1], truncated=truncated)


def _candidates(forms: Sequence[Sequence[str]], *, truncated: bool) -> list[str]:
    """Return the texts that may be the kernel, the longest first. `forms`: lines of the answer as it may be read."""
    found: dict[str, int] = {}
    for lines in forms:
        for opening, end, last in spans(lines, may_be_open=not truncated):
            for inline in (False, True) if opening.has_code else (False,):
                source = content(lines, opening, end, last, inline=inline)
                if _NAME in source:
                    found[source] = opening.line
    # Of equally long ones the later first.
    return sorted(found, key=lambda source: (len(source), found[source]), reverse=True)


def _best(candidates: Sequence[str]) -> str | None:
    """Return the first candidate that launches a kernel, else the first that defines `ModelNew`."""
    defining: str | None = None
    for candidate in candidates[:_MOST_TRIES]:
        for source in _ways_to_read(candidate):
            tree = parsed(source)
            if tree is None or not defines_model(tree):
                continue
            if _launches(tree):
                return source
            defining = defining or source
            break
    return defining


def _ways_to_read(source: str) -> Iterator[str]:
    """Yield a candidate as it is, and without an indentation or a line's end that all of its lines share."""
    source = source.removeprefix("\ufeff")
    yield source
    lines = source.split("\n")
    indents = [len(line) - len(line.lstrip(" \t")) for line in lines if line.strip()]
    if indents and min(indents):
        yield "\n".join(line[min(indents) :] for line in lines)


def defines_model(tree: ast.Module) -> bool:
    """Tell whether a program defines `ModelNew`."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == _NAME:
            return True
        named = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(name, ast.Name) and name.id == _NAME for name in named):
            return True
    return False


def _launches(tree: ast.Module) -> bool:
    """Tell whether a program launches a kernel: `kernel[grid](…)`, or builds one from source."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
        if isinstance(called, ast.Subscript) or name in _LAUNCHERS:
            return True
    return False


def _fallback(answer: str, *, truncated: bool) -> str | None:
    """Return the kernel of an answer without a block that is a program with `ModelNew`."""
    found = fenced(answer)
    blocks = [block for block in found.blocks if block.strip()]
    defining = [block for block in blocks if _DEFINES.search(block)]
    if not truncated and not defining:
        opened = found.open_block
        if source := _bare_source(opened or (answer if not blocks else "")):
            return source
        if opened is not None and _DEFINES.search(opened):
            return opened
    return (defining or blocks or [None])[-1]


def _bare_source(text: str) -> str | None:
    """Return the program with `ModelNew` in a text around which there may be words; None if there is none."""
    if _NAME not in text:
        return None
    lines = text.strip("\n").split("\n")
    begins = [0, *(number for number, line in enumerate(lines) if _BEGINS_CODE.match(line))][:8]
    breaks = [number for number, line in enumerate(lines) if not line.strip()]
    ends = [len(lines), *reversed(breaks)][:8]
    candidates = ["\n".join(lines[begin:end]) + "\n" for begin in begins for end in ends if begin < end]
    return _best(sorted(dict.fromkeys(candidates), key=len, reverse=True))
