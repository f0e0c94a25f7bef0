"""KernelBook rows become KernelBench problems that build the same module, or say why not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.problems.pair_formats.kernelbook import convert
from tasks.problems.pair_formats.pair import Reason, UnconvertibleError

PYTHON = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Gate(nn.Module):

    def __init__(self, in_features, dropout_rate=0.5, bias=True):
        super(Gate, self).__init__()
        self.linear = nn.Linear(in_features, in_features, bias=bias)  # größe
        self.dropout_rate = dropout_rate

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.rand([4, 4])]


def get_init_inputs():
    return [[], {'in_features': 4, 'dropout_rate': 0.25}]
"""
TRITON = """import torch
import torch.nn as nn


def call(args):
    return args


class GateNew(nn.Module):

    def __init__(self, in_features, dropout_rate=0.5, bias=True):
        super(GateNew, self).__init__()
        self.linear = nn.Linear(in_features, in_features, bias=bias)

    def forward(self, input_0):
        return call([input_0, self.linear.weight])[0]
"""


def reason(python=PYTHON, triton=TRITON, entry_point="Gate"):
    with pytest.raises(UnconvertibleError) as raised:
        convert(python, triton, entry_point)
    return raised.value.reason


def built(problem):
    """The module that KernelBench builds from a problem."""
    names = {}
    exec(problem, names)
    return names["Model"](*names["get_init_inputs"]())


def test_only_names_and_the_argument_list_change():
    problem, kernel = convert(PYTHON, TRITON, "Gate")
    expected = PYTHON.replace("Gate", "Model").replace("[[], {'in_features': 4, 'dropout_rate': 0.25}]", "[4, 0.25]")
    assert problem == expected
    assert kernel == TRITON.replace("GateNew", "ModelNew")
    module = built(problem)
    assert module.linear.in_features == 4
    assert module.dropout_rate == 0.25


@pytest.mark.parametrize(
    ("given_arguments", "flat"),
    [
        ("[[], {}]", "[]"),
        ("[[4], {}]", "[4]"),
        ("[[4, 0.1], {'bias': False}]", "[4, 0.1, False]"),
        ("[[], {'in_features': 4, 'bias': False}]", "[4, 0.5, False]"),
        ("[[], {'bias': False, 'in_features': 4}]", "[4, 0.5, False]"),
        ("([4], {})", "[4]"),
        ("[4, 0.1]", "[4, 0.1]"),
        ("[]", "[]"),
        ("[\n        [],\n        {'in_features': (\n            2 + 2), 'dropout_rate': '→'}]", "[2 + 2, '→']"),
    ],
)
def test_constructor_arguments_become_positional(given_arguments, flat):
    python = PYTHON.replace("[[], {'in_features': 4, 'dropout_rate': 0.25}]", given_arguments)
    assert convert(python, TRITON, "Gate")[0].endswith(f"return {flat}\n")


def test_an_inherited_constructor_is_found():
    python = PYTHON.replace("class Gate(", "class Base(").replace("super(Gate", "super(Base")
    python = python.replace("def get_inputs", "class Gate(Base):\n    pass\n\n\ndef get_inputs")
    assert built(convert(python, TRITON, "Gate")[0]).dropout_rate == 0.25


def test_attributes_of_the_same_name_stay():
    python = PYTHON.replace("return self.linear(x)", "return F.Gate(self.Gate(x), 'Gate', Gate)")
    assert "F.Gate(self.Gate(x), 'Gate', Model)" in convert(python, TRITON, "Gate")[0]


def test_reasons():
    assert reason(python="def") is Reason.NOT_A_PROBLEM
    assert reason(entry_point="Gates") is Reason.NOT_A_PROBLEM
    assert reason(entry_point="not a name") is Reason.NOT_A_PROBLEM
    assert reason(python=PYTHON.replace("def get_inputs", "def inputs")) is Reason.NOT_A_PROBLEM
    assert reason(triton="def") is Reason.NOT_A_KERNEL
    assert reason(triton=TRITON.replace("GateNew", "Other")) is Reason.NOT_A_KERNEL
    assert reason(python=PYTHON.replace("nn.Linear", "Model")) is Reason.NAME_TAKEN
    assert reason(triton=TRITON.replace("call", "ModelNew")) is Reason.NAME_TAKEN
    for arguments in ("{'unknown': 4}", "{'dropout_rate': 4}", "{**{'in_features': 4}}", "{4: 4}"):
        python = PYTHON.replace("{'in_features': 4, 'dropout_rate': 0.25}", arguments)
        assert reason(python=python) is Reason.CONSTRUCTOR
    assert reason(python=PYTHON.replace("in_features, dropout_rate=0.5", "*, in_features, dropout_rate=0.5")) is (
        Reason.CONSTRUCTOR
    )


def test_a_class_that_has_the_name_already():
    python, triton = PYTHON.replace("Gate", "Model"), TRITON.replace("Gate", "Model")
    assert convert(python, triton, "Model")[1] == triton


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_call_by_keyword_builds_the_same_module(data):
    """Random signatures, random calls: what KernelBook would call and what KernelBench calls agree."""
    count = data.draw(st.integers(1, 5), label="parameters")
    required = data.draw(st.integers(0, count), label="required")
    parameters = [f"p{n}" if n < required else f"p{n}={n * 10}" for n in range(count)]
    positional = data.draw(st.integers(0, count), label="positional")
    optional = [n for n in range(positional, count) if n >= required and data.draw(st.booleans())]
    named = data.draw(st.permutations([*range(positional, required), *optional]))
    call = (list(range(100, 100 + positional)), {f"p{n}": n + 500 for n in named})
    attributes = "\n".join(f"        self.p{n} = p{n}" for n in range(count))
    python = (
        f"class Thing:\n    def __init__(self, {', '.join(parameters)}):\n{attributes}\n"
        f"def get_inputs():\n    return []\ndef get_init_inputs():\n    return [{call[0]!r}, {call[1]!r}]\n"
    )
    names = {}
    exec(python, names)
    expected = vars(names["Thing"](*call[0], **call[1]))
    assert vars(built(convert(python, "class ThingNew: ...", "Thing")[0])) == expected


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_text_converts_or_says_why(data):
    """Lines shuffled, cut and doubled: never another exception."""
    lines = PYTHON.splitlines(keepends=True)
    python = "".join(data.draw(st.lists(st.sampled_from(lines), max_size=25)))
    try:
        problem, _ = convert(python, TRITON, "Gate")
    except UnconvertibleError:
        return
    assert "class Model" in problem
