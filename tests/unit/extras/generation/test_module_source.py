"""A class in a file becomes a problem that stands alone and computes the same."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from imported import import_file

from extras.generation.module_source import problem_source
from kernels_eval.errors import InputError
from kernels_eval.problem import check_problem_source

FILE = '''
"""A program."""
import os
import torch
from torch import nn
import torch.nn.functional as F

SCALE = 2.0
UNUSED = os.environ.get("HOME")
HIDDEN, WIDTH = 8, 4

def scaled(x):
    return x * SCALE

def marked(cls):
    return cls

class Part(nn.Module):
    def forward(self, x):
        return scaled(x)

@marked
class Fused(nn.Module):
    """With a docstring."""
    factor = 3.0
    def __init__(self, hidden):
        super(Fused, self).__init__()
        self.part = Part()
        self.linear = nn.Linear(WIDTH, hidden)
    def forward(self, x):
        return F.relu(self.linear(self.part(x))) * Fused.factor

def get_inputs():
    return [torch.ones(2, WIDTH)]

def get_init_inputs():
    return [HIDDEN]

if __name__ == "__main__":
    print(Fused(*get_init_inputs())(*get_inputs()))
'''


def loaded(path: Path, text: str) -> ModuleType:
    path.write_text(text)
    return import_file(path)


def test_the_problem_stands_alone_and_computes_the_same(tmp_path: Path):
    program = loaded(tmp_path / "program_a.py", FILE)
    source = problem_source(program.Fused)
    check_problem_source(source, "problem")
    for left_out in ("UNUSED", "import os", "marked", "__main__"):
        assert left_out not in source
    names: dict[str, Any] = {}
    exec(compile(source, "problem.py", "exec"), names)
    torch.manual_seed(1)
    expected = program.Fused(*program.get_init_inputs())(*program.get_inputs())
    torch.manual_seed(1)
    assert torch.equal(names["Model"](*names["get_init_inputs"]())(*names["get_inputs"]()), expected)


def test_functions_of_other_names_and_a_constructor_without_arguments(tmp_path: Path):
    text = FILE.replace("def get_inputs", "def sample").replace("(self, hidden)", "(self)").replace(", hidden)", ", 8)")
    text = text[: text.index("def get_init_inputs")]
    program = loaded(tmp_path / "program_b.py", text)
    names: dict[str, Any] = {}
    exec(compile(problem_source(program.Fused, program.sample), "problem.py", "exec"), names)
    assert names["get_init_inputs"]() == []
    assert names["Model"]()(*names["get_inputs"]()).shape == (2, 8)
    with pytest.raises(InputError, match="expected get_inputs"):
        problem_source(program.Fused)
    with pytest.raises(InputError, match="expected a function at the top level"):
        problem_source(program.Fused, lambda: [])


def test_what_has_no_place_in_a_file_is_refused(tmp_path: Path):
    class Local(torch.nn.Module): ...

    with pytest.raises(InputError, match="top level"):
        problem_source(Local)
    program = loaded(tmp_path / "program_c.py", FILE + "\nclass Model: ...\n")
    with pytest.raises(InputError, match="another `Model`"):
        problem_source(program.Fused)
