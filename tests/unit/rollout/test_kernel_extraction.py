"""Each shape of answer has one outcome."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rollout.kernel_extraction import extract_kernel
from tasks.rollout.prompts import answer_text

KERNEL = "import torch\n\n\nclass ModelNew:\n    pass\n"
DRAFT = "class ModelNew:\n    draft = True\n"
HELPER = "def helper():\n    return 1\n"


def fenced(source: str, tag: str = "python") -> str:
    return f"```{tag}\n{source}```"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (fenced(KERNEL), KERNEL),
        (f"Here it is:\n\n{fenced(KERNEL)}\n\nIt is fast.", KERNEL),
        (fenced(KERNEL, tag=""), KERNEL),
        (f"  {fenced(KERNEL)}", KERNEL),
        # Several blocks: the last that defines ModelNew, wherever it stands.
        (f"{fenced(DRAFT)}\nbetter:\n{fenced(KERNEL)}", KERNEL),
        (f"{fenced(KERNEL)}\nuse it so:\n{fenced(HELPER)}", KERNEL),
        (f"{fenced(HELPER)}\n{fenced('x = 1' + chr(10))}", "x = 1\n"),
        # A block without an end reaches to the last line.
        (f"```python\n{KERNEL}", KERNEL),
        (f"{fenced(DRAFT)}\nbetter:\n```python\n{KERNEL}", KERNEL),
        # Nothing there.
        ("", None),
        ("I cannot do that.", None),
        ("```python\n```", None),
        ("```python\n   \n```", None),
        # Code alone, without a fence.
        (KERNEL, KERNEL),
        (HELPER, None),
        (f"Sure!\n{KERNEL}", KERNEL),
        # Reasoning.
        (f"<think>maybe\n{fenced(DRAFT)}\n</think>\n{fenced(KERNEL)}", KERNEL),
        (f"maybe {fenced(DRAFT)}</think>\n\n{fenced(KERNEL)}", KERNEL),
        (f"<think>still thinking\n{fenced(DRAFT)}", None),
        (f"<think>only thought {fenced(DRAFT)}</think>", None),
    ],
)
def test_outcome(answer: str, expected: str | None) -> None:
    assert extract_kernel(answer) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (f"```python\n{KERNEL}", None),
        (f"{fenced(DRAFT)}\nbetter:\n```python\n{KERNEL}", DRAFT),
        (fenced(KERNEL), KERNEL),
        (KERNEL, None),
    ],
)
def test_in_an_answer_that_was_cut_off_a_complete_block_alone_counts(answer: str, expected: str | None) -> None:
    assert extract_kernel(answer, truncated=True) == expected


@given(st.lists(st.text(alphabet="ab `'\"\t#", max_size=12), min_size=1, max_size=8))
def test_an_answer_gives_back_its_kernel(lines: list[str]) -> None:
    source = "\n".join(["x = 1", *lines, "y = 2"]) + "\n"
    assert extract_kernel(answer_text(source)) == source


@given(st.text(max_size=300))
def test_never_raises(text: str) -> None:
    kernel = extract_kernel(text)
    assert kernel is None or kernel.endswith("\n")


@given(st.integers(0, len(fenced(KERNEL))))
def test_a_cut_answer_never_gives_half_a_kernel(length: int) -> None:
    assert extract_kernel(fenced(KERNEL)[:length], truncated=True) in (None, KERNEL)
