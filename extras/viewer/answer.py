"""One trajectory as a reader sees it: of each turn prompt, answer, kernel, difference to the turn before, verdict.

All text of models and kernels is hostile: here it loses control characters and what turns the direction of text. The
templates escape it.
"""

import difflib
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from extras.viewer.episodes import episodes_of
from extras.viewer.prompts import PromptReader
from extras.viewer.runs import Batch, RunFolder
from kernels_eval.errors import InputError
from kernels_eval.plain_text import plain_text
from kernels_eval.verdict import Verdict
from tasks.agents.config import SOLVER
from tasks.evaluation.report.source import comparable, highlighted
from tasks.trajectories.conversation import ConversationEntry
from tasks.trajectories.reader import read_turn_rows
from tasks.trajectories.schema import verdict_from_row

MOST_CHARACTERS = 200_000
"""Longer prompts and answers are cut on the page, which says so."""


@dataclass(frozen=True)
class ShownTurn:
    """One turn."""

    number: int
    agent: str | None
    """None if one policy writes all turns."""
    prompt: list[ConversationEntry]
    """Messages since the turn before, or all if the conversation is told anew."""
    told_anew: bool
    answer: str
    kernel: Markup | None
    unchanged: bool
    difference: list[tuple[str, str]]
    """(`add`, `cut`, `at` or `same`, line) of the unified difference to the last kernel before."""
    verdict: Verdict
    reward: float | None
    returned: float | None
    tokens: int
    seconds: tuple[float, float]
    """Of generation and of the judge."""
    row: int
    """Number of its row in the file."""


@dataclass(frozen=True)
class ShownAnswer:
    """A trajectory."""

    trajectory_id: str
    problem_id: str
    termination: str
    policy_digest: str
    file: Path
    turns: list[ShownTurn]
    previous: str | None
    """Ids of the trajectories before and behind it, of the same problem and batch."""
    following: str | None
    prompts_readable: bool


def read_answer(run: RunFolder, batch: Batch, trajectory_id: str) -> ShownAnswer:
    """Return one trajectory. Raises InputError if the batch does not have it, or its table is damaged."""
    episodes = episodes_of([batch])
    place = episodes["trajectory_id"].index_of(trajectory_id)
    if place is None:
        raise InputError(f"answer: {batch.title} of {run.name} has no trajectory {plain_text(trajectory_id)[:100]!r}")
    episode = episodes.row(place, named=True)
    siblings = episodes.filter(pl.col("problem_id") == episode["problem_id"])["trajectory_id"].to_list()
    beside = siblings.index(trajectory_id)
    reader = PromptReader(run.folder)
    numbers: list[int] = episode["rows"]
    span = read_turn_rows(batch.file, min(numbers), max(numbers) - min(numbers) + 1)
    rows = [span[number - min(numbers)] for number in numbers]
    return ShownAnswer(
        trajectory_id=trajectory_id,
        problem_id=episode["problem_id"],
        termination=str(episode["termination"]),
        policy_digest=str(rows[0]["policy_digest"]),
        file=batch.file,
        turns=_turns(rows, numbers, reader),
        previous=siblings[beside - 1] if beside else None,
        following=siblings[beside + 1] if beside + 1 < len(siblings) else None,
        prompts_readable=reader.can_read,
    )


def _turns(rows: list[dict[str, Any]], numbers: list[int], reader: PromptReader) -> list[ShownTurn]:
    shown: list[ShownTurn] = []
    before: list[int] = []
    kernel_before: str | None = None
    for row, number in zip(rows, numbers, strict=True):
        prompt: list[int] = row["prompt_token_ids"] or []
        extends = bool(row["prompt_extends_previous"])
        kernel = None if row["kernel_source"] is None else cleaned(row["kernel_source"])
        difference: list[tuple[str, str]] = []
        if kernel is not None and kernel_before is not None and kernel != kernel_before:
            difference = difference_of(kernel_before, kernel)
        shown.append(
            ShownTurn(
                number=row["turn_index"] + 1,
                agent=None if row["role"] == SOLVER else str(row["role"]).replace("_", " "),
                prompt=[
                    ConversationEntry(entry.speaker, cleaned(entry.text))
                    for entry in reader.messages(prompt[len(before) :] if extends else prompt)
                ],
                told_anew=not extends,
                answer=cleaned(row["response_text"] or ""),
                kernel=None if kernel is None else highlighted(kernel, kernel_before),
                unchanged=kernel is not None and kernel == kernel_before,
                difference=difference,
                verdict=verdict_from_row(row["verdict"]),
                reward=row["reward"],
                returned=row["return"],
                tokens=len(row["response_token_ids"] or []),
                seconds=(row["generation_s"] or 0.0, row["evaluation_s"] or 0.0),
                row=number,
            )
        )
        before = [*prompt, *(row["response_token_ids"] or [])]
        kernel_before = kernel if kernel is not None else kernel_before
    return shown


def cleaned(text: str) -> str:
    """Return a text of strangers without what a reader would not see, at most `MOST_CHARACTERS` long."""
    plain = plain_text(text)
    return plain if len(plain) <= MOST_CHARACTERS else f"{plain[:MOST_CHARACTERS]}\n… cut here, the table has the rest"


def difference_of(before: str, after: str) -> list[tuple[str, str]]:
    """Return the unified difference of two sources, less its file names; empty for sources too long to compare."""
    if not comparable(before, after):
        return []
    kinds = {"+": "add", "-": "cut", "@": "at"}
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3)
    return [(kinds.get(line[:1], "same"), line) for line in itertools.islice(lines, 2, None)]
