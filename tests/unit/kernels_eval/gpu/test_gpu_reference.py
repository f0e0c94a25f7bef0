"""Inputs with a few large elements, and what they show: a part of the input that a kernel leaves out."""

import pytest
import torch

from kernels_eval.correctness.tolerance import compare
from kernels_eval.gpu import cuda_driver, reference
from kernels_eval.gpu.reference import SPIKES, CallSets, GpuReference, output_forms
from kernels_eval.gpu.shared_memory import HostTransport
from kernels_eval.reference.inputs import SecretSeed

MEAN = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return (x * x).mean(dim=1)
def get_inputs():
    return [torch.rand(2, 4194304)]
def get_init_inputs():
    return []
"""
SEED = SecretSeed(b"a secret")


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")


def half_mean(x: torch.Tensor) -> torch.Tensor:
    """Leave out every other block of 1,024 elements, as a kernel over half of the grid would."""
    return (x * x).reshape(2, -1, 2, 1024)[:, :, 0].mean(dim=(1, 2))


def test_each_part_of_an_input_has_one_large_element() -> None:
    made = GpuReference(MEAN, 1)
    (value,) = made.draw_spiked(3, SEED, factor=100.0)
    large = (value.reshape(SPIKES, -1) > 10).sum(dim=1)
    assert large.tolist() == [1] * SPIKES
    (again,) = made.draw_spiked(3, SEED, factor=100.0)
    assert torch.equal(value, again)
    (other,) = made.draw_spiked(3, SecretSeed(b"another secret"), factor=100.0)
    assert not torch.equal((value > 10).nonzero(), (other > 10).nonzero())


def test_inputs_with_a_structure_have_none() -> None:
    made = GpuReference(MEAN.replace("torch.rand(2, 4194304)", "torch.eye(512)"), 1)
    assert torch.equal(made.draw_spiked(3, SEED, factor=100.0)[0], torch.eye(512))


def test_half_of_a_mean_is_wrong_on_them() -> None:
    made = GpuReference(MEAN, 1)
    descriptor_driver = None
    transport = HostTransport(descriptor_driver, -1)  # pyright: ignore[reportArgumentType]
    sets = CallSets(made, SEED, transport, 1 << 30)
    inputs, expected = sets._with_spikes(8)
    native, oracle = expected.native[0], expected.oracle[0]
    assert compare((inputs[0] * inputs[0]).mean(dim=1), oracle, native, "output").agrees
    assert not compare(half_mean(inputs[0]), oracle, native, "output").agrees


def test_a_reference_that_overflows_gets_smaller_ones() -> None:
    made = GpuReference(MEAN.replace("x * x", "torch.exp(x)").replace("mean(dim=1)", "mean()"), 1)
    sets = CallSets(made, SEED, None, 1 << 30)  # pyright: ignore[reportArgumentType]
    inputs, expected = sets._with_spikes(4)
    assert expected.is_finite
    assert 1.0 < inputs[0].max().item() < 88


def test_the_oracle_is_left_out_where_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    made = GpuReference(MEAN.replace("4194304", "64"), 1)
    inputs = made.draw(None, 1, SEED, own=True)
    assert made.expected(inputs, False).oracle[0].dtype is torch.float64
    monkeypatch.setattr(reference, "_free_bytes", lambda: 2 * 64 * 8)
    assert made.expected(inputs, False).oracle[0].dtype is torch.float32


def test_a_round_takes_its_share_of_the_memory() -> None:
    made = GpuReference(MEAN, 1)
    expected = made.expected(made.draw(None, 1, SEED, own=True), False)
    assert output_forms(expected)[0].shape == (2,)
    calls = [CallSets(made, SEED, None, memory << 30).calls_a_round(expected) for memory in (1, 4, 20, 80)]  # pyright: ignore[reportArgumentType]
    assert calls == [2, 10, 20, 20]
