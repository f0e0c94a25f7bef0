"""Turns of loops that wait for memory: one for each that loads what is neither near nor fetched ahead."""

from types import SimpleNamespace

import numpy as np
import pytest

from kernels_eval.interpreter import own_stores
from kernels_eval.interpreter.load_turns import LoadTurns, deepened, loads_of, passed_on
from kernels_eval.interpreter.triton_patches import control_flow

PROGRAMS, LANES, ITEM = 3, 64, 4
ROW = 1 << 20


def block(start: int, stride: int = ITEM) -> np.ndarray:
    """Return the addresses of a block in each of the programs, whose rows lie far apart."""
    rows = np.arange(PROGRAMS, dtype=np.uint64)[:, None] * np.uint64(ROW)
    return rows + np.uint64(start) + np.arange(LANES, dtype=np.uint64) * np.uint64(stride)


def turns(*starts: int, loads: int = 1, stages: int = 1, stride: int = ITEM) -> float:
    """Return the turns that wait in a loop which loads so many blocks from each of these places."""
    log = LoadTurns()
    for start in starts:
        log.begin_turn(stages)
        for number in range(loads):
            log.load(block(start + number * (ROW // 8), stride), None, ITEM)
    log.end()
    return log.most


FAR = tuple(range(0, 10 * 4096, 4096))


def test_each_turn_waits_once_however_much_it_loads() -> None:
    assert turns(*FAR) == len(FAR)
    assert turns(*FAR, loads=3) == len(FAR)


def test_lines_just_loaded_are_near_and_scattered_lanes_make_nothing_near() -> None:
    assert turns(0, 0, 64, 128) == 1 + 1  # 256 bytes from 0, twice; then up to 384 bytes, of which one line is new
    assert turns(0, 0, 0, stride=4096) == 3
    log = LoadTurns()
    for start in (0, 4096, 8192):
        log.begin_turn(1)
        ends = block(0, stride=ROW // 8 // LANES * 8)  # two lanes at both ends of a row name all that lies between
        log.load(ends[:, [0, -1]], None, ITEM)
        log.load(block(start), None, ITEM)
    log.end()
    assert log.most == 3


@pytest.mark.parametrize(("programs", "waits"), [((), 0), ((1,), 3)])
def test_lanes_that_are_masked_off_load_nothing(programs: tuple[int, ...], waits: int) -> None:
    log = LoadTurns()
    mask = np.zeros((PROGRAMS, LANES), bool)
    mask[list(programs), 5] = True
    for start in (4096, 8192, 12288):
        log.begin_turn(1)
        log.load(block(start), mask, ITEM)
    log.end()
    assert log.most == waits


@pytest.mark.parametrize(("stages", "each"), [(1, 1.0), (2, 1.0), (3, 0.5), (5, 0.25)])
def test_a_loop_that_asks_for_stages_has_several_turns_under_way(stages: int, each: float) -> None:
    assert turns(*FAR, stages=stages) == each * len(FAR)


@pytest.mark.parametrize(("lanes", "item", "each"), [(1, 4, 1.0), (64, 2, 1.0), (64, 4, 0.25), (256, 2, 0.25)])
def test_scalars_and_less_than_four_bytes_of_a_thread_are_not_fetched_ahead(lanes: int, item: int, each: float) -> None:
    log, taken = LoadTurns(), LoadTurns()
    for one in (log, taken):
        one.start(3, threads=128)
    for start in FAR:
        addresses = np.uint64(start) + np.arange(lanes, dtype=np.uint64)[None, :] * np.uint64(item)
        log.begin_turn(5)
        log.load(addresses, None, item)
        taken.begin_turn(1)
        taken.multiply(SimpleNamespace(loads=taken.load(addresses, None, item)))
    log.end()
    taken.end()
    assert log.most == each * len(FAR)
    assert taken.most == (len(FAR) if each == 1.0 else 0)


@pytest.mark.parametrize(("is_address", "waits"), [(True, len(FAR)), (False, 1)])
def test_loads_that_wait_for_one_another_count_one_by_one_without_a_loop(is_address: bool, waits: int) -> None:
    log = LoadTurns()
    before = SimpleNamespace()
    for start in FAR:
        pointer = deepened(SimpleNamespace(), (before,)) if is_address else SimpleNamespace()
        before = SimpleNamespace()
        log.follow(before, log.load(block(start), None, ITEM), pointer, None)
    log.end()
    assert log.most == waits


def test_the_first_turn_of_a_loop_waits_whole_however_many_stages_it_asks_for() -> None:
    log = LoadTurns()
    log.start(3)
    for start in FAR:  # a loop of one turn within each turn of another one
        log.begin_turn(1)
        log.begin_turn(100, is_first=True)
        log.load(block(start), None, ITEM)
        log.begin_turn(1)
    log.end()
    assert log.most == len(FAR)


@pytest.mark.parametrize(
    ("stages", "is_multiplied", "waits"), [(3, "all", 0), (3, "one", 5), (3, "other", 5), (1, "all", 5)]
)
def test_products_fetch_ahead_what_they_alone_take(stages: int, is_multiplied: str, waits: int) -> None:
    """A product of something else, or of a part of what is loaded, does not make the rest come sooner."""
    log = LoadTurns()
    log.start(stages)
    for turn in range(5):
        log.begin_turn(1)
        first, second = (SimpleNamespace(loads=log.load(block(turn * 4096 + at), None, ITEM)) for at in (0, ROW // 2))
        summed = passed_on(SimpleNamespace(), (first, second))
        assert loads_of(summed) == first.loads | second.loads
        taken = {"all": (summed, SimpleNamespace()), "one": (first, first), "other": (SimpleNamespace(),) * 2}
        log.multiply(*taken[is_multiplied])
    log.end()
    assert log.most == waits


def test_programs_are_counted_apart_and_launches_anew() -> None:
    log = LoadTurns()
    for count in (2, 7, 3):
        log.begin()
        for start in FAR[:count]:
            log.begin_turn(1)
            log.load(block(start), None, ITEM)
        log.end()
    assert log.most == 7
    log.start(3)
    assert log.most == 0


def test_a_sum_over_a_long_row_does_not_carry_the_loads_of_all_turns() -> None:
    log, total = LoadTurns(), SimpleNamespace()
    for turn in range(1000):
        log.begin_turn(1)
        loaded = SimpleNamespace(loads=log.load(block(turn * 4096), None, ITEM))
        total = passed_on(SimpleNamespace(), (total, loaded))
        assert loaded.loads <= loads_of(total)
    assert len(loads_of(total)) == 32


def test_a_loop_names_its_first_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, bool]] = []
    log = SimpleNamespace(begin_turn=lambda stages, is_first=False, **_: begun.append((stages, is_first)))
    for module in (control_flow, own_stores):
        monkeypatch.setattr(module, "LOAD_TURNS", log)
    assert len(list(control_flow.counted(0, 3, 1, num_stages=4))) == 3
    assert begun == [(4, True), (4, False), (4, False), (1, False)]


def held_in_turn(programs: int, is_asked: bool) -> float:
    """Return the turns of programs that each load thrice between two atomics on one address."""
    log = LoadTurns()
    log.start(3)
    for program in range(programs):
        found = frozenset((log.release(64),))
        if is_asked:
            log.wait(found)
        for start in FAR[:3]:
            log.begin_turn(1)
            log.load(block(start + program * 8 * ROW), None, ITEM)
        log.release(64)
        log.end()
    return log.most


def test_programs_that_ask_until_a_lock_is_given_back_wait_for_the_ones_before() -> None:
    assert held_in_turn(1, True) == 3
    assert [held_in_turn(count, True) for count in (2, 3)] == pytest.approx([9, 15])


def test_an_atomic_that_nobody_waits_for_keeps_no_program() -> None:
    assert held_in_turn(8, False) == 3
