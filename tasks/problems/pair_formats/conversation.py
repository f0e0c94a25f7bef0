"""Pairs of question and answer from conversations, as a chat or as prompt and completion.

The reasoning is that of the same answer: between tags, or in a field of the message
(`reasoning_content`, `reasoning`, `thinking`).

The problem is the last one that a user's message holds: as it is, in a fenced block, or behind words. The kernel to
imitate is the one in the last answer that has one, read as in rollouts (tasks.answers): words and reasoning around it
are left out. Kernels of answers before it, to the same problem, are earlier ones. So is the kernel in the user's
message if that message has one fenced block with a problem and one with a kernel: it asks for a better one. Nothing
else of the conversation is used: what the policy is shown is written anew, as in rollouts.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kernels_eval.errors import InputError
from kernels_eval.problem import check_problem_source
from tasks.answers.fences import content, fenced, parsed, spans
from tasks.answers.kernel import defines_model, extract_kernel
from tasks.answers.reasoning import reasoning_of
from tasks.problems.pair_formats.bare_cuda import bare_kernel_in, wrapped
from tasks.problems.pair_formats.pair import Pair
from tasks.problems.row import Row, shown

_MODEL_NEW = re.compile(r"^class\s+ModelNew\b", re.MULTILINE)
_BEGINS_CODE = re.compile(r"(?:import|from|class|def)\b|[@\"#]")
_ANSWERING = ("assistant", "gpt", "model", "bot", "chatgpt")
"""Names of who answers; everybody else asks."""
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
PROBLEM = "a KernelBench problem that defines Model, get_inputs, get_init_inputs"


class Said(NamedTuple):
    """One message."""

    answers: bool
    """A model's answer; else it is a user's or the system's."""
    text: str
    reasoning: str = ""
    """Given apart from the text."""


def pair_of_messages(row: Row) -> Pair:
    """Return the pair of a chat in `messages`: objects with role and content, or with from and value."""
    return pair_from(row, "messages", _chat(row, "messages"))


def pair_of_completion(row: Row) -> Pair:
    """Return the pair of `prompt` and `completion`, each a text or a chat."""
    return pair_from(row, "completion", [*_said(row, "prompt", answers=False), *_said(row, "completion", answers=True)])


def pair_from(row: Row, where: str, said: Sequence[Said]) -> Pair:
    """Return the pair of a conversation; InputError names the row and what it lacks. `where`: the answers' column."""
    problem: str | None = None
    kernels: list[str] = []
    answered, reasoning = False, ""
    for message in said:
        if not message.answers:
            found = problem_in(message.text)
            if found is not None and found != problem:
                problem, kernels, answered = found, earlier_in(message.text), False
        elif problem is not None and (kernel := kernel_for(message.text, problem, f"{row.where}: {row.named(where)}")):
            kernels.append(kernel)
            answered, reasoning = True, message.reasoning or reasoning_of(message.text)
    if problem is None:
        asked = " ".join(message.text for message in said if not message.answers)
        raise InputError(
            f"{row.where}: expected {PROBLEM}, as it is or in a fenced block; found none in {shown(asked)}"
        )
    if not answered:
        last = next((message.text for message in reversed(said) if message.answers), None)
        raise InputError(
            f"{row.where}: {row.named(where)}: expected an answer with a kernel that defines ModelNew, found "
            f"{shown(last)}"
        )
    *before, kernel = kernels
    return Pair(
        problem_source=problem,
        kernel_source=kernel,
        earlier_source=before[-1] if before else None,
        before=tuple(before[:-1]),
        reasoning=reasoning,
    )


def problem_in(text: str) -> str | None:
    """Return the last problem in a text: the whole text, a fenced block, or the code behind words."""
    if problem_fault(text) is None:
        return text
    if "get_inputs" not in text:
        return None
    lines = text.split("\n")
    found = [content(lines, opening, end, last) for opening, end, last in spans(lines, may_be_open=True)]
    problems = [block for block in found if "get_inputs" in block and problem_fault(block) is None]
    if problems:
        return problems[-1]
    return next((source for source in _bare(lines) if problem_fault(source) is None), None)


def earlier_in(text: str) -> list[str]:
    """Return the kernel that a message asks to improve: of two fenced blocks, the one that is not the problem."""
    blocks = fenced(text).blocks
    problems = [block for block in blocks if problem_fault(block) is None]
    kernels = [block for block in blocks if block not in problems and _MODEL_NEW.search(block)]
    return kernels if len(problems) == len(kernels) == 1 else []


def kernel_in(text: str) -> str | None:
    """Return the kernel in an answer; None if it holds no Python that defines `ModelNew`."""
    for kernel in (text, extract_kernel(text)):
        tree = None if kernel is None else parsed(kernel)
        if tree is not None and defines_model(tree):
            return kernel
    return None


def kernel_for(text: str, problem: str, where: str) -> str | None:
    """Return the kernel in an answer to a problem, a bare `__global__` one with host code; None if it holds none.

    Raises InputError, naming `where`, for a bare kernel that cannot be wrapped.
    """
    kernel = kernel_in(text)
    if kernel is not None or (bare := bare_kernel_in(text)) is None:
        return kernel
    return wrapped(bare, problem, where)


def problem_fault(text: str) -> str | None:
    """Return why a text is no problem; None if it is one."""
    try:
        check_problem_source(text, "")
    except InputError as error:
        return str(error).removeprefix(": ")
    return None


def _bare(lines: Sequence[str]) -> Iterator[str]:
    """Yield the parts of a text without fences that may be its code."""
    begins = [number for number, line in enumerate(lines) if _BEGINS_CODE.match(line)][:8]
    ends = [len(lines), *reversed([number for number, line in enumerate(lines) if not line.strip()])][:8]
    for begin in begins:
        for end in ends:
            if begin < end:
                yield "\n".join(lines[begin:end]) + "\n"


def _said(row: Row, column: str, *, answers: bool) -> list[Said]:
    """Return a column's text as one message, or its chat."""
    value = row.values.get(column)
    if isinstance(value, str):
        return [Said(answers, value)]
    return _chat(row, column)


def _chat(row: Row, column: str) -> list[Said]:
    value = row.values.get(column)
    messages = [_message(item) for item in value] if isinstance(value, list) else []
    said = [message for message in messages if message is not None]
    if not said or len(said) != len(messages):
        raise InputError(
            f"{row.where}: {row.named(column)}: expected text, or messages with role and content or from and value; "
            f"found {shown(value)}"
        )
    return said


def _message(item: Any) -> Said | None:
    if not isinstance(item, dict):
        return None
    role = item.get("role") or item.get("from")
    text = item.get("content") if item.get("content") is not None else item.get("value")
    if isinstance(text, list):  # parts, as for models that see pictures too
        parts = [part.get("text") for part in text if isinstance(part, dict)]
        text = "\n".join(part for part in parts if isinstance(part, str))
    if not isinstance(role, str) or not isinstance(text, str):
        return None
    thoughts = (item.get(field) for field in _REASONING_FIELDS)
    reasoning = next((thought.strip() for thought in thoughts if isinstance(thought, str)), "")
    return Said(role.lower() in _ANSWERING, text, reasoning)
