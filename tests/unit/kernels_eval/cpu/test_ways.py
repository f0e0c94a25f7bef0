"""Configurations of autotuned kernels: which ones run, what their counts say, and which is the fastest."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.cost.launch import Launch
from kernels_eval.cpu.ways import MOST_RUNS, Way, autotuners, fastest, last_launches, pattern, ranked, ways_of
from kernels_eval.trace.schema import TRACING_ANSWER, TraceAnswer, Tuned

H100 = HARDWARE["h100"]


def tuned(kept: tuple[int, ...], used: int, tuner: int = 0, is_trial: bool = False) -> Tuned:
    return Tuned(tuner=tuner, used=used, kept=kept, name=f"BLOCK: {used}", is_trial=is_trial)


def program(*tags: Tuned | None, block: int = 64, warps: int = 4) -> TraceAnswer:
    """Return a program that launches a kernel for each tag, None for a kernel that no autotuner launches."""
    arguments = {"BLOCK": {"kind": "plain", "value": block}}
    commands = [
        {"kind": "launch", "kernel": 0, "arguments": arguments, "grid": [4, 1, 1], "options": {"num_warps": warps}}
        | {"tuned": tag.model_dump() if tag else None}
        for tag in tags
    ]
    raw = {"kind": "trace", "structure": "a tensor", "commands": commands, "outputs": []}
    answer = TRACING_ANSWER.validate_python(raw)
    assert isinstance(answer, TraceAnswer)
    return answer


def way(places: dict[int, int], dram: dict[int, float], is_steady: bool = True) -> Way:
    """Return a way that ran: for each autotuner, the place of its configuration and the bytes that it moves."""
    tags = [tuned((0, 1, 2), place, number) for number, place in places.items()]
    launches = [Launch(kernel="k", programs=1000, dram_bytes=dram[number]) for number in places]
    return Way(places, trace=program(*tags), launches=launches, is_steady=is_steady)


@given(
    kept=st.dictionaries(st.integers(0, 5), st.sets(st.integers(0, 60), min_size=2, max_size=50), min_size=1),
    source=st.text(max_size=20),
    data=st.data(),
)
def test_each_configuration_is_in_a_way_and_the_first_way_is_the_one_that_was_seen(
    kept: dict[int, set[int]], source: str, data: Any
) -> None:
    tuners = {
        number: tuned(tuple(places), data.draw(st.sampled_from(sorted(places)))) for number, places in kept.items()
    }
    ways = ways_of(tuners, source)
    assert ways == ways_of(tuners, source), "the same text, the same ways"
    assert ways[0] == {number: seen.used for number, seen in tuners.items()}
    assert len(ways) == min(max(map(len, kept.values())), MOST_RUNS + 1)
    for number, places in kept.items():
        met = {each[number] for each in ways}
        assert met <= places
        assert met == places or len(ways) == MOST_RUNS + 1


def test_which_of_very_many_configurations_run_depends_on_the_text() -> None:
    many = {0: tuned(tuple(range(200)), 0)}
    assert ways_of(many, "a") != ways_of(many, "b")


def test_without_a_choice_there_is_one_way_or_none() -> None:
    assert ways_of({}, "a") == []
    assert ways_of({0: tuned((2,), 2)}, "a") == [{0: 2}]
    assert ways_of({0: tuned((2, 2, 2), 2)}, "a") == [{0: 2}], "a program that repeats itself"


def test_autotuners_are_those_of_launches_whose_results_count() -> None:
    tried = tuned((0, 2), 0, tuner=3, is_trial=True)
    found = autotuners(program(None, tried, tuned((0, 2), 2, tuner=3), tuned((0, 2), 2, tuner=3), tuned((0, 1), 1)))
    assert {number: seen.used for number, seen in found.items()} == {3: 2, 0: 1}
    assert autotuners(program(None)) == {}
    assert autotuners(None) == {}


def test_options_of_the_compiler_are_no_part_of_what_a_way_computes() -> None:
    four = Way({0: 0}, trace=program(tuned((0, 1), 0), warps=4))
    eight = Way({0: 1}, trace=program(tuned((0, 1), 1), warps=8))
    assert pattern(four) == pattern(eight)
    assert pattern(four) != pattern(Way({0: 1}, trace=program(tuned((0, 1), 1), block=128)))


def test_the_fastest_configuration_of_each_autotuner_is_chosen_alone() -> None:
    ways = [
        way({0: 0, 1: 0}, {0: 9e9, 1: 1e9}),
        way({0: 1, 1: 1}, {0: 1e9, 1: 9e9}),
        way({0: 2, 1: 2}, {0: 5e9, 1: 5e9}),
    ]
    assert fastest(ways, H100) == {0: 1, 1: 0}


@pytest.mark.parametrize(("second", "chosen"), [(0.999e9, 0), (0.9e9, 1), (2e9, 0)])
def test_the_first_configuration_stays_unless_another_is_clearly_faster(second: float, chosen: int) -> None:
    assert fastest([way({0: 0}, {0: 1e9}), way({0: 1}, {0: second})], H100) == {0: chosen}


def test_a_configuration_that_did_not_run_is_not_chosen() -> None:
    unknown = Way({0: 1}, trace=program(tuned((0, 1), 1)))
    assert fastest([way({0: 0}, {0: 1e9}), unknown], H100) == {0: 0}
    assert ranked([way({0: 0}, {0: 1e9}), unknown], H100) == [way({0: 0}, {0: 1e9})]


def test_ways_are_ranked_by_time_and_only_where_their_run_speaks_for_the_full_size() -> None:
    ways = [way({0: 0}, {0: 3e9}), way({0: 1}, {0: 1e9}, is_steady=False), way({0: 2}, {0: 2e9})]
    assert [each.configurations for each in ranked(ways, H100)] == [{0: 2}, {0: 0}]


def launched(*names: str) -> list[Launch]:
    return [Launch(kernel=name, programs=number) for number, name in enumerate(names)]


def test_launches_of_hooks_before_a_kernel_are_left_out() -> None:
    counted = launched("aten.zero_", "aten.zero_", "k", "aten.copy_", "l")
    assert [each.programs for each in last_launches(counted, launched("k", "l")) or []] == [2, 4]
    assert last_launches(launched("l"), launched("k", "l")) is None
    assert last_launches(launched("l", "k"), launched("k", "l")) is None
    assert last_launches([], []) == []
