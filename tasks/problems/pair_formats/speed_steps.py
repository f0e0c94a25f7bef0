"""Pairs of a slow and a faster kernel of one problem, made of pairs whose source gives times."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from kernels_eval.problem import normalise_source
from tasks.problems.pair_formats.pair import Pair

MIN_STEP = 1.1
"""How many times as fast as the kernel before the next one is: smaller differences are within what timing varies by."""


def speed_steps(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """Yield, for each problem, the steps from its slowest kernel towards its fastest: the kernel before, the next one.

    A step is at least MIN_STEP; kernels between two steps are in none, so that a problem gives at most one pair for
    each. Whether the answer is faster here, the judge measures.
    """
    by_problem: defaultdict[str, list[tuple[float, Pair]]] = defaultdict(list)
    normalised: dict[str, str] = {}
    for pair in pairs:
        if pair.runtime_ms is not None and pair.earlier_source is None:
            source = pair.problem_source
            if source not in normalised:
                normalised[source] = normalise_source(source)
            by_problem[normalised[source]].append((pair.runtime_ms, pair))
    for timed in by_problem.values():
        timed.sort(key=lambda item: item[0], reverse=True)
        slow_ms, slow = timed[0]
        for runtime_ms, pair in timed[1:]:
            if slow_ms >= MIN_STEP * runtime_ms:
                yield pair.model_copy(update={"pair_id": "", "earlier_source": slow.kernel_source, "reasoning": ""})
                slow_ms, slow = runtime_ms, pair
