"""Compression of the history: what earlier turns become when a prompt has no room for all of them as they were.

A ladder of shorter and shorter histories, each of whole parts only: no text is cut, so that neither a token nor a code block
is ever divided.

1. The newest turn as it was, less its reasoning; of older ones the kernel and a one-line verdict; the oldest left out one by one.
2. Of the newest turn, too, only the kernel and a one-line verdict.
3. The one-line verdict alone: the kernel itself is too long.
4. Nothing: even that is too long. The problem is asked as on the first turn.

The first rung that fits is taken, so that a budget is never exceeded.
"""

from collections.abc import Callable, Iterator, Sequence

from tasks.rollout.kernel_extraction import without_reasoning
from tasks.rollout.prompts import HistoryTurn, answer_text

NO_KERNEL = "(an answer without a kernel)"
LEFT_OUT = "(a kernel that is too long to be shown again)"
UNFINISHED = "(reasoning that did not come to an end)"


def compressed(history: Sequence[HistoryTurn], fits: Callable[[Sequence[HistoryTurn]], bool]) -> list[HistoryTurn]:
    """Return the least compressed history that fits; `history` has at least one turn."""
    return next((rung for rung in ladder(history) if fits(rung)), [])


def ladder(history: Sequence[HistoryTurn]) -> Iterator[list[HistoryTurn]]:
    """Yield the compressed forms of a history but the empty one, each shorter than the one before."""
    older, newest = [_kernel_alone(turn) for turn in history[:-1]], history[-1]
    for left_out in range(len(older) + 1):
        yield [*older[left_out:], _without_reasoning(newest)]
    yield [_kernel_alone(newest)]
    yield [newest.model_copy(update={"response_text": LEFT_OUT, "shortened": True})]


def _without_reasoning(turn: HistoryTurn) -> HistoryTurn:
    answer = without_reasoning(turn.response_text)
    text = UNFINISHED if answer is None else answer if answer == turn.response_text else answer.strip("\n")
    return turn.model_copy(update={"response_text": text})


def _kernel_alone(turn: HistoryTurn) -> HistoryTurn:
    text = NO_KERNEL if turn.kernel_source is None else answer_text(turn.kernel_source)
    return turn.model_copy(update={"response_text": text, "shortened": True})
