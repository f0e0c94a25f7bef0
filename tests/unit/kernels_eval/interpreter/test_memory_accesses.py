"""Bounds, traffic and origins of memory accesses, against references that look at one element after another."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.interpreter.memory_accesses import (
    ACCESS_LOG,
    SECTOR_BYTES,
    Origin,
    OutOfBoundsError,
    Region,
    Storage,
    record_access,
)

SIZES = (256, 100)
"""Bytes of the two storages of a launch."""


class Pointers:
    """Addresses of elements of one type, as the interpreter passes them."""

    def __init__(self, addresses: Any, dtype: Any = tl.float32) -> None:
        self.data = np.asarray(addresses, np.uint64)
        self._dtype = dtype

    def get_element_ty(self) -> Any:
        return self._dtype


@pytest.fixture(autouse=True)
def log() -> Iterator[None]:
    yield
    ACCESS_LOG.start([])


def start(*sizes: int, origin: Origin = Origin.GIVEN) -> list[Region]:
    storages = [Storage(index, torch.zeros(size, dtype=torch.uint8), origin) for index, size in enumerate(sizes)]
    regions = [Region(f"arg{s.number}", s, s.base, s.memory.numel()) for s in storages]
    ACCESS_LOG.start(regions)
    return regions


offsets_and_mask = st.lists(st.tuples(st.integers(0, 1), st.integers(-6, 66), st.booleans()), min_size=1, max_size=40)


@given(offsets_and_mask, st.booleans(), st.booleans())
def test_every_access_is_within_a_tensor_or_refused(
    places: list[tuple[int, int, bool]], reads: bool, writes: bool
) -> None:
    regions = start(*SIZES)
    addresses = [regions[which].base + 4 * element for which, element, _ in places]
    mask = np.array([is_on for *_, is_on in places])
    inside = [
        any(region.base <= address and address + 4 <= region.base + region.size for region in regions)
        for address in addresses
    ]
    pointers = Pointers(addresses)
    if not all(is_in for is_in, is_on in zip(inside, mask, strict=True) if is_on):
        with pytest.raises(OutOfBoundsError):
            record_access(pointers, mask, reads, writes)
        return
    record_access(pointers, mask, reads, writes)
    for region in regions:
        touched = {
            a - region.base for a, on in zip(addresses, mask, strict=True) if on and 0 <= a - region.base < region.size
        }
        sectors = {offset // SECTOR_BYTES for offset in touched}
        for flags, is_asked in ((region.read, reads), (region.written, writes)):
            assert (set() if flags is None else set(np.flatnonzero(flags).tolist())) == (sectors if is_asked else set())
        written = touched if writes else set[int]()
        origins = region.storage.all_origins()
        assert set(np.flatnonzero(origins == Origin.KERNEL).tolist()) == written
        assert set(np.unique(np.delete(origins, sorted(written)))) <= {Origin.GIVEN}


@given(st.lists(st.integers(0, 63), min_size=1, max_size=64))
def test_l2_traffic_counts_neighbours_in_a_sector_once(elements: list[int]) -> None:
    region = start(256)[0]
    addresses = [region.base + 4 * element for element in elements]
    record_access(Pointers(addresses), None, reads=True, writes=False)
    runs = len(list(groupby(address // SECTOR_BYTES for address in addresses)))
    assert ACCESS_LOG.l2_bytes == SECTOR_BYTES * runs
    assert ACCESS_LOG.sectors == len({(address - region.base) // SECTOR_BYTES for address in addresses})


@pytest.mark.parametrize("turned", [False, True])
def test_l2_traffic_of_a_block_is_that_of_its_better_order(turned: bool) -> None:
    region = start(16 * 64 * 4)[0]
    addresses = region.base + 4 * np.arange(16 * 64, dtype=np.uint64).reshape(16, 64)
    record_access(Pointers(addresses.T if turned else addresses), None, reads=True, writes=False)
    lines = {int(address) // SECTOR_BYTES for address in addresses.ravel()}
    assert ACCESS_LOG.l2_bytes == SECTOR_BYTES * len(lines)


@pytest.mark.parametrize(
    ("elements", "lone"),
    [
        (range(64), 0),
        (range(4, 64), 0),
        (range(0, 64, 16), 4),
        (range(0, 64, 8), 0),
        (range(0, 256, 32), 8),
        ([0, 8, 16, 48], 2),
        ([0, 128, 8, 136, 16, 144], 2),
    ],
    ids=["neighbours", "from the middle", "64 bytes apart", "32 bytes apart", "128 bytes apart", "a pair", "in turn"],
)
def test_sectors_without_the_other_one_of_their_64_bytes_are_lone(elements: Sequence[int], lone: int) -> None:
    region = start(1024)[0]
    record_access(Pointers(region.base + 4 * np.array(elements, dtype=np.uint64)), None, reads=True, writes=False)
    assert ACCESS_LOG.lone_sectors == lone


def test_lanes_that_are_masked_off_are_not_lone() -> None:
    region = start(1024)[0]
    addresses = region.base + 64 * np.arange(16, dtype=np.uint64)
    record_access(Pointers(addresses), np.arange(16) % 4 == 0, reads=True, writes=False)
    assert ACCESS_LOG.lone_sectors == 4


def test_given_traffic_is_what_is_read_of_storages_that_no_kernel_wrote() -> None:
    first, second = start(256, 256)
    for region in (first, second):
        record_access(Pointers(region.base + 4 * np.arange(64, dtype=np.uint64)), None, reads=True, writes=False)
    assert ACCESS_LOG.given_sectors == 16
    record_access(Pointers([second.base]), None, reads=False, writes=True)
    assert ACCESS_LOG.given_sectors == 8
    assert ACCESS_LOG.sectors == 17


def test_a_masked_access_touches_nothing() -> None:
    start()
    record_access(Pointers([0, 4]), np.array([False, False]), reads=True, writes=True)
    assert (ACCESS_LOG.sectors, ACCESS_LOG.l2_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("offset", "where"), [(100, "at the end"), (104, "4 bytes past the end"), (-4, "4 bytes before the start")]
)
def test_a_refusal_names_argument_and_place(offset: int, where: str) -> None:
    region = start(100)[0]
    with pytest.raises(OutOfBoundsError, match=f"writes outside its tensors: {where} of the 100 bytes of `arg0`"):
        record_access(Pointers([region.base + offset]), None, reads=False, writes=True)


def test_a_pointer_made_of_a_number_is_named() -> None:
    region = start(100)[0]
    with pytest.raises(OutOfBoundsError, match=r"bytes past the end .* what `data_ptr\(\)` gave"):
        record_access(Pointers([region.base + (1 << 41)]), None, reads=True, writes=False)
    with pytest.raises(OutOfBoundsError, match=r"program \(0, 0, 0\)\)$"):
        record_access(Pointers([region.base + (1 << 35)]), None, reads=True, writes=False)


def test_an_address_that_is_no_multiple_of_its_elements_size_is_refused() -> None:
    region = start(100)[0]
    record_access(Pointers([region.base + 4], tl.int32), None, reads=True, writes=False)
    with pytest.raises(OutOfBoundsError, match="misaligned address: the kernel reads elements of 4 bytes"):
        record_access(Pointers([region.base + 4, region.base + 9], tl.int32), None, reads=True, writes=False)


def test_wide_elements_have_to_be_inside_to_their_last_byte() -> None:
    region = start(100)[0]
    record_access(Pointers([region.base + 88], tl.int64), None, reads=True, writes=False)
    with pytest.raises(OutOfBoundsError):
        record_access(Pointers([region.base + 96], tl.int64), None, reads=True, writes=False)
