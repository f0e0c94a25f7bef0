"""A call after the weights have changed in place: what is set, in which order, and what a failure says."""

from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.gpu.renewed_weights import call_with_renewed_weights, is_renewable, trained_reference
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
EIGHT_BITS = LAYER.replace(
    "        self.layer",
    "        self.narrow = nn.Parameter(torch.randn(7).to(torch.float8_e4m3fn))\n        self.layer",
)
SEED = SecretSeed(b"a secret")


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")


def trained(reference: GpuReference) -> GpuReference:
    made = trained_reference(reference, SEED)
    assert made is not None
    return made


def held() -> StateAnswer:
    return StateAnswer(kind="ready", state={"layer.weight": ("float32", (4, 8)), "layer.bias": ("float32", (4,))})


@pytest.mark.parametrize(
    ("source", "renewable"),
    [
        (LAYER, True),
        (LAYER.replace("self.layer(x)", "x").replace("nn.Linear(8, 4)", "None"), False),
        (LAYER.replace("nn.Linear(8, 4)", "nn.Linear(8, 4).requires_grad_(False)"), False),
        (EIGHT_BITS, True),
        (EIGHT_BITS.replace("nn.Linear(8, 4)", "nn.Linear(8, 4).requires_grad_(False)"), False),
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

    call_with_renewed_weights(reference, trained(reference), held(), given.append, use, call)
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
        call_with_renewed_weights(reference, trained(reference), held(), given.append, lambda _: nullcontext(), call)
    assert len(given) == 1


def test_little_memory_spares_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels_eval.gpu.renewed_weights.share_left", lambda: 100)
    assert trained_reference(GpuReference(LAYER, 1), SEED) is None


def test_the_device_is_shared_while_another_model_is_made() -> None:
    reference, held_for = GpuReference(LAYER, 1), list[str]()

    @contextmanager
    def order() -> Generator[None]:
        held_for.append("device")
        yield

    assert trained_reference(reference, SEED, order) is not None
    assert held_for == ["device"]


def test_what_timed_calls_of_the_reference_keep_of_its_weights_is_not_kept() -> None:
    kept = (
        "        if not hasattr(self, 'kept'):\n"
        "            self.kept = 2 * self.layer.weight\n"
        "        return nn.functional.linear(x, self.kept)\n"
    )
    reference = GpuReference(LAYER.replace("        return self.layer(x)\n", kept), 1)
    x = torch.rand(16, 8)
    reference.forward(True, "eager")(x)
    other = trained(reference)
    assert torch.equal(other.results([x])[0], nn.functional.linear(x, 2 * other.state(True)["layer.weight"]))


def test_a_parameter_that_the_candidate_lacks_is_not_asked_for_again() -> None:
    source = LAYER.replace(
        "        self.layer", "        self.unused = nn.Parameter(torch.randn(5))\n        self.layer"
    )
    reference, given = GpuReference(source, 1), list[GivenWeights]()
    call_with_renewed_weights(
        reference, trained(reference), held(), given.append, lambda _: nullcontext(), lambda: None
    )
    assert [set(each.values) for each in given] == [{"layer.weight", "layer.bias"}] * 2
