"""Tasks of robust-kbench as problems: every combination of arguments, and every flaw named with its file."""

import json
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.errors import InputError
from tasks.problems.config import ProblemsConfig
from tasks.problems.loaders import load_entries, source_of
from tasks.problems.split import split_entries

MODULE = '''
import torch
import torch.nn as nn


def forward_fn(x: torch.Tensor, weight: torch.Tensor, slope: float) -> torch.Tensor:
    """Scale rows and apply a leaky ReLU.

    Args:
        x (torch.Tensor): Any shape.
    """
    return torch.nn.functional.leaky_relu(x * weight, slope)


class Model(nn.Module):
    def __init__(self, features: int, slope: float = 0.01, bias: bool = False):
        super(Model, self).__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.slope, self.bias = slope, bias

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight, self.slope)


def get_inputs(batch_size: int = 16, features: int = 32):
    return [torch.randn(batch_size, features)]


input_names = ["x"]
'''
CONFIG: dict[str, Any] = {
    "single_input_configs": [{"batch_size": 8}],
    "single_init_configs": [{"bias": True}],
    "single_shared_configs": [{"features": 64}],
    "multi_input_configs": [{"batch_size": 4}, {"batch_size": 6}],
    "multi_init_configs": [{"slope": 0.1}, {"slope": 0.2}],
    "multi_shared_configs": [{"features": 64}, {"features": 128}],
}


def task(folder: Path, module: str = MODULE, config: Any = CONFIG) -> Path:
    folder.mkdir(parents=True)
    (folder / "func_forward.py").write_text(module)
    (folder / "config_forward.json").write_text(json.dumps(config))
    return folder


def config(path: Path, **changes: Any) -> ProblemsConfig:
    return ProblemsConfig(source="robust_kbench", path=str(path), **changes)


def run(source: str) -> tuple[list[Any], Any, Any]:
    """Return the constructor's arguments, the model and its output, as the judge makes them."""
    names: dict[str, Any] = {"__name__": "problem"}
    exec(compile(source, "problem", "exec"), names)
    arguments = names["get_init_inputs"]()
    model = names["Model"](*arguments)
    return arguments, model, model(*names["get_inputs"]())


def test_a_task_is_a_problem_with_its_arguments(tmp_path: Path) -> None:
    task(tmp_path / "leaky")
    (entry,) = load_entries(config(tmp_path))
    assert (entry.problem.problem_id, entry.problem.level, entry.composition) == ("leaky", 1, "leaky")
    arguments, _, output = run(entry.problem.source)
    assert arguments == [64, 0.01, True]
    assert output.shape == (8, 64)


@pytest.mark.parametrize("place", ["", "tasks", "tasks/leaky"])
def test_it_is_found_from_any_folder(tmp_path: Path, place: str) -> None:
    task(tmp_path / "tasks" / "leaky")
    (entry,) = load_entries(config(tmp_path / place))
    assert entry.problem.problem_id == "leaky"


def test_every_combination_is_a_problem_and_all_are_on_one_side(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d", "e", "f"):
        task(tmp_path / name)
    entries = load_entries(config(tmp_path, variants="multi"))
    assert [entry.problem.problem_id for entry in entries[:9]] == [*(f"a_{number}" for number in range(1, 9)), "b_1"]
    shapes = [run(entry.problem.source)[2].shape for entry in entries[:8]]
    assert shapes == [(4, 64), (4, 128), (6, 64), (6, 128)] * 2
    assert [run(entry.problem.source)[0][1] for entry in entries[:8]] == [0.1] * 4 + [0.2] * 4
    rows = split_entries(entries, config(tmp_path, train=800, heldout=800))
    sides = {name: {row.split for row in rows if row.composition == name} for name in "abcdef"}
    assert all(len(side) == 1 for side in sides.values())
    assert len(set.union(*sides.values())) == 2


def test_a_name_that_the_conversion_gives_may_be_taken(tmp_path: Path) -> None:
    task(tmp_path / "leaky", MODULE.replace("features: int = 32", "features: int = 32, task_inputs=None"))
    (entry,) = load_entries(config(tmp_path))
    assert run(entry.problem.source)[2].shape == (8, 64)


def test_a_model_without_a_constructor(tmp_path: Path) -> None:
    module = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x, fn=None):\n        return x\n"
        "def get_inputs(rows=2):\n    return [torch.ones(rows)]\n"
    )
    bare = {"single_init_configs": [{}], "single_input_configs": [{"rows": 3}], "single_shared_configs": [{}]}
    task(tmp_path / "same", module, bare)
    (entry,) = load_entries(config(tmp_path))
    assert run(entry.problem.source)[2].shape == (3,)


