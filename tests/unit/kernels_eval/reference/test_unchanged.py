"""A call of a reference leaves its model as it was, whatever the model keeps and wherever."""

import pytest
import torch

from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.reference.unchanged import unchanged

SOURCE = (
    "import torch\nimport torch.nn as nn\n"
    "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.h, self.calls = torch.zeros(2, 3), 0\n"
    "        self.kept, self.kept_in, Model.total = [], ([],), 0\n"
    "        self.register_buffer('seen', torch.zeros(3))\n"
    "    def forward(self, x):\n        {body}\n"
    "def get_inputs():\n    return [torch.ones(2, 3)]\ndef get_init_inputs():\n    return []\n"
)
KEEPING = {
    "assigned": "self.h = x + self.h; return self.h",
    "written to": "return self.h.add_(x)",
    "made in the call": "self.late = getattr(self, 'late', 0) + x; return self.late + self.h",
    "counted": "self.calls += 1; return x * self.calls",
    "a buffer written to": "self.seen += x[0]; return x * self.seen",
    "a buffer that is the result": "return self.seen.add_(x[0]).expand(2, 3)",
    "put into a list": "self.kept.append(x); return x * len(self.kept)",
    "put into a list of a list": "self.kept_in[0].append(x); return x * len(self.kept_in[0])",
    "counted by the class": "Model.total += 1; return x * Model.total",
    "a buffer assigned": "self.seen = self.seen + x[0]; return x * self.seen",
}


@pytest.mark.parametrize("way", KEEPING)
def test_each_call_finds_the_model_as_it_was_built(way: str) -> None:
    code = ProblemCode(SOURCE.format(body=KEEPING[way]))
    model = code.model(0)
    held = model.h
    for _ in range(3):
        (result,), _ = code.run(model, code.inputs())
        assert torch.equal(result, torch.ones(2, 3))
    assert model.h is held
    assert not bool(held.any() | model.seen.any())
    assert model.calls == 0
    assert not hasattr(model, "late")


def test_what_a_call_changed_is_named_and_dictionaries_stay_the_same() -> None:
    model = ProblemCode(SOURCE.format(body="return x")).model(0)
    tables = model._buffers, model._parameters
    with unchanged(model) as kept:
        model.h += 1
        model.calls, model.seen = 5, model.seen + 1
        assert kept.changed() == {"h", "calls", "seen"}
    assert model.calls == 0
    assert model._buffers is tables[0]
    assert model._parameters is tables[1]
