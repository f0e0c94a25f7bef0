"""Clocks, the process's number, random numbers and hashes differ between traced calls, as they do between runs."""

import datetime
import os
import pickle
import random
import secrets
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernels_eval.tracing.chance import Chance

CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
CALENDARS = ("localtime", "gmtime", "ctime", "strftime", "asctime")


@pytest.fixture
def chance(monkeypatch: pytest.MonkeyPatch) -> Chance:
    for name in (*CLOCKS, *(f"{name}_ns" for name in (*CLOCKS, "clock_gettime")), "clock_gettime", *CALENDARS):
        monkeypatch.setattr(time, name, getattr(time, name))
    replaced = ((os, "getpid urandom getrandom"), (random, "_urandom Random seed"), (datetime, "datetime date"))
    for module, names in (*replaced, (np.random, "default_rng")):
        for name in names.split():
            monkeypatch.setattr(module, name, getattr(module, name))
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


@pytest.mark.parametrize(
    "number",
    [
        lambda: random.random(), lambda: random.Random().random(),
        lambda: np.random.random(), lambda: np.random.default_rng().random(),
        lambda: random.SystemRandom().random(), lambda: os.urandom(1)[0] / 256, lambda: os.getrandom(2)[1] / 256,
        lambda: secrets.randbits(20) / 2**20, lambda: int(uuid.uuid4().hex[:4], 16) / 2**16,
    ],
    ids=["random", "Random", "numpy", "default_rng", "SystemRandom", "urandom", "getrandom", "secrets", "uuid4"],
)  # fmt: skip
def test_random_numbers_begin_at_either_end(chance: Chance, number: Callable[[], float]) -> None:
    first: list[float] = []
    for _ in range(12):
        chance.next_call()
        first.append(number())
    assert min(first) < 0.01
    assert max(first) > 0.99


def test_numbers_below_a_bound_and_seeds_end_and_differ(chance: Chance) -> None:
    below: set[int] = set()
    seeded: set[float] = set()
    for _ in range(30):
        chance.next_call()
        below |= {secrets.randbelow(50) for _ in range(3)}
        seeded.add(np.random.RandomState().random_sample())
        assert random.Random(7).random() == random.Random(7).random()
        assert np.random.default_rng(7).random() == np.random.default_rng(7).random()
    assert 0 in below
    assert len(below) > 5
    assert len(seeded) > 5


def test_what_follows_the_first_number_is_random(chance: Chance) -> None:
    seen: list[set[Any]] = [set() for _ in range(4)]
    for _ in range(60):
        chance.next_call()
        found = (np.random.rand(2)[1] < 0.5, random.Random().sample(range(9), 9)[-1], uuid.uuid4(), uuid.uuid4())
        for values, value in zip(seen, found, strict=True):
            values.add(value)
    assert seen[0] == {True, False}
    assert len(seen[1]) > 3
    assert len(seen[2] | seen[3]) == 120


def test_what_stands_for_dates_and_generators_is_one(chance: Chance) -> None:
    plain = datetime.datetime.__mro__[1]
    for now in (datetime.datetime.now(), plain(2026, 1, 2), datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)):
        assert isinstance(now, datetime.datetime)
        assert isinstance(now, datetime.date)
    assert not isinstance(datetime.date.today(), datetime.datetime)
    assert issubclass(plain, datetime.date)
    assert isinstance(random.SystemRandom(), random.Random)
    own = type("Own", (random.Random,), {})
    assert not isinstance(random.Random(), own)
    assert isinstance(own(), random.Random)
    generator = random.Random(7)
    assert pickle.loads(pickle.dumps(generator)).random() == generator.random()
    assert pickle.loads(pickle.dumps(now)) == now
    assert pickle.loads(pickle.dumps(datetime.date(2026, 1, 2))) == datetime.date(2026, 1, 2)


def test_the_date_is_another_in_each_call(chance: Chance) -> None:
    hours: set[int] = set()
    for _ in range(40):
        chance.next_call()
        now = datetime.datetime.now().timestamp()
        assert abs(now - time.time()) < 60
        assert abs(now - datetime.datetime.now(datetime.UTC).timestamp()) < 60
        assert abs(now - time.mktime(time.localtime())) < 60
        assert abs(now - time.clock_gettime(time.CLOCK_REALTIME)) < 60
        assert datetime.date.fromtimestamp(now - 60) <= datetime.date.today() <= datetime.date.fromtimestamp(now + 60)
        assert abs(int(time.strftime("%s")) - now) < 60
        hours.add(datetime.datetime.now().hour)
    assert len(hours) > 5


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
