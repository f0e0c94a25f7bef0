"""Inputs with a few large elements, and what they show: a part of the input that a kernel leaves out."""

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.correctness.tolerance import compare
from kernels_eval.gpu import reference
from kernels_eval.gpu.call_sets import CallSets
from kernels_eval.gpu.candidate.session import nothing
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.samples import Pieces
from kernels_eval.gpu.device.shared_memory import HostTransport
from kernels_eval.gpu.input_parts import Group
from kernels_eval.gpu.large_elements import SPIKES
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.gpu.timing.statistics import Estimate
from kernels_eval.gpu.worker_state import Quiet
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
    assert len(value[value > 10].unique()) == SPIKES, "which index comes first is defined"
    (again,) = made.draw_spiked(3, SEED, factor=100.0)
    assert torch.equal(value, again)
    (other,) = made.draw_spiked(3, SecretSeed(b"another secret"), factor=100.0)
    assert not torch.equal((value > 10).nonzero(), (other > 10).nonzero())


WITHOUT_DEVICE = MEAN.replace("(x * x).mean(dim=1)", "x + torch.arange(4194304)")


def drawn() -> list[Any]:
    return [torch.empty(2, 4194304, device=cuda_driver.DEVICE)]


def test_a_problem_that_names_no_device_has_its_tensors_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The meta device stands for a GPU: its tensors and the host's do not go together either."""
    made = GpuReference(WITHOUT_DEVICE, 1)
    monkeypatch.setattr(cuda_driver, "DEVICE", "meta")
    for _ in range(2):
        (output,) = made.first_results(drawn)
        assert (output.device.type, output.shape) == ("meta", (2, 4194304))
    assert made.results(drawn())[0].device.type == "meta"
    assert made.forward(True, "eager")(*drawn()).device.type == "meta"


