"""One trajectory as a readable conversation: prompts, answers and verdicts, turn by turn.

The tables hold prompts as token ids: without the policy's tokenizer, only answers and verdicts are shown.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from kernels_eval.errors import InputError
from tasks.models.chat_templates import TemplateFamily, recognised_family
from tasks.trajectories.json_logs import has_logs, read_logs
from tasks.trajectories.reader import find_batches, read_turns_file
from tasks.trajectories.schema import TURNS_FILE, verdict_from_row


@dataclass(frozen=True, slots=True)
class ConversationEntry:
    """One entry of a conversation."""

    speaker: str
    """A role of the chat template, or `judge`."""
    text: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A trajectory in readable form."""

    title: str
    details: dict[str, str]
    entries: tuple[ConversationEntry, ...]


def find_conversation(path: Path, trajectory_id: str, tokenizer: Any = None) -> Conversation:
    """Return a trajectory's conversation from a data set, a run or JSON logs. Raises InputError if it is not there."""
    if has_logs(path):
        for record in read_logs(path)[0]:
            if str((record.get("extra_info") or {}).get("trajectory_id")) == trajectory_id:
                return _from_log(record, trajectory_id)
    else:
        for folder in find_batches(path):
            turns = read_turns_file(folder / TURNS_FILE).filter(pl.col("trajectory_id") == trajectory_id)
            if not turns.is_empty():
                return _from_rows(turns.sort("turn_index").rows(named=True), folder, tokenizer)
    raise InputError(f"{path}: expected a trajectory {trajectory_id}, found none of that id")


def _from_rows(rows: Sequence[dict[str, Any]], folder: Path, tokenizer: Any) -> Conversation:
    entries: list[ConversationEntry] = []
    before: list[int] = []
    for row in rows:
        prompt: list[int] = row["prompt_token_ids"]
        if not row["prompt_extends_previous"]:
            note = "The conversation is told anew from here on: the prompt does not extend the last one."
            entries.append(ConversationEntry("note", note))
        if tokenizer is not None:
            new = prompt[len(before) :] if row["prompt_extends_previous"] else prompt
            entries += _decoded(tokenizer, new)
        entries.append(ConversationEntry(str(row["role"]), str(row["response_text"])))
        entries.append(ConversationEntry("judge", _judged(row)))
        before = [*prompt, *row["response_token_ids"]]
    first = rows[0]
    details = {
        "problem": str(first["problem_id"]),
        "iteration": str(first["iteration"]),
        "turns": str(len(rows)),
        "ended by": str(first["termination"]),
        "return": _number(first["return"]),
        "data set": str(folder),
    }
    return Conversation(str(first["trajectory_id"]), details, tuple(entries))


def _from_log(record: dict[str, Any], trajectory_id: str) -> Conversation:
    entries: list[ConversationEntry] = []
    judged = iter(record["history"])
    messages: list[dict[str, str]] = record.get("messages") or []
    answers = sum(message["role"] == "assistant" for message in messages)
    # A compressed history leaves out earlier answers: the verdicts shown are those of the last ones.
    for _ in range(max(len(record["history"]) - answers, 0)):
        next(judged)
    for message in messages:
        entries.append(ConversationEntry(message["role"], message["content"]))
        if message["role"] == "assistant" and (turn := next(judged, None)) is not None:
            result = turn["eval_result"]
            lines = [f"{name}: {result[name]}" for name in result if result[name] not in (None, "")]
            entries.append(ConversationEntry("judge", "\n".join([*lines, f"reward: {_number(turn['reward'])}"])))
    details = {
        "problem": str(record["instance_id"]),
        "turns": str(record["num_turns"]),
        "return": _number(record["aggregated_return"]),
    }
    return Conversation(trajectory_id, details, tuple(entries))


def _decoded(tokenizer: Any, token_ids: Sequence[int]) -> list[ConversationEntry]:
    """Return the entries of a stretch of a prompt, by speaker if its chat template is of a known family."""
    text = str(tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))
    family = recognised_family(tokenizer)
    return messages_in(text, family)


def messages_in(text: str, family: TemplateFamily | None) -> list[ConversationEntry]:
    """Return the messages of a stretch of a prompt, by speaker; without a family the whole text as one `prompt`.

    The header of an answer that is still to come is none.
    """
    if family is None:
        return [ConversationEntry("prompt", text)]
    header = rf"{re.escape(family.opening)}(\w+){re.escape(family.header_end)}"
    pattern = re.compile(rf"{header}(.*?){re.escape(family.end_of_turn)}", re.DOTALL)
    return [ConversationEntry(role, content) for role, content in pattern.findall(text)]


def _judged(row: dict[str, Any]) -> str:
    verdict = verdict_from_row(row["verdict"])
    lines = [f"{verdict.status.value}, reward {_number(row['reward'])}, return {_number(row['return'])}"]
    if verdict.candidate_ms is not None:
        source = "" if verdict.timing_source is None else f" ({verdict.timing_source.value})"
        speedup = "" if verdict.speedup is None else f", speedup {verdict.speedup:.2f}x"
        lines.append(f"runtime {verdict.candidate_ms:.4g} ms{speedup}{source}")
    cause = verdict.rejection_reason or verdict.error_category
    lines += [text for text in (cause, verdict.error_message) if text]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
