"""A call after the weights have changed in place: what is set, in which order, and what a failure says."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.gpu.renewed_weights import call_with_renewed_weights, is_renewable
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.weights import GivenWeights
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.sandbox.messages import StateAnswer
from kernels_eval.verdict import Status

LAYER = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)
    def forward(self, x):
        return self.layer(x)
def get_inputs():
    return [torch.rand(16, 8)]
def get_init_inputs():
    return []
"""
SEED = SecretSeed(b"a secret")


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    monkeypatch.setattr("kernels_eval.gpu.renewed_weights.available_bytes", lambda: 1 << 30)


def held() -> StateAnswer:
    return StateAnswer(kind="ready", state={"layer.weight": ("float32", (4, 8)), "layer.bias": ("float32", (4,))})


@pytest.mark.parametrize(
    ("source", "renewable"),
    [
        (LAYER, True),
        (LAYER.replace("self.layer(x)", "x").replace("nn.Linear(8, 4)", "None"), False),
        (LAYER.replace("nn.Linear(8, 4)", "nn.Linear(8, 4).requires_grad_(False)"), False),
    ],
)
def test_problems_with_trainable_parameters_are_renewable(source: str, renewable: bool) -> None:
    assert is_renewable(GpuReference(source, 1)) is renewable


def test_the_candidate_has_other_weights_during_the_call_and_its_own_afterwards() -> None:
    reference, given, done = GpuReference(LAYER, 1), list[GivenWeights](), list[Any]()

    def call() -> None:
        weight = given[-1].values["layer.weight"]
        x = torch.rand(16, 8)
        done.append((weight.clone(), torch.nn.functional.linear(x, weight, given[-1].values["layer.bias"]), x))

    using: list[GpuReference] = []

    def use(other: GpuReference) -> Any:
        using.append(other)
        return nullcontext()

    call_with_renewed_weights(reference, held(), SEED, given.append, use, call)
    ((weight, result, x),) = done
    before, after = reference.state(True)["layer.weight"], given[1].values["layer.weight"]
    assert torch.equal(after, before), "as it was"
    factor = weight / before
    assert 0.5 <= float(factor.min()) < float(factor.max()) <= 1.5
    assert torch.equal(using[0].results([x])[0], result), "what is compared has the same weights"
    assert not torch.equal(reference.results([x])[0], result)


def test_a_wrong_result_is_said_to_come_after_a_change() -> None:
    reference, given = GpuReference(LAYER, 1), list[GivenWeights]()

    def call() -> None:
        raise CandidateFailedError(Status.INCORRECT, ErrorCategory.WRONG_VALUES, "output[0] is 1, expected 2")

    with pytest.raises(CandidateFailedError, match="expected 2; in a call after the parameters have changed in place"):
        call_with_renewed_weights(reference, held(), SEED, given.append, lambda _: nullcontext(), call)
    assert len(given) == 1


def test_little_memory_spares_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels_eval.gpu.renewed_weights.available_bytes", lambda: 100)
    given: list[GivenWeights] = []
    call_with_renewed_weights(GpuReference(LAYER, 1), held(), SEED, given.append, lambda _: nullcontext(), pytest.fail)
    assert given == []
