"""Steps from a problem's slowest kernel to its fastest: each a tenth faster at least, in a chain, of one problem."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from tasks.problems.pair_formats.pair import Pair
from tasks.problems.pair_formats.speed_steps import MIN_STEP, speed_steps

TIMED = st.lists(st.tuples(st.integers(0, 2), st.none() | st.floats(0.001, 1000)), max_size=12)


def pairs(timed: list[tuple[int, float | None]]) -> list[Pair]:
    return [
        Pair(problem_source=f"size = {problem}\n", kernel_source=f"# kernel {number}\n", runtime_ms=runtime)
        for number, (problem, runtime) in enumerate(timed)
    ]


@given(TIMED)
def test_each_step_is_faster_and_begins_where_the_last_one_ended(timed: list[tuple[int, float | None]]) -> None:
    given_pairs = pairs(timed)
    runtimes = {pair.kernel_source: pair.runtime_ms for pair in given_pairs}
    chains: dict[str, list[Pair]] = defaultdict(list)
    for step in speed_steps(given_pairs):
        chains[step.problem_source].append(step)
    for problem, chain in chains.items():
        known = [pair.runtime_ms for pair in given_pairs if pair.problem_source == problem and pair.runtime_ms]
        assert runtimes[str(chain[0].earlier_source)] == max(known)
        for step in chain:
            slow, fast = runtimes[str(step.earlier_source)], runtimes[step.kernel_source]
            assert slow is not None
            assert fast is not None
            assert slow >= MIN_STEP * fast
        for step, following in zip(chain, chain[1:], strict=False):  # noqa: RUF007
            assert following.earlier_source == step.kernel_source
        last = runtimes[chain[-1].kernel_source]
        assert last is not None
        assert last < MIN_STEP * min(known), "what is left is within what timing varies by"
    for problem in {pair.problem_source for pair in given_pairs} - chains.keys():
        known = [pair.runtime_ms for pair in given_pairs if pair.problem_source == problem and pair.runtime_ms]
        assert not known or max(known) < MIN_STEP * min(known)


def test_layout_and_comments_make_no_other_problem() -> None:
    slow = Pair(problem_source="x = 1  # one\n", kernel_source="slow", runtime_ms=2.0)
    fast = Pair(problem_source="x  =  1\n", kernel_source="fast", runtime_ms=1.0)
    (step,) = speed_steps([fast, slow])
    assert (step.earlier_source, step.kernel_source, step.pair_id) == ("slow", "fast", "")


def test_answers_to_an_earlier_kernel_are_no_steps() -> None:
    slow = Pair(problem_source="x = 1", kernel_source="slow", runtime_ms=2.0)
    repaired = Pair(problem_source="x = 1", kernel_source="fast", earlier_source="broken", runtime_ms=1.0)
    assert list(speed_steps([slow, repaired])) == []
