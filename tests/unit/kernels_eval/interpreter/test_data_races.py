"""Conflicts between programs of a launch, and between lanes of a program, are found; what atomics order passes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.interpreter.data_races import DataRaceError, RaceCheck
from kernels_eval.interpreter.shadow_memory import Access, Shadow, lane_numbers

DOUBLE = Path(__file__).parents[3] / "doubles" / "interpreted.py"
I8 = "    i = tl.arange(0, 8)\n"
WRITTEN = I8 + "    tl.store(o_ptr + i, tl.load(x_ptr + i))\n    tl.debug_barrier()\n"
P = "    p = tl.program_id(0)\n"
LOCK = "    while tl.atomic_cas(l_ptr, 0, 1) == 1:\n        pass\n"
COUNT_TO_7 = "    tl.store(s_ptr + p, tl.load(x_ptr + p))\n    if tl.atomic_add(l_ptr, 1) == 7:\n"
SUM_ALL = "tl.store(o_ptr, tl.sum(tl.load(s_ptr + tl.arange(0, 8))))\n"


def launch(body: str, programs: int = 8) -> dict[str, Any]:
    """Return a launch: `x_ptr` holds 0 … 7, `o_ptr` 0, `s_ptr` (scratch) -1, `l_ptr` (locks) the integer 0."""
    tensor = {"shape": [8], "dtype": "float32"}
    return {
        "source": f"def kernel(x_ptr, o_ptr, s_ptr, l_ptr):\n{body}",
        "grid": [programs, 1, 1],
        "arguments": {
            "x_ptr": {**tensor, "data": list(range(8))},
            "o_ptr": {**tensor, "data": [0] * 8},
            "s_ptr": {**tensor, "data": [-1] * 8},
            "l_ptr": {**tensor, "dtype": "int32", "data": [0] * 8},
        },
    }


ENGINE = I8 + "    d = tl.make_tensor_descriptor(s_ptr, [8], [1], [8])\n"
STORED_BY_ENGINE = ENGINE + "    d.store([0], tl.load(x_ptr + i))\n"
GIVES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "one atomic each": (launch(P + "    tl.atomic_add(o_ptr, tl.load(x_ptr + p))\n"), [28.0]),
    "atomics on a block": (launch(I8 + "    tl.atomic_add(o_ptr + i, tl.load(x_ptr + i))\n"), [0.0, 8.0, 16.0, 24.0]),
    "each its own element": (launch(P + "    tl.store(o_ptr + p, tl.load(x_ptr + p))\n"), [0.0, 1.0, 2.0]),
    "in place, each its own element": (
        launch(P + "    tl.store(o_ptr + p, tl.load(o_ptr + p) + 1)\n"),
        [1.0] * 8,
    ),
    "a descriptor's store beside another store": (
        launch(STORED_BY_ENGINE + "    tl.store(o_ptr + i, tl.load(x_ptr + i))\n", 1),
        [0.0, 1.0, 2.0],
    ),
    "a descriptor's load behind a barrier": (
        launch(
            ENGINE + "    tl.store(s_ptr + i, tl.load(x_ptr + i))\n    tl.debug_barrier()\n"
            "    tl.store(o_ptr + i, d.load([0]))\n",
            1,
        ),
        [0.0, 1.0, 2.0],
    ),
    "atomics of other lanes between barriers": (
        launch(
            I8 + "    tl.store(s_ptr + i, tl.load(x_ptr + i))\n    tl.debug_barrier()\n"
            "    tl.atomic_add(s_ptr + 7 - i, 1.0)\n    tl.debug_barrier()\n    tl.store(o_ptr + i, tl.load(s_ptr + i))\n",
            1,
        ),
        [1.0, 2.0, 3.0],
    ),
    "atomics of the same lanes": (
        launch(
            I8 + "    tl.store(s_ptr + i, tl.load(x_ptr + i))\n    tl.atomic_add(s_ptr + i, 1.0)\n"
            "    tl.store(o_ptr + i, tl.load(s_ptr + i))\n",
            1,
        ),
        [1.0, 2.0, 3.0],
    ),
    "an atomic whose result is used is a barrier": (
        launch(
            I8 + "    tl.store(s_ptr + i, tl.load(x_ptr + i))\n    n = tl.atomic_add(l_ptr, 1)\n"
            "    tl.store(o_ptr + i, tl.load(s_ptr + 7 - i) + n)\n",
            1,
        ),
        [7.0, 6.0, 5.0],
    ),
    "the same value by all": (launch("    tl.store(o_ptr, tl.load(x_ptr + 3))\n"), [3.0, 0.0]),
    "a lock around a read, a change and a write": (
        launch(
            P + I8 + LOCK + "    tl.store(o_ptr + i, tl.load(o_ptr + i) + tl.load(x_ptr + p))\n"
            "    tl.debug_barrier()\n    tl.atomic_xchg(l_ptr, 0)\n"
        ),
        [28.0] * 8,
    ),
    "a lock with acquire and release, and a count that says whether there is a sum yet": (
        launch(
            P
            + I8
            + LOCK.replace("0, 1)", "0, 1, sem='acquire')")
            + "    s = tl.load(x_ptr + i)\n    if tl.load(l_ptr + 1) == 0:\n        tl.atomic_xchg(l_ptr + 1, 1)\n"
            "    else:\n        s += tl.load(o_ptr + i)\n"
            "    tl.store(o_ptr + i, s)\n    tl.debug_barrier()\n    tl.atomic_xchg(l_ptr, 0, sem='release')\n"
        ),
        [8.0 * k for k in range(8)],
    ),
    "the last program to count adds up": (launch(P + COUNT_TO_7 + "        " + SUM_ALL), [28.0, 0.0]),
    "one program waits for all others": (
        launch(
            P + "    if p == 0:\n        while tl.atomic_cas(l_ptr, 7, 7) != 7:\n            pass\n        "
            "tl.store(o_ptr, tl.sum(tl.load(s_ptr + tl.arange(0, 8))))\n    else:\n"
            "        tl.store(s_ptr + p, tl.load(x_ptr + p))\n        tl.debug_barrier()\n        tl.atomic_add(l_ptr, 1)\n"
        ),
        [27.0],  # the element of the program that waits keeps its -1
    ),
    "a barrier of the whole grid": (
        launch(
            P + "    tl.store(s_ptr + p, tl.load(x_ptr + p))\n    tl.debug_barrier()\n    tl.atomic_add(l_ptr, 1)\n"
            "    while tl.atomic_add(l_ptr, 0) < 8:\n        pass\n"
            "    tl.store(o_ptr + p, tl.sum(tl.load(s_ptr + tl.arange(0, 8))))\n"
        ),
        [28.0] * 8,
    ),
    "each program waits for the one before it": (
        launch(
            P + "    s = 0.0\n    if p > 0:\n        while tl.atomic_cas(l_ptr + p - 1, 1, 1) != 1:\n            pass\n"
            "        s += tl.load(s_ptr + p - 1)\n    s += tl.load(x_ptr + p)\n    tl.store(s_ptr + p, s)\n"
            "    tl.store(o_ptr + p, s)\n    tl.debug_barrier()\n    tl.atomic_xchg(l_ptr + p, 1)\n"
        ),
        [0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0, 28.0],
    ),
    "a volatile load waits for an atomic": (
        launch(
            P + "    if p == 0:\n        tl.atomic_xchg(l_ptr, 1)\n    else:\n"
            "        tl.store(o_ptr + p, tl.load(l_ptr, volatile=True) * 0 + 1)\n"
        ),
        [0.0, 1.0, 1.0],
    ),
    "stored and loaded in the same lane": (
        launch(
            I8 + "    tl.store(o_ptr + i, tl.load(x_ptr + i))\n    tl.store(o_ptr + i, 2 * tl.load(o_ptr + i))\n", 1
        ),
        [0.0, 2.0, 4.0],
    ),
    "stored and loaded in another lane, with a barrier between": (
        launch(
            I8 + "    tl.store(s_ptr + i, tl.load(x_ptr + i))\n    tl.debug_barrier()\n"
            "    tl.store(o_ptr + i, tl.load(s_ptr + 7 - i))\n",
            1,
        ),
        [7.0, 6.0, 5.0],
    ),
    "loaded by another lane of the same warp": (
        launch(WRITTEN + "    tl.store(o_ptr + i, tl.load(o_ptr + 7 - i))\n", 1),
        [7.0, 6.0, 5.0],
    ),
    "loaded by another lane before a barrier": (
        launch(WRITTEN + "    v = tl.load(o_ptr + 7 - i)\n    tl.debug_barrier()\n    tl.store(o_ptr + i, v)\n", 1),
        [7.0, 6.0, 5.0],
    ),
    "loaded by another lane before a sum of all": (
        launch(WRITTEN + "    tl.store(o_ptr + i, tl.sum(tl.load(o_ptr + 7 - i)))\n", 1),
        [28.0] * 8,
    ),
    "atomics of lanes on one address, of the scope of their program": (
        launch(I8 + "    tl.atomic_add(o_ptr + i // 8, tl.load(x_ptr + i), scope='cta')\n", 1),
        [28.0, 0.0],
    ),
    "two lanes store the same value": (
        launch(I8 + "    tl.store(o_ptr + i // 2, tl.load(x_ptr + i // 2))\n", 1),
        [0.0, 1.0],
    ),
    "lanes that are masked off store nothing": (
        launch(I8 + "    tl.store(o_ptr + i // 2, tl.load(x_ptr + i), mask=i % 2 == 0)\n", 1),
        [0.0, 2.0, 4.0, 6.0],
    ),
}
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    name: (case, "DataRaceError", message)
    for name, (case, message) in {
        "a cell read, changed and written by all": (
            launch(P + "    tl.store(o_ptr, tl.load(o_ptr) + tl.load(x_ptr + p))\n"),
            "element 0 of `o_ptr`",
        ),
        "different values in one cell": (
            launch(P + "    tl.store(o_ptr + 3, tl.load(x_ptr + p))\n"),
            "element 3 of `o_ptr`",
        ),
        "zero by one program, atomics by all": (
            launch(P + "    if p == 0:\n        tl.store(s_ptr, 0.0)\n    tl.atomic_add(s_ptr, 1.0)\n"),
            "element 0 of `s_ptr`",
        ),
        "two phases without a barrier": (
            launch(P + "    tl.store(s_ptr + p, 1.0)\n    tl.store(o_ptr + p, tl.load(s_ptr + (p + 1) % 8))\n"),
            "of `s_ptr`",
        ),
        "a neighbour in place": (
            launch(P + "    tl.store(s_ptr + p, tl.load(s_ptr + (p + 1) % 8) + tl.load(x_ptr + p))\n", 8),
            "of `s_ptr`",
        ),
        "what atomics sum, read by another program without one": (
            launch(P + "    tl.atomic_add(s_ptr, 1.0)\n    tl.store(o_ptr + p, tl.load(s_ptr))\n"),
            "element 0 of `s_ptr`",
        ),
        "the last program by a relaxed count": (
            launch(P + COUNT_TO_7.replace("l_ptr, 1)", "l_ptr, 1, sem='relaxed')") + "        " + SUM_ALL),
            "of `s_ptr`",
        ),
        "a lock that is released before the write": (
            launch(
                P
                + LOCK
                + "    s = tl.load(o_ptr)\n    tl.atomic_xchg(l_ptr, 0)\n    tl.store(o_ptr, s + tl.load(x_ptr + p))\n"
            ),
            "element 0 of `o_ptr`",
        ),
        "another lock in each program": (
            launch(
                P + LOCK.replace("l_ptr", "l_ptr + p") + "    tl.store(o_ptr, tl.load(o_ptr) + tl.load(x_ptr + p))\n"
                "    tl.atomic_xchg(l_ptr + p, 0)\n"
            ),
            "element 0 of `o_ptr`",
        ),
        "loaded in another lane": (
            launch(
                I8 + "    tl.store(s_ptr + i, tl.load(x_ptr + i))\n    tl.store(o_ptr + i, tl.load(s_ptr + 7 - i))\n", 1
            ),
            "tl.debug_barrier()",
        ),
        "overwritten by another lane": (
            launch(
                I8 + "    tl.store(s_ptr + i, tl.load(x_ptr + i))\n    tl.store(s_ptr + 7 - i, tl.load(x_ptr + i))\n", 1
            ),
            "tl.debug_barrier()",
        ),
        "atomics of the scope of one program": (
            launch(P + "    tl.atomic_add(o_ptr, tl.load(x_ptr + p), scope='cta')\n"),
            "with scope='cta', element 0 of `o_ptr`",
        ),
        "a descriptor's store, loaded again": (
            launch(STORED_BY_ENGINE + "    tl.debug_barrier()\n    tl.store(o_ptr + i, tl.load(s_ptr + i))\n", 1),
            "stored by a descriptor",
        ),
        "a descriptor's store, and an atomic": (
            launch(STORED_BY_ENGINE + "    tl.debug_barrier()\n    tl.atomic_add(s_ptr + i, 0.0)\n", 1),
            "updates element 0 of `s_ptr`, which it stored by a descriptor",
        ),
        "a descriptor's store, and a volatile load": (
            launch(STORED_BY_ENGINE + "    tl.debug_barrier()\n    tl.load(s_ptr + i, volatile=True)\n", 1),
            "loads element 0 of `s_ptr`, which it stored by a descriptor",
        ),
        "a descriptor's load of what lanes stored": (
            launch(ENGINE + "    tl.store(s_ptr + i, tl.load(x_ptr + i))\n    tl.store(o_ptr + i, d.load([0]))\n", 1),
            "tl.debug_barrier()",
        ),
        "atomics of other lanes, loaded": (
            launch(I8 + "    tl.atomic_add(s_ptr + i % 4, 1.0)\n    tl.store(o_ptr + i, tl.load(s_ptr + i))\n", 1),
            "one that updated it",
        ),
        "atomics on what other lanes stored": (
            launch(I8 + "    tl.store(s_ptr + i, tl.load(x_ptr + i))\n    tl.atomic_add(s_ptr + 7 - i, 1.0)\n", 1),
            "one that stored it",
        ),
        "an atomic whose result nobody uses is no barrier": (
            launch(
                I8 + "    tl.store(s_ptr + i, tl.load(x_ptr + i))\n    tl.atomic_add(l_ptr, 1)\n"
                "    tl.store(o_ptr + i, tl.load(s_ptr + 7 - i))\n",
                1,
            ),
            "tl.debug_barrier()",
        ),
        "two values for one element": (
            launch(I8 + "    tl.store(o_ptr + i // 2, tl.load(x_ptr + i))\n", 1),
            "two of its lanes",
        ),
    }.items()
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Any]]:
    cases = {name: case[0] for name, case in (*GIVES.items(), *REFUSED.items())}
    done = subprocess.run(
        [sys.executable, str(DOUBLE)],
        input=json.dumps(list(cases.values())),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return dict(zip(cases, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", GIVES)
def test_ordered_accesses_pass(name: str, outcomes: dict[str, dict[str, Any]]) -> None:
    assert outcomes[name].get("error") is None, outcomes[name]
    expected = GIVES[name][1]
    assert outcomes[name]["tensors"]["o_ptr"][: len(expected)] == expected


@pytest.mark.parametrize("name", REFUSED)
def test_conflicts_are_refused(name: str, outcomes: dict[str, dict[str, Any]]) -> None:
    _, kind, message = REFUSED[name]
    assert outcomes[name].get("error") == kind, outcomes[name]
    assert message in outcomes[name]["message"]


def access(elements: list[int], values: list[float] | None = None, itemsize: int = 4) -> Access:
    return Access(
        name="x",
        start=0,
        offsets=np.array(elements, np.int64) * itemsize,
        itemsize=itemsize,
        lanes=lane_numbers((len(elements),), None),
        memory=np.zeros(1024, np.uint8),
        values=None if values is None else np.array(values, f"f{itemsize}"),
    )


steps = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["load", "store", "atomic"]), st.integers(0, 5)), max_size=12
)


@given(steps)
def test_programs_conflict_as_in_a_search_over_all_pairs(accesses: list[tuple[int, str, int]]) -> None:
    """Accesses are sorted by program: each runs to its end before the next one starts."""
    accesses = sorted(accesses, key=lambda item: item[0])
    conflict = any(
        place == other_place and program != other and {kind, other_kind} not in ({"load"}, {"atomic"})
        for program, kind, place in accesses
        for other, other_kind, other_place in accesses
    )
    races, shadow = RaceCheck(), Shadow(256, 4)
    races.start_launch()
    current, found = None, False
    try:
        for program, kind, place in accesses:
            if program != current:
                races.start_program((program, 0, 0))
                current = program
            races.barrier()  # lanes are not the matter here
            if kind == "load":
                races.load(shadow, access([place]), is_recorded=True)
            elif kind == "store":
                races.store(shadow, access([place], [program + 1.0]))
            else:
                races.atomic(shadow, access([place]), is_write=True)
    except DataRaceError:
        found = True
    assert found is conflict


def overwritten(loads: list[list[int]], stored: list[int]) -> bool:
    """Return whether a program may not store, after loads, to elements that are named for each lane."""
    races, shadow = RaceCheck(), Shadow(1024, 4)
    races.start_launch()
    races.start_program((0, 0, 0))
    for elements in loads:
        races.load(shadow, access(elements), is_recorded=True)
    try:
        races.store(shadow, access(stored, [1.0] * len(stored)))
    except DataRaceError as error:
        return "in another warp than one that loaded it" in str(error)
    return False


ALL = list(range(64))
SWAPPED, REVERSED = [i ^ 1 for i in ALL], ALL[::-1]


@pytest.mark.parametrize(
    ("loads", "is_refused"),
    [([ALL], False), ([SWAPPED], False), ([SWAPPED, ALL], False), ([ALL, SWAPPED], False), ([REVERSED], True),
     ([REVERSED, ALL], True), ([ALL, REVERSED], True), ([[i % 32 for i in ALL]], True)],
)  # fmt: skip
def test_a_warp_may_overwrite_what_it_alone_has_loaded(loads: list[list[int]], is_refused: bool) -> None:
    assert overwritten(loads, ALL) is is_refused


def test_elements_of_other_sizes_in_the_same_memory_conflict_too() -> None:
    races, shadow = RaceCheck(), Shadow(256, 8)
    races.start_launch()
    races.start_program((0, 0, 0))
    races.store(shadow, access([1], [1.0], itemsize=8))
    races.start_program((1, 0, 0))
    races.store(shadow, access([4], [1.0]))
    with pytest.raises(DataRaceError, match="element 3 of `x`"):
        races.load(shadow, access([3]), is_recorded=True)


def test_a_new_launch_starts_without_conflicts() -> None:
    races, shadow = RaceCheck(), Shadow(256, 4)
    for program in range(2):
        races.start_launch()
        races.start_program((program, 0, 0))
        races.store(shadow, access([0], [program + 1.0]))
