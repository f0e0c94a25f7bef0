"""Errors of a rank reach the caller as what they are: bad input, a mistake in the program, or the machine's fault."""

import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import ray
import torch
from ray.exceptions import RayError, RayTaskError

from kernels_eval.errors import InfrastructureError, InputError
from tasks.training.faults import OutOfMemoryError, error_of_rank
from tasks.training.program import RankContext
from tasks.training.ranks import run_on_ranks
from tasks.update.config import UpdateConfig


def run(resources: UpdateConfig, action: Callable[[int], Any]) -> list[Any]:
    """Run on all ranks; what they yield is what the action returns."""

    def program(rank: RankContext, job: None) -> Iterator[Any]:
        yield action(rank.rank)

    return list(run_on_ranks(resources, program, None))


def raised_by(action: Callable[[], Any]) -> BaseException:
    """Run the action in a process of Ray's and return what its failure counts as."""

    @ray.remote(max_retries=0, num_cpus=0)
    def remote() -> None:
        action()

    try:
        ray.get(remote.remote())
    except RayError as error:
        return error_of_rank(error, 8192)
    raise AssertionError("expected it to fail")


def test_only_the_machines_faults_count_as_such() -> None:
    def bad_input() -> None:
        raise InputError("the file is not there")

    def broken_pair() -> None:
        raise RuntimeError("[../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4")

    def worker_of_its_own_dies() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    found = raised_by(bad_input)
    assert (type(found), str(found)) == (InputError, "the file is not there")
    found = raised_by(lambda: torch.empty(2, 3) @ torch.empty(4, 5))
    assert type(found) is RuntimeError
    assert "shapes cannot be multiplied" in str(found)
    found = raised_by(lambda: torch.empty(2**55, dtype=torch.uint8))
    assert isinstance(found, OutOfMemoryError)
    assert str(found).startswith("out of memory with update.tokens_per_rank = 8192: ")
    nobody = timedelta(seconds=0.1)
    for action, words in (
        (lambda: torch.distributed.TCPStore("127.0.0.1", 1, 2, timeout=nobody), "lost each other"),
        (broken_pair, "lost each other: .*Connection closed by peer"),
        (worker_of_its_own_dies, "a training rank died"),
    ):
        with pytest.raises(InfrastructureError, match=words):
            raise raised_by(action)


def test_a_mistake_shows_the_ranks_traceback_and_leaves_no_rank_waiting() -> None:
    def mistake(rank: int) -> None:
        raise KeyError("a mistake in the program")

    resources = UpdateConfig(threads_per_rank=1)
    with pytest.raises(KeyError, match="a mistake in the program") as raised:
        run(resources, mistake)
    assert isinstance(raised.value.__cause__, RayTaskError)
    assert "in mistake" in str(raised.value.__cause__)
    assert run(resources, lambda rank: rank) == [0]


@pytest.mark.slow
def test_ranks_do_not_wait_for_a_dead_one() -> None:
    def die_while_the_other_waits(rank: int) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        torch.distributed.barrier()

    resources = UpdateConfig(threads_per_rank=1, ranks=2)
    with pytest.raises(InfrastructureError, match=r"rank died|lost each other"):
        run(resources, die_while_the_other_waits)
    assert run(resources, lambda rank: rank) == [0]
