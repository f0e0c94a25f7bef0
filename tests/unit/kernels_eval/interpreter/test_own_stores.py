"""Loads that the compiled kernel carries out before a store of the same program are refused, and nothing is ahead else.

What Triton 3.7 fetches ahead was seen in the code that it makes for sm_90 (`ttg.async_copy_global_to_local`).
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOUBLE = Path(__file__).parents[3] / "doubles" / "interpreted.py"
TURNS, SIZE = 6, 256
I = f"    i = tl.arange(0, {SIZE})\n"  # noqa: E741
MEAN = I + "    v = tl.load(x_ptr + i)\n    tl.store(s_ptr, tl.sum(v, 0))\n"
SQUARE = "    p = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]\n    w = tl.load(x_ptr + p)\n"


def chain(options: str = "", *, before: str = "", after: str = "", branch: str = "", back: int = 1) -> str:
    """Return a kernel whose loop adds a row to what it stored some turns before."""
    load = f"o = tl.load(o_ptr + (t - {back}) * {SIZE} + i)"
    load = f"o = v\n        if {branch}:\n            {load}" if branch else load
    return (
        f"{I}    v = tl.load(x_ptr + i)\n"
        f"    for t in range({back}):\n        tl.store(o_ptr + t * {SIZE} + i, v)\n"
        f"    for t in tl.range({back}, {TURNS}{options}):\n        {before}v = tl.load(x_ptr + t * {SIZE} + i)\n"
        f"        {load}\n        tl.store(o_ptr + t * {SIZE} + i, o + v)\n{after}"
    )


def products(options: str = "", after: str = "") -> str:
    """Return a kernel whose loop multiplies what it stored in its last turn."""
    return (
        f"{SQUARE}    tl.store(o_ptr + p, w)\n"
        f"    for t in tl.range(1, {TURNS}{options}):\n        h = tl.load(o_ptr + (t - 1) * {SIZE} + p)\n"
        f"        tl.store(o_ptr + t * {SIZE} + p, tl.dot(h, w, input_precision='ieee') * 0.0)\n{after}"
    )


BARRIER = "        tl.debug_barrier()\n"
PASSES = {
    "a scalar behind a barrier": MEAN + "    tl.debug_barrier()\n    tl.store(o_ptr + i, v - tl.load(s_ptr))\n",
    "a scalar behind another sum": MEAN + "    m = tl.max(v, 0)\n    tl.store(o_ptr + i, m - tl.load(s_ptr))\n",
    "a scalar that is only stored again": MEAN + "    tl.store(o_ptr, tl.load(s_ptr) + 1.0)\n",
    "a loop that asks for nothing": chain(),
    "a loop of two stages": chain(", num_stages=2"),
    "a barrier in the loop": chain(", num_stages=3", after=BARRIER),
    "a branch around the load": chain(", num_stages=3", branch="tl.program_id(0) == 0"),
    "a branch with another one, known to the compiler, before the load": chain(
        ", num_stages=3", branch="tl.program_id(0) == 0"
    ).replace(
        "            o = tl.load", "            if 1 > 0:\n                v = v + 0.0\n            o = tl.load", 1
    ),
    "a loop inside of the loop": chain(", num_stages=3", before="for u in range(2):\n            t + u\n        "),
    "as many turns back as the loop reaches": chain(", num_stages=3", back=2),
    "a product of two stages": products(", num_stages=2"),
    "a product and a barrier": products(after=BARRIER),
}
REFUSED = {
    "a scalar in a block": (MEAN + "    tl.store(o_ptr + i, v - tl.load(s_ptr))\n", "a scalar that one thread"),
    "a scalar that one thread has added to": (
        MEAN.replace("tl.store(s_ptr,", "tl.atomic_add(s_ptr,") + "    tl.store(o_ptr + i, v - tl.load(s_ptr))\n",
        "a scalar that one thread",
    ),
    "a scalar, computed with, in a block": (
        MEAN + "    m = tl.load(s_ptr) / 8\n    tl.store(o_ptr + i, tl.full([256], m, tl.float32))\n",
        "a scalar that one thread",
    ),
    "a scalar in a branch": (
        MEAN + "    if tl.load(s_ptr) > 0:\n        tl.store(o_ptr + i, v)\n",
        "a scalar that one thread",
    ),
    "a scalar in a block, after atomics that change nothing": (
        "    for _ in range(6):\n        tl.atomic_add(o_ptr + 300, 0.0)\n"
        + MEAN
        + "    tl.store(o_ptr + i, v - tl.load(s_ptr))\n",
        "a scalar that one thread",
    ),
    "a loop of three stages": (chain(", num_stages=3"), "num_stages=3"),
    "a loop of five stages": (chain(", num_stages=5", back=2), "num_stages=5"),
    "what atomics of the last turn added to": (
        chain(", num_stages=3").replace("tl.store(o_ptr + t * 256 + i, o", "tl.atomic_add(o_ptr + t * 256 + i, o"),
        "num_stages=3",
    ),
    "what this turn has stored": (
        chain(", num_stages=2").replace("o = tl.load(o_ptr + (t - 1)", "tl.store(o_ptr + t * 256 + i, v)\n        "
                                        "o = tl.load(o_ptr + t"),
        "num_stages=2",
    ),
    "a branch after the load": (
        chain(", num_stages=3", after="        if t < 0:\n            v += 1.0\n"),
        "num_stages=3",
    ),
    "a product": (products(), "num_stages=3"),
}  # fmt: skip


def launch(body: str, programs: int = 1) -> dict[str, Any]:
    rows = {"shape": [TURNS, SIZE], "dtype": "float32", "data": [0.5] * (TURNS * SIZE)}
    scalar = {"shape": [1], "dtype": "float32", "data": [0.0]}
    arguments = {"x_ptr": rows, "o_ptr": rows, "s_ptr": scalar}
    return {
        "source": f"def kernel(x_ptr, o_ptr, s_ptr):\n{body}",
        "grid": [programs, 1, 1],
        "arguments": arguments,
        "fresh": ["o_ptr", "s_ptr"],
    }


def sums(options: str, body: str) -> str:
    """Return a kernel that adds up rows in a loop with these options."""
    head = f"{I}    a = tl.zeros([{SIZE}], tl.float32)\n    for t in tl.range(0, {TURNS}{options}):\n"
    return f"{head}{body}    tl.store(o_ptr + i, a)\n"


ROW = "a += tl.load(x_ptr + t * 4096 // 16 + i)\n"
WAITS = {
    "plain": sums("", f"        {ROW}"),
    "stages": sums(", num_stages=6", f"        {ROW}"),
    "stages and a barrier": sums(", num_stages=6", f"        {ROW}{BARRIER}"),
    "stages and a branch": sums(", num_stages=6", f"        if tl.program_id(0) == 0:\n            {ROW}"),
    "stages and a loop": sums(", num_stages=6", f"        {ROW}        for u in range(2):\n            a += 1.0\n"),
}


def run(*cases: dict[str, Any]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(DOUBLE)], input=json.dumps(cases), capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Any]]:
    bodies = {**PASSES, **{name: body for name, (body, _) in REFUSED.items()}, **WAITS}
    return dict(zip(bodies, run(*map(launch, bodies.values())), strict=True))


@pytest.mark.parametrize("name", PASSES)
def test_loads_that_stay_behind_the_store_pass(name: str, outcomes: dict[str, dict[str, Any]]) -> None:
    assert outcomes[name].get("error") is None, outcomes[name]


@pytest.mark.parametrize("name", REFUSED)
def test_loads_that_overtake_a_store_are_refused(name: str, outcomes: dict[str, dict[str, Any]]) -> None:
    assert outcomes[name].get("error") == "DataRaceError", outcomes[name]
    assert REFUSED[name][1] in outcomes[name]["message"]


def test_programs_that_are_interpreted_together_are_refused_too() -> None:
    body = "    x_ptr += 0 * tl.program_id(0)\n" + MEAN.replace("s_ptr", "s_ptr + tl.program_id(0)")
    body += "    tl.store(o_ptr + tl.program_id(0) * 256 + i, v - tl.load(s_ptr + tl.program_id(0)))\n"
    case = launch(body, programs=4)
    case["arguments"]["s_ptr"] = {"shape": [4], "dtype": "float32", "data": [0.0] * 4}
    assert run(case)[0].get("error") == "DataRaceError"


@pytest.mark.parametrize(
    ("name", "is_ahead"),
    [("stages", True), ("stages and a barrier", False), ("stages and a branch", False), ("stages and a loop", False)],
)
def test_only_what_is_fetched_ahead_waits_less(name: str, is_ahead: bool, outcomes: dict[str, dict[str, Any]]) -> None:
    turns, plain = (outcomes[each]["launch"]["most_turns"] for each in (name, "plain"))
    assert (turns < plain) is is_ahead
    assert is_ahead or turns == plain
