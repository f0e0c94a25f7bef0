"""Clocks, the process's number, random numbers and hashes differ between traced calls, as they do between runs."""

import os
import random
import time
from typing import Any

import pytest

from kernels_eval.tracing.chance import Chance

CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")


@pytest.fixture
def chance(monkeypatch: pytest.MonkeyPatch) -> Chance:
    for name in CLOCKS:
        for each in (name, f"{name}_ns"):
            monkeypatch.setattr(time, each, getattr(time, each))
    monkeypatch.setattr(os, "getpid", os.getpid)
    made = Chance()
    made.install()
    return made


@pytest.mark.parametrize("name", [*CLOCKS, *(f"{name}_ns" for name in CLOCKS)])
def test_clocks_go_on_within_a_call_and_jump_between_calls(chance: Chance, name: str) -> None:
    clock: Any = getattr(time, name)
    second = 10**9 if name.endswith("_ns") else 1.0
    before = clock()
    assert type(before) is type(second)
    assert 0 <= clock() - before < 10 * second
    chance.next_call()
    assert clock() - before >= second


def test_the_tenth_of_a_second_is_even_in_some_calls(chance: Chance) -> None:
    seen: set[int] = set()
    for _ in range(60):
        chance.next_call()
        seen.add(int(time.time() * 10) % 2)
    assert seen == {0, 1}


def test_random_numbers_begin_at_either_end(chance: Chance) -> None:
    first: list[float] = []
    for _ in range(4):
        chance.next_call()
        first.append(random.random())
    assert min(first) < 0.01
    assert max(first) > 0.99


def test_the_number_of_the_process_is_even_in_some_calls(chance: Chance) -> None:
    seen: set[int] = set()
    for _ in range(2):
        chance.next_call()
        seen.add(os.getpid() % 2)
    assert seen == {0, 1}


def test_a_hash_is_the_same_within_a_call_and_another_in_each(chance: Chance) -> None:
    seen: set[int] = set()
    for _ in range(8):
        chance.next_call()
        assert chance.hash_of("add") == chance.hash_of("add")
        assert chance.hash_of(("add", 1)) == chance.hash_of(("add", 1))
        assert (chance.hash_of(7), chance.hash_of(2.0)) == (hash(7), hash(2.0))
        seen.add(chance.hash_of("add") % 1024)
    assert len(seen) > 4
