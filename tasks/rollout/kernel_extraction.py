"""Extracts the kernel's source from a model's response. Each case has one defined outcome:

- reasoning (`<think> … </think>`) is no part of the answer; reasoning that never ends: no kernel;
- several fenced blocks: the last complete one that defines `ModelNew`, else the last complete one;
- a block whose fence never closes (the answer was cut off) does not count;
- no fence at all: the whole answer, if it is Python that defines `ModelNew`; otherwise no kernel.
"""

import ast
import re

from tasks.models.chat_templates import THINK_END, THINK_START

_FENCE = re.compile(r"^(`{3,})([^`]*)$")
_DEFINES_MODEL_NEW = re.compile(r"^class\s+ModelNew\b", re.MULTILINE)


def extract_kernel(text: str) -> str | None:
    """Return the kernel's source (ends with a newline), or None if the response holds none."""
    answer = without_reasoning(text)
    if answer is None:
        return None
    blocks, has_fence = _fenced_blocks(answer)
    if blocks:
        defining = [block for block in blocks if _DEFINES_MODEL_NEW.search(block)]
        return (defining or blocks)[-1]
    if not has_fence and _is_kernel_source(answer):
        return answer.strip("\n") + "\n"
    return None


def without_reasoning(text: str) -> str | None:
    """Return the text after the reasoning; the whole text without reasoning; None if the reasoning never ends.

    If a template opens the reasoning in the prompt, the response holds only its end: the caller must add the opening
    tag first, or reasoning that never ends would count as an answer.
    """
    if THINK_END in text:
        return text.rpartition(THINK_END)[2]
    return None if THINK_START in text else text


def _fenced_blocks(text: str) -> tuple[list[str], bool]:
    """Return the content of each complete, non-empty fenced block, and whether any fence was opened."""
    blocks: list[str] = []
    opening = ""
    has_fence = False
    lines: list[str] = []
    for line in text.split("\n"):
        fence = _FENCE.match(line.strip())
        if not opening:
            if fence:
                opening, lines, has_fence = fence[1], [], True
        elif fence and len(fence[1]) >= len(opening) and not fence[2].strip():
            if any(kept.strip() for kept in lines):
                blocks.append("\n".join(lines) + "\n")
            opening = ""
        else:
            lines.append(line)
    return blocks, has_fence


def _is_kernel_source(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body)
