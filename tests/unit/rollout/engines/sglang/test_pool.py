"""Requests find the right server, and go past those that fail."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from kernels_eval.errors import InfrastructureError
from tasks.rollout.engines.sglang.generation import FailureKind, ServerError
from tasks.rollout.engines.sglang.pool import FAILURES_IN_A_ROW, Member, Pool


def pool_of(count: int, patience_s: float = 0.05, up: bool = True) -> Pool:
    pool = Pool([Member(f"http://{n}", None, 4) for n in range(count)], patience_s)
    for member in pool.members:
        if up:
            pool.mark_up(member)
    return pool


def failure(member: Member, kind: FailureKind = FailureKind.FAILED) -> ServerError:
    return ServerError(kind, member.url, "broken")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_a_trajectory_stays_where_it_is_and_others_go_to_the_least_busy() -> None:
    async def scenario() -> None:
        pool = pool_of(3)
        homes = {}
        for n in range(9):
            member = await pool.member_for(f"trajectory {n}")
            member.load += 1
            homes[n] = member
        assert [member.load for member in pool.members] == [3, 3, 3]
        for n, member in homes.items():
            assert await pool.member_for(f"trajectory {n}") is member

    run(scenario())


def test_samples_of_one_prompt_share_a_server_and_groups_are_spread() -> None:
    async def scenario() -> None:
        pool = pool_of(2)
        homes: dict[int, list[Member]] = {}
        for n in range(32):
            prompt = n // 8
            member = await pool.member_for(f"trajectory {n}", (1, 2, prompt))
            member.load += 1
            homes.setdefault(prompt, []).append(member)
        assert all(len({id(member) for member in group}) == 1 for group in homes.values())
        assert [member.load for member in pool.members] == [16, 16]

    run(scenario())


def test_a_server_that_has_the_prompt_and_is_much_busier_is_passed_over() -> None:
    async def scenario() -> None:
        pool = pool_of(2)
        for n in range(40):
            (await pool.member_for(f"trajectory {n}", (1, 2))).load += 1
        loads = [member.load for member in pool.members]
        assert sum(loads) == 40
        assert abs(loads[0] - loads[1]) <= 8

    run(scenario())


def test_a_prompt_s_server_that_is_down_or_has_new_weights_is_forgotten() -> None:
    async def scenario() -> None:
        pool = pool_of(2)
        first = await pool.member_for("one", (1, 2))
        pool.mark_down(first, "gone")
        second = await pool.member_for("two", (1, 2))
        assert second is not first
        pool.mark_up(first)
        assert await pool.member_for("three", (1, 2)) is second
        second.load += 1
        pool.clear_affinity()
        assert await pool.member_for("four", (1, 2)) is first

    run(scenario())


def test_the_next_attempt_goes_elsewhere_and_stays_there() -> None:
    async def scenario() -> None:
        pool = pool_of(2)
        first = await pool.member_for("t")
        second = await pool.member_for("t", avoid=first)
        assert second is not first
        assert await pool.member_for("t") is second

    run(scenario())


def test_one_server_is_asked_again() -> None:
    async def scenario() -> None:
        pool = pool_of(1)
        assert await pool.member_for("t", avoid=pool.members[0]) is pool.members[0]

    run(scenario())


@pytest.mark.parametrize("kind", [FailureKind.UNREACHABLE, FailureKind.STALE])
def test_one_failure_of_this_kind_takes_a_server_out(kind: FailureKind) -> None:
    async def scenario() -> None:
        pool = pool_of(2)
        pool.failed(pool.members[0], failure(pool.members[0], kind))
        assert [await pool.member_for(str(n)) for n in range(4)] == [pool.members[1]] * 4

    run(scenario())


def test_failures_in_a_row_take_a_server_out() -> None:
    pool = pool_of(2)
    member = pool.members[0]
    for _ in range(FAILURES_IN_A_ROW - 1):
        pool.failed(member, failure(member))
    assert member.is_up
    pool.failed(member, failure(member))
    assert not member.is_up
    pool.mark_up(member)
    assert member.is_up
    assert member.failures == 0


def test_requests_wait_for_a_server_to_come_back() -> None:
    async def scenario() -> None:
        pool = pool_of(2, patience_s=5, up=False)
        waiting = [asyncio.ensure_future(pool.member_for(str(n))) for n in range(3)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        pool.mark_up(pool.members[1])
        assert await asyncio.gather(*waiting) == [pool.members[1]] * 3

    run(scenario())


def test_nobody_waits_for_ever() -> None:
    pool = pool_of(2, patience_s=0.02, up=False)
    with pytest.raises(InfrastructureError, match=r"http://0: .*; http://1: "):
        run(pool.member_for("t"))


def test_nobody_waits_for_what_will_not_come() -> None:
    async def scenario() -> None:
        pool = pool_of(2, patience_s=60)
        waiting = None
        for member in pool.members:
            pool.mark_down(member, f"{member.url}: died twice", gave_up=True)
            waiting = waiting or asyncio.ensure_future(pool.member_for("t"))
            await asyncio.sleep(0)
        with pytest.raises(InfrastructureError, match="died twice"):
            await pool.member_for("u")

    run(scenario())