def test_a_problem_that_names_its_devices_is_run_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made = GpuReference(WITHOUT_DEVICE.replace("4194304)\n", "4194304, device=x.device)\n"), 1)
    monkeypatch.setattr(cuda_driver, "DEVICE", "meta")
    assert made.first_results(drawn)[0].device.type == "meta"
    assert made.forward(True, "eager") is made.forward(True, "eager")
    assert isinstance(made.forward(True, "eager"), torch.nn.Module)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x + torch.ones(4194304, device='cpu')", "the reference raised RuntimeError"),
        ("torch.ones(3, device='cpu')", "the reference returns a tensor that is not on the GPU"),
    ],
)
def test_a_problem_that_fails_on_the_device_either_way_says_why(
    monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    made = GpuReference(MEAN.replace("(x * x).mean(dim=1)", body), 1)
    monkeypatch.setattr(cuda_driver, "DEVICE", "meta")
    with pytest.raises(ReferenceFailedError, match=message):
        made.first_results(drawn)


@pytest.mark.parametrize(
    ("body", "takes_parts"),
    [
        ("(x * x).mean(dim=1)", True),
        ("torch.cumprod(x + 0.5, 1)", False),
        ("torch.log(x.mean(-1) - 0.42)", False),
        ("x.masked_fill(torch.ones_like(x).triu(1).bool(), float('-inf'))", True),
    ],
    ids=["a mean", "a product that overflows in parts", "a logarithm of a part's mean", "a mask of infinities"],
)
def test_parts_are_for_problems_whose_results_they_leave_finite(body: str, takes_parts: bool) -> None:
    problem = MEAN.replace("(x * x).mean(dim=1)", body).replace("torch.rand(2, 4194304)", "torch.rand(512, 512)")
    made = GpuReference(problem, 1)
    assert made.kinds.takes("parts", SEED) is takes_parts


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e5m2])
def test_parts_of_calls_have_the_spread_of_one_that_is_changed(dtype: torch.dtype) -> None:
    """The first one of a group may be sparse."""
    made = GpuReference(MEAN.replace("4194304", "4096"), 1)
    values = torch.rand(3, 2, 4096).to(dtype)
    values[0] = torch.zeros(2, 4096).to(dtype)
    made.vary_calls(0, values, [False, True, True], [Group(random.Random(1), None)])
    assert not bool(values[0].float().any())
    assert all(0.3 < float(value.float().mean()) < 0.7 for value in values[1:])
    assert all(float(value.float().std()) > 0.1 for value in values[1:])


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_calls_of_eight_bits_keep_their_groups_where_few_are_changed_at_once(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    made = GpuReference(MEAN.replace("4194304", "4096"), 1)
    values = torch.rand(7, 1, 4096).to(torch.float8_e4m3fn)
    given: list[list[Group]] = []
    monkeypatch.setattr(reference, "_NARROW_AT_ONCE", 4096 * at_once)
    monkeypatch.setattr(reference, "vary_parts_of_calls", lambda wide, changed, groups, *_: given.append(list(groups)))
    groups = [Group(random.Random(seed), None) for seed in range(3)]
    made.vary_calls(0, values, [True] * 7, groups)
    found = [turn[place % 3] for turn in given for place in range(min(at_once, 7))][:7]
    assert [groups.index(each) for each in found] == [0, 1, 2, 0, 1, 2, 0]


def test_inputs_beyond_what_a_problem_takes_are_found_out_later_too() -> None:
    made = GpuReference(MEAN.replace("4194304", "4096"), 1)
    assert made.kinds.takes("parts", SEED)
    fine, overflow = (made.in_own_precision([torch.full((2, 4096), value)], True) for value in (1.0, 1e30))
    assert not made.kinds.is_beyond(fine, "parts")
    assert made.kinds.takes("parts", SEED)
    assert made.kinds.is_beyond(overflow, "parts")
    assert not made.kinds.takes("parts", SEED)


@pytest.mark.parametrize("dtype", ["torch.float8_e4m3fn", "torch.float8_e5m2"])
def test_inputs_of_eight_bits_change_as_others_do(dtype: str) -> None:
    made = GpuReference(MEAN.replace("x * x", "x.float()").replace("(2, 4194304)", f"(2, 65536).to({dtype})"), 1)
    (spiked,) = made.draw_spiked(3, SEED, factor=1e6)
    large = (spiked.float() > 1.0).reshape(SPIKES, -1).sum(dim=1)
    assert large.tolist() == [1] * SPIKES
    assert bool(spiked.float().isfinite().all())
    assert made.kinds.takes("parts", SEED)
    (parts,), (other,) = made.draw_in_parts(3, SEED), made.draw_in_parts(4, SEED)
    assert parts.dtype is other.dtype is spiked.dtype
    means = [
        value.float().reshape(2048, -1).mean(dim=1).std() for value in (parts, made.draw(None, 5, SEED, own=True)[0])
    ]
    assert means[0] > 1.5 * means[1]
    assert float(parts.float().min()) >= 0.0
    assert float(parts.float().max()) <= 1.0


OTHERS = {
    "torch.rand(64, 64)": ("x + 1", True, True),
    "torch.ones(64, 64)": ("x + 1", True, True),
    "torch.rand(64, 64) ": ("torch.log(x)", True, False),
    "torch.randn(64, 64).softmax(dim=1)": ("x + 1", True, False),
    "torch.randint(0, 9, (64, 64))": ("torch.arange(9.0)[x]", True, False),
}


@pytest.mark.parametrize("drawn", OTHERS)
def test_other_distributions_are_drawn_where_the_problem_takes_them(drawn: str) -> None:
    body, takes, differs = OTHERS[drawn]
    problem = MEAN.replace("(x * x).mean(dim=1)", body).replace("torch.rand(2, 4194304)", drawn.strip())
    made = GpuReference(problem, 1)
    assert made.kinds.takes("other", SEED) is takes
    (own,), (other,) = made.draw(None, 5, SEED, own=True), made.draw_as("other", 5, SEED)
    assert (not torch.equal(own, other)) is differs
    assert made.results([other])[0].isfinite().all()


def test_inputs_of_other_distributions_beyond_the_problem_are_found_out_later() -> None:
    made = GpuReference(MEAN.replace("4194304", "4096"), 1)
    assert made.kinds.takes("other", SEED)
    assert made.kinds.takes("parts", SEED)
    (overflow,) = (made.in_own_precision([torch.full((2, 4096), 1e30)], True),)
    assert made.kinds.is_beyond(overflow, "other")
    assert not made.kinds.takes("other", SEED)
    assert made.kinds.takes("parts", SEED)


def test_outputs_for_other_inputs_are_held_to_a_share_of_the_own_size() -> None:
    made = GpuReference(MEAN.replace("x * x", "x").replace("4194304", "65536"), 1)
    assert made.kinds.takes("other", SEED)
    (least,) = made.kinds.least_sizes("parts")
    assert least == pytest.approx(0.5 / 32, rel=0.05)
    oracle = torch.tensor([1e-5], dtype=torch.float64)
    cancelled = (oracle + 1e-7).float()
    assert not compare(cancelled, oracle, oracle.float(), "").agrees
    assert compare(cancelled, oracle, oracle.float(), "", least).agrees
    assert not compare(torch.tensor([0.5]), oracle, oracle.float(), "", least).agrees
    assert not compare(torch.tensor([1e-4]), oracle, oracle.float(), "", least).agrees


RANGES = {
    "torch.rand(512, 512).sqrt()": (0.0, 1.0),
    "torch.rand(256, 1024).t()": (0.0, 1.0),
    "torch.randint(0, 256, (512, 512), dtype=torch.uint8)": (0.0, 255.0),
    "torch.randint(-100, 101, (512, 512), dtype=torch.int8)": (-100.0, 100.0),
    "(torch.rand(512, 512) > 0.5).float()": (0.0, 1.0),
    "(torch.rand(512, 512) < 0.05).float()": (0.0, 1.0),
}


@pytest.mark.parametrize("made", RANGES)
def test_means_of_parts_differ_within_the_range_of_an_input(made: str) -> None:
    low, high = RANGES[made]
    reference = GpuReference(MEAN.replace("x * x", "x.float()").replace("torch.rand(2, 4194304)", made), 1)
    (plain,), (parts,) = reference.draw(None, 3, SEED, own=True), reference.draw_in_parts(4, SEED)
    assert parts.dtype is plain.dtype
    assert parts.stride() == plain.stride()
    assert low <= float(parts.min())
    assert float(parts.max()) <= high
    rows = [value.t() if made.endswith(".t()") else value for value in (plain, parts)]
    spreads = [value.float().reshape(-1)[: 1 << 18].reshape(1024, -1).mean(dim=1).std() for value in rows]
    assert spreads[1] > 1.5 * spreads[0]
    assert float(parts.float().mean()) == pytest.approx(float(plain.float().mean()), rel=0.3, abs=15 * high / 255)


def test_inputs_whose_shape_depends_on_the_draw_have_no_other_one_in_parts() -> None:
    drawn = "torch.randn(4096, 4)[(torch.rand(4096) < 0.5).nonzero()[:, 0]]"
    reference = GpuReference(MEAN.replace("torch.rand(2, 4194304)", drawn), 1)
    forms = {tuple(reference.draw_in_parts(trial, SEED)[0].shape[1:]) for trial in range(4)}
    assert forms == {(4,)}


STRUCTURES: dict[str, Callable[[torch.Tensor], bool]] = {
    "torch.randn(512, 512).softmax(dim=1)": lambda x: torch.allclose(x.sum(dim=1), torch.ones(512)),
    "(lambda a: a + a.t())(torch.rand(512, 512))": lambda x: torch.equal(x, x.t()),
    "torch.rand(512, 512).tril()": lambda x: not bool(x.triu(1).any()),
    "torch.rand(512, 512).sort(dim=1).values": lambda x: bool((x.diff(dim=1) >= 0).all()),
}


@pytest.mark.parametrize("made", STRUCTURES)
def test_inputs_in_parts_keep_their_structure(made: str) -> None:
    reference = GpuReference(MEAN.replace("torch.rand(2, 4194304)", made), 1)
    (plain,) = reference.draw(None, 4, SEED, own=True)
    for stretched in (False, True):
        (parts,) = reference.draw_in_parts(4, SEED, stretched)
        assert STRUCTURES[made](parts)
        assert not torch.allclose(parts, plain)


WIDE = {
    "torch.rand(256, 512)[:, :256]": 1.0,
    "torch.randint(0, 256, (256, 256)).float()": 255.0,
    "torch.randint(0, 1000, (256, 256), dtype=torch.int32)": 999.0,
    "torch.empty(256, 256).exponential_()": 40.0,
    "torch.poisson(torch.full((256, 256), 4.0))": 40.0,
    "torch.multinomial(torch.ones(100), 65536, replacement=True).view(256, 256)": 99.0,
    "torch.empty(256, 256).geometric_(0.1)": 400.0,
    "torch.empty(256, 256).bernoulli_(0.5)": 1.0,
    "torch.nn.init.uniform_(torch.empty(256, 256)).abs()": 1.0,
}


@pytest.mark.parametrize("made", WIDE)
def test_a_64th_left_out_shows_in_each_kind_of_draw(made: str) -> None:
    reference = GpuReference(MEAN.replace("x * x", "x.float()").replace("torch.rand(2, 4194304)", made), 1)
    wrong = 0
    for call in range(16):
        (value,) = reference.draw_in_parts(call, SEED)
        assert float(value.min()) >= 0.0
        assert float(value.max()) <= WIDE[made]
        flat = value.float().reshape(-1)
        wrong += abs(float(flat[:-1024].mean() / flat.mean()) - 1) > 2e-4
    assert wrong > 8


def test_the_largest_whole_number_stands_in_one_part() -> None:
    """Else each part of an input has it, and a kernel that leaves parts out is right."""
    made = "torch.randint(0, 256, (64, 4096))"
    reference = GpuReference(MEAN.replace("x * x", "x.float()").replace("torch.rand(2, 4194304)", made), 1)
    draws = [reference.draw_in_parts(call, SEED)[0] for call in range(24)]
    alone = [value for value in draws if int((value == value.max()).sum()) < 4]
    assert len(alone) > 12
    assert len({int(value.argmax()) // 4096 for value in alone}) > 6


@pytest.mark.parametrize("made", ["torch.randint(0, 3000, (4096,))", "torch.randint(-5, 5, (4096,), dtype=torch.int8)"])
def test_indices_stay_in_range(made: str) -> None:
    table = "torch.arange(3000.0)[x.long()]"
    reference = GpuReference(MEAN.replace("(x * x).mean(dim=1)", table).replace("torch.rand(2, 4194304)", made), 1)
    for call in range(30):
        (index,) = reference.draw_in_parts(call, SEED)
        (own,) = reference.draw(None, call, SEED, own=True)
        assert index.dtype is own.dtype
        assert reference.results([index.long()])


@pytest.mark.parametrize(
    "made", ["torch.randperm(4096)", "torch.multinomial(torch.ones(4096), 4096)", "torch.randn(4096).argsort()"]
)
def test_permutations_have_no_number_twice(made: str) -> None:
    reference = GpuReference(MEAN.replace("(x * x).mean(dim=1)", "x").replace("torch.rand(2, 4194304)", made), 1)
    for call in range(8):
        assert torch.equal(reference.draw_in_parts(call, SEED)[0].sort().values, torch.arange(4096))


def test_whole_numbers_that_became_floats_get_a_fraction() -> None:
    drawn = "torch.randint(-8, 8, (128, 64)).float(), torch.randint(-8, 8, (64, 128)).float().tril()"
    body = MEAN.replace("(x * x).mean(dim=1)", "x @ y").replace("self, x", "self, x, y")
    reference = GpuReference(body.replace("torch.rand(2, 4194304)", drawn), 1)
    for call in range(8):
        x, y = reference.draw_in_parts(call, SEED)
        assert max(float(value.abs().max()) for value in (x, y)) <= 8
        assert not bool(y.triu(1).any())
        right = x.double() @ y.double()
        assert compare(x @ y, right, x @ y, "").agrees
        assert not compare((x.bfloat16().float() @ y.bfloat16().float()), right, x @ y, "").agrees


@pytest.mark.parametrize(
    "made",
    [
        "torch.randint(0, 9, (4096,))",
        "torch.randint(0, 2, (4096,)).float() * 2 - 1",
        "torch.arange(4096).float()",
        "torch.nn.functional.one_hot(torch.randint(0, 9, (4096,))).float()",
    ],
)
def test_labels_flags_and_tables_stay_whole(made: str) -> None:
    reference = GpuReference(MEAN.replace("(x * x).mean(dim=1)", "x + 1").replace("torch.rand(2, 4194304)", made), 1)
    for call in range(6):
        (value,) = reference.draw_in_parts(call, SEED)
        assert bool((value == value.floor()).all())


def test_a_reference_that_looks_for_whole_numbers_gets_these() -> None:
    body = "x if bool((x == x.floor()).all()) else x / 0"
    made = "torch.randint(0, 99, (4096,)).float()"
    reference = GpuReference(MEAN.replace("(x * x).mean(dim=1)", body).replace("torch.rand(2, 4194304)", made), 1)
    assert reference.kinds.takes("parts", SEED)
    (value,) = reference.draw_in_parts(3, SEED)
    assert bool((value == value.floor()).all())


@pytest.mark.parametrize("made", ["torch.rand(512, 512)", "torch.randn(512, 512)", "torch.rand(512, 512) - 0.3"])
def test_sparse_inputs_are_in_the_range_of_the_own_ones(made: str) -> None:
    reference = GpuReference(MEAN.replace("torch.rand(2, 4194304)", made), 1)
    assert reference.kinds.takes("sparse", SEED)
    (value,), (own,) = reference.draw_sparse(3, SEED), reference.draw(None, 3, SEED, own=True)
    assert own.min() <= value.min()
    assert value.max() <= own.max()
    near = max(0.0, float(own.min()))
    far = ((value - near).abs() > 0.1).float().mean()
    assert 0.005 < float(far) < 0.03


LOSS = """
import torch
class Model(torch.nn.Module):
    def forward(self, a, b, c):
        return ((a - b) ** 2).sum() + 1e-5 * c.abs().sum()
def get_inputs():
    return [torch.rand(256, 512) for _ in range(3)]
def get_init_inputs():
    return []
"""


def test_a_term_below_the_tolerance_shows_when_the_other_inputs_are_smaller() -> None:
    reference = GpuReference(LOSS, 1)
    assert reference.kinds.takes("quiet", SEED)
    shares: list[float] = []
    for call in range(72):
        a, b, c = reference.draw_as("quiet", call, SEED) or []
        sizes = [float(value.max()) for value in (a, b, c)]
        assert sorted(round(64 * size) for size in sizes) == [1, 1, 64]
        (right,) = reference.results([a, b, c])
        left_out = ((a - b) ** 2).sum()
        shares.append(float(1 - left_out / right))
    assert 8 < sum(share > 0.05 for share in shares) < 48


def test_one_input_alone_is_never_quiet() -> None:
    assert not GpuReference(MEAN.replace("2, 4194304", "64, 64"), 1).kinds.takes("quiet", SEED)


BENT = {"x @ x.t()": True, "torch.relu(x).sum(1)": True, "torch.sigmoid(x)": False, "x + 1": False, "x.argmax(1)": True}


@pytest.mark.parametrize("body", BENT)
def test_large_inputs_are_for_results_that_grow_with_them(body: str) -> None:
    problem = MEAN.replace("(x * x).mean(dim=1)", body).replace("2, 4194304", "64, 64")
    reference = GpuReference(problem, 1)
    drawn = reference.draw_large(3, SEED)
    assert (drawn is not None) is BENT[body]
    if drawn is not None:
        assert 1e5 < float(drawn[0].max()) <= 2.0**17
        assert reference.results(drawn)[0].isfinite().all()


def test_inputs_with_a_structure_have_none() -> None:
    made = GpuReference(MEAN.replace("torch.rand(2, 4194304)", "torch.eye(512)"), 1)
    assert torch.equal(made.draw_spiked(3, SEED, factor=100.0)[0], torch.eye(512))


def test_half_of_a_mean_is_wrong_on_them() -> None:
    made = GpuReference(MEAN, 1)
    sets = CallSets(made, SEED, None, 1 << 30, nothing)  # pyright: ignore[reportArgumentType]
    inputs, found = sets._with_spikes()
    expected = sets.with_oracle(inputs, found)
    native, oracle = expected.native[0], expected.oracle[0]
    assert compare((inputs[0] * inputs[0]).mean(dim=1), oracle, native, "output").agrees
    assert not compare(half_mean(inputs[0]), oracle, native, "output").agrees


def test_a_reference_that_overflows_gets_smaller_ones() -> None:
    made = GpuReference(MEAN.replace("x * x", "torch.exp(x)").replace("mean(dim=1)", "mean()"), 1)
    sets = CallSets(made, SEED, None, 1 << 30, nothing)  # pyright: ignore[reportArgumentType]
    inputs, expected = sets._with_spikes()
    assert expected.is_finite
    assert 1.0 < inputs[0].max().item() < 88


def test_the_oracle_is_left_out_where_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    made = GpuReference(MEAN.replace("4194304", "64"), 1)
    inputs = made.draw(None, 1, SEED, own=True)
    assert made.expected(inputs, False).oracle[0].dtype is torch.float64
    monkeypatch.setattr(reference, "available_bytes", lambda: 2 * 64 * 8)
    assert made.expected(inputs, False).oracle[0].dtype is torch.float32


def test_the_oracle_of_a_set_can_come_later() -> None:
    made = GpuReference(MEAN.replace("4194304", "64"), 1)
    inputs = made.draw(None, 1, SEED, own=True)
    whole, found = made.expected(inputs, True), made.in_own_precision(inputs, True)
    assert whole.has_oracle
    assert not found.has_oracle
    later = made.with_oracle(inputs, True, found)
    assert torch.equal(later.native[0], whole.native[0])
    assert torch.equal(later.oracle[0], whole.oracle[0])
    assert later.oracle[0].dtype is torch.float64


@pytest.mark.parametrize("memory", [1, 1 << 30])
def test_only_the_first_set_has_an_oracle_before_one_is_asked_for(tmp_path: Path, memory: int) -> None:
    made = GpuReference(MEAN.replace("2, 4194304", "64, 4096"), 1)
    with (tmp_path / "memory").open("w+b") as file:
        driver: Any = None
        sets = CallSets(made, SEED, HostTransport(driver, file.fileno()), memory, nothing)
        sets.learn_forms()
        sets.reserve()
        rounds = [*sets.trials(None, 2), *sets.trials(32, 2), sets.own(2)]
        pairs = [pair for calls, many in rounds for pair in zip(calls.sets, many, strict=True)]
        assert [found.has_oracle for _, found in pairs[:2]] == [True, True]
        assert not any(found.has_oracle for _, found in pairs[2:])
        assert len(pairs) >= 10 if memory > 1 else 9
        for inputs, found in pairs:
            whole = sets.with_oracle(inputs, found)
            assert torch.equal(whole.oracle[0], sets.expected(inputs).oracle[0])


def test_a_round_takes_its_share_of_the_memory(tmp_path: Path) -> None:
    made = GpuReference(MEAN, 1)

    def most_calls(memory: int) -> int:
        with (tmp_path / "memory").open("w+b") as file:
            driver: Any = None
            sets = CallSets(made, SEED, HostTransport(driver, file.fileno()), memory, nothing)
            sets.learn_forms()
            sets.reserve()
            return sets.most_calls

    of_one = 2 * made.input_bytes + 3 * 2 * 4
    assert [most_calls(memory) for memory in (of_one // 2, of_one, 5 * of_one)] == [1, 1, 5]


@pytest.mark.parametrize(
    ("mib", "calls", "on_several_streams"),
    [(1, 32, 32), (16, 16, 32), (32, 8, 31), (33, 7, 31), (64, 4, 15), (65, 0, 15), (255, 0, 4), (256, 0, 0)],
)
def test_calls_with_large_inputs_are_not_made_one_by_one(mib: int, calls: int, on_several_streams: int) -> None:
    made: Any = SimpleNamespace(input_bytes=mib << 20)
    unused: Any = None
    sets = CallSets(made, SEED, unused, 12 << 30, nothing)
    assert (sets.serial_calls(), sets.serial_calls(has_side_streams=True)) == (calls, on_several_streams)


class SlowCopies(HostTransport):
    """A copy engine that takes a microsecond for each piece, and far longer once."""

    def __init__(self, driver: Any, descriptor: int) -> None:
        super().__init__(driver, descriptor)
        self.now, self.last = 0.0, (0, 0)

    def pieces(self, offset: int, distance: int, count: int) -> Pieces:
        found = super().pieces(offset, distance, count).rows
        self.now += 1e-6 * count if self.now else 1.0
        self.last = offset + (count - 1) * distance, found.numel()
        return Pieces(found, self.now)


@pytest.mark.parametrize("most", [1, 5, 8])
def test_samples_are_timed_for_as_many_calls_as_a_round_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    made = GpuReference(MEAN, 1)
    with (tmp_path / "memory").open("w+b") as file:
        driver: Any = None
        transport = SlowCopies(driver, file.fileno())
        sets = CallSets(made, SEED, transport, most * (2 * made.input_bytes + 3 * 2 * 4), nothing)
        sets.learn_forms()
        sets.reserve()
        monkeypatch.setattr("kernels_eval.gpu.call_sets.time.perf_counter", lambda: transport.now)
        quiet = Quiet(Estimate(1.0, 0.0, 3), None, sets.sampling_s())
        assert transport.last[0] < transport.nbytes
        assert transport.last[1] == 64 * most
        assert quiet.sampling_s(most) == pytest.approx(1e-6 * most)
        if most > 4:
            assert quiet.sampling_s(3) == pytest.approx(4e-6), "at least as many"
            assert quiet.sampling_s(5) == pytest.approx(1e-6 * most)


@pytest.mark.parametrize("memory", [1, 1 << 30])
def test_the_first_trial_comes_twice(tmp_path: Path, memory: int) -> None:
    """In one round, or where memory is short in two, which then share the inputs instead of holding them twice."""
    made = GpuReference(MEAN.replace("4194304", "4096"), 1)
    with (tmp_path / "memory").open("w+b") as file:
        driver: Any = None
        sets = CallSets(made, SEED, HostTransport(driver, file.fileno()), memory, nothing)
        sets.learn_forms()
        sets.reserve()
        rounds = list(sets.trials(None, 3))
    calls = [(calls, values) for calls, _ in rounds for values in calls.sets]
    expected = [one for _, many in rounds for one in many]
    assert [len(rounds), len(calls), len(expected)] == [8 if memory == 1 else 1, 8, 8]
    assert all(torch.equal(calls[0][1][0], calls[other][1][0]) is (other == 1) for other in range(1, 8))
    assert expected[0] is expected[1]
    assert (calls[0][1][0].data_ptr() == calls[1][1][0].data_ptr()) is (memory == 1)


@pytest.mark.parametrize(("calls", "rounds"), [(8, 9), (9, 1)])
def test_a_round_of_trials_has_no_more_sets_than_memory(tmp_path: Path, calls: int, rounds: int) -> None:
    """Of several inputs there are nine with three trials: quiet ones and large ones among them."""
    problem = MEAN.replace("self, x", "self, x, y").replace("(x * x).mean(dim=1)", "x * y")
    made = GpuReference(problem.replace("[torch.rand(2, 4194304)]", "[torch.rand(64, 64), torch.rand(64, 64)]"), 1)
    with (tmp_path / "memory").open("w+b") as file:
        driver: Any = None
        memory = calls * (2 * made.input_bytes + 3 * 64 * 64 * 4)
        sets = CallSets(made, SEED, HostTransport(driver, file.fileno()), memory, nothing)
        sets.learn_forms()
        sets.reserve()
        assert sets.most_calls == calls
        drawn = [made.count for made, _ in sets.trials(None, 3)]
        assert (len(drawn), sum(drawn)) == (rounds, 9)


def test_others_may_have_the_device_before_each_set(tmp_path: Path) -> None:
    made = GpuReference(MEAN.replace("4194304", "4096"), 1)
    given: list[int] = []
    with (tmp_path / "memory").open("w+b") as file:
        driver: Any = None
        sets = CallSets(made, SEED, HostTransport(driver, file.fileno()), 1 << 30, lambda: given.append(1))
        sets.learn_forms()
        sets.reserve()
        list(sets.trials(None, 3))
        assert len(given) == 7, "eight calls, of which two have the same inputs"
        sets.own(2)
        sets.timed(7)
        assert len(given) == 7 + 2 + 7


@pytest.mark.parametrize("memory", [1, 1 << 30])
def test_the_first_round_can_be_drawn_ahead(tmp_path: Path, memory: int) -> None:
    """While a candidate is loaded; it is drawn once more if its memory was needed for something else."""
    made = GpuReference(MEAN.replace("4194304", "4096"), 1)

    def drawn(ahead: bool, is_forgotten: bool = False) -> list[torch.Tensor]:
        with (tmp_path / "memory").open("w+b") as file:
            driver: Any = None
            sets = CallSets(made, SEED, HostTransport(driver, file.fileno()), memory, nothing)
            sets.learn_forms()
            sets.reserve()
            if ahead:
                sets.draw_ahead(3)
            if is_forgotten:
                sets.forget_ahead()
            return [values[0].clone() for calls, _ in sets.trials(None, 3) for values in calls.sets]

    plain = drawn(ahead=False)
    assert all(map(torch.equal, plain, drawn(ahead=True)))
    again = drawn(ahead=True, is_forgotten=True)
    assert len(again) == len(plain) == 8
    assert torch.equal(again[0], again[1])


def test_another_seed_has_other_weights_on_the_device_too() -> None:
    linear = MEAN.replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n        self.w = nn.Linear(4, 4)\n    def forward",
    )
    made = GpuReference(linear.replace("return (x * x).mean(dim=1)", "return self.w(x)").replace("4194304", "4"), 1)
    inputs = [torch.ones(2, 4)]
    first, same = made.results(inputs), made.with_weights(1).results(inputs)
    other = made.with_weights(2).results(inputs)
    assert torch.equal(first[0], same[0])
    assert not torch.equal(first[0], other[0])
    assert torch.equal(first[0], made.results(inputs)[0])


def test_each_baseline_is_a_program_of_its_own_and_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[torch.nn.Module, str | None]] = []

    def compiled(model: torch.nn.Module, *, mode: str | None) -> tuple[torch.nn.Module, str | None]:
        made.append((model, mode))
        return made[-1]

    monkeypatch.setattr(torch, "compile", compiled)
    problem = GpuReference(MEAN, 1)
    eager, *others = (problem.forward(True, name) for name in ("eager", "compile", "max-autotune"))
    assert isinstance(eager, torch.nn.Module)
    assert others == [(eager, None), (eager, "max-autotune-no-cudagraphs")]
    assert [problem.forward(True, name) for name in ("compile", "max-autotune")] == others
    assert len(made) == 2


def test_a_round_without_calls_is_made_whatever_the_problem_is(tmp_path: Path) -> None:
    made = GpuReference(MEAN.replace("4194304", "4096"), 1)
    with (tmp_path / "memory").open("w+b") as file:
        driver: Any = SimpleNamespace(synchronize=lambda: None)
        sets = CallSets(made, SEED, HostTransport(driver, file.fileno()), 1 << 30, nothing)
        sets.learn_forms()
        sets.reserve()
        calls = sets.small()
        calls.publish()
        calls.complete()
        calls.sample_at_once()
        calls.sample()
        calls.collect()
    assert (calls.count, calls.sets) == (1, [[]])
    assert not calls.has_late_writes()
    assert not calls.has_broken_guards()
    assert calls.changed_inputs() == set()


def test_results_of_eight_bits_have_no_large_inputs() -> None:
    """A GPU has no product of them, and they have no range for it."""
    made = GpuReference(MEAN.replace("(x * x).mean(dim=1)", "x.to(torch.float8_e4m3fn)").replace("4194304", "64"), 1)
    assert made.draw_large(3, SEED) is None


PRODUCT = MEAN.replace("(self, x)", "(self, x, y)").replace("(x * x).mean(dim=1)", "x @ y")
PRODUCT = PRODUCT.replace("torch.rand(2, 4194304)", "torch.rand(32, 2048), torch.rand(2048, 32)")


def in_tf32(value: torch.Tensor) -> torch.Tensor:
    return ((value.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)


def test_a_product_of_sparse_inputs_is_held_to_its_own_size() -> None:
    """In 32 parts of the usual size TF32 was right: a product of two sparse inputs is a thousandth of it."""
    made = GpuReference(PRODUCT, 1)
    assert made.kinds.takes("sparse", SEED)
    x, y = made.draw_sparse(1, SEED)
    exact, native, rounded = x.double() @ y.double(), x @ y, in_tf32(x) @ in_tf32(y)
    (least,), (usual,) = made.kinds.least_sizes("sparse"), made.kinds.least_sizes("plain")
    assert compare(native, exact, native, "", least).agrees
    assert not compare(rounded, exact, native, "", least).agrees
    assert compare(rounded, exact, native, "", usual).agrees
