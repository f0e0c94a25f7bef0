"""Pairs of both kinds, from every format; what is dropped is counted."""

import json
import re

import pytest

from kernels_eval.errors import InputError
from kernels_eval.problem import check_problem_source
from tasks.problems.pairs import load_pairs

NAMES = ("Relu", "Tanh", "Exp", "Sin")


def kernelbook_row(name: str, **changes):
    """A row with the columns of KernelBook."""
    python = (
        "import torch\nimport torch.nn as nn\n\n\n"
        f"class {name}(nn.Module):\n\n    def forward(self, x):\n        return torch.{name.lower()}(x)\n\n\n"
        "def get_inputs():\n    return [torch.rand([4, 4, 4, 4])]\n\n\ndef get_init_inputs():\n    return [[], {}]\n"
    )
    kernel = f"import torch\nimport torch.nn as nn\n\n\nclass {name}New(nn.Module):\n    pass\n"
    return {
        "entry_point": name,
        "original_triton_code": f"# AOT ID\n{kernel}",
        "python_code": python,
        "triton_code": kernel,
        "repo_name": "someone/something",
        "module_name": name,
        "synthetic": False,
        "uuid": 1,
        "licenses": ["MIT"],
        "stars": 0,
        "sha": "0" * 40,
        "repo_link": "https://example.com/something",
    } | changes


def own_row(source: str, number: int = 0, **changes):
    return {"problem_source": source, "kernel_source": f"class ModelNew:\n    number = {number}\n"} | changes


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "saved", "saved_dict", "snapshot"])
def test_kernelbook_from_every_format(kind, write):
    pairs = load_pairs(write(kind, [kernelbook_row(name) for name in NAMES]))
    assert len(pairs) == len({pair.pair_id for pair in pairs}) == len(NAMES)
    for pair, name in zip(pairs, NAMES, strict=True):
        check_problem_source(pair.problem_source, "pair")
        assert f"torch.{name.lower()}(x)" in pair.problem_source
        assert "class ModelNew(" in pair.kernel_source


def test_what_cannot_be_used_is_counted(write, caplog):
    path = write(
        "jsonl",
        [
            kernelbook_row("Relu"),
            kernelbook_row("Relu", stars=9, triton_code="# layout\n" + kernelbook_row("Relu")["triton_code"]),
            kernelbook_row("Relu", entry_point="Other"),
            kernelbook_row("Relu", triton_code="import torch\n"),
        ],
    )
    assert len(load_pairs(path)) == 1
    assert "1 pairs; dropped: duplicate 1, not_a_kernel 1, not_a_problem 1" in caplog.text


def test_own_columns(write, problem_source, caplog):
    rows = [
        own_row(problem_source(), pair_id="a", composition="relu", style="fused", kind="direct", level=1),
        own_row(problem_source(), 1, pair_id="b", composition="relu", style="stepwise", kind="repair", level=1),
    ]
    (pair,) = load_pairs(write("parquet", rows))
    assert (pair.pair_id, pair.composition, pair.style) == ("a", "relu", "fused")
    assert (pair.problem_source, pair.kernel_source) == (rows[0]["problem_source"], rows[0]["kernel_source"])
    assert "1 pairs; dropped: not_direct 1" in caplog.text


def test_several_kernels_for_one_problem_are_pairs(write, problem_source):
    pairs = load_pairs(write("jsonl", [own_row(problem_source(), number) for number in range(3)]))
    assert len({pair.pair_id for pair in pairs}) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel_source": "x ="}, "kernel_source: not Python: invalid syntax"),
        ({"problem_source": "class Model: ..."}, "line 2: expected a KernelBench problem"),
        ({"kernel_source": None}, "line 2: column `kernel_source`: expected text, found null"),
        ({"kernel_source": 4}, "line 2: column `kernel_source`: expected text, found 4"),
        ({"pair_id": "a"}, "line 2: pair_id a occurs more than once"),
    ],
)
def test_a_bad_row_of_ours_is_named_and_left_out(change, message, write, problem_source, caplog):
    rows = [own_row(problem_source(), 0, pair_id="a"), own_row(problem_source(), 1, pair_id="b") | change]
    path = write("jsonl", rows)
    with pytest.raises(InputError, match=rf"{message}.* \(1 of 2 rows are bad; sft\.data\.bad_rows allows 0%\)"):
        load_pairs(path, bad_rows=0)
    assert [pair.pair_id for pair in load_pairs(path)] == ["a"]
    assert re.search(f"left out: .*{message}", caplog.text)


def test_other_columns_are_named(write):
    expected = (
        "line 1: expected the columns python_code, triton_code, entry_point or CUDA_Code, PyTorch_Code_Module, "
        "PyTorch_Code_Functional, Correct, CUDA_Runtime or problem_source, kernel_source or messages or prompt, "
        "completion or instruction, output or input, output; found text, label"
    )
    with pytest.raises(InputError, match=expected):
        load_pairs(write("jsonl", [{"text": "x", "label": "y"}]))


def test_nothing_usable_is_an_input_error(write, tmp_path):
    path = write("jsonl", [kernelbook_row("Relu", entry_point="Other")])
    with pytest.raises(InputError, match=r"expected pairs .* found none \(not_a_problem 1\)"):
        load_pairs(path)
    path.write_text("")
    with pytest.raises(InputError, match="the source is empty"):
        load_pairs(path)
    with pytest.raises(InputError, match="gone: no such file"):
        load_pairs(tmp_path / "gone")
    other = tmp_path / "pairs.csv"
    other.write_text("python_code\n")
    with pytest.raises(
        InputError, match=r"expected a \.json, \.jsonl or \.parquet file or a Hugging Face dataset folder"
    ):
        load_pairs(other)


def test_a_json_array_is_read_as_json_lines_are(write, tmp_path):
    rows = [kernelbook_row(name) for name in NAMES]
    path = tmp_path / "pairs.json"
    path.write_text("\ufeff" + json.dumps(rows, indent=1), encoding="utf-8")
    assert load_pairs(path) == load_pairs(write("jsonl", rows))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", r"pairs\.json line 1: expected the columns .*; found none"),
        (b"[1]", r"pairs\.json row 1: expected a JSON object, found int"),
        (b"[{}\n{}]", r"pairs\.json: expected one JSON object a line, or a JSON array of objects: Expecting"),
        (b"\xff", r"pairs\.json line 1: expected one JSON object a line: 'utf-8' codec"),
        (b"[]", r"pairs\.json: expected pairs of problem and kernel, found none \(the source is empty\)"),
    ],
)
def test_a_json_file_of_another_form_is_refused(content, message, tmp_path):
    path = tmp_path / "pairs.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_pairs(path)
