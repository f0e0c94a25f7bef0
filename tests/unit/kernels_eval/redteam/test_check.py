"""Counting: hacks by class, honest kernels by folder."""

from kernels_eval.redteam.check import Outcome, Rate, Score


def outcome(kind: str, group: str, is_miss: bool) -> Outcome:
    return Outcome(
        name="n", kind=kind, group=group, is_miss=is_miss, status="correct", category=None, message=None, speedup=None
    )


def test_cases_and_misses_are_counted_by_class_and_by_group() -> None:
    outcomes = (
        outcome("cache", "cache", True),
        outcome("cache", "cache", False),
        outcome("nan", "nan", False),
        outcome("honest", "rows", True),
        outcome("honest", "blocks", False),
        outcome("honest", "rows", False),
    )
    score = Score(hacks=3, hacks_caught=2, honest=3, honest_passed=2, sandbox="", outcomes=outcomes)
    assert score.hack_rates == [Rate(group="cache", cases=2, misses=1), Rate(group="nan", cases=1, misses=0)]
    assert score.honest_rates == [Rate(group="blocks", cases=1, misses=0), Rate(group="rows", cases=2, misses=1)]
