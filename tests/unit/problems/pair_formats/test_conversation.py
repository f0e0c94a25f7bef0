"""SFT data as people publish it: each form in a miniature, its problem and its kernels."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.errors import InputError
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM
from tasks.problems.pairs import load_pairs
from tasks.sft.pairs import load_drafts

PROBLEM, KERNEL = EXAMPLE_PROBLEM.lstrip("\n"), EXAMPLE_KERNEL.lstrip("\n")
FIRST, SECOND = (KERNEL.replace("ROWS=4", f"ROWS={rows}").replace("], 4", f"], {rows}") for rows in (1, 2))
ASKED = f"Write a Triton kernel for this module:\n\n```python\n{PROBLEM}```\nIt should be fast."
ANSWER = (
    f"<think>\nA row a program.\n```python\n{FIRST}```\n</think>\n\nHere it is:\n```python\n{KERNEL}```\nIt is fused."
)


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "messages": ({"messages": [{"role": "system", "content": "You write kernels."}, user(ASKED), assistant(ANSWER)]}, "`messages`"),
    "messages with parts": (
        {"messages": [user([{"type": "text", "text": ASKED}]), assistant([{"type": "text", "text": ANSWER}])]},
        "`messages`",
    ),
    "ShareGPT": (
        {"id": "7", "conversations": [{"from": "human", "value": ASKED}, {"from": "gpt", "value": ANSWER}]},
        "`conversations`",
    ),
    "prompt and completion": ({"prompt": ASKED, "completion": ANSWER}, "`prompt` and `completion`"),
    "prompt and response": ({"prompt": ASKED, "response": ANSWER, "score": 1.0}, "`prompt` and `response`"),
    "question and answer": ({"question": ASKED, "answer": ANSWER}, "`question` and `answer`"),
    "chats in prompt and completion": (
        {"prompt": [user(ASKED)], "completion": [assistant(ANSWER)]},
        "`prompt` and `completion`",
    ),
    "Alpaca": (
        {"instruction": "Write a Triton kernel.", "input": PROBLEM, "output": ANSWER},
        "`instruction` and `output`",
    ),
    "Alpaca without input": ({"instruction": ASKED, "input": "", "output": KERNEL}, "`instruction` and `output`"),
    "input and output with further columns": (
        {"input": ASKED, "output": ANSWER, "speedup": 1.2, "source": "mine"},
        "`input` and `output`",
    ),
    "pytorch_code and triton_code": (
        {"pytorch_code": PROBLEM, "triton_code": KERNEL, "name": "x"},
        "`pytorch_code` and `triton_code`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_form_gives_its_pair_and_says_what_was_understood(
    form: str, kind: str, write: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    row, columns = FORMS[form]
    path = write(kind, [row])
    (pair,) = load_pairs(path, bad_rows=0)
    assert (pair.problem_source, pair.kernel_source, pair.earlier_source) == (PROBLEM, KERNEL, None)
    assert caplog.messages == [f"{path}: 1 pairs, from {columns} (1)"]


def test_earlier_answers_of_a_conversation_are_earlier_kernels(write: Callable[..., Path]) -> None:
    told = "Your kernel was judged.\nStatus: incorrect"
    turns = [user(ASKED), assistant(FIRST), user(told), assistant(f"```\n{SECOND}```"), user(told), assistant(ANSWER)]
    thanks = [*turns, user("Thank you!"), assistant("You are welcome.")]
    another = [user(ASKED.replace("relu", "tanh")), assistant(SECOND), *turns]
    for messages in (turns, thanks, another):
        (draft,) = load_drafts(write("jsonl", [{"messages": messages}]))
        assert (draft.problem.source, draft.kernel, draft.earlier) == (PROBLEM, KERNEL, (FIRST, SECOND))


def test_a_request_to_improve_a_kernel_has_an_earlier_one(write: Callable[..., Path]) -> None:
    asked = f"{ASKED}\nThis kernel is slow:\n```python\n{FIRST}```"
    (pair,) = load_pairs(write("jsonl", [{"prompt": asked, "completion": ANSWER}]))
    assert (pair.problem_source, pair.kernel_source, pair.earlier_source) == (PROBLEM, KERNEL, FIRST)


def test_columns_map_names_that_are_not_known(write: Callable[..., Path]) -> None:
    path = write("jsonl", [{"task": {"text": ASKED}, "reply": ANSWER}])
    (pair,) = load_pairs(path, {"prompt": "task.text", "completion": "reply"})
    assert (pair.problem_source, pair.kernel_source) == (PROBLEM, KERNEL)
    with pytest.raises(InputError, match=r"sft\.data\.columns: expected our names .*; found `question`"):
        load_pairs(path, {"question": "task"})
    with pytest.raises(InputError, match=r"sft\.data\.columns: expected a column `body` for prompt; found task, reply"):
        load_pairs(path, {"prompt": "body", "completion": "reply"})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": [user("Multiply two matrices."), assistant(ANSWER)]}, "found none in 'Multiply two matrices.'"),
        ({"messages": [user(ASKED)]}, "column `messages`: expected an answer with a kernel .* found None"),
        ({"messages": [user(ASKED), assistant("No.")]}, "column `messages`: expected an answer with a kernel .* 'No.'"),
        ({"messages": []}, r"column `messages`: expected text, or messages with role and content .*; found \[\]"),
        ({"messages": [{"role": "user"}]}, "column `messages`: expected text, or messages with role and content"),
        ({"prompt": ASKED, "response": 3}, "column `response`: expected text, or messages"),
        ({"conversations": [user(ASKED), assistant("<think>" + ANSWER[7:300])]}, "column `conversations`: expected an"),
    ],
)
def test_a_bad_row_is_named_and_left_out(
    row: dict[str, Any], message: str, write: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    good = {"prompt": ASKED, "completion": ANSWER}
    assert len(load_pairs(write("jsonl", [good, row]))) == 1
    with pytest.raises(InputError, match=f"line 2: .*{message}"):
        load_pairs(write("jsonl", [good, row]), bad_rows=0)
    assert "1 of 2 rows are left out" in caplog.text
