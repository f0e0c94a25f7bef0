"""Pairs as `input` and `output`: every form that is read, and every refusal with its message."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM
from tasks.problems.pair_formats.input_output import pair_of
from tasks.problems.pairs import load_pairs
from tasks.problems.row import Row
from tasks.sft.pairs import load_drafts

PROBLEM, KERNEL = EXAMPLE_PROBLEM, EXAMPLE_KERNEL
EARLIER = KERNEL.replace("ROWS=4", "ROWS=1").replace("x.shape[0], 4", "x.shape[0], 1")
ISSUES = ["uncoalesced loads", "one row a program"]


def block(source: str, language: str = "python") -> str:
    return f"```{language}\n{source}```\n"


def pair(given_input: Any, output: Any = KERNEL) -> tuple[str, str, str | None]:
    """The problem, the kernel and the earlier kernel of one row."""
    values = {"input": given_input, "output": output}
    found = pair_of(Row("pairs.jsonl line 3", values, tuple(values)))
    return found.problem_source, found.kernel_source, found.earlier_source


def refusal(given_input: Any, output: Any = KERNEL) -> str:
    with pytest.raises(InputError) as raised:
        pair(given_input, output)
    return str(raised.value)


@pytest.mark.parametrize(
    "given_input",
    [
        PROBLEM,
        f"Write a kernel for this module:\n\n{block(PROBLEM)}\nIt should be fast.",
        block(PROBLEM, ""),
        {"problem": PROBLEM},
        {"problem": block(PROBLEM), "target_speedup": 2},
        {"problem": PROBLEM, "kernel": None, "issues": None, "target_speedup": None},
    ],
)
def test_what_the_generator_is_shown(given_input: Any) -> None:
    assert pair(given_input) == (PROBLEM, KERNEL, None)


@pytest.mark.parametrize(
    "given_input",
    [
        f"The program:\n{block(PROBLEM)}The kernel:\n{block(EARLIER)}Issues: uncoalesced loads.\nTarget: 2x",
        f"{block(EARLIER)}{block(PROBLEM)}",
        {"problem": PROBLEM, "kernel": EARLIER, "issues": ISSUES, "target_speedup": 1.5},
        {"problem": PROBLEM, "kernel": block(EARLIER), "issues": []},
        {"problem": PROBLEM, "kernel": EARLIER},
    ],
)
def test_what_the_optimizer_is_shown(given_input: Any) -> None:
    assert pair(given_input) == (PROBLEM, KERNEL, EARLIER)


def test_a_kernel_to_mend_need_not_be_python() -> None:
    broken = EARLIER.replace("def forward(self, x):", "def forward(self, x:")
    assert pair({"problem": PROBLEM, "kernel": broken})[2] == broken
    assert pair(block(PROBLEM) + block(broken))[2] == broken


def test_a_fence_in_a_docstring_is_part_of_the_source() -> None:
    documented = f'"""How it is called:\n\n{block("f(x)")}"""\n{KERNEL}'
    assert pair({"problem": PROBLEM, "kernel": documented}, documented) == (PROBLEM, documented, documented)


@pytest.mark.parametrize("output", [KERNEL, block(KERNEL), f"\n{block(KERNEL)}\n"])
def test_outputs(output: str) -> None:
    assert pair(PROBLEM, output) == (PROBLEM, KERNEL, None)


PROBLEM_TEXT = "a KernelBench problem that defines Model, get_inputs, get_init_inputs"
NO_PROBLEM = f"expected {PROBLEM_TEXT}, as it is or in a fenced block; found none in "
NO_KERNEL = "column `output`: expected an answer with a kernel that defines ModelNew, found "
KEYS = (
    "field `input`: expected the keys problem (or operation, shapes, dtype) and optionally kernel, issues, "
    "target_speedup; found "
)


@pytest.mark.parametrize(
    ("given_input", "message"),
    [
        (None, "field `input`: expected text or an object with problem, kernel, issues, target_speedup, found None"),
        ([PROBLEM], "field `input`: expected text or an object with problem, kernel, issues, target_speedup, found ["),
        ("Multiply two matrices of 1024 x 1024, float32.", f"{NO_PROBLEM}'Multiply two matrices"),
        (PROBLEM.replace("def get_inputs", "def inputs"), NO_PROBLEM),
        (block(KERNEL), NO_PROBLEM),
        ({}, f"{KEYS}none"),
        (
            {"operation": "matmul", "shapes": [[64, 64]], "dtype": "float32"},
            "field `input`: operation 'matmul' has no ",
        ),
        ({"kernel": KERNEL}, f"{KEYS}kernel"),
        ({"problem": 3}, "field `input.problem`: expected text, found 3"),
        ({"problem": "x = 1"}, f"field `input.problem`: expected {PROBLEM_TEXT}; missing: Model, get_inputs, "),
        ({"problem": "x ="}, "field `input.problem`: not Python: invalid syntax (line 1)"),
        (
            {"problem": PROBLEM, "kernel": f"{KERNEL}'\ud800'"},
            "field `input`: expected a kernel of Unicode text, found a lone surrogate in it",
        ),
        ({"problem": PROBLEM, "kernel": 3}, "field `input.kernel`: expected text, found 3"),
        (
            {"problem": PROBLEM, "kernel": "x = 1"},
            "field `input.kernel`: expected source with a class ModelNew, found 'x = 1'",
        ),
        (
            {"problem": PROBLEM, "issues": ISSUES},
            "field `input.issues`: expected a `kernel` that has them beside it, found none",
        ),
        (
            {"problem": PROBLEM, "kernel": KERNEL, "issues": "slow"},
            "field `input.issues`: expected a list of texts, found 'slow'",
        ),
        (
            {"problem": PROBLEM, "kernel": KERNEL, "issues": [{"kind": "spills"}]},
            "field `input.issues`: expected a list of texts, found [{'kind': 'spills'}]",
        ),
        *(
            (
                {"problem": PROBLEM, "kernel": KERNEL, "target_speedup": value},
                f"field `input.target_speedup`: expected a number above 0, found {value!r}",
            )
            for value in (0, -1, True, "2x", float("inf"), float("nan"))
        ),
    ],
)
def test_inputs_that_are_refused(given_input: Any, message: str) -> None:
    assert refusal(given_input).startswith(f"pairs.jsonl line 3: {message}")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "column `output`: expected text, found null"),
        (4, "column `output`: expected text, found 4"),
        ("", f"{NO_KERNEL}''"),
        (PROBLEM, NO_KERNEL),
        (
            "__global__ void add() {}",
            "column `output`: a bare __global__ kernel: found the parameter ``; expected host",
        ),
        (block(KERNEL.replace("def forward(self, x):", "def forward(self, x")), NO_KERNEL),
        ("x = '\ud800'", NO_KERNEL),
    ],
)
def test_outputs_that_are_refused(output: Any, message: str) -> None:
    assert refusal(PROBLEM, output).startswith(f"pairs.jsonl line 3: {message}")


@pytest.mark.parametrize(
    "output",
    [
        f"Here it is:\n{block(KERNEL)}\nIt is fast.",
        f"<think>\nfirst {block(EARLIER)}\n</think>\n{block(KERNEL)}",
        f"```python\n{KERNEL}",
        block(KERNEL) * 2,
    ],
)
def test_words_and_reasoning_around_the_kernel_are_left_out(output: str) -> None:
    assert pair(PROBLEM, output) == pair({"problem": PROBLEM, "profile": "12 us"}, output) == (PROBLEM, KERNEL, None)


@pytest.mark.parametrize(
    "given_input",
    [
        f"An example:\n{block(EARLIER)}{block(PROBLEM.replace('relu', 'tanh'))}Now for this:\n{block(PROBLEM)}",
        f"Write a kernel for this module.\n\n{PROBLEM}\nIt must be fast.",
        {"problem": f"This module:\n{block(PROBLEM)}"},
    ],
)
def test_the_last_problem_is_meant_and_an_example_is_no_earlier_kernel(given_input: Any) -> None:
    found = pair(given_input)
    assert (found[0].strip(), *found[1:]) == (PROBLEM.strip(), KERNEL, None)


def test_other_columns_are_left_out(write: Callable[..., Path]) -> None:
    (found,) = load_pairs(write("jsonl", [{"input": PROBLEM, "output": KERNEL, "instruction": "Be fast.", "id": 3}]))
    assert (found.problem_source, found.kernel_source) == (PROBLEM, KERNEL)


ROWS = [
    {"input": {"problem": PROBLEM}, "output": KERNEL},
    {"input": {"problem": PROBLEM, "kernel": EARLIER, "issues": ISSUES, "target_speedup": 2.0}, "output": KERNEL},
]


@pytest.mark.parametrize("kind", ["json", "jsonl", "parquet", "saved", "snapshot"])
def test_a_first_kernel_and_an_answer_to_one_are_two_pairs(
    kind: str, write: Callable[..., Path], tmp_path: Path
) -> None:
    if kind == "json":
        path = tmp_path / "pairs.json"
        path.write_text(json.dumps(ROWS))
    else:
        path = write(kind, ROWS)
    drafts = load_drafts(path)
    assert [(draft.problem.source, draft.kernel, draft.earlier) for draft in drafts] == [
        (PROBLEM, KERNEL, ()),
        (PROBLEM, KERNEL, (EARLIER,)),
    ]
    assert len({draft.problem.problem_id for draft in drafts}) == 2


WORDS = st.text(st.characters(exclude_characters="`", exclude_categories=("Cs",)), max_size=30)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_every_way_to_write_a_pair_gives_the_same_pair(data: st.DataObject) -> None:
    """As text or object, with and without fences, with any words around blocks of `input`."""

    def written(source: str) -> str:
        fence = "`" * data.draw(st.integers(3, 5), label="fence")
        return data.draw(
            st.sampled_from([source, f"{fence}python\n{source}{fence}", f"\n{fence}\n{source}{fence}\n\n"])
        )

    earlier = data.draw(st.sampled_from([None, EARLIER]), label="earlier")
    if data.draw(st.booleans(), label="object"):
        shown: Any = {"problem": written(PROBLEM)}
        if earlier is not None:
            shown["kernel"] = written(earlier)
        if data.draw(st.booleans(), label="target"):
            shown["target_speedup"] = data.draw(st.floats(1e-3, 1e3) | st.integers(1, 100))
    else:
        blocks = data.draw(st.permutations([block(PROBLEM), *([] if earlier is None else [block(earlier)])]))
        shown = "".join(f"{data.draw(WORDS)}\n{text}" for text in blocks) + data.draw(WORDS)
    assert pair(shown, written(KERNEL)) == (PROBLEM, KERNEL, earlier)
