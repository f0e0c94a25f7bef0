"""Inputs in secret parts, and what they show: 1/64 of the blocks left out of a result behind a bounded function."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.correctness.tolerance import compare, rows_that_agree
from kernels_eval.gpu.call_sets import CallSets
from kernels_eval.gpu.candidate.session import nothing
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.shared_memory import HostTransport
from kernels_eval.gpu.input_parts import drawn_group, spread_of, vary_parts, vary_parts_of_calls
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.reference.inputs import SecretSeed

Map = Callable[[torch.Tensor], torch.Tensor]
BLOCK, BLOCKS = 256, 256
FAMILIES: dict[str, tuple[Map, Map]] = {
    "sigmoid": (torch.sigmoid, torch.mean),
    "tanh": (torch.tanh, torch.mean),
    "clamp": (lambda x: x.clamp(0.25, 0.75), torch.mean),
    "softmax": (torch.exp, lambda x: 1.0 / x.mean()),
    "max": (lambda x: x, torch.amax),
    "min": (lambda x: x, torch.amin),
    "mean": (lambda x: x, torch.mean),
}
LEFT_OUT: dict[str, list[int]] = {
    "the last ones": list(range(BLOCKS - BLOCKS // 64, BLOCKS)),
    "every 64th": list(range(7, BLOCKS, 64)),
    "at random": random.Random(3).sample(range(BLOCKS), BLOCKS // 64),
}
PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.sigmoid(x).mean()
def get_inputs():
    return [torch.rand(BLOCKS, 256)]
def get_init_inputs():
    return []
""".replace("BLOCKS", str(BLOCKS))
CALLS = 320
"""Calls of timed rounds of a small kernel: fewer than two of them have."""


def is_caught(family: str, left_out: list[int], draw: Callable[[int], torch.Tensor]) -> bool:
    """True if the result without some blocks is wrong in one of the calls."""
    before, reduced = FAMILIES[family]
    kept = [block for block in range(BLOCKS) if block not in set(left_out)]
    for call in range(CALLS):
        blocks = before(draw(call))
        found, right = reduced(blocks[kept]), reduced(blocks)
        if not bool(rows_that_agree(found.reshape(1, 1), right.reshape(1, 1)).all()):
            return True
    return False


