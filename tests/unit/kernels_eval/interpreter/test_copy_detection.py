"""Launches that copy or only rearrange are told from those that compute."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import triton.language as tl

from kernels_eval.interpreter.copy_detection import LibraryCopies, MovedValues
from kernels_eval.interpreter.memory_accesses import ACCESS_LOG, Origin, Region, Storage, record_access
from kernels_eval.interpreter.tensor_store import TensorStore
from kernels_eval.trace.schema import View

X = View(storage=0, dtype="float32", shape=(8, 8), strides=(8, 1))
OUT = View(storage=1, dtype="float32", shape=(8, 8), strides=(8, 1))
Kernel = Callable[[torch.Tensor], torch.Tensor]
REARRANGES: dict[str, Kernel] = {
    "copy": torch.clone,
    "transpose": lambda x: x.t().contiguous(),
    "flip": lambda x: x.flip(0),
    "triangle": torch.tril,
}
COMPUTES: dict[str, Kernel] = {
    "relu": torch.relu,
    "scaled by two": lambda x: 2 * x,
    "sorted": lambda x: x.sort(dim=1).values,
    "running maximum": lambda x: x.cummax(dim=1).values,
    "sum": lambda x: x.sum(1, keepdim=True).expand(8, 8),
    "softmax": lambda x: torch.softmax(x, 1),
}


class _Pointers:
    def __init__(self, base: int) -> None:
        self.data = base + 4 * np.arange(64, dtype=np.uint64)

    def get_element_ty(self) -> tl.dtype:
        return tl.float32


@pytest.fixture(autouse=True)
def log() -> Iterator[None]:
    yield
    ACCESS_LOG.start([])


def store_with(origin: Origin, strict: bool) -> TensorStore:
    """Return a store with an input of this origin and an output that nobody has written."""
    store = TensorStore(strict=strict)
    generator = torch.Generator().manual_seed(3)
    for number, values, of in (
        (0, torch.randn(8, 8, generator=generator), origin),
        (1, torch.zeros(8, 8), Origin.NOBODY),
    ):
        store.give(number, values, 256)
        store[number].default_origin = of
    return store


def launch(store: TensorStore, kernel: Kernel) -> Callable[[], None]:
    """Begin a launch; returns the function that runs the kernel, its accesses recorded as the interpreter does."""

    def run() -> None:
        storages: list[Storage] = [store[0], store[1]]
        record_access(_Pointers(storages[0].base), None, reads=True, writes=False)
        record_access(_Pointers(storages[1].base), None, reads=False, writes=True)
        store.tensor(OUT).copy_(kernel(store.tensor(X)))

    ACCESS_LOG.start([Region(name, store[n], store[n].base, 256) for n, name in enumerate("xo")])
    return run


def moves(store: TensorStore, kernel: Kernel) -> bool:
    run = launch(store, kernel)
    moved = MovedValues(store, [X, OUT])
    run()
    expected, origins = store.tensor(OUT).clone(), store.origins(X).clone()
    found = moved.settle(run)
    assert torch.equal(store.tensor(OUT), expected)  # the second run leaves nothing behind
    assert torch.equal(store.origins(X), origins)
    return found


@pytest.mark.parametrize("name", REARRANGES)
def test_what_only_rearranges_is_not_the_kernels_under_mixed(name: str) -> None:
    store = store_with(Origin.GIVEN, strict=False)
    assert moves(store, REARRANGES[name])
    assert store.origin_counts(OUT)[Origin.GIVEN] == 64


@pytest.mark.parametrize("name", COMPUTES)
def test_what_computes_is_the_kernels(name: str) -> None:
    for strict in (False, True):
        store = store_with(Origin.MOVED if strict else Origin.GIVEN, strict)
        assert not moves(store, COMPUTES[name])
        assert store.origin_counts(OUT)[Origin.KERNEL] == 64


@pytest.mark.parametrize(("origin", "is_refused"), [(Origin.MOVED, True), (Origin.GIVEN, False)])
def test_strict_asks_only_for_copies_of_what_pytorch_rearranged(origin: Origin, is_refused: bool) -> None:
    store = store_with(origin, strict=True)
    assert moves(store, torch.clone) is is_refused
    assert store.origin_counts(OUT)[Origin.MOVED if is_refused else Origin.KERNEL] == 64


@pytest.mark.parametrize(
    ("kernel", "is_copy"),
    [
        (torch.clone, True),
        (lambda x: 1.0 * x, True),
        (lambda x: x * (1 + 1e-5), True),
        (lambda x: 2 * x, False),
        (torch.relu, False),
    ],
)
def test_copies_of_the_librarys_results_are_the_librarys(kernel: Kernel, is_copy: bool) -> None:
    store = store_with(Origin.LIBRARY, strict=False)
    run = launch(store, kernel)
    copies = LibraryCopies(store, [X, OUT])
    run()
    copies.settle()
    assert copies.found is is_copy
    assert store.origin_counts(OUT)[Origin.LIBRARY if is_copy else Origin.KERNEL] == 64


def test_a_copy_of_an_input_is_no_copy_of_the_library() -> None:
    store = store_with(Origin.GIVEN, strict=False)
    run = launch(store, torch.clone)
    copies = LibraryCopies(store, [X, OUT])
    run()
    copies.settle()
    assert not copies.found
