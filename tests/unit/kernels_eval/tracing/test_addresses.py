"""Storages that launches reach by addresses that host code puts into tensors or passes as numbers."""

import numpy as np
import pytest

from kernels_eval.trace.schema import ADDRESS_SPACE, FIRST_OWN
from kernels_eval.tracing.addresses import Addresses


def _view(storage: int) -> dict[str, int | str]:
    return {"kind": "view", "storage": storage}


def _address(place: int, offset: int = 0) -> int:
    return (place + 1) * ADDRESS_SPACE + offset


def _words(*numbers: int) -> memoryview:
    return memoryview(np.array(numbers, dtype=np.int64).tobytes())


def test_a_storage_is_reached_once_its_address_was_put_into_a_tensor() -> None:
    addresses = Addresses()
    first, second = addresses.place_of(_view(3)), addresses.place_of(_view(FIRST_OWN + 9))
    assert addresses.reached() == []
    addresses.put_bytes(_words(5, _address(second, 64), -1), FIRST_OWN)
    assert addresses.reached() == [{"place": second, "view": _view(FIRST_OWN + 9)}]
    addresses.put_number(_address(first))
    assert [each["place"] for each in addresses.reached()] == [first, second]


@pytest.mark.parametrize("number", [7, -1, _address(4), True, "text", None])
def test_other_numbers_reach_nothing(number: object) -> None:
    addresses = Addresses()
    addresses.place_of(_view(3))
    addresses.put_number(number)
    addresses.put_bytes(memoryview(bytes(12)), FIRST_OWN)
    assert addresses.reached() == []


def test_own_storages_have_the_same_places_in_each_call_and_none_once_they_are_gone() -> None:
    addresses = Addresses()
    kept = addresses.place_of(_view(FIRST_OWN))
    places: list[int] = []
    for number in (FIRST_OWN + 1, FIRST_OWN + 20):
        places.append(addresses.place_of(_view(number)))
        addresses.put_number(_address(places[-1]))
        addresses.free(number)
    assert places[0] == places[1] != kept
    assert addresses.reached() == []


def test_an_address_is_used_by_what_gets_it_and_by_what_takes_its_results() -> None:
    addresses = Addresses()
    place = addresses.place_of(_view(3))
    addresses.put_bytes(_words(_address(place)), FIRST_OWN)
    assert not addresses.may_use({}, {FIRST_OWN + 1}, set())
    assert addresses.may_use({"named": {"fill": {"kind": "plain", "value": _address(place)}}}, set(), set())
    assert addresses.may_use({}, {FIRST_OWN}, {FIRST_OWN + 1}), "a copy of the table"
    assert addresses.may_use({}, {FIRST_OWN + 1}, set())
    addresses.free(FIRST_OWN + 1)
    assert not addresses.may_use({}, {FIRST_OWN + 1}, set())