@pytest.mark.parametrize(
    ("module", "changes", "message"),
    [
        ("def f(:", {}, "leaky/func_forward.py: not Python"),
        ("x = 1", {}, "defines Model and get_inputs"),
        (MODULE, {"single_init_configs": "none"}, "`single_init_configs`: expected a list of objects"),
        (MODULE, {"single_input_configs": []}, "`single_input_configs`: expected a list of objects"),
        (
            MODULE,
            {"single_init_configs": [{"size": 3}]},
            "Model: expected arguments features, slope, bias; the configuration has size",
        ),
        (MODULE, {"single_input_configs": [{"rows": 3}]}, "get_inputs: expected arguments batch_size, features"),
        (
            MODULE.replace("features: int = 32", "features: int = 32, slope=0"),
            {"single_shared_configs": [{"slope": 1}]},
            "gives no `features`, which has no default",
        ),
    ],
)
def test_what_is_no_task_is_named(tmp_path: Path, module: str, changes: dict[str, Any], message: str) -> None:
    task(tmp_path / "leaky", module, CONFIG | changes)
    with pytest.raises(InputError, match=message):
        load_entries(config(tmp_path))


def test_a_folder_without_tasks_and_one_with_gradients_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"folders with func_forward\.py and config_forward\.json; found none"):
        load_entries(config(tmp_path))
    (tmp_path / "linear").mkdir()
    (tmp_path / "linear" / "func_backward.py").touch()
    with pytest.raises(InputError, match=r"found func_backward\.py alone: gradients are not judged"):
        load_entries(config(tmp_path))
    with pytest.raises(InputError, match="found a file"):
        load_entries(config(tmp_path / "linear" / "func_backward.py"))


def test_a_task_without_its_configuration(tmp_path: Path) -> None:
    (task(tmp_path / "leaky") / "config_forward.json").unlink()
    with pytest.raises(InputError, match=r"config_forward\.json: no such file"):
        load_entries(config(tmp_path))


def test_nested_folders_of_levels_keep_their_level(tmp_path: Path) -> None:
    """`tasks/kernelbench/level_2/task_3`, beside tasks without a level."""
    other = MODULE.replace("leaky_relu(x * weight, slope)", "relu(x * weight)")
    top = tmp_path / "tasks"
    first, second = (top / "kernelbench" / f"level_{level}" / "task_3" for level in (1, 2))
    for folder, module in ((first, MODULE), (second, other), (top / "linear", MODULE), (top / "new" / "linear", other)):
        task(folder, module)
    found = [(entry.problem.problem_id, entry.problem.level) for entry in load_entries(config(tmp_path, bad_rows=0))]
    assert found == [("level1_task_3", 1), ("level2_task_3", 2), ("linear", 1), ("new_linear", 1)]
    for folder in (second, second.parent):
        (entry,) = load_entries(config(folder))
        assert (entry.problem.problem_id, entry.problem.level, entry.composition) == (
            "level2_task_3",
            2,
            "level2_task_3",
        )
    assert source_of(tmp_path) == source_of(second.parent) == "robust_kbench"


def test_a_bad_task_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b", "c"):
        task(tmp_path / name, MODULE if name != "b" else "x = 1")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "func_backward.py").touch()
    assert [entry.problem.problem_id for entry in load_entries(config(tmp_path))] == ["a", "c"]
    assert "left out: " in caplog.text
    assert "b/func_forward.py: expected a robust-kbench task that defines Model and get_inputs" in caplog.text
    assert "d: expected func_forward.py, found func_backward.py alone: gradients are not judged" in caplog.text
    assert "2 of 4 files are left out" in caplog.text