def in_parts(kind: str) -> Callable[[int], torch.Tensor]:
    """Return draws in parts of a distribution."""

    def draw(call: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(call)
        value = getattr(torch, kind)(BLOCKS, BLOCK, generator=generator)
        vary_parts(value, random.Random(call))
        return value

    return draw


@pytest.mark.parametrize(
    ("kind", "pattern"), [*(("rand", pattern) for pattern in LEFT_OUT), ("randn", "the last ones")]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_64th_of_the_blocks_left_out_is_wrong(family: str, pattern: str, kind: str) -> None:
    assert is_caught(family, LEFT_OUT[pattern], in_parts(kind))


def test_inputs_without_parts_do_not_show_it() -> None:
    """Else this file would test nothing."""

    def draw(call: int) -> torch.Tensor:
        return torch.rand(BLOCKS, BLOCK, generator=torch.Generator().manual_seed(call))

    families = ("sigmoid", "max")
    assert [family for family in families if is_caught(family, LEFT_OUT["the last ones"], draw)] == []


@pytest.mark.parametrize("kind", ["rand", "randn"])
def test_elements_stay_in_the_range_of_the_input(kind: str) -> None:
    for call in range(20):
        generator = torch.Generator().manual_seed(call)
        value = getattr(torch, kind)(BLOCKS, BLOCK, generator=generator)
        low, high = value.aminmax()
        before = value.clone()
        vary_parts(value, random.Random(call))
        assert low <= value.min()
        assert value.max() <= high
        assert (value != before).float().mean() > 0.8


def test_rows_keep_the_digits_of_their_variance() -> None:
    """An honest kernel may subtract the square of the mean from the mean of the squares."""
    for call in range(40):
        value = in_parts("rand")(call)
        mean = value.mean(dim=1, keepdim=True)
        quick = (value - mean) / (value.square().mean(dim=1, keepdim=True) - mean.square() + 1e-5).sqrt()
        right = torch.nn.functional.layer_norm(value.double(), (BLOCK,))
        assert compare(quick, right, right.float(), "").agrees


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("kind", ["rand", "randn"])
def test_parts_bring_no_ties_of_the_largest_or_smallest(kind: str, dtype: torch.dtype) -> None:
    """An honest kernel may take another one of equal elements."""
    for call in range(20):
        value = getattr(torch, kind)(BLOCKS, BLOCK, generator=torch.Generator().manual_seed(call)).to(dtype)
        before = max(int((value == value.max()).sum()), int((value == value.min()).sum()))
        vary_parts(value, random.Random(call))
        ties = max(int((value == value.max()).sum()), int((value == value.min()).sum()))
        assert ties <= max(before, 1 if dtype is torch.float32 else 8)


def test_one_element_is_the_largest_and_one_the_smallest() -> None:
    places: set[int] = set()
    extremes: set[float] = set()
    spread = spread_of(torch.rand(BLOCKS, BLOCK))
    for call in range(20):
        value = torch.rand(BLOCKS, BLOCK, generator=torch.Generator().manual_seed(call))
        vary_parts(value, random.Random(call), spread=spread)
        for ordered in (value.view(-1).sort(), (-value.view(-1)).sort()):
            assert ordered.values[1] - ordered.values[0] > 0.01
            places.add(int(ordered.indices[0]) // BLOCK)
            extremes.add(float(ordered.values[0]))
    assert len(places) > 20
    assert len(extremes) == 40, "a kernel cannot know them from the call before"
    largest = [-extreme for extreme in extremes if extreme < 0]
    assert len(largest) == 20
    assert max(largest) - min(largest) > 0.1, "nor is one value close to all of them"


def test_a_spread_of_an_earlier_draw_serves_another() -> None:
    earlier = spread_of(torch.rand(BLOCKS, BLOCK, generator=torch.Generator().manual_seed(9)))
    one = torch.rand(BLOCKS, BLOCK, generator=torch.Generator().manual_seed(1))
    other = one.clone()
    vary_parts(one, random.Random(3))
    vary_parts(other, random.Random(3), spread=earlier)
    assert torch.allclose(one, other, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_calls_that_share_the_places_of_parts_have_other_means(groups: int, dtype: torch.dtype) -> None:
    for seed in range(8):
        values = torch.rand(6, BLOCKS, BLOCK, generator=torch.Generator().manual_seed(seed)).to(dtype)
        before = values.clone()
        changes = [True, True, False, True, False, True]
        vary_parts_of_calls(values, changes, [drawn_group(seed + 100 * group) for group in range(groups)])
        for call, changed in enumerate(changes):
            assert torch.equal(values[call], before[call]) is not changed
        assert before.min() <= values.min()
        assert values.max() <= before.max()
        means = values[changes].float().view(4, 64, -1).mean(dim=2)
        assert all((one - other).abs().max() > 0.05 for one, other in itertools.combinations(means, 2))
        extremes = values[changes].flatten(1).aminmax(dim=1)
        assert len(set(extremes.min.tolist())) == len(set(extremes.max.tolist())) == 4


def test_small_inputs_stay_as_they_are() -> None:
    value = torch.rand(1000)
    before = value.clone()
    vary_parts(value, random.Random(1))
    assert torch.equal(value, before)


def test_trials_and_timed_rounds_have_sets_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    transport = HostTransport(None, -1)  # pyright: ignore[reportArgumentType]
    made = GpuReference(PROBLEM, 1)
    sets = CallSets(made, SecretSeed(b"a secret"), transport, 1 << 30, nothing)
    sets.learn_forms()
    drawn = [values[0] for values in sets.timed(96).sets]
    means = [value.view(64, -1).mean(dim=1) for value in drawn]
    plain = [bool((mean - 0.5).abs().max() < 0.045) for mean in means]
    assert 0 < sum(plain) < 24
    others = [bool(value.min() < 0 or value.max() > 1) for value in drawn]
    assert 0 < sum(others) < 24
    assert sum(plain) + sum(others) < 32, "most are in parts"
    sets = CallSets(made, SecretSeed(b"another secret"), transport, 1 << 30, nothing)
    sets.learn_forms()
    calls, expected = next(sets.trials(None, 2))
    x = calls.sets[-1][0]
    assert x.max() - x.min() > 1.5, "the parts of the last trial are far from each other"
    left_out = torch.sigmoid(x[: BLOCKS - BLOCKS // 64]).mean()
    last = sets.with_oracle(calls.sets[-1], expected[-1])
    assert not compare(left_out, last.oracle[0], last.native[0], "").agrees


def test_inputs_of_other_shapes_in_each_draw_are_a_fault_of_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    source = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.rand(int(torch.randint(8, 64, (1,))), 4)]
def get_init_inputs():
    return []
"""
    transport = HostTransport(None, -1)  # pyright: ignore[reportArgumentType]
    sets = CallSets(GpuReference(source, 1), SecretSeed(b"a secret"), transport, 1 << 30, nothing)
    with pytest.raises(ReferenceFailedError, match="other shapes each time"):
        sets.learn_forms()


def test_results_of_other_shapes_are_a_fault_of_the_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    source = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, mask):
        return torch.softmax(x[mask], -1)
def get_inputs():
    return [torch.randn(512, 16), torch.rand(512) > 0.5]
def get_init_inputs():
    return []
"""
    with (tmp_path / "memory").open("w+b") as file:
        transport = HostTransport(None, file.fileno())  # pyright: ignore[reportArgumentType]
        sets = CallSets(GpuReference(source, 1), SecretSeed(b"a secret"), transport, 1 << 30, nothing)
        sets.learn_forms()
        sets.reserve()
        with pytest.raises(ReferenceFailedError, match="results' shapes depend on the inputs' values"):
            next(sets.trials(None, 2))


NORM = PROBLEM.replace("torch.sigmoid(x).mean()", "torch.nn.functional.layer_norm(x, (256,))")


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.0, 4.0])
def test_a_variance_by_sums_of_squares_is_right_where_the_inputs_are_far_from_zero(
    shift: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sparse inputs were all near the smallest one, by a 64th of their spread: no such kernel had any digits left."""
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")
    made, seed = GpuReference(NORM.replace("256, 256)", f"64, 256) + {shift}"), 1), SecretSeed(b"a secret")
    for call in range(12):
        for (x,) in (made.draw_sparse(call, seed), made.draw_in_parts(call, seed)):
            mean, squares = x.mean(dim=1, keepdim=True), (x * x).mean(dim=1, keepdim=True)
            found = (x - mean) * torch.rsqrt(squares - mean * mean + 1e-5)
            native, exact = (torch.nn.functional.layer_norm(v, (256,)) for v in (x, x.double()))
            assert compare(found, exact, native, "").agrees
