"""Operators of a reference, collected without computing it: launches, bytes needed, operators that draw."""

import pytest
import torch

from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.reference.eager_run import EagerRun
from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.reference.reduction import Reduction
from kernels_eval.reference.reference import Reference


def ran(forward: str, inputs: str, init: str = "pass") -> EagerRun:
    code = ProblemCode(
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, x, y=None):\n        return {forward}\n"
        f"def get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return []\n"
    )
    model = code.model(0)
    return Reduction(code, model).eager


def test_each_operator_is_a_launch() -> None:
    run = ran("torch.relu(x @ y) + 1", "[torch.randn(64, 32), torch.randn(32, 16)]")
    assert [launch.kernel for launch in run.launches] == ["aten.mm", "aten.relu", "aten.add"]
    assert sum(launch.matrix_flops for launch in run.launches) == 2 * 64 * 32 * 16


def test_bytes_that_are_needed_are_inputs_weights_and_results() -> None:
    run = ran("self.linear(x)", "[torch.randn(64, 32)]", "self.linear = nn.Linear(32, 16)")
    assert run.needed_bytes == 4 * (64 * 32 + (32 * 16 + 16) + 64 * 16)


def test_operators_that_draw_are_named() -> None:
    assert ran("F.dropout(x, training=True)", "[torch.randn(8, 8)]").random_operators
    assert not ran("x.softmax(1)", "[torch.randn(8, 8)]").random_operators


def test_a_problem_whose_shapes_depend_on_values_is_run() -> None:
    run = ran("x[x > 0].sum()", "[torch.arange(-8.0, 8.0)]")
    assert any("index" in launch.kernel or "nonzero" in launch.kernel for launch in run.launches)
    assert run.needed_bytes == 16 * 4 + 4


def test_a_large_problem_is_not_computed() -> None:
    before = torch.get_rng_state()
    run = ran("x @ x", "[torch.randn(1 << 15, 1 << 15)]")  # 70 million million operations
    assert sum(launch.matrix_flops for launch in run.launches) == 2 * (1 << 45)
    assert torch.equal(torch.get_rng_state(), before)


def test_shapes_of_results_are_known_if_nothing_was_computed() -> None:
    assert ran("x @ y, [x.sum(1)]", "[torch.randn(64, 32), torch.randn(32, 16)]").output_shapes == [(64, 16), (64,)]
    assert ran("x[x > 0]", "[torch.arange(-8.0, 8.0)]").output_shapes is None
    assert ran("x, 3", "[torch.randn(8)]").output_shapes is None


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_a_recurrent_network_is_followed_for_two_steps(kind: str, batch_first: bool) -> None:
    short, long = (
        ran("self.net(x)[0]", f"[torch.randn(3, {n}, 8) if {batch_first} else torch.randn({n}, 3, 8)]",
            f"self.net = nn.{kind}(8, 16, 2, batch_first={batch_first}, bidirectional=True)")
        for n in (2, 1000)
    )  # fmt: skip
    assert long.output_shapes == [(3, 1000, 32) if batch_first else (1000, 3, 32)]
    flops = [sum(launch.matrix_flops for launch in run.launches) for run in (short, long)]
    assert flops[1] == 500 * flops[0] > 0


@pytest.mark.parametrize("training", [True, False])
def test_a_batch_norm_without_values_is_one_operator_and_checks_its_sizes(training: bool) -> None:
    forward = f"F.batch_norm(x, torch.ones(CHANNELS), torch.ones(CHANNELS), training={training})"
    run = ran(forward.replace("CHANNELS", "6"), "[torch.randn(4, 6, 5)]")
    assert {launch.kernel for launch in run.launches} == {"aten.ones", "aten.native_batch_norm"}
    assert run.output_shapes == [(4, 6, 5)]
    with pytest.raises(ReferenceFailedError, match="should contain 6 elements"):
        ran(forward.replace("CHANNELS", "5"), "[torch.randn(4, 6, 5)]")


STATEFUL = (
    "import torch\nimport torch.nn as nn\n"
    "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.hidden, self.linear = torch.ones(4, 8), nn.Linear(8, 8)\n"
    "    def forward(self, x):\n        self.hidden = torch.tanh(self.linear(x) + self.hidden)\n"
    "        return self.hidden\n"
    "def get_inputs():\n    return [torch.randn(4, 8)]\ndef get_init_inputs():\n    return []\n"
)


def test_a_model_that_keeps_a_result_keeps_none_without_values() -> None:
    code = ProblemCode(STATEFUL)
    model = code.model(0)
    before = model.hidden
    assert Reduction(code, model).eager.may_keep
    assert model.hidden is before
    assert type(model(torch.zeros(4, 8))) is torch.Tensor


def test_a_reference_that_keeps_state_is_refused_and_one_that_counts_is_not() -> None:
    with pytest.raises(ReferenceFailedError, match=r"keeps state.*\(hidden changes in each call\)"):
        Reference(STATEFUL, 0)
    in_place = STATEFUL.replace("self.hidden = torch.tanh(", "self.hidden.copy_(").replace(" + self.hidden)", " + 1)")
    Reference(in_place.replace("return self.hidden", "return x"), 0)
    with pytest.raises(ReferenceFailedError, match=r"keeps state.*\(hidden changes in each call\)"):
        Reference(in_place.replace(" + 1)", " + self.hidden)"), 0)
    counting = (
        STATEFUL.replace("torch.ones(4, 8)", "0")
        .replace("self.hidden = torch.tanh(self.linear(x) + self.hidden)", "self.hidden += 1")
        .replace("return self.hidden", "return self.linear(x)")
    )
    Reference(counting, 0)
