"""Folders of modules, as other projects lay them out."""

import logging

import pytest

from kernels_eval.errors import InputError
from tasks.problems.config import ProblemsConfig
from tasks.problems.loaders import load_entries, source_of


def written(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def loaded(path, **changes):
    entries = load_entries(ProblemsConfig(source="kernelbench", path=str(path), **changes))
    return [(entry.problem.problem_id, entry.problem.level, entry.problem.family) for entry in entries]


def test_the_category_is_the_family(tmp_path, problem_source, caplog):
    """MultiKernelBench: `reference/<category>/<name>.py` beside scripts; some files have another format."""
    caplog.set_level(logging.INFO)
    files = {
        "eval.py": "print('a script of the checkout')",
        "reference/activation/elu.py": problem_source("relu"),
        "reference/activation/__init__.py": "",
        "reference/math/abs.py": problem_source("abs"),
        "reference/math/other.py": "def reference(x): ...",
    }
    top = written(tmp_path, files)
    expected = [("activation_elu", 1, "activation"), ("math_abs", 1, "math")]
    assert loaded(top) == loaded(top / "reference") == expected
    assert {source_of(top), source_of(top / "reference")} == {"kernelbench"}
    assert "left out: " in caplog.text
    assert "math/other.py: expected a KernelBench problem" in caplog.text
    assert f"{top}: 2 problems; levels 1 (2); 2 families" in caplog.text
    assert loaded(top / "reference" / "math") == [("abs", 1, "")]


@pytest.mark.parametrize("level", ["level{}", "level_{}"])
def test_numbered_folders_with_a_reference(level, tmp_path, problem_source):
    files = {
        f"{level.format(1)}/10_abs/reference.py": problem_source("abs"),
        f"{level.format(1)}/10_abs/solution.py": "class ModelNew: ...",
        f"{level.format(1)}/9_relu/reference.py": problem_source("relu"),
        f"{level.format(2)}/3/reference.py": problem_source("tanh"),
        "run.py": "print()",
    }
    top = written(tmp_path, files)
    expected = [("level1_9_relu", 1, ""), ("level1_10_abs", 1, ""), ("level2_3", 2, "")]
    assert loaded(top, bad_rows=0) == expected
    assert loaded(top / level.format(2), bad_rows=0) == expected[2:]
    assert source_of(top) == "kernelbench"


def test_folders_without_a_level(tmp_path, problem_source):
    top = written(tmp_path, {f"{number:03}/reference.py": problem_source("abs", rows=number) for number in (2, 10)})
    assert loaded(top) == [("002", 1, ""), ("010", 1, "")]


def test_a_folder_without_modules_is_named(tmp_path):
    written(tmp_path, {"level1/readme.md": "", ".hidden/a.py": ""})
    with pytest.raises(InputError, match=r"expected problems, found none|expected a KernelBench checkout"):
        loaded(tmp_path)
