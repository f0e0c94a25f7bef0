"""Copies of a weight whose values change: those that follow it, and those that stay as they were."""

from typing import Any

import pytest
import torch

from kernels_eval.interpreter.memory_accesses import Origin
from kernels_eval.interpreter.tensor_store import TensorStore
from kernels_eval.interpreter.weight_copies import WeightCopies
from kernels_eval.trace.schema import FIRST_OWN, FIRST_WEIGHT, Operate, Plain, Sequence, View

INPUT, WEIGHT, KEPT, OTHER = 0, FIRST_WEIGHT, FIRST_OWN, FIRST_OWN + 1
BEFORE, AFTER = torch.arange(6.0).reshape(2, 3), 10 + torch.arange(6.0).reshape(2, 3)


def view(storage: int, *shape: int) -> View:
    return View(storage=storage, dtype="float32", shape=shape, strides=torch.empty(shape).stride(), offset=0)


TURNED = View(storage=WEIGHT, dtype="float32", shape=(3, 2), strides=(1, 3), offset=0)


def operate(name: str, *arguments: Any, result: View, overload: str = "default") -> Operate:
    return Operate(name=name, overload=overload, arguments=arguments, results=(result,))


@pytest.fixture
def store() -> TensorStore:
    made = TensorStore(strict=True)
    made.give(INPUT, torch.ones(2, 3), 24)
    made.give(WEIGHT, BEFORE.clone(), 24)
    return made


def after(store: TensorStore, *commands: Operate, freed: tuple[int, ...] = ()) -> WeightCopies:
    copies = WeightCopies(store)
    for command in commands:
        store.operate(command)
        copies.note(command)
    store.free(freed)
    copies.renew({WEIGHT: AFTER})
    return copies


def test_a_weight_changes_in_place(store: TensorStore) -> None:
    held = store.tensor(view(WEIGHT, 2, 3))
    after(store)
    assert torch.equal(held, AFTER)


def test_a_transposed_copy_follows(store: TensorStore) -> None:
    turned = view(KEPT, 3, 2)
    after(store, operate("clone", TURNED, result=turned))
    assert torch.equal(store.tensor(turned), AFTER.t())


def test_a_copy_by_way_of_freed_memory_follows(store: TensorStore) -> None:
    first, second = view(OTHER, 2, 3), view(KEPT, 4, 3)
    joined = Sequence(items=(first, first))
    after(
        store, operate("clone", view(WEIGHT, 2, 3), result=first), operate("cat", joined, result=second), freed=(OTHER,)
    )
    assert torch.equal(store.tensor(second), torch.cat([AFTER, AFTER]))
    assert OTHER not in store.numbers


def test_a_copy_into_memory_that_was_made_before_follows(store: TensorStore) -> None:
    kept = view(KEPT, 3, 2)
    made = operate("empty", Sequence(items=()), result=kept, overload="memory_format")
    after(store, made, operate("copy_", kept, TURNED, result=kept))
    assert torch.equal(store.tensor(kept), AFTER.t())


def test_a_part_that_was_filled_stays_filled(store: TensorStore) -> None:
    kept, first = view(KEPT, 2, 3), view(KEPT, 1, 3)
    after(
        store,
        operate("clone", view(WEIGHT, 2, 3), result=kept),
        operate("fill_", first, Plain(value=5.0), result=first, overload="Scalar"),
    )
    assert torch.equal(store.tensor(kept), torch.stack([torch.full((3,), 5.0), AFTER[1]]))


def test_zeros_around_a_copy_come_again_with_memory_that_was_freed(store: TensorStore) -> None:
    whole, part, second = view(OTHER, 3, 3), view(OTHER, 2, 3), view(KEPT, 3, 3)
    after(
        store,
        operate("empty", Sequence(items=()), result=whole, overload="memory_format"),
        operate("zero_", whole, result=whole),
        operate("copy_", part, view(WEIGHT, 2, 3), result=part),
        operate("clone", whole, result=second),
        freed=(OTHER,),
    )
    assert torch.equal(store.tensor(second), torch.cat([AFTER, torch.zeros(1, 3)]))


def test_copies_of_inputs_and_what_kernels_wrote_stay(store: TensorStore) -> None:
    copy, written = view(KEPT, 2, 3), view(OTHER, 2, 3)
    commands = operate("clone", view(INPUT, 2, 3), result=copy), operate("empty_like", copy, result=written)
    copies = WeightCopies(store)
    for command in commands:
        store.operate(command)
        copies.note(command)
    store.tensor(copy).fill_(7.0)
    store.tensor(written).copy_(BEFORE * BEFORE)
    store.origins(written).fill_(int(Origin.KERNEL))
    copies.renew({WEIGHT: AFTER})
    assert torch.equal(store.tensor(copy), torch.full((2, 3), 7.0))
    assert torch.equal(store.tensor(written), BEFORE * BEFORE)


def test_what_was_made_in_the_form_of_freed_memory_needs_it_no_longer(store: TensorStore) -> None:
    summed, made = view(OTHER, 2, 3), view(KEPT, 2, 3)
    commands = (
        operate("clone", view(INPUT, 2, 3), result=summed),
        operate("ones_like", summed, result=made),
    )
    after(store, *commands, freed=(OTHER, KEPT))
    assert not {OTHER, KEPT} & store.numbers
