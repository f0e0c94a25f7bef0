"""Tables of other projects load as they are: each in a miniature written in its form."""

import json
import logging
from pathlib import Path

import pytest

from kernels_eval.errors import InputError
from tasks.problems.config import ProblemsConfig
from tasks.problems.loaders import load_entries

USERS_FILES = sorted((Path(__file__).parents[4] / "shared" / "data").glob("kernel_bench_triton_*.jsonl"))


def loaded(path, source="jsonl", **changes):
    entries = load_entries(ProblemsConfig(source=source, path=str(path), **changes))
    return [(entry.problem.problem_id, entry.problem.level, entry.problem.name) for entry in entries]


def prompt_set_row(source: str, **changes):
    """A row of a prompt set for RL, as slime's users write it."""
    return {
        "prompt": [{"role": "user", "content": "Write a Triton kernel for this module."}],
        "label": source,
        "extra_info": {"level": 1, "problem_id": "19", "problem_name": "ReLU", "data_source": "x", "task_type": "y"},
        "instance_id": "kernel_bench_triton_lv1_19",
    } | changes


FORMS = {
    "slime": (prompt_set_row, ("level1_19_ReLU", 1, "ReLU")),
    "slime, extra_info as text": (
        lambda source: prompt_set_row(
            source, extra_info=json.dumps({"level": "2", "problem_id": 3, "problem_name": "A"})
        ),
        ("level2_3_A", 2, "A"),
    ),
    "slime without extra_info": (
        lambda source: {"prompt": "x", "label": source, "instance_id": "kernel_bench_triton_lv1_19"},
        ("kernel_bench_triton_lv1_19", 1, ""),
    ),
    "verl": (
        lambda source: {
            "data_source": "kernelbench",
            "prompt": [{"role": "user", "content": "x"}],
            "ability": "code",
            "reward_model": {"style": "rule", "ground_truth": source},
            "extra_info": {"split": "train", "index": 0, "level": 2, "problem_id": 7, "problem_name": "Chain"},
        },
        ("level2_7_Chain", 2, "Chain"),
    ),
    "pytorch_code": (lambda source: {"pytorch_code": source, "name": "my relu"}, ("level1_my_relu", 1, "my relu")),
    "ref_arch_src": (
        lambda source: {"level": "level_3", "problem_id": 5, "problem_name": "5_x.py", "ref_arch_src": source},
        ("level3_5_x.py", 3, "5_x.py"),
    ),
    "Sakana AI's archive": (
        lambda source: {
            "Op_Name": "19_ReLU",
            "Level_ID": 1,
            "Task_ID": 19,
            "Kernel_Name": "relu_v2",
            "PyTorch_Code_Module": source,
            "CUDA_Code": "…",
        },
        ("level1_19_ReLU", 1, "19_ReLU"),
    ),
    "KernelBook": (
        lambda source: {
            "entry_point": "Squash",
            "python_code": source.replace("Model", "Squash").replace("return []", "return [[], {}]"),
            "triton_code": "…",
            "uuid": 4,
        },
        ("level1_Squash", 1, "Squash"),
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "saved"])
def test_the_form_is_recognised_by_its_columns(form, kind, write, problem_source, caplog):
    caplog.set_level(logging.INFO)
    row, expected = FORMS[form]
    source = "huggingface" if kind == "saved" else kind
    assert loaded(write(kind, [row(problem_source())]), source) == [expected]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "1 problems; source from `" in said[0]


def test_the_line_says_what_was_read_as_what(write, problem_source, caplog):
    caplog.set_level(logging.INFO)
    path = write("jsonl", [prompt_set_row(problem_source())])
    loaded(path)
    assert caplog.messages == [
        f"{path}: 1 problems; source from `label`, problem_id from `extra_info.problem_id`, level from "
        "`extra_info.level`, name from `extra_info.problem_name`; levels 1 (1)"
    ]


def test_columns_map_names_that_are_not_known(write, problem_source):
    row = {"text": problem_source(), "meta": {"difficulty": 2, "title": "relu"}, "source": "github"}
    path = write("jsonl", [row])
    columns = {"source": "text", "level": "meta.difficulty", "name": "meta.title"}
    assert loaded(path, columns=columns) == [("level2_relu", 2, "relu")]
    with pytest.raises(InputError, match=r"problems\.columns: expected a column `body` for source; found text, meta"):
        loaded(path, columns={"source": "body"})
    with pytest.raises(InputError, match=r"problems\.columns: expected our names source, .*; found `code`"):
        loaded(path, columns={"code": "text"})
    with pytest.raises(InputError, match=r"line 1: column `text`: expected text, found 7"):
        loaded(write("jsonl", [row | {"text": 7}]), columns=columns)


@pytest.mark.parametrize(
    "written",
    [
        lambda rows: json.dumps(rows),
        lambda rows: "\ufeff" + json.dumps(rows, indent=2),
        lambda rows: json.dumps({"version": 1, "problems": rows}),
        lambda rows: json.dumps({"version": 1, "problems": rows}, indent=1),
        lambda rows: "\n".join(map(json.dumps, rows)),
    ],
    ids=["array", "indented array", "array in an object", "indented object", "lines"],
)
@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_arrays_and_lines_are_told_apart_by_their_content(name, written, rows, tmp_path):
    path = tmp_path / name
    path.write_text(written(rows), encoding="utf-8")
    assert [name for _, _, name in loaded(path)] == [row["name"] for row in rows]


def test_a_bad_item_of_an_array_is_named(rows, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([*rows, 3]))
    with pytest.raises(InputError, match=r"a\.json row 15: expected a JSON object, found int"):
        loaded(path, bad_rows=0)
    path.write_text("[{")
    with pytest.raises(InputError, match=r"a\.json: expected one JSON object a line, or a JSON array"):
        loaded(path)


def test_others_names_of_the_split(write, problem_source):
    rows = [{"code": problem_source(name), "split": split} for name, split in (("relu", "train"), ("tanh", "test"))]
    entries = load_entries(ProblemsConfig(source="jsonl", path=str(write("jsonl", rows))))
    assert [entry.split for entry in entries] == ["train", "heldout"]


@pytest.mark.skipif(not USERS_FILES, reason="needs the problem files of TritonForge, which are not part of the project")
def test_the_files_of_tritonforge_load_whole():
    found = [row for path in USERS_FILES for row in loaded(path, bad_rows=0)]
    assert [sum(level == one for _, level, _ in found) for one in (1, 2, 3)] == [100, 100, 50]
    assert all(problem_id.startswith(f"level{level}_") for problem_id, level, _ in found)
