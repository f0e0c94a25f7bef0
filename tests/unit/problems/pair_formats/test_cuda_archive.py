"""Rows of the archive become kernels that build their CUDA code and are judged against KernelBench's module."""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from tasks.problems.pair_formats.cuda_archive import kernel_source
from tasks.problems.pair_formats.pair import Reason, UnconvertibleError
from tasks.problems.pairs import load_pairs
from tasks.sft.pairs import load_drafts

FIXTURE = Path("tests/fixtures/cuda_archive/rows.jsonl")
ROWS: list[dict[str, Any]] = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]
ROW = ROWS[0]
FORWARD = "    def forward(self, x, fn=module_fn):\n        return fn(x, self.bias, self.scale)\n"
EXPECTED = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
{code}"""
extension = load_inline("cuda_kernels", cpp_sources="", cuda_sources=cuda_source)


class ModelNew(nn.Module):
    """
    Model that adds a learned bias, applies Tanh, and scales.
    """

    def __init__(self, features, scale):
        super(ModelNew, self).__init__()
        self.bias = nn.Parameter(torch.randn(features) * 0.02)
        self.scale = scale

    def forward(self, x):
        return extension.forward(x, self.bias, self.scale)
'''


def functional(forward: str = FORWARD, before: str = "") -> str:
    source: str = ROW["PyTorch_Code_Functional"]
    return source.replace(FORWARD, forward).replace("class Model(", f"{before}\n\nclass Model(")


def reason(code: str = ROW["CUDA_Code"], source: str = ROW["PyTorch_Code_Functional"]) -> Reason:
    with pytest.raises(UnconvertibleError) as raised:
        kernel_source(code, source)
    return raised.value.reason


def test_the_kernel_is_the_functional_class_with_the_built_function() -> None:
    assert kernel_source(ROW["CUDA_Code"], ROW["PyTorch_Code_Functional"]) == EXPECTED.format(code=ROW["CUDA_Code"])


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "snapshot"])
def test_correct_rows_are_pairs_and_the_steps_between_them_too(
    kind: str, write: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    pairs = load_pairs(write(kind, ROWS))
    direct, steps = pairs[:3], pairs[3:]
    assert [pair.problem_source for pair in pairs] == [ROW["PyTorch_Code_Module"]] * 4
    assert [pair.kernel_source for pair in direct] == [
        kernel_source(row["CUDA_Code"], row["PyTorch_Code_Functional"]) for row in ROWS[:3]
    ]
    assert [pair.runtime_ms for pair in direct] == [0.02, 0.01, 0.0105]
    (step,) = steps  # from 20 us to 10.5 us; from there to 10 us is none
    assert (step.earlier_source, step.kernel_source) == (direct[0].kernel_source, direct[2].kernel_source)
    assert len({pair.pair_id for pair in pairs}) == 4
    assert "3 pairs; dropped: not_correct 1" in caplog.text


def test_a_step_is_a_repair_of_the_slower_kernel() -> None:
    drafts = load_drafts(FIXTURE)
    assert [len(draft.earlier) for draft in drafts] == [0, 0, 0, 1]
    assert drafts[3].earlier == (drafts[0].kernel,)


def test_what_the_class_needs_is_kept_in_its_order() -> None:
    before = (
        "from typing import Tuple as Pair\nimport math\n\n"
        "SIZE = 4\nif SIZE:\n    OFFSET, unused = SIZE, 0\n\n\n"
        "def half(value: Pair) -> float:\n    return value / math.sqrt(OFFSET)\n\n\n"
        "def other():\n    return 1\n"
    )
    forward = FORWARD.replace("self.scale)", "half(self.scale))")
    host = kernel_source(ROW["CUDA_Code"], functional(forward, before)).replace(ROW["CUDA_Code"], "")
    names = [
        node.name if isinstance(node, ast.ClassDef | ast.FunctionDef) else type(node).__name__
        for node in ast.parse(host).body
    ]
    imports = ["Import", "Import", "ImportFrom", "Import", "ImportFrom"]
    assert names == [*imports, "Assign", "Assign", "Assign", "If", "half", "ModelNew"]
    assert "module_fn" not in host


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"Correct": False}, "not_correct 1"),
        ({"Correct": None}, "not_correct 1"),
        ({"PyTorch_Code_Module": None}, "not_a_problem 1"),
        ({"PyTorch_Code_Module": "class Model: ..."}, "not_a_problem 1"),
        ({"PyTorch_Code_Functional": None}, "not_a_kernel 1"),
        ({"CUDA_Code": None}, "no_binding 1"),
    ],
)
def test_rows_without_a_pair_are_counted_by_reason(
    changes: dict[str, Any], expected: str, write: Callable[..., Path]
) -> None:
    with pytest.raises(InputError, match=rf"found none \({expected}\)"):
        load_pairs(write("jsonl", [ROW | changes]))


@pytest.mark.parametrize(
    "forward",
    [
        FORWARD.replace("forward", "call"),
        FORWARD.replace(", fn=module_fn", ", *, fn=module_fn"),
        FORWARD.replace(", fn=module_fn", ", fn"),
        FORWARD.replace(", fn=module_fn", ", fn=module_fn, y=None"),
        FORWARD.replace("fn(x,", "module_fn(x,"),
        FORWARD.replace("return fn(", "fn = fn or module_fn\n        return fn("),
        FORWARD.replace("return fn(", "if fn is None:\n            return x\n        return fn("),
        FORWARD.replace("return fn(x,", "return (lambda fn: fn)(fn)(x,"),
    ],
)
def test_a_forward_that_does_not_hand_everything_to_fn_is_no_kernel(forward: str) -> None:
    assert reason(source=functional(forward)) is Reason.NOT_A_KERNEL


def test_other_reasons() -> None:
    assert reason(source="def") is Reason.NOT_A_KERNEL
    assert reason(source=functional() + "def f(x, x): ...\n") is Reason.NOT_A_KERNEL
    assert reason(source="import torch\n") is Reason.NOT_A_KERNEL
    assert reason(code=ROW["CUDA_Code"].replace('"forward"', '"run"')) is Reason.NO_BINDING
    assert reason(code=ROW["CUDA_Code"].replace("PYBIND11_MODULE", "MODULE")) is Reason.NO_BINDING
    for name in ("ModelNew", "extension", "cuda_source", "load_inline"):
        assert reason(source=functional(before=f"def {name}(): ...")) is Reason.NAME_TAKEN
        assert reason(source=functional(before=f"def f({name}): ...")) is Reason.NAME_TAKEN


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("Correct", "True", "line 1: column `Correct`: expected true, false or null, found 'True'"),
        ("Correct", 1, "line 1: column `Correct`: expected true, false or null, found 1"),
        ("CUDA_Runtime", "0.1", "line 1: column `CUDA_Runtime`: expected a number or null, found '0.1'"),
        ("CUDA_Runtime", True, "line 1: column `CUDA_Runtime`: expected a number or null, found True"),
        ("CUDA_Code", 3, "line 1: column `CUDA_Code`: expected text, found 3"),
        ("PyTorch_Code_Module", [], r"line 1: column `PyTorch_Code_Module`: expected text, found \[\]"),
    ],
)
def test_columns_of_another_type_are_refused(column: str, value: Any, message: str, write: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=message):
        load_pairs(write("jsonl", [ROW | {column: value}]))


@pytest.mark.parametrize("runtime", [None, float("nan"), float("inf"), 0.0, -1.0])
def test_a_row_without_a_time_is_in_no_step(runtime: float | None, write: Callable[..., Path]) -> None:
    pairs = load_pairs(write("parquet", [ROW | {"CUDA_Runtime": runtime}, *ROWS[1:3]]))
    assert [pair.runtime_ms for pair in pairs] == [None, 0.01, 0.0105]


@settings(max_examples=200, deadline=None)
@given(code=st.text(st.sampled_from("x\"'\\\n\r\t{}%ré \x00\ud800"), max_size=40))
def test_any_code_is_what_is_built(code: str) -> None:
    """Quotes, backslashes at the end, control characters: the literal says the same text."""
    cuda_code = code + ROW["CUDA_Code"]
    tree = ast.parse(kernel_source(cuda_code, ROW["PyTorch_Code_Functional"]))
    (literal,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "cuda_source"
    )
    assert ast.literal_eval(literal).strip("\n") == cuda_code.strip("\n")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_module_converts_or_says_why(data: st.DataObject) -> None:
    """Lines left out, cut and doubled: never another exception, and a kernel never keeps `fn`."""
    lines = ROW["PyTorch_Code_Functional"].splitlines(keepends=True)
    kept = data.draw(st.lists(st.integers(0, len(lines) - 1), max_size=6), label="left out or doubled")
    doubled = data.draw(st.booleans(), label="doubled")
    source = "".join(line * (2 if doubled else 0) if number in kept else line for number, line in enumerate(lines))
    try:
        kernel = kernel_source(ROW["CUDA_Code"], source)
    except UnconvertibleError:
        return
    assert "class ModelNew(" in kernel
    assert "fn(" not in kernel
