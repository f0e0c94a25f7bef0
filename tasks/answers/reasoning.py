"""Reasoning in a model's answer: the tags that models put around it, the reasoning itself, and the answer without it.

Reasoning may stand anywhere and several times. A closing tag without an opening one ends reasoning that the prompt's
template began: everything before it is reasoning. A tag is text, and no tag, in the code of a fenced block, in a
comment line, and in quotes.
"""

import re

from tasks.answers.fences import python_blocks

_OPENING = (
    r"<\s*(?:think|thinking|thought|thoughts|reasoning|scratchpad|seed:think)\s*>|◁think▷|\[THINK\]|"
    r"<\|begin_of_thought\|>|<\|START_THINKING\|>|<\|channel\|>(?:analysis|commentary)[^<\n]{0,80}<\|message\|>"
)
_CLOSING = (
    r"<\s*/\s*(?:think|thinking|thought|thoughts|reasoning|scratchpad|seed:think)\s*>|◁/think▷|\[/THINK\]|"
    r"<\|end_of_thought\|>|<\|END_THINKING\|>|<\|channel\|>final[^<\n]{0,80}<\|message\|>"
)
_TAG = re.compile(rf"(?P<opens>{_OPENING})|(?P<closes>{_CLOSING})", re.IGNORECASE)
# Harmony's channels where the tokens around their names were dropped in decoding.
_BARE_CHANNELS = re.compile(r"\A\s*analysis(?=[A-Z\s]).*?assistant\s?final", re.DOTALL)
_QUOTES = "`'\""


def without_reasoning(text: str) -> str | None:
    """Return the answer without its reasoning; the whole text if there is none.

    None if reasoning never ends and nothing stands before it. If a template opens the reasoning in the prompt, the
    response holds only its end: the caller must add the opening tag first, or reasoning that never ends would count as
    an answer.
    """
    return _parts(text)[0]


def reasoning_of(text: str) -> str:
    """Return the reasoning of an answer, its parts in their order with an empty line between them; empty if it has none
    or none that ends.
    """
    answer, thoughts = _parts(text)
    return "" if answer is None else "\n\n".join(thoughts)


def _parts(text: str) -> tuple[str | None, list[str]]:
    """Return (answer as `without_reasoning` does, reasoning that ends)."""
    bare = _BARE_CHANNELS.match(text)
    thoughts = [] if bare is None else [re.sub(r"\A\s*analysis|assistant\s?final\Z", "", bare[0]).strip()]
    text = text[bare.end() :] if bare else text
    tags = [match for match in _TAG.finditer(text) if not _is_mentioned(text, match)]
    if tags:
        blocks = python_blocks(text, [match.start() for match in tags])
        tags = [match for match in tags if not any(begin <= match.start() < end for begin, end in blocks)]
    if not tags:
        return text, thoughts
    answer: list[str] = []
    place, is_thought = 0, False
    for tag in tags:
        if tag["opens"]:
            if not is_thought:
                answer.append(text[place : tag.start()])
                place = tag.end()
            is_thought = True
            continue
        thoughts.append(text[place : tag.start()])
        if not is_thought:
            answer = []
        place, is_thought = tag.end(), False
    rest = "" if is_thought else text[place:]
    kept = "".join([*answer, rest])
    return None if is_thought and not kept.strip() else kept, [part.strip() for part in thoughts if part.strip()]


def _is_mentioned(text: str, tag: re.Match[str]) -> bool:
    """Tell whether a tag is spoken of: in a comment line, or between quotes."""
    line = text[text.rfind("\n", 0, tag.start()) + 1 : tag.start()]
    around = text[tag.start() - 1 : tag.start()], text[tag.end() : tag.end() + 1]
    return line.lstrip().startswith("#") or (around[0] == around[1] and around[0] in _QUOTES and around[0] != "")
