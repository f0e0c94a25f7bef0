"""Values out of range: they raise before a kernel of PyTorch asserts, and other draws take their place."""

from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch.nn import functional

from kernels_eval.correctness.outputs import ReferenceFailedError
from kernels_eval.gpu.call_sets import CallSets
from kernels_eval.gpu.candidate.session import nothing
from kernels_eval.gpu.device import cuda_driver
from kernels_eval.gpu.device.shared_memory import HostTransport
from kernels_eval.gpu.index_ranges import CheckedRanges
from kernels_eval.gpu.reference import GpuReference
from kernels_eval.reference.inputs import SecretSeed

LOSS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.binary_cross_entropy(x, y)
def get_inputs():
    return [torch.rand(64, 64), torch.rand(64, 64)]
def get_init_inputs():
    return []
"""
RANGE = LOSS.replace("return torch.nn", "assert x.max() <= 1\n        return torch.nn").replace(
    "functional.binary_cross_entropy", "functional.mse_loss"
)
SEED = SecretSeed(b"a secret")


@pytest.fixture(autouse=True)
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "DEVICE", "cpu")


TABLE, SHARES = torch.randn(5, 3), torch.rand(4, 5)


def at(*indices: int) -> torch.Tensor:
    return torch.tensor(indices)


@pytest.mark.parametrize(
    "run",
    [
        lambda: TABLE[at(0, 4, -5)],
        lambda: TABLE[:, at(2, -3)],
        lambda: TABLE[TABLE[:, 0] > 0],
        lambda: TABLE[None, TABLE > 0],
        lambda: functional.embedding(at(0, 4), TABLE),
        lambda: TABLE.gather(1, at(0, 2)[None]),
        lambda: torch.zeros(3).scatter_add_(0, at(0, 2), torch.ones(2)),
        lambda: torch.zeros(3).scatter_(0, at(0, 2), 1.0),
        lambda: functional.embedding_bag(at(0, 4)[None], TABLE),
        lambda: TABLE.take(at(-15, 14)),
        lambda: TABLE.index_fill(0, at(-5, 4), 1.0),
        lambda: functional.cross_entropy(TABLE, at(0, 1, 2, -100, 0)),
        lambda: functional.binary_cross_entropy(SHARES, SHARES),
    ],
)
def test_what_is_in_range_is_computed(run: Callable[[], torch.Tensor]) -> None:
    expected = run()
    with CheckedRanges():
        assert torch.equal(run(), expected)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (lambda: TABLE[at(0, 5)], "from 0 to 5, expected from -5 to 4"),
        (lambda: TABLE[:, at(0, -4)], "from -4 to 0, expected from -3 to 2"),
        (lambda: functional.embedding(at(-1), TABLE), "from -1 to -1, expected from 0 to 4"),
        (lambda: TABLE.gather(1, at(3)[None]), "from 3 to 3, expected from 0 to 2"),
        (lambda: torch.zeros(3).scatter_add_(0, at(3), torch.ones(1)), "from 3 to 3, expected from 0 to 2"),
        (lambda: functional.embedding_bag(at(0, 5)[None], TABLE), "from 0 to 5, expected from 0 to 4"),
        (lambda: TABLE.take(at(15)), "from 15 to 15, expected from -15 to 14"),
        (lambda: TABLE.put(at(-16), torch.ones(1)), "from -16 to -16, expected from -15 to 14"),
        (lambda: TABLE.index_fill(1, at(-4), 1.0), "from -4 to -4, expected from -3 to 2"),
        (lambda: torch.zeros(3).index_reduce(0, at(3), torch.ones(1), "mean"), "from 3 to 3, expected from 0 to 2"),
        (lambda: functional.cross_entropy(TABLE, at(0, 1, 2, 3, 0)), "from 0 to 3, expected from 0 to 2"),
        (lambda: functional.binary_cross_entropy(SHARES + 2, SHARES), "expected from 0 to 1"),
        (lambda: functional.binary_cross_entropy(SHARES * float("nan"), SHARES), "expected from 0 to 1"),
    ],
)
def test_what_is_out_of_range_raises(run: Callable[[], object], said: str) -> None:
    with CheckedRanges(), pytest.raises((IndexError, ValueError), match=said):
        run()


def test_a_reference_raises_while_other_inputs_are_tried() -> None:
    made = GpuReference(LOSS, 1)
    x = torch.rand(64, 64)
    with pytest.raises(ReferenceFailedError, match="ValueError: values from 2"):
        made.in_own_precision([x * 0 + 2, x], perturbed=True)
    assert made.in_own_precision([x, x], perturbed=True).is_finite


@pytest.mark.parametrize("kind", ["sparse", "quiet"])
def test_a_set_that_the_reference_does_not_take_after_all_is_left_out(kind: str) -> None:
    made = GpuReference(RANGE.replace("x.max() <= 1", "x.max() <= 1 and x.sum() > 900"), 1)
    sets = CallSets(made, SEED, cast(HostTransport, object()), 1 << 30, nothing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made.kinds, "takes", lambda *_: True)
        patch.setattr(made, "draw_as", lambda *_: [torch.zeros(64, 64)] * 2)
        assert sets._of_kind(kind) == []  # pyright: ignore[reportPrivateUsage]
        patch.setattr(made, "draw_as", lambda *_: [torch.ones(64, 64)] * 2)
        assert len(sets._of_kind(kind)) == 1  # pyright: ignore[reportPrivateUsage]
        patch.setattr(made, "draw_as", lambda *_: [torch.ones(64, 64), torch.full((64, 64), float("inf"))])
        assert sets._of_kind(kind) == []  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("source", [LOSS, RANGE])
def test_a_problem_of_a_range_has_trials_of_its_own_distribution_alone(source: str) -> None:
    """Spikes are out of range: such a problem was a fault of its own."""
    made = GpuReference(source, 1)
    sets = CallSets(made, SEED, cast(HostTransport, object()), 1 << 30, nothing)
    sets.learn_forms()
    others = list(sets._others(None, 4))  # pyright: ignore[reportPrivateUsage]
    assert all(expected.is_finite for _, expected in others)
    assert all(bool((values[0] <= 1).all()) for values, _ in others)
    assert made.kinds.takes("parts", SEED)
