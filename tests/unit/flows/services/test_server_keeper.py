"""A server that died is started again, also if that fails a few times; after some attempts the run goes on without it."""

import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from flows.services import server_keeper as module
from flows.services.server_keeper import MOST_STARTS, ServerKeeper
from kernels_eval.errors import InfrastructureError

DIED = "Prefect's server has died: it is started again, the run goes on"
Keep = Callable[[int], tuple[ServerKeeper, list[str]]]


@pytest.fixture
def keep(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    """Return a function that keeps a server, dead by now, whose next starts fail so many times; and its lines."""
    monkeypatch.setattr(module, "CHECK_S", 0.01)
    kept, alive = list[ServerKeeper](), list[subprocess.Popen[bytes]]()

    def make(failures: int) -> tuple[ServerKeeper, list[str]]:
        notes, starts = list[str](), list[int]()

        def start() -> subprocess.Popen[bytes]:
            starts.append(1)
            if len(starts) <= failures:
                raise InfrastructureError("it did not answer")
            alive.append(subprocess.Popen(["sleep", "60"]))
            return alive[-1]

        dead = subprocess.Popen(["true"])
        dead.wait()
        kept.append(ServerKeeper(dead, start, lambda: False, notes.append))
        kept[-1].open()
        return kept[-1], notes

    yield make
    for keeper in kept:
        keeper.close()
    for process in alive:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_start_that_fails_on_a_busy_machine_is_tried_again(keep: Keep) -> None:
    keeper, notes = keep(2)
    wait_for(lambda: notes)
    assert keeper.wait_until_up(60)
    assert notes == [DIED, *["it did not answer; it is tried again"] * 2]
    assert keeper.process is not None
    assert keeper.process.poll() is None


def test_after_some_attempts_the_run_goes_on_without_it(keep: Keep) -> None:
    keeper, notes = keep(MOST_STARTS)
    wait_for(lambda: len(notes) > MOST_STARTS)
    assert notes[-1].startswith("it did not answer; the run goes on without its page")
    assert keeper.gone.is_set()
    assert not keeper.wait_until_up(60), "it does not wait for what is gone"
    assert len(notes) == MOST_STARTS + 1


def test_a_server_that_is_killed_again_and_again_is_given_up(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, notes = keep(0)
    for count in range(1, MOST_STARTS + 1):
        wait_for(lambda count=count: notes.count(DIED) == count and keeper.wait_until_up(0))
        assert keeper.process is not None
        keeper.process.kill()
    wait_for(keeper.gone.is_set)
    assert notes[-1].startswith(f"Prefect's server has died again, after {MOST_STARTS} starts: the run goes on without")
    assert not keeper.wait_until_up(0.01)


def test_deaths_of_a_server_that_lived_long_are_forgotten(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIVED_S", 0.0)
    keeper, notes = keep(0)
    for count in range(1, MOST_STARTS + 3):
        wait_for(lambda count=count: notes.count(DIED) == count and keeper.wait_until_up(0))
        assert keeper.process is not None
        keeper.process.kill()
    assert not keeper.gone.is_set()


def test_a_server_that_hangs_is_killed_when_it_is_given_up(keep: Keep) -> None:
    keeper, _ = keep(0)
    wait_for(lambda: keeper.process is not None and keeper.process.poll() is None)
    keeper.give_up()
    assert keeper.process is not None
    assert keeper.process.wait(60) != 0
    assert not keeper.wait_until_up(60)
