"""Problems that name the device cuda or draw random numbers."""

import pytest
import torch

from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.reference.reference import Reference, ReferenceFailedError

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def problem(forward: str, inputs: str = "torch.rand(256, 8)", init: str = "pass", head: str = "") -> str:
    return (
        f"{HEAD}{head}\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, x):\n        {forward}\n"
        f"def get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is real")
@pytest.mark.parametrize(
    "source",
    [
        problem("return x.cuda() + 1", "torch.rand(256, 8).cuda()"),
        problem("return x.to('cuda:0') + 1", "torch.rand(256, 8, device='cuda')"),
        problem("return x.to(device=torch.device('cuda')) + 1"),
        problem("return self.linear(x)", init="self.linear = nn.Linear(8, 8, device='cuda'); self.cuda()"),
        problem("return self.to('cuda').linear(x)", init="self.linear = nn.Linear(8, 8)"),
        problem("return x + torch.ones(8)", head="torch.set_default_device('cuda')"),
        problem("assert x.is_cuda\n        return x + 1"),
        problem("return x + torch.arange(8, device='cuda') + torch.tensor(1.0, device='cuda')"),
        problem(
            "return x + 1",
            "torch.rand(256, 8, device='cuda', generator=torch.Generator(device='cuda').manual_seed(1))",
        ),
    ],
)
def test_cuda_is_the_device_of_problems(source: str) -> None:
    reference = Reference(source, weight_seed=1)
    assert reference.can_be_reduced
    inputs = reference.draw(32, 1, SecretSeed(b"x"), own=False)
    assert reference.expected(inputs, perturbed=True).native[0].shape == (32, 8)
    assert torch.empty(1).device.type == "cpu"


@pytest.mark.parametrize(
    "source",
    [
        problem("return F.dropout(x, 0.5)"),
        problem("return self.drop(x)", init="self.drop = nn.Dropout(0.1)"),
        problem("return x + torch.randn_like(x)"),
        problem("return x * random.random()", head="import random"),
    ],
)
def test_random_references_are_refused_with_the_reason(source: str) -> None:
    with pytest.raises(ReferenceFailedError, match="the reference is random: its outputs differ between two runs"):
        Reference(source, weight_seed=1)


def test_the_random_operator_is_named() -> None:
    with pytest.raises(ReferenceFailedError, match=r"aten\.bernoulli_.*dropout in training mode"):
        Reference(problem("return F.dropout(x, 0.5)"), weight_seed=1)


@pytest.mark.parametrize(
    "source",
    [
        problem("return self.drop(x)", init="self.drop = nn.Dropout(0.1); self.eval()"),
        problem("return F.dropout(x, 0.0)"),
        problem("torch.manual_seed(3)\n        return x + torch.randn_like(x)"),
        problem("return x + 1", inputs="torch.rand(256, 8) * random.random()", head="import random"),
        problem("return self.norm(x)", init="self.norm = nn.BatchNorm1d(8)"),
    ],
)
def test_references_that_only_look_random_are_not(source: str) -> None:
    Reference(source, weight_seed=1)


def test_running_statistics_keep_their_values() -> None:
    code = ProblemCode(problem("return self.norm(x)", init="self.norm = nn.BatchNorm1d(8)"))
    model = code.model(1)
    code.run(model, code.inputs())
    assert bool((dict(model.named_buffers())["norm.running_mean"] == 0).all())


@pytest.mark.parametrize(
    ("inputs", "init", "said"),
    [
        ("torch.rand(8, 4)", "[]", "get_inputs: expected a list, found a Tensor"),
        ("[torch.rand(8, 4)]", "{'size': 4}", "get_init_inputs: expected a list, found a dict"),
        ("[torch.rand(8, 4)]", "None", "get_init_inputs: expected a list, found nothing"),
        ("[torch.rand(8, 4)]", "[Settings()]", "get_init_inputs returns an object that cannot be sent"),
    ],
)
def test_what_is_no_list_of_arguments_is_named(inputs: str, init: str, said: str) -> None:
    source = problem("return x", head="class Settings:\n    size = 4\n")
    source = source.replace("[torch.rand(256, 8)]", inputs).replace("return []", f"return {init}")
    with pytest.raises(ReferenceFailedError, match=said):
        ProblemCode(source).inputs()


def test_a_model_with_a_weight_that_a_gradient_goes_through_can_be_copied() -> None:
    reference = Reference(problem("return self.f(x)", init="self.f = nn.utils.weight_norm(nn.Linear(8, 4))"), 1)
    inputs = reference.draw(32, 1, SecretSeed(b"x"), own=False)
    assert reference.expected(inputs, perturbed=True).has_oracle


def test_inputs_in_a_list_that_holds_itself_are_refused() -> None:
    source = problem("return x", head="LOOP = [torch.rand(4)]\nLOOP.append(LOOP)\n", inputs="LOOP")
    with pytest.raises(ReferenceFailedError, match="RecursionError"):
        ProblemCode(source).inputs()
